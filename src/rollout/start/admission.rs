//! The limits that a node meets before it starts, in their order. A new limit is a file with its [`Limit`], and a line here.

use super::availability::Availability;
use super::busy::Busy;
use super::effective::Effective;
use super::group::CurrentGroup;
use super::joining::Joined;
use super::leaving::LeavingRoom;
use super::limit::{Limit, Turn, Verdict};
use super::of_all_plans::OfAllPlans;
use super::room::{FreeSlot, StatusRoom};
use super::skipped::Skipped;
use super::taints::Tolerations;
use super::versions::{AtVersion, VersionLimits};
use crate::node::state::PlanNodes;
use crate::plan::DerivedPlan;
use crate::pod_blockers::PodBlockers;
use crate::remediation::NodeLeases;
use crate::state::ClusterState;
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
        let mut limits = vec![boxed(AtVersion), boxed(group), boxed(Skipped), boxed(LeavingRoom)];
        limits.extend(availability.map(boxed));
        limits.extend([
            boxed(OfAllPlans),
            boxed(Joined::of(plan)),
            boxed(Busy),
            boxed(Effective),
        ]);
        limits.extend(VersionLimits::of(cluster, plan).map(boxed));
        limits.push(boxed(Tolerations::of(plan)));
        limits.extend(PodBlockers::of(cluster, plan).map(boxed));
        limits.extend(NodeLeases::of(plan).map(boxed));
        limits.push(boxed(StatusRoom::of(nodes)));
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
            boxed(FreeSlot),
            boxed(LeavingRoom),
            boxed(Busy),
            boxed(OfAllPlans),
        ];
        limits.extend(availability.map(boxed));
        limits.push(boxed(Tolerations::of(plan)));
        limits.extend(NodeLeases::of(plan).map(boxed));
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
