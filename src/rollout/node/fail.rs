//! A Job that failed for good, and when its node is tried again.

use jiff::Timestamp;

use super::state::{NodeDecision, NodeState, Start};
use super::waits::entry_of;
use super::{NodeReconciler, patch};
use crate::event::Event;
use crate::failure;
use crate::release::release;
use crate::step::NodeChange;
use refit_api::{NodePhase, NodeProgress, Reason, annotation, names};
use refit_facts::record::{Phase, Record};
use refit_facts::{JobFacts, JobOutcome, NodeFacts, words};
use refit_job::POD_FAILURE_POLICY;
use refit_job::render::{OVERDUE, SKIPPED, is_ended_by_drain};

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
        // Only refit's own rules about `preflight` and `drain` give this reason.
        let by_policy = *reason == *POD_FAILURE_POLICY;
        if by_policy && is_ended_by_drain(message, SKIPPED) {
            return self.skipped_by_drain(node, job, *at, stored_entry, leaving);
        }
        // Pods that had not ended before the drain fail the node, as `waitFor` says.
        if by_policy
            && !is_ended_by_drain(message, OVERDUE)
            && let Some(skipped) = self.skipped_by_preflight(node, job, *at, stored_entry, leaving)
        {
            return skipped;
        }
        let took = at.duration_since(job.created);
        let (cause, text) = self.failure_cause(job, [reason, message], took, entry_of(job, stored_entry));
        // The record is written before the Job is marked, so the failure is stored already, or someone has
        // requested a retry since.
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
        let record = Record {
            reason: Some(cause),
            message: Some(text),
            ..self.failure_record(node, job, *at)
        };
        let event = (!dealt_with).then(|| self.failed_event(job, node, &record));
        let events = event.into_iter().collect();
        // A record would keep a slot on a node that the Plan no longer selects, or that has none and gets another
        // version in its turn.
        let is_current = self.plan.is_at(&job.hash);
        let has_lost_slot = !is_current && self.has_lost_slot(stored_entry);
        let was_done = self.was_done(node, job);
        let is_selected = self.is_eligible(node) || self.plan.selects_unknown();
        if !was_done && (!is_selected || has_lost_slot) {
            return self
                .without_job(node, stored_entry, leaving)
                .and([self.mark_recorded(job, events)]);
        }
        let step = self.patch_record(node, &record, events);
        if has_lost_slot {
            return NodeDecision::Cleanup(vec![step]);
        }
        NodeDecision::slot(self.state_of_failure(node, &record).with_step(step))
    }

    /// Whether the Plan has returned to the version of the node's label while this Job was at another one, so that the node may
    /// no longer have it.
    pub(super) fn was_done(&self, node: &NodeFacts, job: &JobFacts) -> bool {
        let done = node.labels.of_plan(&self.plan.facts.name);
        !self.plan.is_at(&job.hash) && done.is_some_and(|done| self.plan.is_at(done))
    }

    /// Skips a node at the version of a Job whose `preflight` said so. `None` if its annotation has no room for that.
    fn skipped_by_preflight(
        &self,
        node: &NodeFacts,
        job: &JobFacts,
        at: Timestamp,
        stored_entry: Option<&NodeProgress>,
        leaving: Option<&JobFacts>,
    ) -> Option<NodeDecision> {
        let why = match self.cluster.failed_container(job) {
            Some(failed) if !failed.says.is_empty() => &failed.says,
            _ => "it does not say why",
        };
        let plan = &self.plan.facts.name;
        let skip = annotation::skipped_by_preflight(node.skip.as_deref(), plan, &job.version, why)?;
        let is_current = self.plan.is_at(&job.hash);
        if !is_current || !self.is_eligible(node) {
            let text = format!("preflight skips Node {} at {}: {why}", node.name, job.version);
            let event = self.job_event(Reason::PreflightSkipped, text, &job.uid);
            let next = self.without_job(node, stored_entry, leaving);
            return Some(next.and([self.mark_recorded(job, vec![event])]));
        }
        let mut state = NodeState::new(node, NodePhase::Finishing);
        (state.since, state.job) = (Some(at), Some(job.name.clone()));
        let change = NodeChange::exact().annotate(names::ANNOTATION_SKIP, Some(skip));
        Some(NodeDecision::slot(state.with_step(patch(
            node,
            change,
            Vec::new(),
        ))))
    }

    /// The record of a failed Job, without the reason.
    pub(super) fn failure_record(&self, node: &NodeFacts, job: &JobFacts, at: Timestamp) -> Record {
        Record {
            phase: Phase::Failed,
            retries: self
                .record(node)
                .filter(|known| known.phase != Phase::Skipped)
                .map_or(0, |known| known.retries_at(&job.hash)),
            // A Job of system-upgrade-controller has no digest. With that of the present spec, only a later edit is
            // a retry.
            inputs: job
                .inputs
                .as_deref()
                .or(Some(&self.plan.inputs))
                .map(str::to_owned),
            started: None,
            uncordon: job.unschedulable_before == Some(false),
            workloads: Vec::new(),
            ..self.record_of_job(node, job, at)
        }
    }

    /// The event of a failed Job, with what was decided.
    pub(super) fn failed_event(&self, job: &JobFacts, node: &NodeFacts, record: &Record) -> Event {
        let reason = record.reason.as_deref().unwrap_or_default();
        let message = record.message.as_deref().unwrap_or_default();
        let namespace = &self.cluster.defaults.namespace;
        let text = failure_text(namespace, &job.name, &node.name, reason, message);
        let text = failure::event_text(self.cluster, self.plan, node, record, &text);
        self.job_event(Reason::JobFailed, text, &job.uid)
    }

    /// The state of a node whose failure is about to be recorded.
    pub(super) fn state_of_failure(&self, node: &NodeFacts, record: &Record) -> NodeState {
        if self.plan.is_at(&record.hash) {
            return self.failed_state(node, record);
        }
        // The Plan is at another version, which the node gets next.
        let mut state = NodeState::new(node, NodePhase::Pending);
        state.since = Some(record.at);
        state.start = Some(Start::Later);
        state
    }

    /// The state of a node that has failed, with what `spec.failure` makes of it.
    pub(super) fn failed_state(&self, node: &NodeFacts, record: &Record) -> NodeState {
        let mut state = failed_state(node, record);
        let is_final = self.plan.retry_due(record).is_none();
        state.frees_slot = is_final && self.plan.failed_nodes_free_slots();
        state.is_released_after_failure = is_final && self.plan.spec().uncordons_failed();
        state.decision = self.plan.failure_decision(record);
        // What the pod waited for then, whatever taints the node has now.
        let says = record.message.as_deref().unwrap_or_default();
        let waited =
            record.reason.as_ref().is_some_and(|it| *it == Reason::PodWaiting) && words::names_taints(says);
        state.about = waited
            .then(|| self.kept_off_by(node))
            .flatten()
            .into_iter()
            .collect();
        if node.is_new_for(&self.cluster.defaults.namespace) {
            let keeps = format!(
                "the node has joined lately, and keeps taint {}",
                names::TAINT_NEW_NODE
            );
            let message = state.message.take().map(|message| format!("{message}; {keeps}"));
            state.message = Some(message.unwrap_or(keeps));
        }
        state
    }

    /// A failed node stays as it is until there is a reason to retry. The retry is written to the record before it begins.
    /// A node whose slot is free begins only when it gets one again.
    pub(super) fn failed(&self, node: &NodeFacts, record: &Record) -> NodeState {
        let mut state = self.failed_state(node, record);
        let asked = self.asked_to_retry(node);
        let edited = record
            .inputs
            .as_deref()
            .is_some_and(|inputs| *inputs != *self.plan.inputs);
        let by_person = asked.is_some() || edited;
        let due = self.plan.retry_due(record);
        let is_due = due.is_some_and(|due| due <= self.now) && self.can_start(node);
        // While the Plan may not start nodes, the request to retry stays on the node and is granted later.
        let shut = self.gate.is_some_and(|gate| !gate.permits_retries());
        if !by_person && !is_due || shut {
            state.requeue_at = due.filter(|due| *due > self.now);
            return self.uncordon_failed(node, record, state);
        }
        let next = Record {
            phase: Phase::Retry,
            attempt: record.attempt.saturating_add(1),
            retries: if by_person { 0 } else { record.retries + 1 },
            inputs: Some(self.plan.inputs.to_string()),
            at: self.now,
            reason: None,
            message: None,
            ..record.clone()
        };
        let change = self.answer_retry(node, &next, asked);
        // This attempt has no Job yet.
        let mut retry = NodeState::new(node, NodePhase::Pending);
        retry.since = Some(self.now);
        retry.attempt = Some(next.attempt);
        retry.boot = self.plan.spec().may_reboot().then(|| node.boot_id.clone());
        retry.start = Some(Start::Later);
        let retry = retry.with_step(patch(node, change, Vec::new()));
        if !state.frees_slot {
            return retry;
        }
        state.retry = Some(Box::new(retry));
        state
    }

    /// Stores a record. `asked` is what is left of the request to retry that it answers.
    pub(super) fn answer_retry(
        &self,
        node: &NodeFacts,
        record: &Record,
        asked: Option<String>,
    ) -> NodeChange {
        let mut change = self.store(node, record);
        answer(&mut change, asked);
        change
    }

    /// Uncordons a failed node for whose cordon there is no ledger; others leave the ledger with [`release::cleanup`].
    ///
    /// [`release::cleanup`]: crate::release::cleanup
    fn uncordon_failed(&self, node: &NodeFacts, record: &Record, state: NodeState) -> NodeState {
        if !state.is_released_after_failure || !record.uncordon || node.ledger.is_some() {
            return state;
        }
        let released = Record {
            uncordon: false,
            ..record.clone()
        };
        let mut change = self.store(node, &released);
        release(node, &self.plan_hold(), true, &mut change);
        state.with_step(patch(node, change, Vec::new()))
    }

    /// The annotation `refit.rs/retry` without this Plan; `None` if it does not name the Plan. `*` means all Plans that failed
    /// on the node, or that released it; each of them removes only itself. An entry may say who wrote it.
    pub(super) fn asked_to_retry(&self, node: &NodeFacts) -> Option<String> {
        let retry = node.retry.as_deref()?;
        let this_plan = &*self.plan.facts.name;
        let failed = || {
            node.records
                .iter()
                .filter(|(_, r)| matches!(r.phase, Phase::Failed | Phase::Skipped))
                .map(|(plan, _)| &**plan)
        };
        let is_all = annotation::first_word(retry) == Some("*");
        let named: Vec<(&str, &str)> = if is_all {
            failed().map(|plan| (plan, plan)).collect()
        } else {
            let entries = annotation::entries(retry);
            entries.map(|entry| (entry.plan, entry.text)).collect()
        };
        if !named.iter().any(|(plan, _)| *plan == this_plan) {
            return None;
        }
        let others = named.into_iter().filter(|(plan, _)| *plan != this_plan);
        let rest: Vec<_> = others.map(|(_, text)| text).collect();
        Some(rest.join(","))
    }
}

/// Leaves this of the annotation `refit.rs/retry`.
pub(super) fn answer(change: &mut NodeChange, asked: Option<String>) {
    let Some(rest) = asked else { return };
    let rest = Some(rest).filter(|rest| !rest.is_empty());
    change
        .annotations
        .insert(names::ANNOTATION_RETRY.to_owned(), rest);
    // A user may add a Plan to the annotation at the same moment, and a blind patch would drop that entry.
    change.exact = true;
}

/// The state of a node whose failure is recorded.
pub(super) fn failed_state(node: &NodeFacts, record: &Record) -> NodeState {
    let mut state = NodeState::of_record(node, record, NodePhase::Failed);
    state.reason.clone_from(&record.reason);
    state.message.clone_from(&record.message);
    state
}

/// The message for a failure (S54).
pub(crate) fn failure_text(namespace: &str, job: &str, node: &str, reason: &str, message: &str) -> String {
    format!("Job {namespace}/{job} failed on Node {node}: {reason}: {message}")
}
