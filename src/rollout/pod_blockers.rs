//! `drain.blockedBy`: pods for which a node waits its turn. The pods of a node are listed when its turn has come: a watch of
//! all pods would cost the memory of a small controller in a large cluster.

use std::sync::Arc;

use super::blocker::Blocker;
use super::picture::Ask;
use super::plan::DerivedPlan;
use super::start::limit::{Limit, Turn, Verdict};
use super::step::{Key, Query, Step};
use refit_facts::NodeName;

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
        let known = known.map(|check| (check.seen, check.pod.clone()));
        let known = known.map(|(seen, pod)| (seen, pod.map(|pod| Blocker::PodBlocks { pod })));
        let (plan, node) = place;
        turn.ask(known, Ask::Pods(node.clone()), &Key::Pods(plan, node), |why| {
            Blocker::PodsPending { why }
        })
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
