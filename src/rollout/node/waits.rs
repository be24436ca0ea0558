//! What a node waits for under its Job. A Job that exceeds its deadline says only that: the reason of the failure is what it
//! waited for last.

use jiff::SignedDuration;

use super::NodeReconciler;
use super::state::NodeState;
use crate::refusal;
use refit_api::{NodePhase, NodeProgress, OpenEnum, Reason};
use refit_facts::{JobFacts, JobOutcome, NodeFacts};

/// Waits that end with the deadline of the Job.
const WAITS: [Reason; 3] = [Reason::PodWaiting, Reason::PodRefused, Reason::DrainWaiting];

/// The stored entry, if it is about this Job, which upgrades.
pub(super) fn entry_of<'e>(
    job: &JobFacts,
    stored_entry: Option<&'e NodeProgress>,
) -> Option<&'e NodeProgress> {
    stored_entry
        .filter(|entry| entry.job.as_deref() == Some(&*job.name) && entry.attempt.unwrap_or(1) == job.attempt)
}

fn wait_of(entry: &NodeProgress) -> Option<(Reason, &str)> {
    let stored = entry.reason.as_ref()?.known()?;
    let reason = WAITS.into_iter().find(|reason| *reason == stored)?;
    Some((reason, entry.message.as_deref()?))
}

impl NodeReconciler<'_> {
    /// The stored entry, if it is about the Job that verifies the node.
    pub(super) fn verify_entry(&self, node: &NodeFacts) -> Option<&NodeProgress> {
        let mut stored = self.plan.facts.status().active.iter().flatten();
        stored.find(|entry| *entry.name == *node.name && entry.phase == NodePhase::Verifying)
    }

    /// Adds the wait for a pod that does not exist. While the Job ends, its pods are deleted, and no longer say what they waited
    /// for: `entry`, which status has of the Job, keeps it.
    pub(super) fn with_wait(
        &self,
        mut state: NodeState,
        job: &JobFacts,
        entry: Option<&NodeProgress>,
    ) -> NodeState {
        let is_ending = matches!(job.outcome, JobOutcome::Failing { .. });
        let has_pod = self.cluster.world.pods.of(job).any(|pod| !pod.deleting);
        if state.reason.is_some() || has_pod && !is_ending {
            return state;
        }
        if let Some(refusal) = refusal::of(self.cluster, job, self.now) {
            state.steps.extend(refusal.ask);
            state.requeue_at = refusal.again;
            return match refusal.text {
                Some(text) => state.with_reason(Reason::PodRefused, text),
                None => state,
            };
        }
        let Some(entry) = entry else { return state };
        // Not that of a node that counted as lost, and is back before its Job has ended.
        let is_of_job = |phase: &NodePhase| is_ending && *phase != NodePhase::Failed;
        if let Some(phase) = entry.phase.known().filter(is_of_job) {
            state.phase = phase;
        }
        match wait_of(entry) {
            Some((reason, text)) => state.with_reason(reason, text.to_owned()),
            None => state,
        }
    }

    /// The reason and the message of a failed Job, of which status has this entry.
    pub(super) fn failure_cause(
        &self,
        job: &JobFacts,
        [reason, message]: [&str; 2],
        took: SignedDuration,
        entry: Option<&NodeProgress>,
    ) -> (OpenEnum<Reason>, String) {
        let failed = self.cluster.failed_container(job);
        let entry = entry.filter(|_| reason == Reason::DeadlineExceeded.name());
        let deadline = || {
            format!(
                "{reason}: {message}, after {:#}",
                SignedDuration::from_secs(took.as_secs())
            )
        };
        if let Some((wait, text)) = entry.and_then(wait_of) {
            return (wait.into(), format!("{text}; {}", deadline()));
        }
        if let Some(NodePhase::Preparing) = entry.and_then(|entry| entry.phase.known()) {
            let says = failed.map_or_else(String::new, |failed| format!(": {failed}"));
            let text = format!("`prepare` had not ended{says}; {}", deadline());
            return (Reason::PrepareTimedOut.into(), text);
        }
        // The Job says only which limit was exceeded. The cause is in the last lines of the container.
        let Some(failed) = failed else {
            return (reason.into(), message.to_owned());
        };
        // A container that failed by itself, as often as it was tried, is no upgrade that took too long.
        let is_cause = reason == Reason::DeadlineExceeded.name() && !failed.is_of_deletion;
        let cause = if is_cause {
            Reason::ContainerFailed.into()
        } else {
            reason.into()
        };
        (cause, format!("{failed}; {message}"))
    }
}
