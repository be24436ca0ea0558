//! Slots that are in use by a deleted Plan of the same name, whose Jobs and pods still run.

use super::limit::{Limit, Turn, Verdict};

pub(super) struct LeavingRoom;

impl<'a> Limit<'a> for LeavingRoom {
    fn admit(&mut self, turn: &mut Turn<'_, 'a>) -> Verdict {
        let blocker = turn
            .locks
            .room_blocker(turn.plan, turn.nodes, turn.free, &turn.node.name);
        Verdict::stop_if(blocker)
    }
}
