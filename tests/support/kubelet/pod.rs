//! One pod on a node that is played here.

use std::collections::BTreeMap;
use std::time::Instant;

use k8s_openapi::api::core::v1::{Pod as Object, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use refit::rehearse::podlife::{Behaviour, Life, Started};
use serde::Serialize;
use tokio::task::AbortHandle;

use super::machine::Node;
use super::nodeset::NodeSet;
use super::watch::Head;

pub(super) struct Pod {
    pub(super) node: String,
    /// The object without what a kubelet here has no use for: its status is the life's.
    pub(super) object: Object,
    pub(super) life: Life,
    pub(super) behaviour: Behaviour,
    /// How many pods of the same owner the node has run before.
    earlier: i32,
    /// A write is under way or waits for its turn: the next step is taken when it is done.
    pub(super) busy: bool,
    /// When it is next looked at.
    pub(super) wake: Option<Instant>,
    /// Whether it counts among the pods of its owner.
    pub(super) counted: bool,
    /// Containers whose effect is real and under way.
    pub(super) acts: Vec<(Started, AbortHandle)>,
}

impl Drop for Pod {
    fn drop(&mut self) {
        self.acts.iter().for_each(|(_, act)| act.abort());
    }
}

impl Pod {
    pub(super) fn new(object: Object, node: &Node, set: &NodeSet) -> Self {
        let life = Life::adopt(&object);
        let object = slim(object);
        let mut pod = Self {
            node: node.spec.name.clone(),
            behaviour: Behaviour::rejecting(&object, "", ""),
            earlier: owner(&object)
                .and_then(|owner| node.pods_of_owners.get(owner))
                .copied()
                .unwrap_or_default(),
            object,
            life,
            busy: false,
            wake: None,
            counted: false,
            acts: Vec::new(),
        };
        pod.steer(node, set);
        pod
    }

    /// Takes over what the API server says beside the status, and what that changes for the kubelet.
    pub(super) fn update(&mut self, head: &Head<'_>) -> Change {
        let (meta, told) = (&mut self.object.metadata, &head.metadata);
        if meta.generation != told.generation {
            return Change::Spec;
        }
        let deleted = told
            .deletion_timestamp
            .as_deref()
            .and_then(|time| time.parse().ok());
        let deleted = deleted.map(Time);
        let grace = told.deletion_grace_period_seconds;
        if (&meta.deletion_timestamp, meta.deletion_grace_period_seconds) != (&deleted, grace) {
            return Change::Spec;
        }
        let annotations = meta.annotations.get_or_insert_default();
        if *annotations != told.annotations {
            annotations.clone_from(&told.annotations);
            return Change::Steering;
        }
        Change::Nothing
    }

    /// Takes over the whole object.
    pub(super) fn replace(&mut self, object: Object) {
        self.object = slim(object);
    }

    /// Works out anew how the pod behaves.
    pub(super) fn steer(&mut self, node: &Node, set: &NodeSet) {
        let layers: [&BTreeMap<String, String>; 2] = [&node.overrides, &node.annotations];
        let resolved = Behaviour::resolve(&self.object, &layers, &set.pods, &|name| set.act.acts(name));
        self.behaviour = match resolved {
            Ok(behaviour) => behaviour.after_earlier_pods(self.earlier),
            Err(error) => {
                eprintln!("fake kubelet: pod {}: {error}", self.name());
                Behaviour::rejecting(&self.object, "InvalidSteering", &error.to_string())
            }
        };
    }

    pub(super) fn owner(&self) -> Option<&str> {
        owner(&self.object)
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

    /// The status as a strategic merge patch: conditions of others stay as they are.
    pub(super) fn status_patch(&self) -> Vec<u8> {
        #[derive(Serialize)]
        struct Uid<'a> {
            uid: Option<&'a String>,
        }
        #[derive(Serialize)]
        struct Patch<'a> {
            metadata: Uid<'a>,
            status: &'a PodStatus,
        }
        let patch = Patch {
            metadata: Uid {
                uid: self.object.metadata.uid.as_ref(),
            },
            status: self.life.status(),
        };
        serde_json::to_vec(&patch).expect("a status is JSON")
    }

    /// Options of a deletion that only this very pod can fall to.
    pub(super) fn removal(&self) -> Vec<u8> {
        let uid = self.object.metadata.uid.as_deref().unwrap_or_default();
        format!(
            r#"{{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0,"preconditions":{{"uid":"{uid}"}}}}"#
        )
        .into_bytes()
    }
}

/// The object without what is of no use here.
fn slim(mut object: Object) -> Object {
    object.status = None;
    object.metadata.managed_fields = None;
    if let Some(spec) = &mut object.spec {
        spec.volumes = None;
    }
    object
}

fn owner(object: &Object) -> Option<&str> {
    Some(&object.metadata.owner_references.as_ref()?.first()?.uid)
}

/// What an event means to the kubelet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Nothing,
    Steering,
    /// The object has to be read whole.
    Spec,
}
