//! A Job that failed for good, and when its node is tried again.

use jiff::Timestamp;

use super::{NodeDecision, NodeReconciler, NodeState, Start, patch, record_key};
use crate::api::{NodePhase, NodeProgress, Reason, names};
use crate::rollout::event::Event;
use crate::rollout::facts::{JobFacts, JobName, JobOutcome, NodeFacts};
use crate::rollout::record::{Phase, Record};
use crate::rollout::step::NodeChange;

impl NodeReconciler<'_> {
    /// Records a Job that failed for good: on the node first, then on the Job. If the Plan no longer concerns the node,
    /// it only writes the event. A cancelled Job has not failed.
    pub(super) fn fail(
        &self,
        node: &NodeFacts,
        job: &JobFacts,
        stored_entry: Option<&NodeProgress>,
        leaving: Option<&JobFacts>,
    ) -> NodeDecision {
        let JobOutcome::Failed { at, reason, message } = &job.outcome else {
            return self.without_job(node, stored_entry, leaving);
        };
        if self.is_cancelled(node) {
            // A cancelled drain says nothing about the node.
            return self
                .without_job(node, stored_entry, leaving)
                .and([self.mark_recorded(job, Vec::new())]);
        }
        let text = self
            .cluster
            .termination_message(&job.uid)
            .map_or_else(|| message.clone(), |tail| format!("{message}: {tail}"));
        if self
            .record(node)
            .is_some_and(|record| *record.job_uid == *job.uid)
        {
            return self
                .without_job(node, stored_entry, leaving)
                .and([self.mark_recorded(job, Vec::new())]);
        }
        // system-upgrade-controller has reported its failures before the swap.
        let dealt_with = job.is_made_by_suc() && stored_entry.is_none();
        let event = (!dealt_with).then(|| self.failed_event(job, node, reason, &text));
        let events = event.into_iter().collect();
        if !self.is_eligible(node) {
            return self
                .without_job(node, stored_entry, leaving)
                .and([self.mark_recorded(job, events)]);
        }
        let record = Record {
            reason: Some(reason.as_str().into()),
            message: Some(text.clone()),
            ..self.failure_record(node, job, *at)
        };
        let mut state = if self.hash().is_some_and(|hash| *hash == job.hash) {
            let mut state =
                NodeState::of_job(node, job, NodePhase::Failed).with_reason(reason.as_str(), text);
            state.failed = true;
            state
        } else {
            // The Plan is at another version, which the node gets next.
            let mut state = NodeState::new(node, NodePhase::Pending);
            state.start = Some(Start::Later);
            state
        };
        state.since = Some(*at);
        NodeDecision::slot(state.with_step(self.patch_record(node, &record, events)))
    }

    /// The record of a failed Job, without the reason.
    pub(super) fn failure_record(&self, node: &NodeFacts, job: &JobFacts, at: Timestamp) -> Record {
        Record {
            namespace: self.cluster.defaults.namespace.clone(),
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
        self.job_event(Reason::JobFailed, text, &job.uid)
    }

    pub(super) fn failed_text(
        &self,
        job: &JobFacts,
        node: &NodeFacts,
        reason: &str,
        message: &str,
    ) -> String {
        let namespace = &self.cluster.defaults.namespace;
        failure_text(namespace, &job.name, &node.name, reason, message)
    }

    /// A failed node keeps its slot until there is a reason to retry. The retry is written to the record before it
    /// begins.
    pub(super) fn failed(&self, node: &NodeFacts, record: &Record) -> NodeState {
        let mut state = failed_state(node, record);
        let asked = node
            .retry
            .as_deref()
            .and_then(|retry| self.without_this_plan(node, retry));
        let edited = record
            .inputs
            .as_deref()
            .is_some_and(|inputs| *inputs != *self.plan.inputs);
        if asked.is_none() && !edited || self.gate.is_some() {
            return state;
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
        state.failed = false;
        state.phase = NodePhase::Pending;
        state.since = Some(self.now);
        state.attempt = Some(next.attempt);
        // This attempt has no Job yet.
        state.job = None;
        state.boot = self.plan.spec().may_reboot().then(|| node.boot_id.clone());
        state.start = Some(Start::Later);
        (state.reason, state.message) = (None, None);
        state.with_step(patch(node, change, Vec::new()))
    }

    /// The value of `refit.rs/retry` without this Plan; `None` if it does not name the Plan. `*` means all Plans that
    /// failed on the node, each of which removes only itself.
    fn without_this_plan(&self, node: &NodeFacts, retry: &str) -> Option<String> {
        let this_plan = &*self.plan.facts.name;
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
        if !named.contains(&this_plan) {
            return None;
        }
        let rest: Vec<_> = named.into_iter().filter(|name| *name != this_plan).collect();
        Some(rest.join(","))
    }
}

/// The state of a node whose failure is recorded.
pub(super) fn failed_state(node: &NodeFacts, record: &Record) -> NodeState {
    let mut state = NodeState::new(node, NodePhase::Failed);
    state.failed = true;
    state.since = Some(record.at);
    state.job = Some(record.job.as_str().into()).filter(|job: &JobName| !job.is_empty());
    state.attempt = Some(record.attempt);
    state.reason.clone_from(&record.reason);
    state.message.clone_from(&record.message);
    state
}

/// The message for a failure (S54).
pub(in crate::rollout) fn failure_text(
    namespace: &str,
    job: &str,
    node: &str,
    reason: &str,
    message: &str,
) -> String {
    format!("Job {namespace}/{job} failed on Node {node}: {reason}: {message}")
}
