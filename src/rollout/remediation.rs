//! `spec.pauseRemediation`: while a Plan works on a node, remediation operators leave it alone. The annotation
//! `refit.rs/remediation` of the Node is written first, together with the label, then the Lease is taken, then the Job is
//! created; on the way back the annotation is removed last. So whoever leads finds by it what is to be renewed or taken
//! back, whatever has become of the Plan.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::blocker::Blocker;
use super::decision::Decision;
use super::memory::answers::{LeaseCheck, LeaseState};
use super::node::state::NodeStates;
use super::picture::Ask;
use super::plan::DerivedPlan;
use super::start::gate::Gates;
use super::start::limit::{INTERVAL, Turn, Verdict};
use super::state::ClusterState;
use super::step::{Key, NodeChange, Query, RemediationStep, Step, patch};
use super::{release, reservation};
use crate::later::later;
use refit_api::remediation::holder;
use refit_api::{NodeMark, RemediationPause, names};
use refit_facts::{NodeFacts, NodeName, PlanName, Text};

/// How often a Lease is looked at that this controller holds. It lasts an hour, and is renewed in its second half.
const LOOK: SignedDuration = SignedDuration::from_mins(10);
/// How often one is looked at that another one has taken meanwhile.
const RETRY: SignedDuration = SignedDuration::from_secs(30);

fn own_holder(cluster: &ClusterState) -> String {
    holder(&cluster.defaults.namespace, &cluster.defaults.job.controller_name)
}

/// The pause of a node by this controller.
fn own_pause<'n>(cluster: &ClusterState, node: &'n NodeFacts) -> Option<&'n RemediationPause> {
    let pause = node.remediation.as_deref();
    pause.filter(|pause| pause.holder == own_holder(cluster))
}

/// Whether this controller keeps remediation operators off the node.
pub(super) fn is_paused(cluster: &ClusterState, node: &NodeFacts) -> bool {
    own_pause(cluster, node).is_some()
}

/// What is known of the Lease of a node.
fn known<'c>(cluster: &'c ClusterState, node: &NodeFacts) -> Option<&'c LeaseCheck> {
    let check = cluster.memory.answers.leases.get(&node.name);
    check.filter(|check| check.node_uid == node.uid)
}

fn held_by_another(node: &NodeFacts, state: &LeaseState) -> Option<Blocker> {
    match state {
        LeaseState::Held { holder, until } => Some(Blocker::NodeLeased {
            node: node.name.clone(),
            holder: holder.clone(),
            until: *until,
        }),
        LeaseState::Free | LeaseState::Ours | LeaseState::Released => None,
    }
}

/// The limit of a Plan that takes Leases: nodes whose Lease another one holds do not start.
pub(super) fn leased(turn: &mut Turn<'_, '_>) -> Verdict {
    let node = turn.node;
    let known = known(turn.cluster, node);
    // Another Plan works there.
    if known.is_some_and(|check| check.state == LeaseState::Ours) {
        return Verdict::Go;
    }
    // Whoever waited for it may have it now.
    let known = known.filter(|check| check.state != LeaseState::Released);
    let held = |check: &LeaseCheck| Some((held_by_another(node, &check.state)?, INTERVAL));
    let known = known.map(|check| (check.seen, held(check)));
    let name = &node.name;
    turn.ask(
        known,
        Ask::Lease(name.clone()),
        &Key::Remediation(name.clone()),
        |why| Blocker::LeasePending {
            node: name.clone(),
            why,
        },
    )
}

/// Reads the Lease of a node.
pub(super) fn query(cluster: &ClusterState, node: &NodeName) -> Option<Step> {
    let node = cluster.world.nodes.get(node)?;
    Some(Step::Query(Query::ReadLease {
        node: node.name.clone(),
        uid: node.uid.clone(),
        holder: own_holder(cluster).as_str().into(),
    }))
}

/// Why no Job of the Plan may be created on a node that has its slot: remediation operators do not leave it alone yet.
pub(super) fn blocker(cluster: &ClusterState, plan: &DerivedPlan, node: &NodeFacts) -> Option<Blocker> {
    if !plan.pauses_remediation() {
        return None;
    }
    let known = known(cluster, node);
    if is_paused(cluster, node) && known.is_some_and(|check| check.state == LeaseState::Ours) {
        return None;
    }
    let held = known.and_then(|check| held_by_another(node, &check.state));
    held.or_else(|| {
        let key = if is_paused(cluster, node) {
            Key::Remediation(node.name.clone())
        } else {
            Key::Node(node.name.clone())
        };
        let failure = cluster.memory.failures.get(&key);
        Some(Blocker::LeasePending {
            node: node.name.clone(),
            why: failure.map(|failure| failure.message.clone()),
        })
    })
}

