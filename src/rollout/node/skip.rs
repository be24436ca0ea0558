//! A node that its drain has released as it was, because pods had not ended in time (`drain.waitFor` with `afterTimeout:
//! Skip`). Its record says when its turn comes again.

use jiff::Timestamp;

use super::state::{NodeDecision, NodeState};
use super::{NodeReconciler, patch};
use crate::release::release;
use crate::step::Step;
use refit_api::text::{MAX_MESSAGE, seconds, shorten};
use refit_api::{NodePhase, NodeProgress, Reason, wait_for};
use refit_facts::record::{Phase, Record};
use refit_facts::{JobFacts, NodeFacts};

impl NodeReconciler<'_> {
    /// Releases the node, and records that, in one patch; then the Job is recorded, with the event.
    pub(super) fn skipped_by_drain(
        &self,
        node: &NodeFacts,
        job: &JobFacts,
        at: Timestamp,
        stored_entry: Option<&NodeProgress>,
        leaving: Option<&JobFacts>,
    ) -> NodeDecision {
        let known = self.record(node);
        let is_stored = known.is_some_and(|record| *record.job_uid == *job.uid);
        let is_current = self.plan.is_at(&job.hash);
        if is_stored || !is_current || !self.is_eligible(node) {
            let why = known
                .filter(|_| is_stored)
                .and_then(|record| record.message.clone())
                .unwrap_or_else(|| self.why_skipped(node, job));
            let text = format!("Node {} was released as it was: {why}", node.name);
            let event = self.job_event(Reason::DrainSkipped, text, &job.uid);
            let next = self.without_job(node, stored_entry, leaving);
            return next.and([self.mark_recorded(job, vec![event])]);
        }
        let before = known.filter(|record| record.phase == Phase::Skipped);
        let record = Record {
            phase: Phase::Skipped,
            retries: before
                .map_or(0, |record| record.retries_at(&job.hash))
                .saturating_add(1),
            uncordon: false,
            reason: Some(Reason::DrainSkipped.into()),
            message: Some(self.why_skipped(node, job)),
            ..self.failure_record(node, job, at)
        };
        let mut change = self.store(node, &record);
        release(node, &self.plan_hold(), false, &mut change);
        let state = NodeState::of_record(node, &record, NodePhase::Finishing);
        NodeDecision::slot(state.with_step(patch(node, change, Vec::new())))
    }

    fn why_skipped(&self, node: &NodeFacts, job: &JobFacts) -> String {
        let says = self.cluster.failed_container(job).map(|failed| &*failed.says);
        let says = says.filter(|says| !says.is_empty());
        let says = says.unwrap_or("pods of spec.drain.waitFor had not ended in time");
        let prefix = format!("error: unable to drain node {:?}: ", &*node.name);
        let says = says.rsplit_once(&prefix).map_or(says, |(_, why)| why);
        shorten(says, MAX_MESSAGE).into_owned()
    }

    /// A node with such a record: it has a slot again once status names the next attempt. An entry of the last one gives up
    /// its slot.
    pub(super) fn after_skip(
        &self,
        node: &NodeFacts,
        record: &Record,
        stored_entry: Option<&NodeProgress>,
        leaving: Option<&JobFacts>,
    ) -> NodeDecision {
        let next = record.attempt.saturating_add(1);
        match stored_entry.filter(|entry| entry.attempt.unwrap_or(1) == next) {
            Some(entry) => self.begin(node, next, Some(entry), leaving),
            None => NodeDecision::Cleanup(self.end_pause(node, record).into_iter().collect()),
        }
    }

    /// Gives the node its turn again, because a person has asked for that. Without `inputs`, as after an edit of the Plan, the
    /// record delays nothing.
    fn end_pause(&self, node: &NodeFacts, record: &Record) -> Option<Step> {
        let asked = self.asked_to_retry(node)?;
        let next = Record {
            inputs: None,
            retries: 0,
            ..record.clone()
        };
        Some(patch(
            node,
            self.answer_retry(node, &next, Some(asked)),
            Vec::new(),
        ))
    }

    /// What status says of a drain that waits for pods to end. Of a node that was released before, that comes first, because it
    /// may go on like that, unless the Plan was edited or a person has given the node its turn.
    pub(super) fn wait_for_pods(
        &self,
        node: &NodeFacts,
        job: &JobFacts,
        progress: String,
    ) -> (Reason, String) {
        let released = self.record(node).filter(|record| {
            record.phase == Phase::Skipped
                && record.hash == job.hash
                && record.inputs.as_deref() == Some(&*self.plan.inputs)
        });
        let Some(record) = released else {
            return (Reason::PodsRunning, progress);
        };
        let times = match record.retries {
            1 => "once".to_owned(),
            more => format!("{more} times"),
        };
        let why = record.message.as_deref().unwrap_or_default();
        let text = format!(
            "spec.drain.waitFor: the node was released {times}, last at {}, because {why}; now the drain {progress}, and if it is \
             released again, its turn comes {:#} later",
            seconds(record.at),
            wait_for::pause(record.retries.saturating_add(1))
        );
        (Reason::DrainSkipped, shorten(&text, MAX_MESSAGE).into_owned())
    }

    pub(super) fn is_skipped(&self, node: &NodeFacts) -> bool {
        self.record(node)
            .is_some_and(|record| record.phase == Phase::Skipped)
    }
}
