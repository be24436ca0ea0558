//! One pod on a node that is played here.

use std::collections::BTreeMap;
use std::time::Instant;

use k8s_openapi::api::core::v1::{Pod as Object, PodStatus};
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
    pub(super) fn new(mut object: Object, node: &Node, set: &NodeSet) -> Self {
        let life = Life::adopt(&object);
        object.status = None;
        object.metadata.managed_fields = None;
        if let Some(spec) = &mut object.spec {
            spec.volumes = None;
        }
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

    /// Takes over what the API server says beside the status. Whether that changes anything for the kubelet.
    pub(super) fn update(&mut self, head: &Head<'_>) -> Change {
        let meta = &mut self.object.metadata;
        meta.resource_version = Some(head.metadata.resource_version.to_string());
        let deleted = head
            .metadata
            .deletion_timestamp
            .as_deref()
            .and_then(|time| time.parse().ok());
        let deletion = deleted.map(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time);
        let grace = head.metadata.deletion_grace_period_seconds;
        let mut change = Change::Nothing;
        if (&meta.deletion_timestamp, meta.deletion_grace_period_seconds) != (&deletion, grace) {
            meta.deletion_timestamp = deletion;
            meta.deletion_grace_period_seconds = grace;
            change = Change::Life;
        }
        if meta.generation != head.metadata.generation {
            meta.generation = head.metadata.generation;
            change = Change::Life;
        }
        let annotations = meta.annotations.get_or_insert_default();
        if *annotations != head.metadata.annotations {
            annotations.clone_from(&head.metadata.annotations);
            change = Change::Steering;
        }
        change
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

fn owner(object: &Object) -> Option<&str> {
    Some(&object.metadata.owner_references.as_ref()?.first()?.uid)
}

/// What an event means to the kubelet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Nothing,
    Life,
    Steering,
}
