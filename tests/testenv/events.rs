//! Events as sets that can be compared.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, ListParams};

use super::context::TestContext;
use super::controller::NAME;
use super::wait;

impl TestContext {
    /// All Events about a Plan, as `Normal Reason: message`, sorted. An Event that was written or counted twice is
    /// included twice.
    pub async fn event_lines(&self, plan: &str) -> Vec<String> {
        let about = format!("involvedObject.kind=Plan,involvedObject.name={plan}");
        let events = self.events().list(&ListParams::default().fields(&about)).await;
        let events = events.unwrap_or_else(|error| panic!("cannot list Events: {error}"));
        let mut lines: Vec<_> = events
            .items
            .iter()
            .flat_map(|event| {
                assert_eq!(source_of(event), (NAME, "test-machine"), "{event:?}");
                assert_eq!(
                    event.involved_object.namespace.as_deref(),
                    Some(self.namespace()),
                    "{event:?}"
                );
                std::iter::repeat_n(
                    line(event),
                    usize::try_from(event.count.unwrap_or(1)).unwrap_or(1),
                )
            })
            .collect();
        lines.sort();
        lines
    }

    /// Waits until all these Events about a Plan are there, and fails the test if there are others, or one is there twice.
    pub async fn expect_events(&self, plan: &str, limit: Duration, expected: &[String]) {
        let wanted: BTreeSet<_> = expected.iter().collect();
        assert_eq!(
            wanted.len(),
            expected.len(),
            "an Event is expected once: {expected:#?}"
        );
        let lines = wait::eventually(&format!("Plan {plan} has its Events"), limit, async || {
            let lines = self.event_lines(plan).await;
            if wanted.iter().all(|it| lines.contains(it)) {
                Ok(lines)
            } else {
                Err(format!("{lines:#?}, not {expected:#?}"))
            }
        })
        .await;
        assert_eq!(
            lines.iter().collect::<Vec<_>>(),
            wanted.into_iter().collect::<Vec<_>>()
        );
    }

    /// Events about the Node that controllers of this context run on, as `Normal Reason: message`, in order of time.
    pub async fn controller_events(&self) -> Vec<Event> {
        let events = Api::<Event>::namespaced(self.client.clone(), "default");
        let about = "involvedObject.kind=Node,involvedObject.name=test-machine";
        let events = events.list(&ListParams::default().fields(about)).await;
        let mut events = events
            .unwrap_or_else(|error| panic!("cannot list Events: {error}"))
            .items;
        events.retain(|event| {
            event
                .message
                .as_ref()
                .is_some_and(|text| text.contains(self.namespace()))
        });
        events.sort_by_key(|event| event.metadata.creation_timestamp.as_ref().map(|time| time.0));
        events
    }
}

/// `Normal Reason: message`.
pub fn line(event: &Event) -> String {
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    format!(
        "{} {}: {}",
        part(&event.type_),
        part(&event.reason),
        part(&event.message)
    )
}

fn source_of(event: &Event) -> (&str, &str) {
    let source = event.source.as_ref();
    (
        source.and_then(|it| it.component.as_deref()).unwrap_or_default(),
        source.and_then(|it| it.host.as_deref()).unwrap_or_default(),
    )
}