/// Steps that pause the remediation of nodes and resume it. Without the states of nodes the pauses are only renewed.
/// `gates` are why Plans start no nodes.
pub(super) fn add_steps(
    cluster: &ClusterState,
    states: Option<(&NodeStates, &BTreeMap<PlanName, Gates>)>,
    now: Timestamp,
    decision: &mut Decision,
) {
    let plans = cluster.plans.iter().filter(|(_, plan)| plan.pauses_remediation());
    let plans: Vec<_> = plans.collect();
    let mut nodes: BTreeSet<&NodeName> = cluster.world.nodes.paused.iter().collect();
    let of_plans = states.iter().flat_map(|(states, _)| {
        let of_plans = plans.iter().filter_map(|(name, _)| states.get(*name));
        of_plans.flatten().map(|(node, _)| node)
    });
    nodes.extend(of_plans);
    for name in nodes {
        let node = cluster.world.nodes.get(name);
        let Some(node) = node.filter(|_| !cluster.world.nodes.is_unreadable(name)) else {
            continue;
        };
        let own = own_pause(cluster, node);
        let is_needed = states.is_none_or(|(states, gates)| {
            let needs = |plan: &DerivedPlan| {
                release::is_needed(Some(states), node, plan) && !yields(cluster, states, node, plan)
            };
            // Of a Plan that has lost its fields, or must be read again, nothing is known.
            let is_unknown = |name: &PlanName| {
                let gate = gates.get(name).and_then(|gates| gates.of_all.shut.as_ref());
                matches!(gate, Some(Blocker::NotReady | Blocker::SpecPruned))
            };
            let keeps = || {
                let mut unknown = cluster.plans.iter().filter(|(name, _)| is_unknown(name));
                // The pod may be of a deleted Plan, whose node is released once none of them is left.
                unknown.any(|(_, plan)| needs(plan)) || cluster.world.pods.live_on(name).next().is_some()
            };
            plans.iter().any(|(_, plan)| needs(plan)) || own.is_some() && keeps()
        });
        match (own, is_needed) {
            (None, true) => take(cluster, node, now, decision),
            (Some(_), true) => renew(cluster, node, now, decision),
            (Some(own), false) => decision.steps.push(resume(cluster, node, own)),
            (None, false) => {}
        }
    }
}

/// Whether a Plan leaves the node to another object that wants it, such as a `NodeMaintenance`, which waits for the Lease:
/// nothing of the Plan runs there.
fn yields(cluster: &ClusterState, states: &NodeStates, node: &NodeFacts, plan: &DerivedPlan) -> bool {
    let state = states
        .get(&plan.facts.name)
        .and_then(|nodes| nodes.get(&node.name));
    let is_idle = state.is_none_or(|state| state.failed || state.start.is_some());
    is_idle && reservation::reserved_by(cluster, &node.name).is_some()
}

/// Begins to pause the remediation of a node. The Lease decides between controllers: the annotation of another one is of an
/// earlier time, unless that one holds the Lease.
fn take(cluster: &ClusterState, node: &NodeFacts, now: Timestamp, decision: &mut Decision) {
    let known = known(cluster, node).map(|check| (check.seen, &check.state));
    match known {
        Some((seen, LeaseState::Held { .. })) => {
            let due = later(seen, RETRY);
            if due > now {
                decision.requeue(due);
            } else {
                decision.steps.extend(query(cluster, &node.name));
            }
        }
        None if node.remediation.is_some() => decision.steps.extend(query(cluster, &node.name)),
        _ => decision.steps.push(pause(node, own_holder(cluster))),
    }
}

/// Marks the Node.
fn pause(node: &NodeFacts, holder: String) -> Step {
    let key = NodeMark::ExcludeFromRemediation.key();
    let is_there = node.labels.get(key).is_some();
    let label = node
        .remediation
        .as_ref()
        .map_or(!is_there, |earlier| earlier.label);
    let text = RemediationPause { holder, label }.to_text();
    let mut change = NodeChange::exact().annotate(names::ANNOTATION_REMEDIATION, Some(text));
    if label && !is_there {
        change = change.label(key, Some(NodeMark::VALUE.to_owned()));
    }
    patch(node, change, Vec::new())
}

fn renew(cluster: &ClusterState, node: &NodeFacts, now: Timestamp, decision: &mut Decision) {
    let due = known(cluster, node).and_then(|check| {
        let time = match check.state {
            LeaseState::Ours => LOOK,
            LeaseState::Held { .. } => RETRY,
            LeaseState::Free | LeaseState::Released => return None,
        };
        Some(later(check.seen, time))
    });
    match due.filter(|due| *due > now) {
        Some(due) => decision.requeue(due),
        None => decision.steps.push(Step::Remediation(RemediationStep {
            node: node.name.clone(),
            uid: node.uid.clone(),
            holder: Text::from(own_holder(cluster).as_str()),
            pause: true,
        })),
    }
}

fn resume(cluster: &ClusterState, node: &NodeFacts, own: &RemediationPause) -> Step {
    if known(cluster, node).is_none_or(|check| check.state != LeaseState::Released) {
        return Step::Remediation(RemediationStep {
            node: node.name.clone(),
            uid: node.uid.clone(),
            holder: own.holder.as_str().into(),
            pause: false,
        });
    }
    let mut change = NodeChange::exact().annotate(names::ANNOTATION_REMEDIATION, None);
    let key = NodeMark::ExcludeFromRemediation.key();
    if own.label && node.labels.get(key) == Some(NodeMark::VALUE) {
        change = change.label(key, None);
    }
    patch(node, change, Vec::new())
}
