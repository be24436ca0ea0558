//! `settle.daemonSets`: the pods of DaemonSets on an upgraded node, which are listed at intervals until all are Ready in two
//! lists in a row: a container that crashes at start counts as ready until it has crashed.

use std::fmt;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::NodeReconciler;
use super::state::NodeState;
use crate::later::{later, requeue};
use crate::memory::answers::UnreadyPod;
use crate::step::{Key, Query, Step};
use refit_api::ObjectRef;
use refit_facts::NodeFacts;

/// How often to list the pods.
const INTERVAL: SignedDuration = SignedDuration::from_secs(5);

/// What is known of the pods of DaemonSets on a node that waits for them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct DaemonSetsWait {
    /// Lists before that do not count; `None` if the node has not begun to settle.
    since: Option<Timestamp>,
    state: Known,
    /// Why they cannot be listed.
    failure: Option<String>,
    next: Next,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Known {
    Nothing,
    /// All were Ready in the last list.
    ReadyOnce,
    Unready(UnreadyPod),
}

#[derive(Clone, Debug, PartialEq)]
enum Next {
    Nothing,
    At(Timestamp),
    Now(Box<Step>),
}

impl NodeReconciler<'_> {
    /// What keeps a node waiting that has been well since this time; `None` if all pods are Ready, or the Plan waits for none.
    pub(super) fn daemon_sets_wait(
        &self,
        node: &NodeFacts,
        since: Option<Timestamp>,
    ) -> Option<DaemonSetsWait> {
        let pods = self.plan.completion.daemon_sets.as_ref()?;
        let mut wait = DaemonSetsWait {
            since,
            state: Known::Nothing,
            failure: None,
            next: Next::Nothing,
        };
        let Some(since) = since else {
            return Some(wait);
        };
        let generation = self.plan.facts.generation();
        let place = (self.plan.facts.name.clone(), node.name.clone());
        let known = self.cluster.memory.answers.daemon_pods.get(&place);
        let known = known.filter(|known| known.last.seen >= since && known.last.generation == generation);
        let lasts =
            |from: Timestamp| known.is_some_and(|it| later(from.max(since), INTERVAL) <= it.last.seen);
        if known.and_then(|known| known.ready_since).is_some_and(lasts) {
            return None;
        }
        if let Some(known) = known {
            wait.state = known
                .last
                .unready
                .clone()
                .map_or(Known::ReadyOnce, Known::Unready);
        }
        let due = known.map_or(since, |known| later(known.last.seen, INTERVAL));
        let (plan, node) = place;
        let failure = self
            .cluster
            .memory
            .failures
            .get(&Key::DaemonPods(plan.clone(), node.clone()));
        wait.failure = failure.map(|failure| failure.message.clone());
        wait.next = if due > self.now {
            Next::At(due)
        } else {
            Next::Now(Box::new(Step::Query(Query::ListDaemonPods {
                plan,
                node,
                generation,
                pods: Arc::clone(pods),
            })))
        };
        Some(wait)
    }
}

impl DaemonSetsWait {
    /// The time before which they cannot have been found Ready.
    pub(super) fn least(&self) -> Timestamp {
        self.since
            .map_or(Timestamp::MAX, |since| later(since, INTERVAL * 3))
    }

    /// Lists them when it is time.
    pub(super) fn ask(&self, state: &mut NodeState) {
        match &self.next {
            Next::Nothing => {}
            Next::At(due) => requeue(&mut state.requeue_at, *due),
            Next::Now(step) => state.steps.push((**step).clone()),
        }
    }

    pub(super) fn about(&self) -> Vec<ObjectRef> {
        match &self.state {
            Known::Unready(unready) => vec![ObjectRef::pod(&unready.pod)],
            Known::Nothing | Known::ReadyOnce => Vec::new(),
        }
    }
}

impl fmt::Display for DaemonSetsWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.failure, &self.state) {
            (Some(why), _) => write!(f, "the pods of DaemonSets on the node cannot be listed: {why}"),
            (None, Known::Nothing) => f.write_str("the pods of DaemonSets on the node are being listed"),
            (None, Known::ReadyOnce) => {
                f.write_str("the pods of DaemonSets on the node are Ready; refit lists them once more")
            }
            (None, Known::Unready(unready)) => {
                let UnreadyPod {
                    pod,
                    daemon_set,
                    leaves,
                    more,
                } = unready;
                let is = if *leaves {
                    "is being deleted"
                } else {
                    "is not Ready"
                };
                write!(f, "pod {pod} of DaemonSet {daemon_set} {is}")?;
                match more {
                    0 => Ok(()),
                    more => write!(f, ", and {more} more"),
                }
            }
        }
    }
}
