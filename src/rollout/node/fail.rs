//! A Job that has failed for good, and when its node is tried again.

use jiff::Timestamp;

use super::{Next, Question, Stand, Standing, patch, record_key};
use crate::api::NodeProgress;
use crate::api::names;
use crate::rollout::event::{Event, EventType};
use crate::rollout::facts::{JobFacts, NodeFacts, Outcome, Text};
use crate::rollout::record::{Phase, Record};
use crate::rollout::step::NodeChange;

impl Question<'_> {
    /// A Job that has failed for good: the node is told first, then the Job. Where the Plan has nothing to do with the node
    /// any more, it is only told. One that was cancelled has not failed.
    pub(super) fn fail(
        &self,
        node: &NodeFacts,
        job: &JobFacts,
        told: Option<&NodeProgress>,
        leaving: Option<&JobFacts>,
    ) -> Stand {
        let Outcome::Failed { at, reason, message } = &job.outcome else {
            return self.without_job(node, told, leaving);
        };
        if self.is_cancelled(node) {
            // It was told to stop, which says nothing of the node.
            return self
                .without_job(node, told, leaving)
                .and([self.mark(job, Vec::new())]);
        }
        let text = self
            .world
            .last_words(&job.uid)
            .map_or_else(|| message.clone(), |words| format!("{message}: {words}"));
        if self
            .record(node)
            .is_some_and(|record| *record.job_uid == *job.uid)
        {
            return self
                .without_job(node, told, leaving)
                .and([self.mark(job, Vec::new())]);
        }
        // What system-upgrade-controller dealt with before the swap is not told again.
        let dealt_with = job.is_foreign_make() && told.is_none();
        let event = (!dealt_with).then(|| self.failed_event(job, node, reason, &text));
        let events = event.into_iter().collect();
        if !self.is_eligible(node) {
            return self
                .without_job(node, told, leaving)
                .and([self.mark(job, events)]);
        }
        let record = Record {
            reason: Some(reason.clone()),
            message: Some(text.clone()),
            ..self.failure_record(node, job, *at)
        };
        let mut standing = if self.hash().is_some_and(|hash| *hash == job.hash) {
            let mut standing = Standing::of_job(node, job, "Failed").held_up(reason, text);
            standing.failed = true;
            standing
        } else {
            // The Plan is at another version by now, which the node goes on to.
            let mut standing = Standing::new(node, "Pending");
            standing.next = Some(Next::Later);
            standing
        };
        standing.since = Some(*at);
        Stand::slot(standing.then(self.patch_record(node, &record, events)))
    }

    /// The record of a Job that has failed, without the reason.
    pub(super) fn failure_record(&self, node: &NodeFacts, job: &JobFacts, at: Timestamp) -> Record {
        Record {
            namespace: self.world.defaults.namespace.clone(),
            plan_uid: self.plan.facts.uid.to_string(),
            node_uid: node.uid.to_string(),
            hash: job.hash.to_string(),
            version: job.version.to_string(),
            phase: Phase::Failed,
            attempt: job.attempt,
            job_uid: job.uid.to_string(),
            job: job.name.to_string(),
            inputs: job
                .inputs
                .as_deref()
                .or(Some(&self.plan.inputs))
                .map(str::to_owned),
            at,
            uncordon: false,
            reboot: None,
            settling: None,
            workloads: Vec::new(),
            reason: None,
            message: None,
        }
    }

    fn failed_event(&self, job: &JobFacts, node: &NodeFacts, reason: &str, message: &str) -> Event {
        let text = self.failed_text(job, node, reason, message);
        self.job_event(EventType::Warning, "JobFailed", text, &job.uid)
    }

    pub(super) fn failed_text(
        &self,
        job: &JobFacts,
        node: &NodeFacts,
        reason: &str,
        message: &str,
    ) -> String {
        let namespace = &self.world.defaults.namespace;
        failure_text(namespace, &job.name, &node.name, reason, message)
    }

    /// A node on which the Plan failed keeps its slot until something gives a reason to try again, and that is written
    /// down before it is done.
    pub(super) fn failed(&self, node: &NodeFacts, record: &Record) -> Standing {
        let mut standing = has_failed(node, record);
        let asked = node
            .retry
            .as_deref()
            .and_then(|retry| self.without_mine(node, retry));
        let edited = record
            .inputs
            .as_deref()
            .is_some_and(|inputs| *inputs != *self.plan.inputs);
        if asked.is_none() && !edited || self.gate.is_some() {
            return standing;
        }
        let next = Record {
            phase: Phase::Retry,
            attempt: record.attempt.saturating_add(1),
            inputs: Some(self.plan.inputs.to_string()),
            at: self.now,
            reason: None,
            message: None,
            ..record.clone()
        };
        let mut change = NodeChange::default();
        change
            .annotations
            .insert(record_key(&self.plan.facts.name), Some(next.to_text()));
        if let Some(rest) = asked {
            let rest = Some(rest).filter(|rest| !rest.is_empty());
            change
                .annotations
                .insert(names::ANNOTATION_RETRY.to_owned(), rest);
            change.exact = true;
        }
        standing.failed = false;
        standing.phase = "Pending";
        standing.since = Some(self.now);
        standing.attempt = Some(next.attempt);
        // Of this attempt no Job has been made.
        standing.job = None;
        standing.boot = self.plan.spec().may_reboot().then(|| node.boot_id.clone());
        standing.next = Some(Next::Later);
        (standing.reason, standing.message) = (None, None);
        standing.then(patch(node, change, Vec::new()))
    }

    /// What is left of the wish to try Plans again when this one's is granted; nothing where it is not among them. `*`
    /// means all that have failed on the node, of which each grants its own.
    fn without_mine(&self, node: &NodeFacts, retry: &str) -> Option<String> {
        let mine = &*self.plan.facts.name;
        let failed = || {
            node.records
                .iter()
                .filter(|(_, r)| r.phase == Phase::Failed)
                .map(|(plan, _)| &**plan)
        };
        let named: Vec<&str> = match retry.trim() {
            "*" => failed().collect(),
            names => names
                .split(',')
                .map(str::trim)
                .filter(|name| !name.is_empty())
                .collect(),
        };
        if !named.contains(&mine) {
            return None;
        }
        let rest: Vec<_> = named.into_iter().filter(|name| *name != mine).collect();
        Some(rest.join(","))
    }
}

/// Where a node stands whose failure is recorded.
pub(super) fn has_failed(node: &NodeFacts, record: &Record) -> Standing {
    let mut standing = Standing::new(node, "Failed");
    standing.failed = true;
    standing.since = Some(record.at);
    standing.job = Some(record.job.as_str().into()).filter(|job: &Text| !job.is_empty());
    standing.attempt = Some(record.attempt);
    standing.reason.clone_from(&record.reason);
    standing.message.clone_from(&record.message);
    standing
}

/// S54's words for a failure.
pub(in crate::rollout) fn failure_text(
    namespace: &str,
    job: &str,
    node: &str,
    reason: &str,
    message: &str,
) -> String {
    format!("Job {namespace}/{job} failed on Node {node}: {reason}: {message}")
}
