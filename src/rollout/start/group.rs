//! Whose turn it is by `spec.order`: nodes of one group at a time.

use super::limit::{Limit, Turn, Verdict};
use crate::blocker::Blocker;
use crate::node::state::PlanNodes;
use crate::open_waves::OpenWaves;
use crate::order::Group;
use crate::picture::PlanPicture;
use crate::plan::DerivedPlan;
use refit_facts::NodeName;

/// The group whose nodes may start. Without groups, all may.
pub(super) struct CurrentGroup<'a> {
    plan: &'a DerivedPlan,
    reach: OpenWaves,
    group: Option<&'a Group>,
    /// A node with a slot that is in another group. It must be done first, because only one group may lose nodes
    /// at a time.
    outside: Option<NodeName>,
}

impl<'a> CurrentGroup<'a> {
    pub(super) fn of(plan: &'a DerivedPlan, reach: OpenWaves, nodes: &PlanNodes) -> Self {
        let targets = &plan.targets;
        let group = targets
            .next_in_order(reach, nodes)
            .and_then(|first| targets.group(first));
        let is_outside = |node: &&NodeName| targets.group(node).is_some_and(|of| Some(of) != group);
        let with_slot = nodes.iter().filter(|(_, state)| !state.frees_slot);
        let outside = with_slot
            .map(|(name, _)| name)
            .filter(|_| group.is_some())
            .find(is_outside);
        Self {
            plan,
            reach,
            group,
            outside: outside.cloned(),
        }
    }

    /// Whether the node may start, as far as the order is concerned.
    pub(super) fn admits(&self, node: &str) -> bool {
        self.group.is_none() || (self.outside.is_none() && self.plan.targets.group(node) == self.group)
    }

    /// Why nodes of other groups wait: a node that is left, preferably one that needs a person.
    fn blocker(&self, nodes: &PlanNodes, picture: &PlanPicture) -> Option<Blocker> {
        let targets = &self.plan.targets;
        let is_left = |name: &&NodeName| match &self.outside {
            Some(outside) => *name == outside,
            None => targets.group(name) == self.group,
        };
        let failed = nodes
            .iter()
            .filter(|(_, state)| state.failed && !state.is_given_up())
            .map(|(name, _)| name);
        let stuck = failed
            .map(|name| (name, Some("it failed".to_owned())))
            .chain(
                picture
                    .nodes
                    .iter()
                    .map(|(name, why)| (name, Some(why.to_string()))),
            )
            .chain(
                targets
                    .not_ready()
                    .map(|name| (name, Some(Blocker::NodeNotReady.to_string()))),
            );
        let started = nodes.iter().filter(|(_, state)| !state.is_given_up());
        let started = started.map(|(name, _)| (name, None));
        let waiting = targets.next_in_order(self.reach, nodes).map(|name| (name, None));
        let (node, why) = stuck
            .chain(started)
            .chain(waiting)
            .find(|(name, _)| is_left(name))?;
        Some(Blocker::EarlierNodes {
            node: node.clone(),
            group: self.plan.selection.order.describe(targets.group(node)?),
            why,
        })
    }
}

impl<'a> Limit<'a> for CurrentGroup<'a> {
    fn admit(&mut self, turn: &mut Turn<'_, 'a>) -> Verdict {
        if self.admits(&turn.node.name) {
            return Verdict::Go;
        }
        // The nodes of a group come together, so none of its nodes is left to start.
        Verdict::stop_if(self.blocker(turn.nodes, turn.picture))
    }
}
