//! What a failed node means for the roll-out: when it is tried again, whether it keeps its slot, and what a person can do.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use jiff::Timestamp;

use super::blocker::Blocker;
use super::later::later;
use super::plan::DerivedPlan;
use super::state::ClusterState;
use refit_api::failure::FailurePolicy;
use refit_api::text::{MAX_MESSAGE, seconds, shorten};
use refit_api::{OpenEnum, failure, names};
use refit_facts::record::{Phase, Record};
use refit_facts::{JobFacts, JobOutcome, NodeFacts, NodeName};

impl DerivedPlan {
    /// When a failed node is tried again; `None` if that takes a person.
    pub(super) fn retry_due(&self, record: &Record) -> Option<Timestamp> {
        let failure = self.spec().failure.as_ref()?;
        let reason = record.reason.as_ref().and_then(OpenEnum::known);
        if record.retries >= failure.retries() || !failure::is_retried(reason) {
            return None;
        }
        Some(later(record.at, failure.delay(record.retries)))
    }

    /// The number of failed nodes with which the roll-out stops.
    fn failure_budget(&self) -> Option<i64> {
        let failure = self.spec().failure.as_ref()?;
        let budget = failure
            .budget()
            .filter(|_| failure.policy() == FailurePolicy::Stop)?;
        let selected = usize::try_from(self.targets.selected()).unwrap_or_default();
        Some(i64::try_from(budget.of(selected)).unwrap_or(i64::MAX))
    }

    /// Whether nodes that failed for good free their slots.
    pub(super) fn failed_nodes_free_slots(&self) -> bool {
        self.spec().failure_policy() != FailurePolicy::Hold
    }

    /// What was decided about a failed node, and what a person can do. `None` without `spec.failure`, where everything is
    /// as under system-upgrade-controller, messages included.
    pub(super) fn failure_decision(&self, record: &Record) -> Option<String> {
        let failure = self.spec().failure.as_ref()?;
        if let Some(due) = self.retry_due(record) {
            let (next, of) = (record.retries + 1, failure.retries());
            return Some(format!(
                "it is tried again at {} (retry {next} of {of})",
                seconds(due)
            ));
        }
        let mut text = match failure.policy() {
            FailurePolicy::Hold => "the node keeps its slot".to_owned(),
            FailurePolicy::Stop => format!(
                "no further node starts once {} of the selected nodes have failed (spec.failure.budget)",
                self.failure_budget().unwrap_or_default()
            ),
            FailurePolicy::Continue => "the roll-out continues without the node".to_owned(),
        };
        if failure.uncordon.unwrap_or_default() {
            text.push_str(", which is uncordoned");
        }
        let _ = write!(
            text,
            ": repair it, then annotate it with {}={}, or edit the Plan",
            names::ANNOTATION_RETRY,
            self.facts.name
        );
        Some(text)
    }
}

/// Why no further node starts with `policy: Stop`.
pub(super) fn blocker(cluster: &ClusterState, plan: &DerivedPlan) -> Option<Blocker> {
    let budget = plan.failure_budget()?;
    let failed = i64::try_from(failed_nodes(cluster, plan).len()).unwrap_or(i64::MAX);
    (failed >= budget).then_some(Blocker::FailureBudget { failed, budget })
}

/// The nodes that failed for good at the current hash, whether or not that is recorded yet.
fn failed_nodes<'a>(cluster: &'a ClusterState, plan: &'a DerivedPlan) -> BTreeSet<&'a NodeName> {
    let Some(resolved) = &plan.resolved else {
        return BTreeSet::new();
    };
    let own_record = |node| plan.current_record(node);
    let recorded = cluster.world.nodes.recorded.of(&plan.facts.name).filter(|name| {
        let record = cluster.world.nodes.get(name).and_then(own_record);
        record.is_some_and(|record| record.phase == Phase::Failed && plan.retry_due(record).is_none())
    });
    let retries_left = |job: &JobFacts| {
        let used = cluster
            .world
            .nodes
            .get(&job.node)
            .and_then(own_record)
            // There it counts releases.
            .filter(|it| it.phase != Phase::Skipped)
            .map_or(0, |it| it.retries);
        plan.spec()
            .failure
            .as_ref()
            .is_some_and(|failure| used < failure.retries())
    };
    let is_failed = |job: &&JobFacts| {
        let is_lost = || cluster.world.nodes.get(&job.node).is_some_and(|node| !node.ready);
        let ended = match job.outcome {
            JobOutcome::Failed { .. } => !retries_left(job),
            JobOutcome::Failing { .. } => is_lost(),
            JobOutcome::Running | JobOutcome::Complete { .. } => false,
        };
        ended && !job.recorded && !job.deleting && job.hash == resolved.hash && job.plan_uid == plan.facts.uid
    };
    // The decision that first sees a failure only requests the record. Without these Jobs it could start a node
    // beyond the budget.
    let jobs = cluster.world.jobs.open_of(&plan.facts.name);
    let jobs = jobs.filter(is_failed);
    recorded
        .chain(jobs.map(|job| &job.node))
        .filter(|name| plan.targets.is_eligible(name))
        .collect()
}

/// A message about a failure with what was decided about it, within the limit of an event. The decision is whole.
pub(super) fn with_decision(message: &str, decision: Option<&str>) -> String {
    match decision {
        None => message.to_owned(),
        Some(decision) => {
            let room = MAX_MESSAGE.saturating_sub(decision.len() + "; ".len());
            format!("{}; {decision}", shorten(message, room))
        }
    }
}

/// The event of a failure also says whether it was the one that stops the roll-out.
pub(super) fn event_text(
    cluster: &ClusterState,
    plan: &DerivedPlan,
    node: &NodeFacts,
    record: &Record,
    message: &str,
) -> String {
    let mut decision = plan.failure_decision(record);
    if let Some(budget) = plan.failure_budget().filter(|_| plan.retry_due(record).is_none())
        && let Some(decision) = &mut decision
    {
        let mut failed = failed_nodes(cluster, plan);
        failed.insert(&node.name);
        let _ = write!(decision, " ({} of {budget} by now)", failed.len());
    }
    with_decision(message, decision.as_deref())
}
