//! What a limit says of a node whose turn has come. `admission` has the list of all limits.

use jiff::{SignedDuration, Timestamp};

use super::locks::DisruptionLocks;
use crate::blocker::Blocker;
use crate::later::{later, requeue};
use crate::node::state::PlanNodes;
use crate::picture::{Ask, PlanPicture};
use crate::plan::DerivedPlan;
use crate::state::ClusterState;
use crate::step::Key;
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
    pub(crate) nodes: &'t PlanNodes,
    pub(crate) locks: &'t DisruptionLocks<'a>,
    /// The number of free slots.
    pub(crate) free: i64,
    pub(crate) now: Timestamp,
    /// Why other nodes wait.
    pub(crate) picture: &'t mut PlanPicture,
}

/// How long an answer holds that lets the node start.
const FRESH: SignedDuration = SignedDuration::from_secs(10);
/// How often a node is asked about again that may not start.
pub(crate) const INTERVAL: SignedDuration = SignedDuration::from_secs(30);
/// Maximum number of nodes that one decision asks about for a Plan.
const MAX_ASKS: usize = 4;

impl Turn<'_, '_> {
    /// The verdict of a limit that asks the API server about a node when its turn has come. `known` is the last answer: when
    /// it came, why the node may not start, and how often that is asked. `pending` is why it waits for the first one.
    pub(crate) fn ask(
        &mut self,
        known: Option<(Timestamp, Option<(Blocker, SignedDuration)>)>,
        ask: Ask,
        key: &Key,
        pending: impl Fn(Option<String>) -> Blocker,
    ) -> Verdict {
        let until = known.as_ref().map(|(seen, blocker)| {
            let time = blocker.as_ref().map_or(FRESH, |(_, interval)| *interval);
            later(*seen, time)
        });
        let blocked = known.and_then(|(_, blocked)| blocked);
        let blocked = blocked.map(|(blocker, _)| Verdict::Skip(blocker));
        if let Some(until) = until.filter(|until| *until > self.now) {
            if blocked.is_some() {
                requeue(&mut self.picture.requeue_at, until);
            }
            return blocked.unwrap_or(Verdict::Go);
        }
        // What is asked about other nodes may have changed when those have their turn.
        let most = usize::try_from(self.free).unwrap_or_default().min(MAX_ASKS);
        let failure = self.cluster.memory.failures.get(key);
        // One that cannot be asked about holds up no others.
        self.picture.failing_asks += usize::from(failure.is_some());
        let asks = failure.is_some() || self.picture.asks.len() < most + self.picture.failing_asks;
        if asks {
            self.picture.asks.push(ask);
        }
        match blocked {
            Some(blocked) => blocked,
            None if asks => Verdict::Skip(pending(failure.map(|failure| failure.message.clone()))),
            // As many nodes are being asked about as slots are free. The next decision continues with them.
            None => Verdict::End(pending(None)),
        }
    }
}

pub(crate) trait Limit<'a> {
    fn admit(&mut self, turn: &mut Turn<'_, 'a>) -> Verdict;

    /// Counts a node that all limits admit.
    fn take(&mut self, _node: &NodeName) {}
}

/// A limit that remembers nothing.
impl<'a, F: FnMut(&mut Turn<'_, 'a>) -> Verdict> Limit<'a> for F {
    fn admit(&mut self, turn: &mut Turn<'_, 'a>) -> Verdict {
        self(turn)
    }
}
