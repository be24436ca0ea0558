//! Events as core/v1 objects: `events.k8s.io`, which kube's recorder writes, is not granted by system-upgrade-controller's
//! roles. Each occurrence has a name of its own, so that writing it again finds it there.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event as CoreEvent, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use crate::api::names;
use crate::rollout::{Event, EventType, Regarding};

/// Who tells.
#[derive(Clone, Debug)]
pub struct Source {
    /// Name of the controller.
    pub controller: String,
    /// Node that it runs on.
    pub node_name: String,
    /// Namespace of the controller and of its Plans.
    pub namespace: String,
}

/// A message of an event is at most so many bytes long.
const MESSAGE_MAX: usize = 1024;

impl Source {
    /// The object to write for an event of a decision.
    pub fn event(&self, event: &Event, now: Timestamp) -> CoreEvent {
        let Regarding::Plan { name, uid } = &event.regarding;
        let object = ObjectReference {
            api_version: Some(format!("{}/v1", names::GROUP)),
            kind: Some("Plan".to_owned()),
            name: Some(name.to_string()),
            namespace: Some(self.namespace.clone()),
            uid: Some(uid.to_string()),
            ..ObjectReference::default()
        };
        // A name is at most 253 characters; the key is what makes it one of its own.
        let head: String = name.chars().take(230).collect();
        self.build(
            format!("{head}.{}", event.key),
            &self.namespace,
            object,
            event.type_,
            event.reason,
            &event.message,
            now,
        )
    }

    /// An event about the Node that the controller runs on (S63). It is kept in the namespace `default`.
    pub fn node_event(&self, type_: EventType, reason: &str, message: &str, now: Timestamp) -> CoreEvent {
        let object = ObjectReference {
            kind: Some("Node".to_owned()),
            name: Some(self.node_name.clone()),
            uid: Some(self.node_name.clone()),
            ..ObjectReference::default()
        };
        let head: String = self.node_name.chars().take(230).collect();
        let name = format!("{head}.{:016x}", now.as_nanosecond());
        self.build(name, "default", object, type_, reason, message, now)
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
        type_: EventType,
        reason: &str,
        message: &str,
        now: Timestamp,
    ) -> CoreEvent {
        let type_ = match type_ {
            EventType::Normal => "Normal",
            EventType::Warning => "Warning",
        };
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
            reason: Some(reason.to_owned()),
            message: Some(message),
            type_: Some(type_.to_owned()),
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
