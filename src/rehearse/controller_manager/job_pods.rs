//! Creates and deletes the pods of a Job.

use std::sync::Arc;

use super::job::{Spec, active};
use super::job_status::PodCounts;
use crate::json::{Value, json};
use crate::resources::Kind;
use crate::state::State;
use crate::store::{Key, Object};
use crate::strategy::TRACKING;
use crate::work_queue::Work;

impl State {
    /// Creates missing pods, and deletes surplus ones.
    pub(super) fn manage(
        &mut self,
        key: &Key,
        job: &Object,
        spec: &Spec,
        count: &mut PodCounts,
        pods: &[Arc<Object>],
    ) {
        let wanted = spec.parallelism.min(spec.completions - count.succeeded).max(0);
        let surplus = usize::try_from(count.active - wanted).unwrap_or_default();
        if surplus > 0 {
            // The pods that have progressed least are deleted first.
            let mut active = active(pods);
            active.sort_by_key(|pod| (pod.text("/status/phase") != "Pending", pod.version));
            active.truncate(surplus);
            count.terminating += i64::try_from(surplus).unwrap_or_default();
            count.active = wanted;
            self.delete_pods(&active);
            return;
        }
        // With `podReplacementPolicy: Failed`, a pod is replaced only once it has terminated (KEP-3939).
        let there = count.active
            + if spec.only_failed_are_replaced {
                count.terminating
            } else {
                0
            };
        if there >= wanted {
            return;
        }
        if let Some(until) = self.backoffs.until(job.uid()).filter(|until| *until > self.now()) {
            self.enqueue_at(until, Work::SyncJob(key.clone()));
            return;
        }
        if let Some(why) = self.refuses_pods {
            self.record_refusal(key, job, why);
            self.enqueue_after(jiff::SignedDuration::from_secs(1), Work::SyncJob(key.clone()));
            return;
        }
        for _ in there..wanted {
            match self.create(Kind::Pod, &key.namespace, pod(job), false) {
                Ok(_) => count.active += 1,
                Err(status_error) => {
                    tracing::warn!(
                        job = &*key.name,
                        why = status_error.message,
                        "a pod cannot be created"
                    );
                    self.enqueue_after(jiff::SignedDuration::from_secs(1), Work::SyncJob(key.clone()));
                    return;
                }
            }
        }
    }

    /// The event of the Job controller, once for each Job (`pkg/controller/controller_utils.go`).
    fn record_refusal(&mut self, key: &Key, job: &Object, why: &str) {
        let event = json!({
            "apiVersion": "v1", "kind": "Event", "type": "Warning", "reason": "FailedCreate",
            "metadata": { "name": format!("{}.refused", key.name), "namespace": &*key.namespace },
            "involvedObject": { "kind": "Job", "name": &*key.name, "namespace": &*key.namespace, "uid": job.uid() },
            "message": format!("Error creating: {why}"), "lastTimestamp": self.now().to_string(),
        });
        // The second attempt finds the event of the first.
        let _ = self.create(Kind::Event, &key.namespace, event, false);
    }
}

/// A pod by the template of its owner, whose spec it shares in memory.
pub(super) fn pod_of(owner: &Object) -> Value {
    let template = &owner.value["spec"]["template"];
    let mut pod = json!({ "apiVersion": "v1", "kind": "Pod" });
    pod["metadata"] = template["metadata"].clone();
    pod["metadata"]["ownerReferences"] = json!([{
        "apiVersion": owner.value["apiVersion"], "kind": owner.value["kind"], "name": owner.meta("name"),
        "uid": owner.uid(), "controller": true, "blockOwnerDeletion": true,
    }]);
    pod["spec"] = template["spec"].clone();
    pod
}

fn pod(job: &Object) -> Value {
    let mut pod = pod_of(job);
    pod["metadata"]["generateName"] = format!("{}-", job.meta("name")).into();
    pod["metadata"]["finalizers"] = json!([TRACKING]);
    pod
}
