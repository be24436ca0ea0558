//! The limits of the `ConfigMap` `refit`, for a node whose turn has come.

use super::limit::{Limit, Turn, Verdict};

/// The limits of the `ConfigMap` `refit`, which all Plans share.
pub(super) struct OfAllPlans;

impl<'a> Limit<'a> for OfAllPlans {
    fn admit(&mut self, turn: &mut Turn<'_, 'a>) -> Verdict {
        Verdict::stop_if(turn.locks.cluster_limits.blocker(&turn.node.name))
    }
}
