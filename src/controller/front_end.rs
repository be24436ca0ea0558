//! What front ends share: events about their objects.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use refit_api::ForeignReason;
use refit_api::digest::short_digest;

/// An event about an object. One about an object without a namespace is in `default`.
pub(super) fn event(
    component: &str,
    regarding: ObjectReference,
    reason: ForeignReason,
    message: &str,
    now: Timestamp,
) -> Event {
    let name = regarding.name.iter().flat_map(|name| name.chars());
    let about: String = name.take(230).collect();
    // Two events about one object may be of one time.
    let unique = short_digest(&[reason.name(), message, &now.as_nanosecond().to_string()], 16);
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{about}.{unique}")),
            namespace: regarding.namespace.clone().or_else(|| Some("default".to_owned())),
            ..ObjectMeta::default()
        },
        involved_object: regarding,
        reason: Some(reason.name().to_owned()),
        message: Some(message.to_owned()),
        type_: Some(reason.severity().name().to_owned()),
        source: Some(EventSource {
            component: Some(component.to_owned()),
            host: None,
        }),
        first_timestamp: Some(Time(now)),
        last_timestamp: Some(Time(now)),
        count: Some(1),
        ..Event::default()
    }
}
