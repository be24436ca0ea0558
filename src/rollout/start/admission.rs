//! The limits that a node meets before it starts, in their order. A new limit is a function, or a type with [`Limit`] if it
//! has something to remember, and a line here.

use super::availability::Availability;
use super::group::CurrentGroup;
use super::joining::Joined;
use super::limit::{Limit, Turn, Verdict};
use super::skipped::skipped;
use super::taints::Tolerations;
use super::versions::{VersionLimits, at_version};
use crate::blocker::Blocker;
use crate::node::state::{NodeState, PlanNodes};
use crate::plan::DerivedPlan;
use crate::pod_blockers::PodBlockers;
use crate::remediation;
use crate::state::ClusterState;
use crate::status::SlotRoom;
use refit_facts::NodeName;

/// The limits of a Plan, in the order in which a node meets them.
pub(super) struct Limits<'a>(Vec<Box<dyn Limit<'a> + 'a>>);

impl<'a> Limits<'a> {
    /// Those of a node that starts.
    pub(super) fn of_start(
        cluster: &'a ClusterState,
        plan: &'a DerivedPlan,
        nodes: &PlanNodes,
        group: CurrentGroup<'a>,
        availability: Option<Availability>,
    ) -> Self {
        let mut limits = vec![boxed(at_version), boxed(group), boxed(skipped), boxed(leaving)];
        limits.extend(availability.map(boxed));
        limits.extend([
            boxed(of_all_plans),
            boxed(Joined::of(plan)),
            boxed(busy),
            boxed(effective),
        ]);
        limits.extend(VersionLimits::of(cluster, plan).map(boxed));
        limits.push(boxed(Tolerations::of(plan)));
        limits.extend(PodBlockers::of(cluster, plan).map(boxed));
        limits.extend(plan.pauses_remediation().then(|| boxed(remediation::leased)));
        limits.push(boxed(SlotRoom::of(nodes)));
        Self(limits)
    }

    /// Those of a failed node that is tried again, and has no slot.
    pub(super) fn of_retry(
        plan: &'a DerivedPlan,
        group: CurrentGroup<'a>,
        availability: Option<Availability>,
    ) -> Self {
        let mut limits = vec![
            boxed(group),
            boxed(free_slot),
            boxed(leaving),
            boxed(busy),
            boxed(of_all_plans),
        ];
        limits.extend(availability.map(boxed));
        limits.push(boxed(Tolerations::of(plan)));
        limits.extend(plan.pauses_remediation().then(|| boxed(remediation::leased)));
        Self(limits)
    }

    /// The first verdict that is not [`Verdict::Go`].
    pub(super) fn admit(&mut self, turn: &mut Turn<'_, 'a>) -> Verdict {
        let mut verdicts = self.0.iter_mut().map(|limit| limit.admit(turn));
        let held = verdicts.find(|verdict| !matches!(verdict, Verdict::Go));
        held.unwrap_or(Verdict::Go)
    }

    pub(super) fn take(&mut self, node: &NodeName) {
        self.0.iter_mut().for_each(|limit| limit.take(node));
    }
}

fn boxed<'a>(limit: impl Limit<'a> + 'a) -> Box<dyn Limit<'a> + 'a> {
    Box::new(limit)
}

/// Slots that are in use by a deleted Plan of the same name, whose Jobs and pods still run.
fn leaving(turn: &mut Turn<'_, '_>) -> Verdict {
    let locks = &turn.locks;
    Verdict::stop_if(locks.room_blocker(turn.plan, turn.nodes, turn.free, &turn.node.name))
}

/// The limits of the `ConfigMap` `refit`, which all Plans share.
fn of_all_plans(turn: &mut Turn<'_, '_>) -> Verdict {
    Verdict::stop_if(turn.locks.cluster_limits.blocker(&turn.node.name))
}

/// What keeps a Plan off a node whatever its other nodes do: the Node cannot be read, something else works on it, or the
/// control plane needs it.
fn busy(turn: &mut Turn<'_, '_>) -> Verdict {
    let (cluster, plan, name) = (turn.cluster, turn.plan, &turn.node.name);
    if let Some((_, unreadable)) = cluster.world.nodes.unreadable(name) {
        let why = unreadable.why.clone();
        return Verdict::Skip(Blocker::NodeUnreadable { why });
    }
    let quorum = || turn.locks.quorums.blocker(cluster, plan, name);
    Verdict::skip_if(turn.locks.blocker(plan, name).or_else(quorum))
}

/// Whether a reboot helps: a node that has rebooted and needs a reboot for the same reason as before would reboot for ever.
fn effective(turn: &mut Turn<'_, '_>) -> Verdict {
    let request = turn.plan.selection.reboot_needed.and(turn.node.needed_reboot());
    let survived = request.filter(|request| request.survived > 0);
    Verdict::skip_if(survived.map(|request| Blocker::RebootIneffective {
        why: request.to_string(),
    }))
}

/// A free slot of `concurrency` or `maxConcurrent`.
fn free_slot(turn: &mut Turn<'_, '_>) -> Verdict {
    let limit = turn.plan.limit();
    Verdict::stop_if((turn.free <= 0).then_some(Blocker::NoSlot { limit }))
}

/// Room in the stored status, which names the node before its Job exists.
impl<'a> Limit<'a> for SlotRoom {
    /// It is the last limit, so the node starts if there is room.
    fn admit(&mut self, turn: &mut Turn<'_, 'a>) -> Verdict {
        let attempt = turn.plan.next_attempt(turn.node);
        let starting = NodeState::starting(turn.plan.spec(), attempt, turn.node, turn.now);
        if Self::take(self, &turn.node.name, &starting) {
            return Verdict::Go;
        }
        let slots = turn.nodes.len();
        Verdict::End(Blocker::StatusFull { slots })
    }
}
