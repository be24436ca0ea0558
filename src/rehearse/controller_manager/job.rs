//! The Job controller: creates pods, and decides when a Job has failed or is complete (`pkg/controller/job` of
//! Kubernetes 1.36, without indexed Jobs and suspension, which refit's Jobs do not use; of pod failure policies only
//! `FailJob` by exit code).

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::garbage_collector::has_finalizer;
use super::job_status::{PodCounts, condition};
use crate::delete::DeleteOptions;
use crate::json::Value;
use crate::pods::{container_statuses, has_ended};
use crate::resources::Kind;
use crate::state::{State, seconds};
use crate::store::{Key, Object};
use crate::strategy::TRACKING;
use crate::work_queue::Work;
use crate::write::WriteTarget;
use refit_job::POD_FAILURE_POLICY;

/// Reason and message of a failed Job.
const BACKOFF: (&str, &str) = (
    "BackoffLimitExceeded",
    "Job has reached the specified backoff limit",
);
const DEADLINE: (&str, &str) = (
    "DeadlineExceeded",
    "Job was active longer than specified deadline",
);
const REACHED: (&str, &str) = ("CompletionsReached", "Reached expected number of succeeded pods");

pub(super) struct Spec {
    pub(super) parallelism: i64,
    pub(super) completions: i64,
    pub(super) backoff_limit: i64,
    pub(super) deadline: Option<SignedDuration>,
    pub(super) only_failed_are_replaced: bool,
}

impl Spec {
    fn read(job: &Value) -> Self {
        let number = |field: &str, default| job["spec"][field].as_i64().unwrap_or(default);
        Self {
            parallelism: number("parallelism", 1),
            completions: number("completions", 1),
            backoff_limit: number("backoffLimit", 6),
            deadline: job["spec"]["activeDeadlineSeconds"]
                .as_i64()
                .map(SignedDuration::from_secs),
            only_failed_are_replaced: job["spec"]["podReplacementPolicy"] == "Failed",
        }
    }

    /// Whether a pod counts as failed. A pod that is being deleted may never terminate.
    fn is_failed(&self, pod: &Object) -> bool {
        let phase = pod.text("/status/phase");
        phase == "Failed"
            || pod.is_being_deleted()
                && if self.only_failed_are_replaced {
                    phase == "Pending"
                } else {
                    phase != "Succeeded"
                }
    }
}

impl State {
    pub(crate) fn sync_job(&mut self, key: &Key) {
        let Some(job) = self.store.get(Kind::Job, key).cloned() else {
            return;
        };
        if let Some(at) = finished_at(&job.value) {
            self.expire(key, &job, at);
            return;
        }
        if job.is_being_deleted() {
            return;
        }
        let spec = Spec::read(&job.value);
        let now = self.now();
        let mut status = job.value["status"].clone();
        let started = started_at(&job.value).unwrap_or_else(|| {
            status["startTime"] = seconds(now).into();
            now
        });
        let over = spec
            .deadline
            .and_then(|deadline| started.checked_add(deadline).ok());
        if let Some(over) = over.filter(|over| *over > now) {
            self.enqueue_at(over, Work::SyncJob(key.clone()));
        }
        let pods = self.pods_of(job.uid());
        let mut count = PodCounts::read(&status);
        let (mut succeeded, mut failed) = (Vec::new(), Vec::new());
        // Pods without the finalizer are already in the counters of the status (KEP-2307).
        for pod in pods.iter().filter(|pod| has_finalizer(&pod.value, TRACKING)) {
            if pod.text("/status/phase") == "Succeeded" {
                succeeded.push(pod.clone());
            } else if spec.is_failed(pod) {
                failed.push(pod.clone());
            }
        }
        if let Some(last) = failed.iter().map(|pod| ended_at(pod, now)).max() {
            self.backoffs.record_failures(job.uid(), failed.len(), last);
        }
        if !succeeded.is_empty() {
            self.backoffs.forget(job.uid());
        }
        count.succeeded += len(&succeeded);
        count.failed += len(&failed);
        count.count_pods(&pods);

        let failing = condition(&status, "FailureTarget");
        let complete = condition(&status, "SuccessCriteriaMet").is_some();
        let end = if complete || failing.is_some() {
            None
        } else if over.is_some_and(|over| over <= now) {
            Some(("FailureTarget", owned(DEADLINE)))
        } else if let Some(message) = failed.iter().find_map(|pod| failed_by_policy(&job.value, pod)) {
            Some(("FailureTarget", (POD_FAILURE_POLICY, message)))
        } else if count.failed > spec.backoff_limit {
            // Checked even without a new failure, because the limit may have been lowered (`syncJob`).
            Some(("FailureTarget", owned(BACKOFF)))
        } else if count.succeeded >= spec.completions {
            Some(("SuccessCriteriaMet", owned(REACHED)))
        } else {
            None
        };
        let ends = complete || failing.is_some() || end.is_some();
        if ends {
            let active = active(&pods);
            count.terminating += len(&active);
            (count.active, count.ready) = (0, 0);
            self.delete_pods(&active);
        } else {
            self.manage(key, &job, &spec, &mut count, &pods);
        }
        if let Some((type_, (reason, message))) = end {
            super::job_status::add(&mut status, type_, reason, &message, now);
        }
        self.record(key, status, &count, &succeeded, &failed);
    }

