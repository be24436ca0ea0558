//! A successful upgrade: when its node is done, and what is written then.

use jiff::Timestamp;

use super::fail;
use super::reboot::{Evidence, awaiting_report};
use super::state::{NodeDecision, NodeState};
use super::{NodeReconciler, patch};
use crate::event::Event;
use crate::label_receipts;
use crate::later::{later, requeue};
use crate::release::release;
use crate::resolve::Resolved;
use crate::step::{NodeChange, Step};
use refit_api::complete_label::expand;
use refit_api::text::seconds;
use refit_api::{NodePhase, Reason, names};
use refit_facts::record::{Phase, Record, Verification};
use refit_facts::{Hash, JobFacts, JobName, JobOutcome, JobUid, NodeFacts};

impl NodeReconciler<'_> {
    /// Finishes a Job that succeeded.
    pub(super) fn finish_job(&self, node: &NodeFacts, job: &JobFacts) -> NodeDecision {
        let at = match job.outcome {
            JobOutcome::Complete { at } => at,
            _ => self.now,
        };
        self.finish(node, &self.record_of_job(node, job, at), Some(job))
    }

    /// Finishes a success whose Job is gone: only the record is left.
    pub(super) fn finish_record(&self, node: &NodeFacts, record: &Record) -> NodeDecision {
        self.finish(node, record, None)
    }

    /// The node is done when it has rebooted (if required), has settled, and the delay is over. Whatever must outlive
    /// the Job until then is written to the record first. `success` is that record, or what it will be.
    fn finish(&self, node: &NodeFacts, success: &Record, job: Option<&JobFacts>) -> NodeDecision {
        let labelled = node.labels.of_plan(&self.plan.facts.name);
        let record = self
            .record(node)
            .filter(|r| r.job_uid == success.job_uid && r.phase == Phase::Upgraded);
        // Before the check of the label, which the node has in this phase.
        if let Some(known) = self.record(node).filter(|r| r.phase == Phase::Recovering)
            && known.job_uid == success.job_uid
        {
            return self
                .recover(node, known)
                .and(job.map(|job| self.mark_done(node, job)));
        }
        if labelled == Some(&*success.hash) && record.is_none() {
            // The patch below was made, or system-upgrade-controller did the same.
            return NodeDecision::Cleanup(job.map(|job| self.mark_done(node, job)).into_iter().collect());
        }
        // The request was withdrawn during the drain, or someone else has rebooted the node. No record requests a
        // reboot yet, so the node is released as one that the Plan does not concern.
        if let (Some(reboot_needed), None) = (self.plan.selection.reboot_needed, record)
            && reboot_needed.is_withdrawn(node)
        {
            let recorded = job.map(|job| self.mark_recorded(job, Vec::new()));
            return NodeDecision::Cleanup(recorded.into_iter().collect());
        }
        match (record, job) {
            // The record exists, so the reboot was decided on already; Job, pod and report may be gone.
            (Some(record), _) => {
                if let Some(decision) = self.reboot(node, record) {
                    return decision.and(job.map(|job| self.mark_recorded(job, Vec::new())));
                }
            }
            // A Job without a sentinel is one of a Plan without `reboot`, or of system-upgrade-controller: its
            // success is the evidence.
            (None, Some(job)) if job.sentinel => match self.evidence(job) {
                Evidence::Awaited { until } => {
                    return NodeDecision::slot(awaiting_report(node, success, until));
                }
                Evidence::Reboot { boot_id } => return self.request_reboot(node, success, boot_id.as_ref()),
                Evidence::NoReboot => {}
            },
            (None, Some(job)) if self.plan.spec().payload_reboots() => {
                // A payload that reboots before it ends has a second pod, in the next boot, and the node need not leave that one.
                let begun = job.boots.first().unwrap_or(&node.boot_id);
                return self.request_reboot(node, success, Some(begun));
            }
            (None, _) => {}
        }
        self.settle(node, success, record, labelled, job)
    }

    /// Everything but settling is over.
    fn settle(
        &self,
        node: &NodeFacts,
        success: &Record,
        record: Option<&Record>,
        labelled: Option<&str>,
        job: Option<&JobFacts>,
    ) -> NodeDecision {
        // The record knows whether the node was uncordoned at the beginning of the delay; the Job does not.
        let uncordon = record.unwrap_or(success).uncordon;
        let hold = self.plan_hold();
        let due = later(success.at, self.plan.parsed.post_complete_delay);
        let unsettled = self.unsettled(node, success, record);
        if unsettled.is_none()
            && let Some(decision) = self.verify(node, success, record, job)
        {
            return decision;
        }
        let mut state = NodeState::of_record(node, success, NodePhase::Settling);
        // A success in the future was seen before the clock was set back: without a delay there is nothing to wait for.
        let is_due = due <= self.now || self.plan.parsed.post_complete_delay.is_zero();
        if unsettled.is_none() && is_due {
            let took = success.started.map(|started| self.now.duration_since(started));
            state.took = took.filter(jiff::SignedDuration::is_positive);
            let mut change = self.done_change(node, success);
            release(node, &hold, uncordon, &mut change);
            // A state from before the cordon must not label the node as done.
            change.exact |= self.plan.is_disruptive() && !change.is_empty();
            let done = self.complete_event(node, &success.job_uid);
            let workloads = self.evicted(node, record);
            // Label and record are one write: between two writes a crash would either forget the workloads or label
            // the node without waiting for them.
            if !workloads.is_empty() && labelled != Some(names::LABEL_VALUE_DISABLED) {
                let record = Record {
                    phase: Phase::Recovering,
                    uncordon: false,
                    reboot: None,
                    settling: Some(self.now),
                    verify: None,
                    workloads,
                    ..record.unwrap_or(success).clone()
                };
                change.annotations.extend(self.store(node, &record).annotations);
                return NodeDecision::slot(state.with_step(patch(node, change, vec![done])));
            }
            return match job {
                // A disabled node gets no label.
                Some(job) if change.is_empty() => {
                    NodeDecision::Cleanup(vec![self.mark_recorded(job, vec![done])])
                }
                // The next node waits for this patch, so the event is written later, with the annotation on the Job.
                Some(job) if !job.is_made_by_suc() => {
                    NodeDecision::slot(state.with_step(patch(node, change, Vec::new())))
                }
                _ => NodeDecision::slot(state.with_step(patch(node, change, vec![done]))),
            };
        }
        let settling = self.settling_since(record, unsettled.as_ref());
        if let Some(unsettled) = &unsettled {
            let until = record.and_then(|record| self.settled_until(node, record, unsettled));
            if let (Some(record), Some(until)) = (record, until)
                && until <= self.now
            {
                return self.fail_settle(node, record, unsettled);
            }
            state = unsettled.annotate(node, state);
            requeue(&mut state.requeue_at, until);
        } else {
            state = state.with_reason(
                Reason::PostCompleteDelay,
                format!("spec.postCompleteDelay ends at {}", seconds(due)),
            );
            state.requeue_at = Some(due);
        }
        let mut change = NodeChange::default();
        if unsettled.is_none() {
            // Schedulable during the delay (S60); the label follows when it is over.
            release(node, &hold, uncordon, &mut change);
        }
        // Released only once: a later cordon has its own reason.
        let left = uncordon && unsettled.is_some();
        let verify = verification(record, unsettled.is_none());
        if record.is_none_or(|r| r.uncordon != left || r.settling != settling || r.verify != verify) {
            let record = Record {
                uncordon: left,
                settling,
                verify,
                ..record.unwrap_or(success).clone()
            };
            change.annotations.extend(self.store(node, &record).annotations);
        }
        if !change.is_empty() {
            // Once only, with the first write: the record is absent exactly until then.
            let waiting = record.is_none() && self.plan.parsed.post_complete_delay.is_positive();
            let events = waiting
                .then(|| self.waiting_event(node, success))
                .into_iter()
                .collect();
            return NodeDecision::slot(state.with_step(patch(node, change, events)));
        }
        state
            .steps
            .extend(job.map(|job| self.mark_recorded(job, Vec::new())));
        NodeDecision::slot(state)
    }

    /// The record of a success at its beginning, without what its Job says.
    pub(super) fn success_record(&self, node: &NodeFacts, hash: &Hash) -> Record {
        Record {
            namespace: self.cluster.defaults.namespace.clone(),
            plan_uid: self.plan.facts.uid.clone(),
            node_uid: node.uid.clone(),
            hash: hash.clone(),
            version: String::new(),
            phase: Phase::Upgraded,
            attempt: 0,
            retries: self.record(node).map_or(0, |known| known.retries_at(hash)),
            job_uid: JobUid::default(),
            job: JobName::default(),
            inputs: None,
            at: self.now,
            started: None,
            uncordon: false,
            reboot: None,
            settling: None,
            verify: None,
            workloads: self.evicted(node, None),
            reason: None,
            message: None,
        }
    }

    /// The record of a Job that succeeded.
    pub(super) fn record_of_job(&self, node: &NodeFacts, job: &JobFacts, at: Timestamp) -> Record {
        let spec = self.plan.spec();
        let cordons = spec.cordon.unwrap_or_default() || spec.drain.is_some();
        let uncordon = match job.unschedulable_before {
            Some(before) => !before,
            None => job.is_made_by_suc() && cordons, // S60
        };
        Record {
            version: job.version.to_string(),
            attempt: job.attempt,
            job_uid: job.uid.clone(),
            job: job.name.clone(),
            inputs: job.inputs.as_deref().map(str::to_owned),
            at,
            started: Some(job.created),
            uncordon,
            ..self.success_record(node, &job.hash)
        }
    }

    /// Records a successful Job whose node is done, and writes the event. The event of a Job of
    /// system-upgrade-controller was written by that, or with the label.
    pub(crate) fn mark_done(&self, node: &NodeFacts, job: &JobFacts) -> Step {
        let done = || self.complete_event(node, &job.uid);
        // With a record the event follows when the delay is over.
        let stored_entry = job.is_made_by_suc() || self.record(node).is_some();
        self.mark_recorded(job, (!stored_entry).then(done).into_iter().collect())
    }

    fn complete_event(&self, node: &NodeFacts, job_uid: &str) -> Event {
        let text = format!("Job completed on Node {}", node.name);
        self.job_event(Reason::JobComplete, text, job_uid)
    }

    fn waiting_event(&self, node: &NodeFacts, success: &Record) -> Event {
        let delay = self.plan.delay_text();
        let text = format!(
            "Job completed on Node {}, waiting {delay} PostCompleteDelay",
            node.name
        );
        self.job_event(Reason::JobCompleteWaiting, text, &success.job_uid)
    }

    /// Marks a node as done that needs no Job, unless it has changed.
    pub(crate) fn mark_at_version(&self, node: &NodeFacts, resolved: &Resolved) -> Step {
        let success = Record {
            version: resolved.version.to_string(),
            ..self.success_record(node, &resolved.hash)
        };
        let change = NodeChange {
            exact: true,
            ..self.done_change(node, &success)
        };
        let by_kubelet = self
            .plan
            .selection
            .skips_at_version
            .is_none_or(|evidence| evidence.kubelet);
        let evidence = if by_kubelet {
            format!("its kubelet has version {}", node.kubelet)
        } else {
            format!("its osImage is {}", node.info().os_image)
        };
        let text = format!("Node {} is done without a Job: {evidence} already", node.name);
        let plan = &self.plan.facts;
        let occurrence = format!("{}@{}", node.uid, resolved.hash);
        let event = Event::plan(&plan.name, &plan.uid, Reason::AtVersion, text, &occurrence);
        patch(node, change, vec![event])
    }

    /// The changes that a node still needs to be done.
    fn done_change(&self, node: &NodeFacts, success: &Record) -> NodeChange {
        let plan = &self.plan.facts.name;
        let label = names::plan_label(plan);
        let mut change = NodeChange::default();
        for (key, value) in self.plan.spec().post_complete_labels.iter().flatten() {
            change
                .labels
                .insert(key.clone(), Some(expand(value, &success.version, &success.hash)));
        }
        // A user has excluded the node during its upgrade. Neither the hash nor a label of `postCompleteLabels` may
        // undo that.
        if node.labels.get(&label) == Some(names::LABEL_VALUE_DISABLED) {
            change.labels.remove(&label);
        } else {
            change.labels.insert(label, Some(success.hash.to_string()));
        }
        change
            .labels
            // A label that the node has already needs no write. system-upgrade-controller may have set them before
            // the swap.
            .retain(|key, value| node.labels.get(key) != value.as_deref());
        if node.records.contains_key(plan) {
            change.annotations.insert(Record::key(plan), None);
        }
        // A request that came while the node was in progress shall not retry a failure at another version.
        fail::answer(&mut change, self.asked_to_retry(node));
        label_receipts::note(self.cluster, node, plan, &success.job_uid, &mut change);
        change
    }
}

/// The stored verification, which has passed once the node is settled.
fn verification(record: Option<&Record>, is_settled: bool) -> Option<Verification> {
    let known = record?.verify.clone()?;
    Some(Verification {
        passed: known.passed || is_settled,
        ..known
    })
}
