//! Events as core/v1 objects, because system-upgrade-controller's roles do not grant `events.k8s.io`, which kube's
//! recorder uses. Each occurrence has a unique name, so a repeated write finds the existing event.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event as CoreEvent, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use refit_api::{Reason, Severity, limits, names};
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
        // A name has at most 253 characters; the key makes it unique.
        let head: String = name.chars().take(230).collect();
        self.build(
            format!("{head}.{}", event.key),
            &self.namespace,
            object,
            event.severity,
            event.reason,
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
        let name = format!("{}.{:016x}", limits::NAME, now.as_nanosecond());
        self.build(
            name,
            &self.namespace,
            object,
            reason.severity(),
            reason,
            message,
            now,
        )
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
        let head: String = node.chars().take(230).collect();
        let name = format!("{head}.{key}");
        self.build(name, "default", object, reason.severity(), reason, message, now)
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "one place that knows what an Event object looks like"
    )]
    fn build(
        &self,
        name: String,
        namespace: &str,
        involved_object: ObjectReference,
        severity: Severity,
        reason: Reason,
        message: &str,
        now: Timestamp,
    ) -> CoreEvent {
        // The times of a core/v1 Event (`metav1.Time`) have whole seconds.
        let whole = Timestamp::from_second(now.as_second()).unwrap_or(now);
        let mut message = message.to_owned();
        if message.len() > MESSAGE_MAX {
            let cut = (0..=MESSAGE_MAX - 3)
                .rev()
                .find(|at| message.is_char_boundary(*at))
                .unwrap_or(0);
            message.truncate(cut);
            message.push_str("...");
        }
        CoreEvent {
            metadata: ObjectMeta {
                name: Some(name),
                namespace: Some(namespace.to_owned()),
                ..ObjectMeta::default()
            },
            involved_object,
            reason: Some(reason.to_string()),
            message: Some(message),
            type_: Some(severity.name().to_owned()),
            count: Some(1),
            first_timestamp: Some(Time(whole)),
            last_timestamp: Some(Time(whole)),
            source: Some(EventSource {
                component: Some(self.controller.clone()),
                host: Some(self.node_name.clone()),
            }),
            reporting_component: Some(self.controller.clone()),
            reporting_instance: Some(self.node_name.clone()),
            ..CoreEvent::default()
        }
    }
}
