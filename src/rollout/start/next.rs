//! The nodes that start next: they pull the image in advance, or say that they are next.

use jiff::SignedDuration;

use super::Starter;
use super::joining::joining;
use super::taints::Tolerations;
use crate::blocker::Blocker;
use crate::later::requeue;
use crate::open_waves::OpenWaves;
use refit_facts::NodeName;

/// Maximum number of nodes of a Plan that are next.
const MAX_NEXT: usize = 32;
/// How long before a window nodes say that they are next.
const NEAR: SignedDuration = SignedDuration::from_hours(1);

impl Starter<'_, '_> {
    /// The first of these nodes that can start: as many as may be in progress at a time.
    pub(super) fn next_of<'n>(&self, turns: impl Iterator<Item = &'n NodeName>) -> Vec<NodeName> {
        let tolerations = Tolerations::of(self.plan);
        let is_fit = |name: &&NodeName| {
            let node = self.cluster.world.nodes.get(name);
            node.is_some_and(|node| {
                joining(self.cluster, &tolerations, node, self.now).is_none()
                    && tolerations.blocker(node).is_none()
            })
        };
        let at_version = &self.plan.targets.at_version;
        let next = turns
            .filter(|name| !self.nodes.contains_key(*name) && !at_version.contains(*name))
            .filter(is_fit);
        let most = usize::try_from(self.plan.limit()).unwrap_or_default();
        next.take(most.min(MAX_NEXT)).cloned().collect()
    }

    /// Notes the nodes that the next free slots go to. Those with a blocker of their own are not next, unless they are only
    /// being looked at.
    pub(super) fn note_next(&mut self, reach: OpenWaves) {
        if !self.cluster.defaults.node_conditions {
            return;
        }
        let is_looked_at =
            |why: &Blocker| matches!(why, Blocker::PodsPending { .. } | Blocker::LeasePending { .. });
        let turns = self.plan.targets.ready_in(reach);
        let turns = turns.filter(|name| self.picture.nodes.get(*name).is_none_or(is_looked_at));
        self.picture.next = self.next_of(turns);
    }

    /// Notes the nodes that start when the next window opens, if that is what keeps them, and soon.
    pub(super) fn note_next_for_window(&mut self, reach: OpenWaves, shut: &Blocker) {
        let opens = match shut {
            Blocker::NotBefore { at } => Some(*at),
            other => other.next_window(),
        };
        let Some(opens) = opens.filter(|_| self.cluster.defaults.node_conditions) else {
            return;
        };
        let near = opens.saturating_sub(NEAR).unwrap_or(opens);
        if self.now < near {
            requeue(&mut self.picture.requeue_at, near);
            return;
        }
        self.note_next(reach);
        self.picture.next_from = Some(opens);
    }
}
