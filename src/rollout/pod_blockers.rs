//! `drain.blockedBy` and `drain.checkFirst`: pods for which a node waits its turn. The pods of a node are listed when its turn
//! has come: a watch of all pods would cost the memory of a small controller in a large cluster.

use std::sync::Arc;

use jiff::SignedDuration;

use super::blocker::Blocker;
use super::memory::answers::PodCheck;
use super::picture::Ask;
use super::plan::DerivedPlan;
use super::start::limit::{INTERVAL, Limit, Turn, Verdict};
use super::state::ClusterState;
use super::step::{Key, Query, Step};
use refit_facts::NodeFacts;

/// The same for a node whose drain would not end: the question costs several lists. The more such nodes there are, the longer,
/// so that a cluster full of them is not asked about all the time.
const DRAIN_INTERVAL: SignedDuration = SignedDuration::from_secs(60);
const DRAIN_INTERVAL_PER_NODE: SignedDuration = SignedDuration::from_secs(1);
const LONGEST_DRAIN_INTERVAL: SignedDuration = SignedDuration::from_mins(9);

/// A Plan that waits for pods.
pub(super) struct PodBlockers {
    /// The field that asks.
    field: &'static str,
    drain_interval: SignedDuration,
}

impl PodBlockers {
    /// `None` if the Plan waits for no pods.
    pub(super) fn of(cluster: &ClusterState, plan: &DerivedPlan) -> Option<Self> {
        let field = match (plan.parsed.pod_blockers.is_empty(), plan.checks_drains) {
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
        let why = |check: &PodCheck| {
            let by_pod = check.pod.clone().map(|pod| Blocker::PodBlocks { pod });
            let by_pod = by_pod.map(|blocker| (blocker, INTERVAL));
            let of_drain = || check.drain.clone().map(Blocker::DrainWouldBlock);
            by_pod.or_else(|| Some((of_drain()?, drain_interval)))
        };
        let known = known.map(|check| (check.seen, why(check)));
        let (plan, node) = place;
        turn.ask(known, Ask::Pods(node.clone()), &Key::Pods(plan, node), |why| {
            Blocker::PodsPending { field, why }
        })
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
        blockers: Arc::clone(&plan.parsed.pod_blockers),
        // An invalid selector is an error of the Plan, with which no node starts.
        drain: drain.and_then(|drain| args(drain).ok()),
    })
}
