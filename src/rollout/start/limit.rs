//! What a limit says of a node whose turn has come. `admission` has the list of all limits.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::locks::DisruptionLocks;
use crate::blocker::Blocker;
use crate::node::state::NodeState;
use crate::picture::PlanPicture;
use crate::plan::DerivedPlan;
use crate::state::ClusterState;
use refit_facts::{NodeFacts, NodeName};

/// What a limit says of a node.
pub(crate) enum Verdict {
    Go,
    /// The node waits for something of its own, and others may start.
    Skip(Blocker),
    /// There is no room. Later nodes may not overtake it, except for those that take none.
    Stop(Blocker),
    /// No other node is looked at now.
    End(Blocker),
}

impl Verdict {
    pub(crate) fn skip_if(blocker: Option<Blocker>) -> Self {
        blocker.map_or(Self::Go, Self::Skip)
    }

    pub(crate) fn stop_if(blocker: Option<Blocker>) -> Self {
        blocker.map_or(Self::Go, Self::Stop)
    }
}

/// A node whose turn has come.
pub(crate) struct Turn<'t, 'a> {
    pub(crate) cluster: &'a ClusterState,
    pub(crate) plan: &'a DerivedPlan,
    pub(crate) node: &'a NodeFacts,
    /// The nodes of the Plan that have started.
    pub(crate) nodes: &'t BTreeMap<NodeName, NodeState>,
    pub(crate) locks: &'t DisruptionLocks<'a>,
    /// The number of free slots.
    pub(crate) free: i64,
    pub(crate) now: Timestamp,
    /// Why other nodes wait.
    pub(crate) picture: &'t mut PlanPicture,
}

pub(crate) trait Limit<'a> {
    fn admit(&mut self, turn: &mut Turn<'_, 'a>) -> Verdict;

    /// Counts a node that all limits admit.
    fn take(&mut self, _node: &NodeName) {}
}
