//! An upgrade that succeeded: when its node is done, and what is written then.

use jiff::Timestamp;

use super::{Question, Stand, Standing, patch, record_key};
use crate::api::names;
use crate::rollout::blocker::Blocker;
use crate::rollout::conditions::seconds;
use crate::rollout::event::{Event, EventType};
use crate::rollout::facts::{JobFacts, NodeFacts, Outcome};
use crate::rollout::give_back::release;
use crate::rollout::plan::PlanView;
use crate::rollout::record::{Phase, Record};
use crate::rollout::step::{NodeChange, Step};

/// An upgrade that succeeded, as its Job or its record tells it.
struct Success<'a> {
    hash: &'a str,
    version: &'a str,
    at: Timestamp,
    attempt: i64,
    job: &'a str,
    job_uid: &'a str,
    inputs: Option<&'a str>,
    /// The node was cordoned for it by something that keeps no ledger, and has not been given back.
    uncordon: bool,
}

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

    /// The node is done when it is Ready and the delay is over; what has to outlive the Job until then goes into the
    /// record first.
    fn finish(&self, node: &NodeFacts, success: &Success<'_>, job: Option<&JobFacts>) -> Stand {
        let labelled = node
            .labels
            .get_joined(names::LABEL_PLAN_PREFIX, &self.plan.facts.name);
        let record = self
            .record(node)
            .filter(|r| *r.job_uid == *success.job_uid && r.phase == Phase::Upgraded);
        if labelled == Some(success.hash) && record.is_none() {
            // The one patch below has been made, or system-upgrade-controller has done as much.
            return Stand::Tidy(job.map(|job| self.mark_done(node, job)).into_iter().collect());
        }
        let uncordon = record.map_or(success.uncordon, |r| r.uncordon);
        let mine = self.mine();
        let due = success
            .at
            .saturating_add(self.plan.delay)
            .unwrap_or(Timestamp::MAX);
        let ready = self.can_start(node);
        let mut standing = Standing::new(node, "Settling");
        standing.since = Some(success.at);
        standing.job = Some(success.job.into());
        standing.attempt = Some(success.attempt);
        if ready && due <= self.now {
            let mut change = self.done_change(node, success);
            release(node, &mine, uncordon, &mut change);
            // A view of the node from before its cordon must not say that it is done.
            change.exact |= self.plan.disruptive && !change.is_empty();
            let done = self.complete_event(node, success);
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
        if ready {
            standing = standing.held_up(
                "PostCompleteDelay",
                format!("spec.postCompleteDelay is over at {}", seconds(due)),
            );
            standing.wake = Some(due);
        } else {
            standing = standing.held_up_by(&Blocker::NodeNotReady);
        }
        let mut change = NodeChange::default();
        if ready {
            // Schedulable again while the delay runs (S60); the label comes when it is over.
            release(node, &mine, uncordon, &mut change);
        }
        // Given back once: who cordons the node from now on does so for a reason of their own.
        let left = uncordon && !ready;
        if record.is_none_or(|r| r.uncordon != left) {
            let record = Record {
                uncordon: left,
                ..success.record(&self.world.defaults.namespace, &self.plan.facts.uid, &node.uid)
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

    /// Says on a Job that has succeeded that its node is done, and tells it. What system-upgrade-controller made it has
    /// told itself, or it was told with the node.
    pub(super) fn mark_done(&self, node: &NodeFacts, job: &JobFacts) -> Step {
        let done = || self.complete_event(node, &Success::of_job(job, self.now, self.plan));
        // With a record it is told when the delay is over.
        let told = job.is_foreign_make() || self.record(node).is_some();
        self.mark(job, (!told).then(done).into_iter().collect())
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

impl<'a> Success<'a> {
    fn of_job(job: &'a JobFacts, at: Timestamp, plan: &PlanView) -> Self {
        let spec = plan.spec();
        let cordons = spec.cordon.unwrap_or_default() || spec.drain.is_some();
        let uncordon = match job.unschedulable_before {
            Some(before) => !before,
            None => job.is_foreign_make() && cordons, // S60
        };
        Self {
            hash: &job.hash,
            version: &job.version,
            at,
            attempt: job.attempt,
            job: &job.name,
            job_uid: &job.uid,
            inputs: job.inputs.as_deref(),
            uncordon,
        }
    }

    fn of_record(record: &'a Record) -> Self {
        Self {
            hash: &record.hash,
            version: &record.version,
            at: record.at,
            attempt: record.attempt,
            job: &record.job,
            job_uid: &record.job_uid,
            inputs: record.inputs.as_deref(),
            uncordon: record.uncordon,
        }
    }

    fn record(&self, namespace: &str, plan_uid: &str, node_uid: &str) -> Record {
        Record {
            namespace: namespace.to_owned(),
            plan_uid: plan_uid.to_owned(),
            node_uid: node_uid.to_owned(),
            hash: self.hash.to_owned(),
            version: self.version.to_owned(),
            phase: Phase::Upgraded,
            attempt: self.attempt,
            job_uid: self.job_uid.to_owned(),
            job: self.job.to_owned(),
            inputs: self.inputs.map(str::to_owned),
            at: self.at,
            uncordon: self.uncordon,
            reason: None,
            message: None,
        }
    }
}

/// `$(LATEST_VERSION)` and `$(LATEST_HASH)` in the value of a label; another `$(X)` stays, and `$$` is `$` (S59).
fn expand(value: &str, version: &str, hash: &str) -> String {
    let mut out = String::with_capacity(value.len());
    let mut rest = value;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let (text, length) = if rest.starts_with("$$") {
            ("$", 2)
        } else if rest.starts_with("$(LATEST_VERSION)") {
            (version, "$(LATEST_VERSION)".len())
        } else if rest.starts_with("$(LATEST_HASH)") {
            (hash, "$(LATEST_HASH)".len())
        } else {
            ("$", 1)
        };
        out.push_str(text);
        rest = &rest[length..];
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::expand;

    #[test]
    fn labels_expand_as_kubernetes_expands_variables() {
        let expand = |value| expand(value, "v1", "abc");
        assert_eq!(expand("$(LATEST_VERSION)"), "v1");
        assert_eq!(expand("a-$(LATEST_HASH)-$(LATEST_VERSION)"), "a-abc-v1");
        assert_eq!(expand("$(OTHER)"), "$(OTHER)");
        assert_eq!(expand("$$(LATEST_VERSION)"), "$(LATEST_VERSION)");
        assert_eq!(expand("cost$"), "cost$");
        assert_eq!(expand("static"), "static");
    }
}
