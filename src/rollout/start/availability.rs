//! `spec.maxUnavailable`: how many more nodes of a Plan may become unavailable.

use std::collections::BTreeSet;

use super::limit::{Limit, Turn, Verdict};
use super::locks::{DisruptionLocks, is_disturbed};
use crate::blocker::Blocker;
use crate::node::state::PlanNodes;
use crate::plan::DerivedPlan;
use crate::reservation;
use crate::state::ClusterState;
use crate::targets::TargetState;
use refit_facts::NodeName;

pub(super) struct Availability {
    limit: i64,
    /// Nodes that are unavailable, or are about to be because a Plan works on them: each once, whatever the reasons.
    unavailable: BTreeSet<NodeName>,
}

impl Availability {
    pub(super) fn of(plan: &DerivedPlan, nodes: &PlanNodes, locks: &DisruptionLocks<'_>) -> Option<Self> {
        let limit = plan.nodes_of(plan.spec().max_unavailable.as_ref()?);
        let is_selected =
            |name: &&NodeName| !matches!(plan.targets.state(name), None | Some(TargetState::Disabled));
        // A node that any Plan has begun to disrupt counts before its kubelet shows it, so that two Plans cannot both
        // use the last unit of the limit. A failed node without a slot counts only if it is unavailable.
        let with_slot = nodes.iter().filter(|(_, state)| !state.frees_slot);
        let with_slot = with_slot.map(|(name, _)| name);
        let reserved = reservation::reserved(locks.cluster);
        let worked_on = locks.worked_on().chain(reserved).filter(is_selected);
        let worked_on = worked_on.chain(with_slot);
        let unavailable = plan.targets.unavailable.iter().chain(worked_on);
        Some(Self {
            limit,
            unavailable: unavailable.cloned().collect(),
        })
    }

    /// Whether a node may start: one that is unavailable anyway always may. One to which another Plan has only given a slot
    /// may not: that start can still fail.
    fn admits(&self, cluster: &ClusterState, plan: &DerivedPlan, node: &NodeName) -> bool {
        let unavailable = i64::try_from(self.unavailable.len()).unwrap_or(i64::MAX);
        unavailable < self.limit || plan.targets.unavailable.contains(node) || is_disturbed(cluster, node)
    }

    /// Why no other node may start.
    fn blocker(&self, nodes: &PlanNodes) -> Blocker {
        let limit = self.limit;
        let is_other = |name: &&NodeName| nodes.get(*name).is_none_or(|state| state.frees_slot);
        let nodes: Vec<_> = self.unavailable.iter().filter(is_other).cloned().collect();
        if nodes.is_empty() {
            Blocker::NoSlot { limit }
        } else {
            Blocker::MaxUnavailable { limit, nodes }
        }
    }
}

impl<'a> Limit<'a> for Availability {
    fn admit(&mut self, turn: &mut Turn<'_, 'a>) -> Verdict {
        if self.admits(turn.cluster, turn.plan, &turn.node.name) {
            Verdict::Go
        } else {
            Verdict::Stop(self.blocker(turn.nodes))
        }
    }

    fn take(&mut self, node: &NodeName) {
        self.unavailable.insert(node.clone());
    }
}
