//! An upgrade that succeeded: when its node is done, and what is written then.

use jiff::Timestamp;

use super::reboot::{Evidence, awaited};
use super::success::{Success, expand};
use super::{Question, Stand, Standing, patch, record_key};
use crate::api::names;
use crate::rollout::conditions::seconds;
use crate::rollout::event::{Event, EventType};
use crate::rollout::facts::{JobFacts, NodeFacts, Outcome};
use crate::rollout::give_back::release;
use crate::rollout::record::{Phase, Record};
use crate::rollout::step::{MARK_WAITS, NodeChange, Step};

impl Question<'_> {
    /// A Job that has succeeded.
    pub(super) fn finish_job(&self, node: &NodeFacts, job: &JobFacts) -> Stand {
        let at = match job.outcome {
            Outcome::Complete { at } => at,
            _ => self.now,
        };
        self.finish(node, &Success::of_job(job, at, self.plan), Some(job))
    }

    /// A success of which only the record is left.
    pub(super) fn finish_record(&self, node: &NodeFacts, record: &Record) -> Stand {
        self.finish(node, &Success::of_record(record), None)
    }

    /// The node is done when it has rebooted where it had to, has settled, and the delay is over; what has to outlive the
    /// Job until then goes into the record first.
    fn finish(&self, node: &NodeFacts, success: &Success<'_>, job: Option<&JobFacts>) -> Stand {
        let labelled = node
            .labels
            .get_joined(names::LABEL_PLAN_PREFIX, &self.plan.facts.name);
        let record = self
            .record(node)
            .filter(|r| *r.job_uid == *success.job_uid && r.phase == Phase::Upgraded);
        if let Some(known) = self.record(node).filter(|r| r.phase == Phase::Recovering)
            && *known.job_uid == *success.job_uid
        {
            return self
                .recover(node, known)
                .and(job.map(|job| self.mark_done(node, job)));
        }
        if labelled == Some(success.hash) && record.is_none() {
            // The one patch below has been made, or system-upgrade-controller has done as much.
            return Stand::Tidy(job.map(|job| self.mark_done(node, job)).into_iter().collect());
        }
        match (record, job) {
            (Some(record), _) => {
                if let Some(stand) = self.reboot(node, record) {
                    return stand.and(job.map(|job| self.mark(job, Vec::new())));
                }
            }
            (None, Some(job)) if job.sentinel => match self.evidence(job) {
                Evidence::Awaited { until } => return Stand::slot(awaited(node, success, until)),
                Evidence::Reboot { boot_id } => return self.is_to_reboot(node, success, boot_id.as_ref()),
                Evidence::NoReboot => {}
            },
            (None, _) => {}
        }
        self.settle(node, success, record, labelled, job)
    }

    /// Nothing is left but to settle.
    fn settle(
        &self,
        node: &NodeFacts,
        success: &Success<'_>,
        record: Option<&Record>,
        labelled: Option<&str>,
        job: Option<&JobFacts>,
    ) -> Stand {
        let uncordon = record.map_or(success.uncordon, |r| r.uncordon);
        let mine = self.mine();
        let due = success
            .at
            .saturating_add(self.plan.delay)
            .unwrap_or(Timestamp::MAX);
        let lack = self.lack(node, success, record);
        let mut standing = Standing::new(node, "Settling");
        standing.since = Some(success.at);
        standing.job = Some(success.job.into());
        standing.attempt = Some(success.attempt);
        if lack.is_none() && due <= self.now {
            let mut change = self.done_change(node, success);
            release(node, &mine, uncordon, &mut change);
            // A view of the node from before its cordon must not say that it is done.
            change.exact |= self.plan.disruptive && !change.is_empty();
            let done = self.complete_event(node, success);
            let workloads = self.evicted(node, record);
            if !workloads.is_empty() && labelled != Some(names::LABEL_VALUE_DISABLED) {
                let known = record.cloned();
                let record = Record {
                    phase: Phase::Recovering,
                    uncordon: false,
                    reboot: None,
                    settling: Some(self.now),
                    workloads,
                    ..known.unwrap_or_else(|| self.success_record(node, success))
                };
                let key = record_key(&self.plan.facts.name);
                change.annotations.insert(key, Some(record.to_text()));
                return Stand::slot(standing.then(patch(node, change, vec![done])));
            }
            return match job {
                // A node that a label keeps the Plan off gets no other.
                Some(job) if change.is_empty() => Stand::Tidy(vec![self.mark(job, vec![done])]),
                // The next node waits for this patch: it is told with the mark, which comes after it.
                Some(job) if !job.is_foreign_make() => {
                    Stand::slot(standing.then(patch(node, change, Vec::new())))
                }
                _ => Stand::slot(standing.then(patch(node, change, vec![done]))),
            };
        }
        let settling = self.settling_since(record, lack.as_ref());
        if let Some(lack) = &lack {
            let until = record.and_then(|record| self.settled_until(node, record, lack));
            if let (Some(record), Some(until)) = (record, until)
                && until <= self.now
            {
                return self.has_not_settled(node, record, lack);
            }
            standing = lack.tell(standing);
            standing.wake = standing.wake.into_iter().chain(until).min();
        } else {
            standing = standing.held_up(
                "PostCompleteDelay",
                format!("spec.postCompleteDelay is over at {}", seconds(due)),
            );
            standing.wake = Some(due);
        }
        let mut change = NodeChange::default();
        if lack.is_none() {
            // Schedulable again while the delay runs (S60); the label comes when it is over.
            release(node, &mine, uncordon, &mut change);
        }
        // Given back once: who cordons the node from now on does so for a reason of their own.
        let left = uncordon && lack.is_some();
        if record.is_none_or(|r| r.uncordon != left || r.settling != settling) {
            let known = record.cloned();
            let record = Record {
                uncordon: left,
                settling,
                ..known.unwrap_or_else(|| self.success_record(node, success))
            };
            change
                .annotations
                .insert(record_key(&self.plan.facts.name), Some(record.to_text()));
        }
        if !change.is_empty() {
            let waiting = record.is_none() && self.plan.delay.is_positive();
            let events = waiting
                .then(|| self.waiting_event(node, success))
                .into_iter()
                .collect();
            return Stand::slot(standing.then(patch(node, change, events)));
        }
        standing.steps.extend(job.map(|job| self.mark(job, Vec::new())));
        Stand::slot(standing)
    }

    /// The record of a success before anything else has come of it.
    pub(super) fn success_record(&self, node: &NodeFacts, success: &Success<'_>) -> Record {
        Record {
            workloads: self.evicted(node, None),
            ..success.record(&self.world.defaults.namespace, &self.plan.facts.uid, &node.uid)
        }
    }

    /// Says on a Job that has succeeded that its node is done, and tells it. What system-upgrade-controller made it has
    /// told itself, or it was told with the node.
    pub(super) fn mark_done(&self, node: &NodeFacts, job: &JobFacts) -> Step {
        let done = || self.complete_event(node, &Success::of_job(job, self.now, self.plan));
        // With a record it is told when the delay is over.
        let told = job.is_foreign_make() || self.record(node).is_some();
        let mut mark = self.mark(job, (!told).then(done).into_iter().collect());
        if let Step::MarkRecorded { may_wait, .. } = &mut mark {
            *may_wait = self.may_wait(node, job);
        }
        mark
    }

    /// That the Job is marked changes nothing as long as its node says that it is done.
    fn may_wait(&self, node: &NodeFacts, job: &JobFacts) -> bool {
        let label = node
            .labels
            .get_joined(names::LABEL_PLAN_PREFIX, &self.plan.facts.name);
        matches!(job.outcome, Outcome::Complete { at } if self.now.duration_since(at) < MARK_WAITS)
            && label == Some(&*job.hash)
            && self.record(node).is_none()
    }

    fn complete_event(&self, node: &NodeFacts, success: &Success<'_>) -> Event {
        let text = format!("Job completed on Node {}", node.name);
        self.job_event(EventType::Normal, "JobComplete", text, success.job_uid)
    }

    fn waiting_event(&self, node: &NodeFacts, success: &Success<'_>) -> Event {
        let delay = self.plan.delay_text();
        let text = format!(
            "Job completed on Node {}, waiting {delay} PostCompleteDelay",
            node.name
        );
        self.job_event(EventType::Normal, "JobCompleteWaiting", text, success.job_uid)
    }

    /// What the node is to be told when it is done, as far as it does not say so already.
    fn done_change(&self, node: &NodeFacts, success: &Success<'_>) -> NodeChange {
        let plan = &self.plan.facts.name;
        let label = format!("{}{plan}", names::LABEL_PLAN_PREFIX);
        let mut change = NodeChange::default();
        for (key, value) in self.plan.spec().post_complete_labels.iter().flatten() {
            change
                .labels
                .insert(key.clone(), Some(expand(value, success.version, success.hash)));
        }
        if node.labels.get(&label) == Some(names::LABEL_VALUE_DISABLED) {
            change.labels.remove(&label);
        } else {
            change.labels.insert(label, Some(success.hash.to_owned()));
        }
        change
            .labels
            .retain(|key, value| node.labels.get(key) != value.as_deref());
        if node.records.contains_key(plan) {
            change.annotations.insert(record_key(plan), None);
        }
        change
    }
}
