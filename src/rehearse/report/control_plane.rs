//! The maximum number of control-plane nodes, and of etcd members, that were down at once.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::Serialize;

use crate::run::Outcome;
use refit_api::NodePhase;

/// Phases in which the components of a node may be down.
const DOWN: [NodePhase; 2] = [NodePhase::Upgrading, NodePhase::Rebooting];
const CONTROL_PLANE: [&str; 2] = [
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/master",
];
const ETCD: &str = "node-role.kubernetes.io/etcd";

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ControlPlaneReport {
    pub nodes: usize,
    /// Maximum number that were down at once: upgrading, rebooting, or not Ready from the start.
    pub most_down: usize,
    /// When that number was first reached.
    pub at: Option<Timestamp>,
    /// The nodes that were down then.
    pub down: Vec<String>,
    /// Those of them that were not Ready before the roll-out.
    pub not_ready: Vec<String>,
    /// Plans that worked on them.
    pub plans: Vec<String>,
    /// Number of etcd members: nodes with the etcd role, or else all control-plane nodes.
    pub etcd_members: usize,
    /// Maximum number of members that were down at once.
    pub etcd_most_down: usize,
    /// Whether a majority of the etcd members was not available.
    pub loses_quorum: bool,
}

/// A time in which a Plan may take a node down.
struct Outage<'o> {
    node: &'o str,
    plan: &'o str,
    from: Timestamp,
    until: Timestamp,
}

struct Peak<'o> {
    at: Timestamp,
    down: BTreeSet<&'o str>,
    plans: BTreeSet<&'o str>,
}

/// `None` if no control-plane node was upgraded.
pub(super) fn report(outcome: &Outcome) -> Option<ControlPlaneReport> {
    let with = |roles: &[&str]| -> BTreeSet<&str> {
        let nodes = outcome.nodes.iter();
        let nodes = nodes.filter(|(_, labels)| roles.iter().any(|role| labels.contains_key(*role)));
        nodes.map(|(name, _)| name.as_str()).collect()
    };
    let etcd = with(&[ETCD]);
    let mut control = with(&CONTROL_PLANE);
    // Dedicated etcd nodes affect the API server too.
    control.extend(&etcd);
    let etcd = if etcd.is_empty() { control.clone() } else { etcd };
    let outages = outages(outcome);
    let peak = peak(outcome, &outages, &control)?;
    let etcd_down = self::peak(outcome, &outages, &etcd).map_or(0, |peak| peak.down.len());
    let owned = |names: &BTreeSet<&str>| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let not_ready: BTreeSet<&str> = peak
        .down
        .iter()
        .copied()
        .filter(|node| outcome.not_ready.contains(*node))
        .collect();
    Some(ControlPlaneReport {
        nodes: control.len(),
        most_down: peak.down.len(),
        at: Some(peak.at),
        down: owned(&peak.down),
        not_ready: owned(&not_ready),
        plans: owned(&peak.plans),
        etcd_members: etcd.len(),
        etcd_most_down: etcd_down,
        // n members tolerate (n - 1) / 2 failures. A single member is always down during its own upgrade.
        loses_quorum: etcd.len() > 1 && etcd_down > (etcd.len() - 1) / 2,
    })
}

fn outages(outcome: &Outcome) -> Vec<Outage<'_>> {
    let plans = outcome.plans.iter();
    let turns = plans.flat_map(|plan| {
        let turns = outcome.record.node_runs(plan.name());
        turns.map(move |(node, turn)| (plan.name(), node, turn))
    });
    turns
        .flat_map(|(plan, node, turn)| {
            let phases = turn.phases.iter().filter(|phase_span| {
                phase_span
                    .phase
                    .known()
                    .is_some_and(|phase| DOWN.contains(&phase))
            });
            phases.map(move |phase_span| Outage {
                node,
                plan,
                from: phase_span.since,
                until: phase_span.until.or(turn.until).unwrap_or(outcome.seen),
            })
        })
        .collect()
}

/// When most of these nodes were down, and which.
fn peak<'o>(outcome: &'o Outcome, outages: &[Outage<'o>], nodes: &BTreeSet<&str>) -> Option<Peak<'o>> {
    let of_nodes: Vec<&Outage<'_>> = outages.iter().filter(|one| nodes.contains(one.node)).collect();
    // An outage that ends when another begins does not overlap it: ends are sorted first.
    let mut changes: BTreeMap<(Timestamp, bool), Vec<&Outage<'_>>> = BTreeMap::new();
    for outage in of_nodes.into_iter().filter(|one| one.from < one.until) {
        changes.entry((outage.from, true)).or_default().push(outage);
        changes.entry((outage.until, false)).or_default().push(outage);
    }
    let lost: BTreeSet<&str> = outcome
        .not_ready
        .iter()
        .map(String::as_str)
        .filter(|node| nodes.contains(node))
        .collect();
    let mut open: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let mut best: Option<Peak<'_>> = None;
    for ((at, begins), outages) in changes {
        for outage in outages {
            let count = open.entry((outage.node, outage.plan)).or_default();
            *count = if begins {
                *count + 1
            } else {
                count.saturating_sub(1)
            };
        }
        if !begins {
            open.retain(|_, count| *count > 0);
            continue;
        }
        let down: BTreeSet<&str> = open
            .keys()
            .map(|(node, _)| *node)
            .chain(lost.iter().copied())
            .collect();
        if best.as_ref().is_none_or(|best| best.down.len() < down.len()) {
            let plans = open.keys().map(|(_, plan)| *plan).collect();
            best = Some(Peak { at, down, plans });
        }
    }
    best
}
