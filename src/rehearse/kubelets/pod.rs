//! A pod on its node.

use futures::future::AbortHandle;
use k8s_openapi::api::core::v1::Pod as Core;
use serde::Deserialize as _;

use super::{DefaultBehaviour, Node};
use crate::json::Value;
use crate::pod_lifecycle::{ContainerAttempt, ContainerStart, PodBehaviour, PodLifecycle};
use crate::store::{Key, Object};
use refit_api::names::LABEL_CONTROLLER;

/// A container with a real effect that is to start.
#[derive(Clone, Debug)]
pub(crate) struct ContainerTask {
    pub(crate) node: String,
    pub(crate) pod_uid: String,
    /// The container and its restart count.
    pub(crate) started: ContainerAttempt,
    pub(crate) start: ContainerStart,
}

/// A container with a real effect.
#[derive(Debug)]
pub(super) struct RunningTask {
    pub(super) started: ContainerAttempt,
    /// Set once the task has started.
    pub(super) abort: Option<AbortHandle>,
}

impl Drop for RunningTask {
    fn drop(&mut self) {
        // The container is gone, so its process must not send another request.
        if let Some(task) = &self.abort {
            task.abort();
        }
    }
}

#[derive(Debug)]
pub(super) struct Pod {
    pub(super) key: Key,
    pub(super) node: String,
    /// The object without its status, which the lifecycle keeps.
    pub(super) object: Core,
    pub(super) lifecycle: PodLifecycle,
    pub(super) behaviour: PodBehaviour,
    pub(super) running_tasks: Vec<RunningTask>,
    /// Metadata that concerns the kubelet.
    seen: [Value; 4],
}

/// What concerns the kubelet apart from the spec, whose changes the generation shows.
fn seen(object: &Object) -> [Value; 4] {
    [
        "generation",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "annotations",
    ]
    .map(|field| object.value["metadata"][field].clone())
}

impl Pod {
    /// `None` if the object cannot be parsed.
    pub(super) fn new(object: &Object, node: &Node) -> Option<Self> {
        let mut core = read(object)?;
        let lifecycle = PodLifecycle::adopt(&core);
        core.status = None;
        Some(Self {
            key: object.key(),
            node: node.machine.name.clone(),
            behaviour: PodBehaviour::rejecting(""),
            lifecycle,
            object: core,
            running_tasks: Vec::new(),
            seen: seen(object),
        })
    }

    /// Whether the change does not concern the kubelet.
    pub(super) fn is_same(&self, object: &Object) -> bool {
        self.seen == seen(object)
    }

    pub(super) fn replace(&mut self, object: &Object) {
        self.seen = seen(object);
        if let Some(mut core) = read(object) {
            core.status = None;
            self.object = core;
        }
    }

    /// Resolves the behaviour of the pod.
    pub(super) fn steer(&mut self, node: &Node, default_behaviour: &DefaultBehaviour) {
        let of_refit = self
            .object
            .metadata
            .labels
            .as_ref()
            .is_some_and(|labels| labels.contains_key(LABEL_CONTROLLER));
        let waits = ContainerStart::render(&self.object, "prepare", 0)
            .is_some_and(|start| super::prepare::of(&start).is_some());
        // Only in refit's own pods do these names mean refit's commands.
        let acted =
            |name: &str| of_refit && (matches!(name, "cordon" | "drain") || waits && name == "prepare");
        let layers = [&node.steering, &default_behaviour.steering];
        let resolved = PodBehaviour::resolve(&self.object, &layers, &default_behaviour.defaults, &acted);
        self.behaviour = match resolved {
            Ok(behaviour) => behaviour,
            Err(error) => {
                tracing::error!(pod = &*self.key.name, %error, "a pod cannot be steered like that");
                PodBehaviour::rejecting("InvalidSteering")
            }
        };
    }

    pub(super) fn running_task(&mut self, started: &ContainerAttempt) -> Option<&mut RunningTask> {
        self.running_tasks.iter_mut().find(|act| act.started == *started)
    }
}

fn read(object: &Object) -> Option<Core> {
    let read = Core::deserialize(&object.value);
    if let Err(error) = &read {
        tracing::error!(pod = object.meta("name"), %error, "a pod cannot be read");
    }
    read.ok()
}
