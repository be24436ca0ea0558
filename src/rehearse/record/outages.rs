//! How many nodes were down at once.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::Recorder;
use refit_api::NodePhase;
use refit_base::version::{Version, has_builds};
use refit_facts::NodeFacts;

/// Phases in which the components of a node may be down.
pub const TAKEN_DOWN: &[NodePhase] = &[NodePhase::Upgrading, NodePhase::Rebooting];
/// Phases in which a node is out of service: from the cordon on.
pub const WORKED_ON: &[NodePhase] = &[
    NodePhase::Cordoning,
    NodePhase::Draining,
    NodePhase::Upgrading,
    NodePhase::Finishing,
    NodePhase::Rebooting,
    NodePhase::Settling,
    NodePhase::Verifying,
];
const CONTROL_PLANE: [&str; 2] = [
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/master",
];
/// On a real cluster, an end is observed so much later at most, and a beginning is known by the second.
const LATE: SignedDuration = SignedDuration::from_secs(2);
const ETCD: &str = "node-role.kubernetes.io/etcd";

/// The nodes of the control plane, and the members of etcd, by their labels.
#[derive(Clone, Debug, Default)]
pub struct Roles<'n> {
    pub control: BTreeSet<&'n str>,
    /// Nodes with the role etcd, or else all of the control plane, unless they are of K3s or RKE2: these set the role on each
    /// node that runs etcd, and K3s can do with a database instead.
    pub etcd: BTreeSet<&'n str>,
}

impl<'n> Roles<'n> {
    pub fn of(nodes: impl Iterator<Item = &'n NodeFacts>) -> Self {
        let (mut control, mut etcd) = (BTreeSet::new(), BTreeSet::new());
        let mut has_database = false;
        for node in nodes {
            let has = |role: &str| node.labels.get(role).is_some();
            let (name, is_member) = (&*node.name, has(ETCD));
            // Dedicated etcd nodes affect the API server too.
            if is_member || CONTROL_PLANE.into_iter().any(has) {
                control.insert(name);
                let kubelet = node.kubelet.parse::<Version>();
                has_database |= kubelet.is_ok_and(|kubelet| kubelet.builder().is_some_and(has_builds));
            }
            if is_member {
                etcd.insert(name);
            }
        }
        if etcd.is_empty() && !has_database {
            etcd.clone_from(&control);
        }
        Self { control, etcd }
    }
}

/// A time in which a Plan may take a node down.
#[derive(Clone, Copy, Debug)]
pub struct Outage<'r> {
    pub node: &'r str,
    pub plan: &'r str,
    from: Timestamp,
    until: Timestamp,
}

/// When most nodes were down, which, and what worked on them.
#[derive(Clone, Debug)]
pub struct Peak<'r> {
    pub at: Timestamp,
    pub down: BTreeSet<&'r str>,
    pub plans: BTreeSet<&'r str>,
}

impl Recorder {
    /// The times that nodes of a Plan spent in these phases. `end` is when observation ended.
    pub fn outages<'r>(
        &'r self,
        plan: &'r str,
        phases: &'r [NodePhase],
        end: Timestamp,
    ) -> impl Iterator<Item = Outage<'r>> {
        let late = if self.is_live { LATE } else { SignedDuration::ZERO };
        self.node_runs(plan).flat_map(move |(node, run)| {
            let spans = run.phases.iter().filter(|span| {
                let phase = span.phase.known();
                phase.is_some_and(|phase| phases.contains(&phase))
            });
            spans.map(move |span| Outage {
                node,
                plan,
                from: span.since,
                until: span
                    .until
                    .or(run.until)
                    .unwrap_or(end)
                    .saturating_sub(late)
                    .unwrap_or(span.since),
            })
        })
    }
}

/// The first time at which most of the nodes were down. Those that are `lost` are down anyway.
pub fn peak<'r>(outages: impl Iterator<Item = Outage<'r>>, lost: &BTreeSet<&'r str>) -> Option<Peak<'r>> {
    // An outage that ends when another begins does not overlap it: ends are sorted first.
    let mut changes: BTreeMap<(Timestamp, bool), Vec<Outage<'r>>> = BTreeMap::new();
    for outage in outages.filter(|one| one.from < one.until) {
        changes.entry((outage.from, true)).or_default().push(outage);
        changes.entry((outage.until, false)).or_default().push(outage);
    }
    let mut open: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let mut best: Option<Peak<'r>> = None;
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
