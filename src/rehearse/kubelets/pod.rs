//! One pod on its node.

use futures::future::AbortHandle;
use k8s_openapi::api::core::v1::Pod as Core;
use serde::Deserialize as _;

use super::{Habits, Node};
use crate::api::names::LABEL_CONTROLLER;
use crate::rehearse::json::Value;
use crate::rehearse::podlife::{Behaviour, ContainerStart, Life, Started};
use crate::rehearse::store::{Key, Object};

/// A container whose effect is real.
#[derive(Debug)]
pub(super) struct Act {
    pub(super) started: Started,
    /// Its task, once there is one.
    pub(super) task: Option<AbortHandle>,
}

impl Drop for Act {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

#[derive(Debug)]
pub(super) struct Pod {
    pub(super) key: Key,
    pub(super) node: String,
    /// The object without its status, which is the life's.
    pub(super) object: Core,
    pub(super) life: Life,
    pub(super) behaviour: Behaviour,
    /// How many pods of the same owner the node has run before.
    earlier: i32,
    /// Whether it counts among the pods of its owner.
    pub(super) counted: bool,
    pub(super) acts: Vec<Act>,
    /// What of its metadata concerns the kubelet.
    seen: [Value; 4],
}

/// What the kubelet looks at beside the spec, of which the generation tells.
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
    /// None where the object cannot be read.
    pub(super) fn new(object: &Object, node: &Node) -> Option<Self> {
        let mut core = read(object)?;
        let life = Life::adopt(&core);
        core.status = None;
        let earlier = object
            .controller()
            .and_then(|owner| node.pods_of_owners.get(owner));
        Some(Self {
            key: object.key(),
            node: node.machine.name.clone(),
            behaviour: Behaviour::rejecting(&core, "", ""),
            life,
            object: core,
            earlier: earlier.copied().unwrap_or_default(),
            counted: false,
            acts: Vec::new(),
            seen: seen(object),
        })
    }

    /// Whether nothing has changed for the kubelet.
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

    /// Works out how the pod behaves.
    pub(super) fn steer(&mut self, node: &Node, habits: &Habits) {
        let of_refit = self
            .object
            .metadata
            .labels
            .as_ref()
            .is_some_and(|labels| labels.contains_key(LABEL_CONTROLLER));
        let waits = ContainerStart::render(&self.object, "prepare", 0)
            .is_some_and(|start| super::prepare::dependency(&start).is_some());
        let acted =
            |name: &str| of_refit && (matches!(name, "cordon" | "drain") || waits && name == "prepare");
        let layers = [&node.steering, &habits.steering];
        let resolved = Behaviour::resolve(&self.object, &layers, &habits.defaults, &acted);
        self.behaviour = match resolved {
            Ok(behaviour) => behaviour.after_earlier_pods(self.earlier),
            Err(error) => {
                tracing::error!(pod = &*self.key.name, %error, "a pod cannot be steered like that");
                Behaviour::rejecting(&self.object, "InvalidSteering", &error.to_string())
            }
        };
    }

    /// The act of a container.
    pub(super) fn act(&mut self, started: &Started) -> Option<&mut Act> {
        self.acts.iter_mut().find(|act| act.started == *started)
    }

    /// UID of its owner.
    pub(super) fn owner(&self) -> &str {
        let owners = self.object.metadata.owner_references.iter().flatten();
        let in_charge = owners.into_iter().find(|one| one.controller == Some(true));
        in_charge.map(|one| one.uid.as_str()).unwrap_or_default()
    }
}

fn read(object: &Object) -> Option<Core> {
    let read = Core::deserialize(&object.value);
    if let Err(error) = &read {
        tracing::error!(pod = object.meta("name"), %error, "a pod cannot be read");
    }
    read.ok()
}
