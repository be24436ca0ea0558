//! The controllers of nodes and of CRDs: taints from conditions, eviction by taints, garbage collection of pods on
//! deleted nodes, and serving of a CRD.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Taint, Toleration};
use serde::Deserialize as _;

use crate::delete::DeleteOptions;
use crate::json::{Value, json};
use crate::work_queue::Work;
use refit_cluster::node_fit::tolerates;

use crate::pods::{condition, has_ended, set_condition};
use crate::resources::Kind;
use crate::state::{State, seconds};
use crate::status_error::StatusError;
use crate::store::{Key, Object};
use crate::write::WriteTarget;

/// Taints derived from the spec and the conditions of a node.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const OWN_TAINTS: [&str; 3] = [UNSCHEDULABLE, NOT_READY, UNREACHABLE];

impl State {
    /// Updates the derived taints of a node.
    pub(crate) fn sync_taints(&mut self, name: &str) {
        let key = Key::new("", name);
        let Some(node) = self.store.get(Kind::Node, &key) else {
            return;
        };
        let known = node.value["spec"]["taints"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let ready = condition(&node.value, "Ready").and_then(|one| one["status"].as_str());
        let mut wanted: Vec<(&str, &str)> = Vec::new();
        if node.value["spec"]["unschedulable"] == true {
            wanted.push((UNSCHEDULABLE, "NoSchedule"));
        }
        match ready {
            Some("True") => {}
            Some("Unknown") => wanted.extend([(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")]),
            // A Node without conditions has just registered: `TaintNodesByCondition` taints it as not ready.
            Some(_) | None => wanted.extend([(NOT_READY, "NoSchedule"), (NOT_READY, "NoExecute")]),
        }
        let is =
            |taint: &Value, (key, effect): (&str, &str)| taint["key"] == key && taint["effect"] == effect;
        let mut taints = known.clone();
        // A taint that stays keeps its `timeAdded`, from which `tolerationSeconds` counts.
        taints.retain(|taint| {
            let own = taint["key"].as_str().is_some_and(|key| OWN_TAINTS.contains(&key));
            !own || wanted.iter().any(|one| is(taint, *one))
        });
        let now = seconds(self.now());
        for one in wanted {
            if !taints.iter().any(|taint| is(taint, one)) {
                taints.push(json!({ "key": one.0, "effect": one.1, "timeAdded": now }));
            }
        }
        if taints == known {
            return;
        }
        let _ = self.change(Kind::Node, &key, WriteTarget::Whole, |new| {
            if taints.is_empty() {
                if let Some(spec) = new["spec"].as_object_mut() {
                    spec.remove("taints");
                }
            } else {
                new["spec"]["taints"] = taints.into();
            }
        });
        self.enqueue(Work::EvictTaintedPods(name.to_owned()));
    }

    /// Deletes pods of a node that do not tolerate its taints, or no longer (`pkg/controller/tainteviction`).
    pub(crate) fn evict_tainted_pods(&mut self, name: &str) {
        let Some(node) = self.store.get(Kind::Node, &Key::new("", name)) else {
            return;
        };
        let mut taints = Vec::<Taint>::deserialize(&node.value["spec"]["taints"]).unwrap_or_default();
        taints.retain(|taint| taint.effect == "NoExecute");
        if taints.is_empty() {
            return;
        }
        let now = self.now();
        let pods: Vec<Arc<Object>> = self.store.pods_on(name).cloned().collect();
        for pod in pods
            .iter()
            .filter(|pod| !pod.is_being_deleted() && !has_ended(pod))
        {
            match eviction_time(pod, &taints) {
                Some(at) if at <= now => {
                    let message = "Taint manager: deleting due to NoExecute taint";
                    let _ = self.add_disruption_target(&pod.key(), "DeletionByTaintManager", message, None);
                    let _ = self.delete(Kind::Pod, &pod.key(), &DeleteOptions::default());
                }
                Some(at) => self.enqueue_at(at, Work::EvictTaintedPods(name.to_owned())),
                None => {}
            }
        }
    }

    /// Deletes the pods of a deleted node (`pkg/controller/podgc`).
    pub(crate) fn delete_orphaned_pods(&mut self, name: &str) {
        // The node may have registered again in the meantime.
        if self.store.get(Kind::Node, &Key::new("", name)).is_some() {
            return;
        }
        let pods: Vec<Arc<Object>> = self.store.pods_on(name).cloned().collect();
        for pod in pods {
            let message = "PodGC: node no longer exists";
            // No kubelet is left to end the pod, so it would stay in phase Running for ever (`gc_controller.go`).
            let phase = (!has_ended(&pod)).then_some("Failed");
            let _ = self.add_disruption_target(&pod.key(), "DeletionByPodGC", message, phase);
            let at_once = DeleteOptions {
                grace: Some(0),
                ..DeleteOptions::default()
            };
            let _ = self.delete(Kind::Pod, &pod.key(), &at_once);
        }
    }

    /// Sets the condition `DisruptionTarget` of a pod.
    pub(crate) fn add_disruption_target(
        &mut self,
        key: &Key,
        reason: &str,
        message: &str,
        phase: Option<&str>,
    ) -> Result<(), StatusError> {
        let now = seconds(self.now());
        self.change(Kind::Pod, key, WriteTarget::Status, |new| {
            let condition = json!({
                "type": "DisruptionTarget", "status": "True", "reason": reason, "message": message,
                "lastProbeTime": null, "lastTransitionTime": now,
            });
            set_condition(new, condition);
            if let Some(phase) = phase {
                new["status"]["phase"] = phase.into();
            }
        })?;
        Ok(())
    }

    /// Starts serving a CRD.
    pub(crate) fn establish_definition(&mut self, key: &Key) {
        let now = seconds(self.now());
        let _ = self.change(Kind::Definition, key, WriteTarget::Status, |new| {
            if new["status"]["conditions"].is_array() {
                return;
            }
            let condition = |type_: &str, reason: &str, message: &str| {
                json!({
                    "type": type_, "status": "True", "reason": reason, "message": message,
                    "lastTransitionTime": now,
                })
            };
            new["status"] = json!({
                "acceptedNames": new["spec"]["names"],
                "storedVersions": ["v1"],
                "conditions": [
                    condition("NamesAccepted", "NoConflicts", "no conflicts found"),
                    condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
                ],
            });
        });
    }
}

/// The time when these taints evict a pod; `None` if it tolerates them for good.
fn eviction_time(pod: &Object, taints: &[Taint]) -> Option<Timestamp> {
    let tolerations = &pod.value["spec"]["tolerations"];
    let tolerations = Vec::<Toleration>::deserialize(tolerations).unwrap_or_default();
    let ends = taints.iter().filter_map(|taint| {
        let since = taint
            .time_added
            .as_ref()
            .map_or(Timestamp::UNIX_EPOCH, |time| time.0);
        let bearing = tolerations.iter().filter(|one| tolerates(one, taint));
        // Of several matching tolerations, the shortest `tolerationSeconds` counts.
        match bearing
            .map(|one| one.toleration_seconds)
            .min_by_key(|seconds| seconds.unwrap_or(i64::MAX))
        {
            None => Some(since),
            Some(None) => None,
            Some(Some(seconds)) => since.checked_add(SignedDuration::from_secs(seconds.max(0))).ok(),
        }
    });
    ends.min()
}
