//! A pod on a simulated node.

use std::collections::BTreeMap;
use std::time::Instant;

use k8s_openapi::api::core::v1::Pod as Object;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use refit_rehearse::json::Value;
use refit_rehearse::pod_lifecycle::{ContainerAttempt, PodBehaviour, PodLifecycle};
use serde::Serialize;
use tokio::task::AbortHandle;

use super::machine::Node;
use super::nodeset::NodeSet;
use super::watch::Head;

pub(super) struct Pod {
    pub(super) node: String,
    /// The object without what is not needed; `lifecycle` has its status.
    pub(super) object: Object,
    pub(super) lifecycle: PodLifecycle,
    pub(super) behaviour: PodBehaviour,
    /// Whether a write is in flight or queued; the next step follows it.
    pub(super) busy: bool,
    /// Time of the next step.
    pub(super) wake: Option<Instant>,
    pub(super) running_tasks: Vec<(ContainerAttempt, AbortHandle)>,
}

impl Drop for Pod {
    fn drop(&mut self) {
        self.running_tasks.iter().for_each(|(_, act)| act.abort());
    }
}

impl Pod {
    pub(super) fn new(object: Object, node: &Node, set: &NodeSet) -> Self {
        let lifecycle = PodLifecycle::adopt(&object);
        let object = slim(object);
        let mut pod = Self {
            node: node.spec.name.clone(),
            behaviour: PodBehaviour::rejecting(""),
            object,
            lifecycle,
            busy: false,
            wake: None,
            running_tasks: Vec::new(),
        };
        pod.steer(node, set);
        pod
    }

    /// Takes over everything but the status. Returns what that means to the kubelet.
    pub(super) fn update(&mut self, head: &Head<'_>) -> Change {
        let (meta, head_meta) = (&mut self.object.metadata, &head.metadata);
        if meta.generation != head_meta.generation {
            return Change::Spec;
        }
        let deleted = head_meta
            .deletion_timestamp
            .as_deref()
            .and_then(|time| time.parse().ok());
        let deleted = deleted.map(Time);
        let grace = head_meta.deletion_grace_period_seconds;
        if (&meta.deletion_timestamp, meta.deletion_grace_period_seconds) != (&deleted, grace) {
            return Change::Spec;
        }
        let annotations = meta.annotations.get_or_insert_default();
        if *annotations != head_meta.annotations {
            annotations.clone_from(&head_meta.annotations);
            return Change::Steering;
        }
        Change::NoTasks
    }

    /// Takes over the whole object.
    pub(super) fn replace(&mut self, object: Object) {
        self.object = slim(object);
    }

    /// Resolves the behaviour of the pod again.
    pub(super) fn steer(&mut self, node: &Node, set: &NodeSet) {
        let layers: [&BTreeMap<String, String>; 2] = [&node.overrides, &node.annotations];
        let resolved = PodBehaviour::resolve(&self.object, &layers, &set.pods, &|name| {
            set.task_runner.has_task(name)
        });
        self.behaviour = match resolved {
            Ok(behaviour) => behaviour,
            Err(error) => {
                eprintln!("fake kubelet: pod {}: {error}", self.name());
                PodBehaviour::rejecting("InvalidSteering")
            }
        };
    }

    pub(super) fn namespace(&self) -> &str {
        self.object.metadata.namespace.as_deref().unwrap_or_default()
    }

    pub(super) fn name(&self) -> &str {
        self.object.metadata.name.as_deref().unwrap_or_default()
    }

    pub(super) fn path(&self) -> String {
        format!("/api/v1/namespaces/{}/pods/{}", self.namespace(), self.name())
    }

    /// The status as a strategic merge patch, which keeps the conditions of other writers.
    pub(super) fn status_patch(&self) -> Vec<u8> {
        #[derive(Serialize)]
        struct Uid<'a> {
            uid: Option<&'a String>,
        }
        #[derive(Serialize)]
        struct Patch<'a> {
            metadata: Uid<'a>,
            status: Value,
        }
        let patch = Patch {
            metadata: Uid {
                uid: self.object.metadata.uid.as_ref(),
            },
            status: self.lifecycle.status(),
        };
        serde_json::to_vec(&patch).expect("a status is JSON")
    }

    /// Options of a deletion of this pod only.
    pub(super) fn removal(&self) -> Vec<u8> {
        let uid = self.object.metadata.uid.as_deref().unwrap_or_default();
        format!(
            r#"{{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0,"preconditions":{{"uid":"{uid}"}}}}"#
        )
        .into_bytes()
    }
}

fn slim(mut object: Object) -> Object {
    object.status = None;
    object.metadata.managed_fields = None;
    if let Some(spec) = &mut object.spec {
        spec.volumes = None;
    }
    object
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    NoTasks,
    Steering,
    /// The whole object must be decoded.
    Spec,
}
