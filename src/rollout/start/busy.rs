//! What keeps a Plan off a node whatever its other nodes do: the Node cannot be read, something else works on it, or the
//! control plane needs it.

use super::limit::{Limit, Turn, Verdict};
use crate::blocker::Blocker;

pub(super) struct Busy;

impl<'a> Limit<'a> for Busy {
    fn admit(&mut self, turn: &mut Turn<'_, 'a>) -> Verdict {
        let (cluster, plan, name) = (turn.cluster, turn.plan, &turn.node.name);
        if let Some((_, unreadable)) = cluster.world.nodes.unreadable(name) {
            let why = unreadable.why.clone();
            return Verdict::Skip(Blocker::NodeUnreadable { why });
        }
        let quorum = || turn.locks.quorums.blocker(cluster, plan, name);
        Verdict::skip_if(turn.locks.blocker(plan, name).or_else(quorum))
    }
}
