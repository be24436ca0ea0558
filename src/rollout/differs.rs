//! Done nodes whose kubelet does not have the version that the Plan installed there (`VersionDiffers`), and those that had
//! it and have gone back to an older one (`Drifted`), as a machine does that is re-imaged.
//!
//! The stored status is the memory. The write that drops a node's slot also gives it its entry if its kubelet differs, so a
//! done node that differs, and that the stored status has neither among its slots nor among its entries, had the version at that
//! write. After a restart nothing else is needed.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::blocker::Blocker;
use super::event::Event;
use super::later::{later, requeue};
use super::node::state::PlanNodes;
use super::picture::Differs;
use super::plan::DerivedPlan;
use super::state::ClusterState;
use super::step::{NodeChange, Step, patch};
use refit_api::text::seconds;
use refit_api::{OnDrift, Reason, VersionDiffers, names};
use refit_facts::NodeName;

/// Nodes in `status.versionDiffers`.
const MAX_ENTRIES: usize = 50;
/// Maximum number of nodes that are to run again per decision.
const RERUNS: usize = 32;

/// The done nodes whose kubelets differ, and when to look again.
pub(super) fn of(
    cluster: &ClusterState,
    plan: &DerivedPlan,
    nodes: &PlanNodes,
    now: Timestamp,
) -> (BTreeMap<NodeName, Differs>, Option<Timestamp>) {
    let mut again: Option<Timestamp> = None;
    let mut found = BTreeMap::new();
    for name in &plan.targets.differing {
        // A node that still has its slot is not over.
        let Some(node) = cluster
            .world
            .nodes
            .get(name)
            .filter(|_| !nodes.contains_key(name))
        else {
            continue;
        };
        let (since, reason) = known(plan, &node.uid).unwrap_or_else(|| {
            let is_older = plan
                .targets
                .claim
                .as_ref()
                .is_some_and(|claim| claim.is_newer_than(&node.kubelet));
            let has_drifted = is_older && had_version(plan, &node.uid);
            let reason = if has_drifted {
                Reason::Drifted
            } else {
                Reason::VersionDiffers
            };
            (now, reason)
        });
        let due = later(since, VersionDiffers::GRACE);
        if due > now {
            requeue(&mut again, due);
        }
        let differs = Differs {
            kubelet: node.kubelet.clone(),
            reason,
            is_certain: due <= now,
            uid: node.uid.to_string(),
            since,
        };
        found.insert(name.clone(), differs);
    }
    (found, again)
}

/// The stored entry of the machine at the current hash.
fn known(plan: &DerivedPlan, uid: &str) -> Option<(Timestamp, Reason)> {
    let entry = memory(plan)?.iter().find(|entry| entry.uid == *uid)?;
    Some((entry.since.parse().ok()?, entry.reason.as_ref()?.known()?))
}

/// Whether the kubelet had the version when the stored status was written.
fn had_version(plan: &DerivedPlan, uid: &str) -> bool {
    let had_slot = || {
        let mut slots = plan.facts.status().slots();
        slots.any(|slot| slot.uid.as_deref() == Some(uid))
    };
    // A full list says nothing about the nodes that it does not name.
    memory(plan).is_some_and(|entries| entries.len() < MAX_ENTRIES) && !had_slot()
}

/// The stored entries, if they are about the current hash. They are absent from a status of system-upgrade-controller, of an
/// earlier version of refit, and of a Plan that did not install Kubernetes before.
fn memory(plan: &DerivedPlan) -> Option<&[VersionDiffers]> {
    let (status, resolved) = (plan.facts.status(), plan.resolved.as_ref()?);
    let is_current = status.latest_hash.as_deref() == Some(&*resolved.hash);
    status.version_differs.as_deref().filter(|_| is_current)
}

/// `status.versionDiffers`. It is empty rather than absent if no node differs: that, too, is what later decisions need.
pub(super) fn status(plan: &DerivedPlan, found: &BTreeMap<NodeName, Differs>) -> Option<Vec<VersionDiffers>> {
    if !plan.spec().installs_kubernetes() {
        return None;
    }
    if plan.resolved.is_none() {
        return plan.facts.status().version_differs.clone();
    }
    let entry = |(name, it): (&NodeName, &Differs)| VersionDiffers {
        name: name.to_string(),
        uid: it.uid.clone(),
        kubelet_version: it.kubelet.to_string(),
        since: seconds(it.since),
        reason: Some(it.reason.into()),
    };
    Some(found.iter().take(MAX_ENTRIES).map(entry).collect())
}

/// The message of a complete Plan about its nodes that differ.
pub(super) fn text(version: &str, found: &BTreeMap<NodeName, Differs>) -> Option<String> {
    const NAMED: usize = 10;
    let mut certain = found.iter().filter(|(_, it)| it.is_certain);
    let named: Vec<_> = certain
        .by_ref()
        .take(NAMED)
        .map(|(name, it)| format!("{name} ({} {})", it.reason.name(), it.kubelet))
        .collect();
    if named.is_empty() {
        return None;
    }
    let more = match certain.count() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let named = named.join(", ");
    Some(format!(
        "kubelets with another version than {version}: {named}{more}"
    ))
}

/// Removes the labels of nodes that have drifted, if the Plan says so: then they are upgraded like any other node. A node that
/// the upgrade has not changed differs, and has not drifted, so this does not repeat itself.
pub(super) fn rerun(
    cluster: &ClusterState,
    plan: &DerivedPlan,
    gate: Option<&Blocker>,
    found: &BTreeMap<NodeName, Differs>,
) -> Vec<Step> {
    let is_wanted = plan.spec().on_drift == Some(OnDrift::Rerun);
    if !is_wanted || gate.is_some_and(|gate| !gate.permits_adoption()) {
        return Vec::new();
    }
    let (name, uid) = (&plan.facts.name, &plan.facts.uid);
    let version = plan.resolved.as_ref().map_or("", |resolved| &*resolved.version);
    // By the stored entry: a successor must find the same.
    let is_due =
        |it: &Differs| it.reason == Reason::Drifted && it.is_certain && known(plan, &it.uid).is_some();
    let due = found
        .iter()
        .filter(|(node, it)| is_due(it) && !cluster.world.nodes.is_unreadable(node));
    let due = due.filter_map(|(node, it)| Some((cluster.world.nodes.get(node)?, it)));
    let due = due.filter(|(node, _)| node.is_ready_and_untainted());
    let steps = due.take(RERUNS).map(|(node, it)| {
        let change = NodeChange::exact().label(names::plan_label(name), None);
        let text = format!(
            "Node {} has drifted: its kubelet has {}, and had {version}. The Plan runs there again (onDrift)",
            node.name, it.kubelet
        );
        let occurrence = format!("{}@{}", it.uid, it.since);
        let event = Event::plan(name, uid, Reason::Drifted, text, &occurrence);
        patch(node, change, vec![event])
    });
    steps.collect()
}
