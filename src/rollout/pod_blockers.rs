//! `drain.blockedBy` and `drain.checkFirst`: pods for which a node waits its turn. The pods of a node are listed when its turn
//! has come: a watch of all pods would cost the memory of a small controller in a large cluster.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::blocker::Blocker;
use super::memory::answers::PodCheck;
use super::plan::DerivedPlan;
use super::start::limit::{Limit, Turn, Verdict};
use super::state::ClusterState;
use super::step::{Key, Query, Step};
use refit_facts::NodeFacts;

/// How long an answer holds that found no such pod.
const FRESH: SignedDuration = SignedDuration::from_secs(10);
/// How often a node with such a pod is looked at again.
const INTERVAL: SignedDuration = SignedDuration::from_secs(30);
/// The same for a node whose drain would not end: the question costs several lists. The more such nodes there are, the longer,
/// so that a cluster full of them is not asked about all the time.
const DRAIN_INTERVAL: SignedDuration = SignedDuration::from_secs(60);
const DRAIN_INTERVAL_PER_NODE: SignedDuration = SignedDuration::from_secs(1);
const LONGEST_DRAIN_INTERVAL: SignedDuration = SignedDuration::from_mins(9);
/// Maximum number of nodes that one decision asks about for a Plan.
const MAX_ASKS: usize = 4;

/// A Plan that waits for pods.
pub(super) struct PodBlockers {
    /// The field that asks.
    field: &'static str,
    drain_interval: SignedDuration,
}

impl PodBlockers {
    /// `None` if the Plan waits for no pods.
    pub(super) fn of(cluster: &ClusterState, plan: &DerivedPlan) -> Option<Self> {
        let field = match (plan.pod_blockers.is_empty(), plan.checks_drains) {
            (true, false) => return None,
            (false, _) => "spec.drain.blockedBy",
            (true, true) => "spec.drain.checkFirst",
        };
        let checks = cluster
            .memory
            .answers
            .pod_checks
            .iter()
            .filter(|_| plan.checks_drains);
        let found = checks.filter(|((of, _), check)| *of == plan.facts.name && check.drain.is_some());
        let found = i32::try_from(found.count()).unwrap_or(i32::MAX);
        let more = DRAIN_INTERVAL_PER_NODE.saturating_mul(found);
        Some(Self {
            field,
            drain_interval: DRAIN_INTERVAL.max(more).min(LONGEST_DRAIN_INTERVAL),
        })
    }
}

impl<'a> Limit<'a> for PodBlockers {
    fn admit(&mut self, turn: &mut Turn<'_, 'a>) -> Verdict {
        let (field, drain_interval) = (self.field, self.drain_interval);
        let place = (turn.plan.facts.name.clone(), turn.node.name.clone());
        let known = turn.cluster.memory.answers.pod_checks.get(&place);
        // An edit may have changed what is asked, so an answer to an earlier spec does not count.
        let known = known.filter(|check| check.generation == turn.plan.facts.generation());
        let holds = |check: &PodCheck| {
            let time = match (&check.pod, &check.drain) {
                (Some(_), _) => INTERVAL,
                (None, Some(_)) => drain_interval,
                (None, None) => FRESH,
            };
            check.seen.saturating_add(time).unwrap_or(Timestamp::MAX)
        };
        let why = |check: &PodCheck| {
            let by_pod = check.pod.clone().map(|pod| Blocker::PodBlocks { pod });
            by_pod.or_else(|| check.drain.clone().map(Blocker::DrainWouldBlock))
        };
        let blocked = known.and_then(why).map(Verdict::Skip);
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
                Verdict::Skip(Blocker::PodsPending { field, why })
            }
            // Pods are being listed for as many nodes as slots are free. The next decision continues with them.
            None => Verdict::End(Blocker::PodsPending { field, why: None }),
        }
    }
}

/// Lists the pods of a node.
pub(super) fn query(plan: &DerivedPlan, node: &NodeFacts) -> Step {
    let spec = plan.spec();
    let drain = spec.drain.as_ref().filter(|_| plan.checks_drains);
    let args = |drain| refit_job::render::drain_command(spec, drain, &node.name, node.is_windows());
    Step::Query(Query::ListPods {
        plan: plan.facts.name.clone(),
        node: node.name.clone(),
        generation: plan.facts.generation(),
        blockers: Arc::clone(&plan.pod_blockers),
        // An invalid selector is an error of the Plan, with which no node starts.
        drain: drain.and_then(|drain| args(drain).ok()),
    })
}
