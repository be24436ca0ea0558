//! Events as core/v1 objects, because system-upgrade-controller's roles do not grant `events.k8s.io`, which kube's
//! recorder uses. Each occurrence has a unique name, so a repeated write finds the existing event.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event as CoreEvent, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use refit_api::digest::short_digest;
use refit_api::text::shorten;
use refit_api::{ForeignReason, Reason, Severity, limits, names};
use refit_rollout::{Event, Regarding};

/// The source of events.
#[derive(Clone, Debug)]
pub struct Source {
    pub controller: String,
    pub node_name: String,
    pub namespace: String,
}

/// Maximum length of a message in bytes (core/v1 Event).
const MESSAGE_MAX: usize = 1024;

impl Source {
    /// The object for an event of a decision.
    pub fn event(&self, event: &Event, now: Timestamp) -> CoreEvent {
        let (name, uid) = match &event.regarding {
            Regarding::Plan { name, uid } => (name, uid),
            Regarding::Node(node) => {
                return self.event_of_node(node, &event.key, event.reason, &event.message, now);
            }
        };
        let object = ObjectReference {
            api_version: Some(format!("{}/v1", names::GROUP)),
            kind: Some("Plan".to_owned()),
            name: Some(name.to_string()),
            namespace: Some(self.namespace.clone()),
            uid: Some(uid.to_string()),
            ..ObjectReference::default()
        };
        self.build(
            object,
            &event.key,
            (event.reason, event.severity),
            &event.message,
            now,
        )
    }

    /// An event about the Node of the controller (S63), in the namespace `default`.
    pub fn node_event(&self, reason: Reason, message: &str, now: Timestamp) -> CoreEvent {
        let key = format!("{:016x}", now.as_nanosecond());
        self.event_of_node(&self.node_name, &key, reason, message, now)
    }

    /// An event about the `ConfigMap` `refit`.
    pub fn limits_event(&self, reason: Reason, message: &str, now: Timestamp) -> CoreEvent {
        let object = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("ConfigMap".to_owned()),
            name: Some(limits::NAME.to_owned()),
            namespace: Some(self.namespace.clone()),
            ..ObjectReference::default()
        };
        let key = format!("{:016x}", now.as_nanosecond());
        self.build(object, &key, (reason, reason.severity()), message, now)
    }

    /// An event about any Node. Of two with one key, the second is not written.
    pub fn event_of_node(
        &self,
        node: &str,
        key: &str,
        reason: Reason,
        message: &str,
        now: Timestamp,
    ) -> CoreEvent {
        let object = ObjectReference {
            kind: Some("Node".to_owned()),
            name: Some(node.to_owned()),
            // `kubectl describe node` also finds events whose UID is the node's name (describe.go); the UID need not be
            // known here.
            uid: Some(node.to_owned()),
            ..ObjectReference::default()
        };
        self.build(object, key, (reason, reason.severity()), message, now)
    }

    fn build(
        &self,
        object: ObjectReference,
        key: &str,
        (reason, severity): (Reason, Severity),
        message: &str,
        now: Timestamp,
    ) -> CoreEvent {
        CoreEvent {
            source: Some(EventSource {
                component: Some(self.controller.clone()),
                host: Some(self.node_name.clone()),
            }),
            reporting_component: Some(self.controller.clone()),
            reporting_instance: Some(self.node_name.clone()),
            ..core_event(object, key, (reason.name(), severity), message, now)
        }
    }
}

/// An event of a front end, about one of its objects.
pub(super) fn front_end_event(
    component: &str,
    regarding: ObjectReference,
    reason: ForeignReason,
    message: &str,
    now: Timestamp,
) -> CoreEvent {
    // Two events about one object may be of one time.
    let key = short_digest(&[reason.name(), message, &now.as_nanosecond().to_string()], 16);
    CoreEvent {
        source: Some(EventSource {
            component: Some(component.to_owned()),
            host: None,
        }),
        ..core_event(regarding, &key, (reason.name(), reason.severity()), message, now)
    }
}

/// An event about an object, without its source. One about an object without a namespace is in `default`.
fn core_event(
    object: ObjectReference,
    key: &str,
    (reason, severity): (&str, Severity),
    message: &str,
    now: Timestamp,
) -> CoreEvent {
    // A name has at most 253 characters; the key makes it unique.
    let name = object.name.iter().flat_map(|name| name.chars());
    let head: String = name.take(230).collect();
    CoreEvent {
        metadata: ObjectMeta {
            name: Some(format!("{head}.{key}")),
            namespace: object.namespace.clone().or_else(|| Some("default".to_owned())),
            ..ObjectMeta::default()
        },
        involved_object: object,
        reason: Some(reason.to_owned()),
        message: Some(shorten(message, MESSAGE_MAX).into_owned()),
        type_: Some(severity.name().to_owned()),
        count: Some(1),
        first_timestamp: Some(Time(now)),
        last_timestamp: Some(Time(now)),
        ..CoreEvent::default()
    }
}
