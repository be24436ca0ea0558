//! Events of node-maintenance-operator, with its component. Those about the object are in the namespace `default`,
//! because it belongs to none.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, ObjectReference};

use crate::events::front_end_event;
use refit_api::ForeignReason;
use refit_facts::objects::maintenance::{KIND, Maintenance, VERSION};

const COMPONENT: &str = "NodeMaintenance";

/// What an event says of a maintenance: reason and message.
#[derive(Clone, Copy, Debug)]
pub(super) enum MaintenanceEvent {
    Begun,
    Succeeded,
    Failed,
    Uncordoned,
    Removed,
}

impl MaintenanceEvent {
    const fn words(self) -> (ForeignReason, &'static str) {
        match self {
            Self::Begun => (ForeignReason::BeginMaintenance, "Begin a node maintenance"),
            Self::Succeeded => (
                ForeignReason::SucceedMaintenance,
                "Node maintenance was succeeded",
            ),
            Self::Failed => (ForeignReason::FailedMaintenance, "Failed a node maintenance"),
            Self::Uncordoned => (ForeignReason::UncordonNode, "Uncordon a node"),
            Self::Removed => (ForeignReason::RemovedMaintenance, "Removed a node maintenance"),
        }
    }
}

/// The event about the object, or about its Node.
pub(super) fn event(kind: MaintenanceEvent, object: &Maintenance, node_uid: &str, now: Timestamp) -> Event {
    let (reason, message) = kind.words();
    let of_node = matches!(kind, MaintenanceEvent::Uncordoned);
    let regarding = if of_node {
        ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(object.spec.node_name.clone()),
            uid: Some(node_uid.to_owned()),
            ..ObjectReference::default()
        }
    } else {
        ObjectReference {
            api_version: Some(format!("{}/{VERSION}", object.group.name())),
            kind: Some(KIND.to_owned()),
            name: Some(object.name().to_owned()),
            uid: Some(object.uid().to_owned()),
            ..ObjectReference::default()
        }
    };
    front_end_event(COMPONENT, regarding, reason, message, now)
}