    fn pods_of(&self, uid: &str) -> Vec<Arc<Object>> {
        let owned = self.store.owned_by(uid).filter(|(kind, _)| *kind == Kind::Pod);
        let pods = owned.filter_map(|(kind, key)| self.store.get(*kind, key));
        pods.filter(|pod| pod.controller() == Some(uid))
            .cloned()
            .collect()
    }

    pub(super) fn delete_pods(&mut self, pods: &[Arc<Object>]) {
        for pod in pods {
            // The pods cannot have changed since they were read.
            let _ = self.delete(Kind::Pod, &pod.key(), &DeleteOptions::default());
        }
    }

    /// Writes the counted pods in two steps: first the UIDs of the pods to count, then, after their finalizers are
    /// removed, the counters. So a controller that restarts in between neither loses a pod nor counts it twice
    /// (KEP-2307).
    fn record(
        &mut self,
        key: &Key,
        mut status: Value,
        count: &PodCounts,
        succeeded: &[Arc<Object>],
        failed: &[Arc<Object>],
    ) {
        let counted = !succeeded.is_empty() || !failed.is_empty();
        if counted {
            count.write_uncounted(&mut status, succeeded, failed);
            self.write_status(Kind::Job, key, status.clone());
            for pod in succeeded.iter().chain(failed) {
                self.remove_finalizer(Kind::Pod, &pod.key(), TRACKING);
            }
        }
        count.write(&mut status);
        // The terminal condition waits until all pods have terminated (`enactJobFinished`, since Kubernetes 1.31).
        if count.active == 0 && count.terminating == 0 {
            let now = self.now();
            if let Some((reason, message)) = condition(&status, "FailureTarget") {
                super::job_status::add(&mut status, "Failed", &reason, &message, now);
            } else if let Some((reason, message)) = condition(&status, "SuccessCriteriaMet") {
                super::job_status::add(&mut status, "Complete", &reason, &message, now);
                status["completionTime"] = seconds(now).into();
            }
        }
        self.write_status(Kind::Job, key, status);
    }

    pub(super) fn write_status(&mut self, kind: Kind, key: &Key, status: Value) {
        let _ = self.change(kind, key, WriteTarget::Status, |new| {
            new["status"] = status;
        });
    }

    /// Deletes a finished Job and its pods after `ttlSecondsAfterFinished` (`pkg/controller/ttlafterfinished`).
    fn expire(&mut self, key: &Key, job: &Object, finished: Timestamp) {
        let Some(ttl) = job.value["spec"]["ttlSecondsAfterFinished"].as_i64() else {
            return;
        };
        let at = finished
            .checked_add(SignedDuration::from_secs(ttl))
            .unwrap_or(Timestamp::MAX);
        if at > self.now() {
            self.enqueue_at(at, Work::SyncJob(key.clone()));
        } else if !job.is_being_deleted() {
            let deletion = DeleteOptions {
                uid: Some(job.uid().to_owned()),
                propagation: Some("Foreground".to_owned()),
                ..DeleteOptions::default()
            };
            let _ = self.delete(Kind::Job, key, &deletion);
        }
    }
}

fn owned((reason, message): (&'static str, &str)) -> (&'static str, String) {
    (reason, message.to_owned())
}

/// The message of a Job that a rule of its `podFailurePolicy` ends because of this pod (`matchPodFailurePolicy`).
fn failed_by_policy(job: &Value, pod: &Object) -> Option<String> {
    let rules = job["spec"]["podFailurePolicy"]["rules"].as_array()?;
    rules.iter().enumerate().find_map(|(index, rule)| {
        let codes = &rule["onExitCodes"];
        let is_meant = |one: &&Value| one["name"] == codes["containerName"] && rule["action"] == "FailJob";
        let container = container_statuses(pod).find(is_meant)?;
        let code = container.pointer("/state/terminated/exitCode")?.as_i64()?;
        let values = codes["values"].as_array()?;
        values.iter().any(|value| value.as_i64() == Some(code)).then(|| {
            format!(
                "Container {} for pod {}/{} failed with exit code {code} matching FailJob rule at index {index}",
                container["name"].as_str().unwrap_or_default(),
                pod.text("/metadata/namespace"),
                pod.text("/metadata/name"),
            )
        })
    })
}

fn len<T>(list: &[T]) -> i64 {
    i64::try_from(list.len()).unwrap_or(i64::MAX)
}

/// Pods that have neither terminated nor are being deleted.
pub(super) fn active(pods: &[Arc<Object>]) -> Vec<Arc<Object>> {
    let active = pods
        .iter()
        .filter(|pod| !has_ended(pod) && !pod.is_being_deleted());
    active.cloned().collect()
}

fn started_at(job: &Value) -> Option<Timestamp> {
    job["status"]["startTime"].as_str()?.parse().ok()
}

fn finished_at(job: &Value) -> Option<Timestamp> {
    let conditions = job["status"]["conditions"].as_array()?;
    let end = conditions
        .iter()
        .find(|one| (one["type"] == "Complete" || one["type"] == "Failed") && one["status"] == "True")?;
    end["lastTransitionTime"].as_str()?.parse().ok()
}

/// The time from which the back-off counts (`getFinishedTime`).
fn ended_at(pod: &Object, now: Timestamp) -> Timestamp {
    let ends = container_statuses(pod).filter_map(|one| {
        one.pointer("/state/terminated/finishedAt")?
            .as_str()?
            .parse()
            .ok()
    });
    ends.max().unwrap_or(now)
}
