//! Room for a node: a slot, and room in the stored status, which names the node before its Job exists.

use super::limit::{Limit, Turn, Verdict};
use crate::blocker::Blocker;
use crate::node::state::{NodeState, PlanNodes};
use crate::status::SlotRoom;

pub(super) struct StatusRoom(SlotRoom);

impl StatusRoom {
    pub(super) fn of(nodes: &PlanNodes) -> Self {
        Self(SlotRoom::of(nodes))
    }
}

/// A free slot of `concurrency` or `maxConcurrent`.
pub(super) struct FreeSlot;

impl<'a> Limit<'a> for FreeSlot {
    fn admit(&mut self, turn: &mut Turn<'_, 'a>) -> Verdict {
        let limit = turn.plan.limit();
        Verdict::stop_if((turn.free <= 0).then_some(Blocker::NoSlot { limit }))
    }
}

impl<'a> Limit<'a> for StatusRoom {
    /// It is the last limit, so the node starts if there is room.
    fn admit(&mut self, turn: &mut Turn<'_, 'a>) -> Verdict {
        let attempt = turn.plan.next_attempt(turn.node);
        let starting = NodeState::starting(turn.plan.spec(), attempt, turn.node, turn.now);
        if self.0.take(&turn.node.name, &starting) {
            return Verdict::Go;
        }
        let slots = turn.nodes.len();
        Verdict::End(Blocker::StatusFull { slots })
    }
}
