//! `drain.blockedBy`: pods for which a node waits its turn. The pods of a node are listed when its turn has come: a watch of
//! all pods would cost the memory of a small controller in a large cluster.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::blocker::Blocker;
use super::memory::answers::PodCheck;
use super::plan::DerivedPlan;
use super::start::limit::{Limit, Turn, Verdict};
use super::step::{Key, Query, Step};
use refit_facts::NodeName;

/// How long an answer holds that found no such pod.
const FRESH: SignedDuration = SignedDuration::from_secs(10);
/// How often a node with such a pod is looked at again.
const INTERVAL: SignedDuration = SignedDuration::from_secs(30);
/// Maximum number of nodes that one decision asks about for a Plan.
const MAX_ASKS: usize = 4;

/// A Plan that waits for pods.
pub(super) struct PodBlockers;

impl PodBlockers {
    /// `None` if the Plan waits for no pods.
    pub(super) fn of(plan: &DerivedPlan) -> Option<Self> {
        (!plan.pod_blockers.is_empty()).then_some(Self)
    }
}

impl<'a> Limit<'a> for PodBlockers {
    fn admit(&mut self, turn: &mut Turn<'_, 'a>) -> Verdict {
        let place = (turn.plan.facts.name.clone(), turn.node.name.clone());
        let known = turn.cluster.memory.answers.pod_checks.get(&place);
        // An edit may have changed `blockedBy`, so an answer to an earlier spec does not count.
        let known = known.filter(|check| check.generation == turn.plan.facts.generation());
        let holds = |check: &PodCheck| {
            let time = if check.pod.is_some() { INTERVAL } else { FRESH };
            check.seen.saturating_add(time).unwrap_or(Timestamp::MAX)
        };
        let blocked = known.and_then(|check| check.pod.clone());
        let blocked = blocked.map(|pod| Verdict::Skip(Blocker::PodBlocks { pod }));
        let current = known.map(holds).filter(|until| *until > turn.now);
        if let Some(until) = current {
            if blocked.is_some() {
                turn.picture.requeue(until);
            }
            return blocked.unwrap_or(Verdict::Go);
        }
        // The pods of other nodes may be others when those have their turn.
        let most = usize::try_from(turn.free).unwrap_or_default().min(MAX_ASKS);
        let asks = turn.picture.asks_pods.len() < most;
        if asks {
            turn.picture.asks_pods.push(turn.node.name.clone());
        }
        match blocked {
            Some(blocked) => blocked,
            None if asks => {
                let (plan, node) = place;
                let failure = turn.cluster.memory.failures.get(&Key::Pods(plan, node));
                let why = failure.map(|failure| failure.message.clone());
                Verdict::Skip(Blocker::PodsPending { why })
            }
            // Pods are being listed for as many nodes as slots are free. The next decision continues with them.
            None => Verdict::End(Blocker::PodsPending { why: None }),
        }
    }
}

/// Lists the pods of a node.
pub(super) fn query(plan: &DerivedPlan, node: NodeName) -> Step {
    Step::Query(Query::ListPods {
        plan: plan.facts.name.clone(),
        node,
        generation: plan.facts.generation(),
        blockers: Arc::clone(&plan.pod_blockers),
    })
}
