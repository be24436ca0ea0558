//! The maximum number of control-plane nodes, and of etcd members, that were down at once.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::Serialize;

use crate::record::{Roles, TAKEN_DOWN, peak};
use crate::run::Outcome;

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
    /// Number of etcd members: nodes with the etcd role, or else all control-plane nodes, except of K3s and RKE2.
    pub etcd_members: usize,
    /// Maximum number of members that were down at once.
    pub etcd_most_down: usize,
    /// Whether a majority of the etcd members was not available.
    pub loses_quorum: bool,
}

/// `None` if no control-plane node was upgraded.
pub(super) fn report(outcome: &Outcome) -> Option<ControlPlaneReport> {
    let roles = Roles::of(outcome.nodes().map(|(_, node)| &node.facts));
    let peak_of = |nodes: &BTreeSet<&str>| {
        let plans = outcome.plans.iter();
        let outages = plans.flat_map(|plan| outcome.record.outages(&plan.name, TAKEN_DOWN, outcome.seen));
        let lost = outcome.not_ready.iter().map(String::as_str);
        let lost: BTreeSet<&str> = lost.filter(|node| nodes.contains(node)).collect();
        peak(outages.filter(|one| nodes.contains(one.node)), &lost)
    };
    let peak = peak_of(&roles.control)?;
    let etcd_down = peak_of(&roles.etcd).map_or(0, |peak| peak.down.len());
    let owned = |names: &BTreeSet<&str>| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let is_lost = |node: &&str| outcome.not_ready.contains(*node);
    let not_ready: BTreeSet<&str> = peak.down.iter().copied().filter(is_lost).collect();
    Some(ControlPlaneReport {
        nodes: roles.control.len(),
        most_down: peak.down.len(),
        at: Some(peak.at),
        down: owned(&peak.down),
        not_ready: owned(&not_ready),
        plans: owned(&peak.plans),
        etcd_members: roles.etcd.len(),
        etcd_most_down: etcd_down,
        // n members tolerate (n - 1) / 2 failures. A single member is always down during its own upgrade.
        loses_quorum: roles.etcd.len() > 1 && etcd_down > (roles.etcd.len() - 1) / 2,
    })
}
