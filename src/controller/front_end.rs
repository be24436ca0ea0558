//! What front ends share: events about their objects.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};

use super::events::core_event;
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
    // Two events about one object may be of one time.
    let key = short_digest(&[reason.name(), message, &now.as_nanosecond().to_string()], 16);
    Event {
        source: Some(EventSource {
            component: Some(component.to_owned()),
            host: None,
        }),
        ..core_event(regarding, &key, (reason.name(), reason.severity()), message, now)
    }
}
