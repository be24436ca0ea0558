//! `drain.blockedBy`: pods for which a node waits its turn. The pods of a node are listed when its turn has come: a watch of
//! all pods would cost the memory of a small controller in a large cluster.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::blocker::Blocker;
use super::plan::PlanState;
use super::state::ClusterState;
use super::step::{Key, Query, Step};
use refit_facts::{NodeFacts, NodeName, PlanName, Text};

/// How long an answer holds that found no such pod.
const FRESH: SignedDuration = SignedDuration::from_secs(10);
/// How often a node with such a pod is looked at again.
const INTERVAL: SignedDuration = SignedDuration::from_secs(30);
/// Maximum number of nodes that one decision asks about for a Plan.
const MAX_ASKS: usize = 4;
/// Answers that are older are forgotten, so that those about deleted Plans and nodes do not accumulate.
const KEPT: SignedDuration = SignedDuration::from_mins(10);

/// What was seen on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodCheck {
    pub seen: Timestamp,
    /// `metadata.generation` of the Plan that asked.
    pub generation: i64,
    /// A pod that keeps the node from being started, as `namespace/name`.
    pub pod: Option<Text>,
}

/// Whether a node may start.
pub(super) enum PodBlockerResult {
    Free,
    Blocked(Blocker),
    /// Enough other nodes are being looked at.
    Later,
}

/// Looks at nodes of a Plan.
pub(super) struct PodBlockers<'a> {
    cluster: &'a ClusterState,
    plan: &'a PlanState,
    now: Timestamp,
    /// Nodes whose pods must be listed.
    pub(super) asks: Vec<NodeName>,
    /// When a node is looked at again.
    pub(super) again: Option<Timestamp>,
}

impl<'a> PodBlockers<'a> {
    /// `None` if the Plan waits for no pods.
    pub(super) fn of(cluster: &'a ClusterState, plan: &'a PlanState, now: Timestamp) -> Option<Self> {
        (!plan.pod_blockers.is_empty()).then(|| Self {
            cluster,
            plan,
            now,
            asks: Vec::new(),
            again: None,
        })
    }

    /// `free` is the number of free slots: the pods of other nodes may be others when those have their turn.
    pub(super) fn check(&mut self, node: &NodeFacts, free: i64) -> PodBlockerResult {
        let place = (self.plan.facts.name.clone(), node.name.clone());
        let known = self.cluster.pod_checks.get(&place);
        // An edit may have changed `blockedBy`, so an answer to an earlier spec does not count.
        let known = known.filter(|check| check.generation == self.plan.facts.generation());
        let holds = |check: &PodCheck| {
            let time = if check.pod.is_some() { INTERVAL } else { FRESH };
            check.seen.saturating_add(time).unwrap_or(Timestamp::MAX)
        };
        let blocked = known.and_then(|check| check.pod.clone());
        let current = known.map(holds).filter(|until| *until > self.now);
        if let Some(until) = current {
            let Some(pod) = blocked else {
                return PodBlockerResult::Free;
            };
            self.again = self.again.into_iter().chain([until]).min();
            return PodBlockerResult::Blocked(Blocker::PodBlocks { pod });
        }
        let most = usize::try_from(free).unwrap_or_default().min(MAX_ASKS);
        let asks = self.asks.len() < most;
        if asks {
            self.asks.push(node.name.clone());
        }
        match blocked {
            Some(pod) => PodBlockerResult::Blocked(Blocker::PodBlocks { pod }),
            None if asks => {
                let (plan, node) = place;
                let failure = self.cluster.failures_by_step.get(&Key::Pods(plan, node));
                let why = failure.map(|failure| failure.message.clone());
                PodBlockerResult::Blocked(Blocker::PodsPending { why })
            }
            None => PodBlockerResult::Later,
        }
    }
}

/// Lists the pods of a node.
pub(super) fn query(plan: &PlanState, node: NodeName) -> Step {
    Step::Query(Query::ListPods {
        plan: plan.facts.name.clone(),
        node,
        generation: plan.facts.generation(),
        blockers: Arc::clone(&plan.pod_blockers),
    })
}

impl ClusterState {
    pub(super) fn apply_pod_check(&mut self, plan: PlanName, node: NodeName, check: PodCheck) {
        let oldest = check.seen.saturating_sub(KEPT).unwrap_or(Timestamp::MIN);
        self.pod_checks.retain(|_, known| known.seen > oldest);
        self.pod_checks.insert((plan, node), check);
    }

    /// Whether a Plan waits for pods.
    pub fn has_pod_blockers(&self) -> bool {
        self.plans.values().any(|plan| !plan.pod_blockers.is_empty())
    }
}
