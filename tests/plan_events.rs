//! Events, with system-upgrade-controller's reasons and texts (S63): which are written, and that none is written twice.
//! Each test compares the whole set.

use k8s_openapi::api::core::v1::Event;

use crate::testenv::context::TestContext;
use crate::testenv::events::line;
use crate::testenv::wait;

#[tokio::test]
async fn the_start_of_the_controller_is_an_event_on_its_node() {
    let ctx = TestContext::new().await;
    let controller = ctx.start_and_warm_up().await;
    let lines = async |count: usize| {
        wait::until(
            "the starts are there",
            async || ctx.controller_events().await,
            |events| events.len() == count,
        )
        .await
    };
    let program = concat!("refit ", env!("CARGO_PKG_VERSION"));
    let identity = format!("{}/system-upgrade-controller", ctx.namespace());
    let starting = format!("Normal Starting: {program} starting leader election for {identity}");
    let started = format!("Normal Started: {program} running as {identity}");
    let events = lines(2).await;
    let mut texts: Vec<_> = events.iter().map(line).collect();
    texts.sort();
    assert_eq!(texts, [started.clone(), starting.clone()]);
    for event in &events {
        is_about_the_node(event);
    }

    // Each start has its event; without leader election there is no event about one.
    assert!(controller.terminate().await.success());
    let again = ctx
        .controller()
        .env("SYSTEM_UPGRADE_CONTROLLER_LEADER_ELECT", "false")
        .start();
    let mut texts: Vec<_> = lines(3).await.iter().map(line).collect();
    texts.sort();
    assert_eq!(texts, [started.clone(), started, starting]);
    assert!(again.terminate().await.success());
    assert!(ctx.controller_requests().await.forbidden().is_empty());
}

/// As system-upgrade-controller, and the kubelet, refer to a Node: its name is its UID.
fn is_about_the_node(event: &Event) {
    let about = &event.involved_object;
    assert_eq!(about.kind.as_deref(), Some("Node"));
    assert_eq!(about.name.as_deref(), Some("test-machine"));
    assert_eq!(about.uid.as_deref(), Some("test-machine"));
    assert_eq!(event.metadata.namespace.as_deref(), Some("default"));
    let source = event.source.as_ref().unwrap();
    assert_eq!(source.component.as_deref(), Some("system-upgrade-controller"));
    assert_eq!(source.host.as_deref(), Some("test-machine"));
}
