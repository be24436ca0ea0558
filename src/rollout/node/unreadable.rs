//! A node whose Node object cannot be read. Nothing is known of its boot, its labels and its notes, so nothing is done
//! there; a slot stays what it is, and status says why.

use super::NodeReconciler;
use super::state::{NodeDecision, NodeState};
use crate::blocker::Blocker;
use crate::world::nodes::UnreadableNode;
use refit_api::{NodePhase, NodeProgress};
use refit_facts::NodeName;

impl NodeReconciler<'_> {
    pub(super) fn leave_alone(
        &self,
        name: &NodeName,
        unreadable: &UnreadableNode,
        stored_entry: Option<&NodeProgress>,
    ) -> NodeDecision {
        let known = self.cluster.world.nodes.get(name);
        let job = self.jobs_on(name).find(|job| job.is_live());
        let has_slot = stored_entry.is_some()
            || job.is_some()
            || known.is_some_and(|node| self.record(node).is_some())
            || self
                .cluster
                .memory
                .pending_creates
                .contains_key(&(self.plan.facts.name.clone(), name.clone()));
        if !has_slot {
            return NodeDecision::Cleanup(Vec::new());
        }
        let phase = stored_entry.and_then(|entry| entry.phase.known());
        let hostname = known.map_or(&**name, |node| node.hostname()).to_owned();
        let phase = phase.unwrap_or(NodePhase::Pending);
        let mut state = NodeState::bare(unreadable.uid.clone(), hostname, phase);
        if let Some(entry) = stored_entry {
            state.since = entry.since.as_deref().and_then(|since| since.parse().ok());
            state.job = entry.job.as_deref().map(Into::into);
            state.attempt = entry.attempt;
            state.boot = entry.boot_id.as_deref().map(Into::into);
            state.reason.clone_from(&entry.reason);
            state.message.clone_from(&entry.message);
        }
        state.job = state.job.or_else(|| job.map(|job| job.name.clone()));
        state.frees_slot = state.failed && self.plan.failed_nodes_free_slots();
        // The reason of a failure says more than that of a wait.
        if !state.failed {
            state.set_blocker(&Blocker::NodeUnreadable {
                why: unreadable.why.clone(),
            });
        }
        NodeDecision::slot(state)
    }
}
