//! The controller as a Deployment on a real node, with nothing but what `deploy/` gives it.

use kube::ResourceExt as _;
use kube::api::ListParams;
use refit_api::NodeProgress;
use serde_json::json;

use super::harness::{E2eHarness, RUNS, harness, waits};
use crate::testenv::real::REFIT;
use crate::testenv::wait;

#[tokio::test]
#[ignore = "real nodes, which need root and Debian: just e2e"]
async fn a_deleted_controller_is_replaced_by_another_that_continues() {
    let harness = harness().await;
    let first = harness.deployed.leading().await;
    harness.make("os", &waits(), &json!({ "cordon": true })).await;
    let (begun, other) = harness.first_and_other().await;
    assert!(harness.is_cordoned(begun).await && !harness.is_cordoned(other).await);
    // The cordon container ran the controller's own image.
    let jobs = harness.ctx.jobs_of("os").await;
    let images: Vec<_> = jobs
        .iter()
        .flat_map(|job| job.spec.iter())
        .flat_map(|spec| spec.template.spec.iter())
        .flat_map(|pod| pod.init_containers.iter().flatten())
        .map(|container| (container.name.as_str(), container.image.as_deref()))
        .collect();
    assert_eq!(images, [("cordon", Some(REFIT))]);

    harness.deployed.delete(&first).await;
    // The upgrade ends while no controller or another one runs.
    E2eHarness::go(begun);
    let second = harness.deployed.leading().await;
    assert_ne!(second.uid(), first.uid());
    wait::holds("the other has begun", async || !other.lines(RUNS).is_empty()).await;
    assert!(
        !harness.is_cordoned(begun).await,
        "released before the next begins"
    );
    E2eHarness::go(other);
    harness.complete("os").await;
    for node in [begun, other] {
        assert_eq!(node.lines(RUNS), ["v2"]);
    }
    let events = harness.ctx.events().list(&ListParams::default()).await.unwrap();
    let refused: Vec<_> = events
        .iter()
        .filter(|event| {
            event
                .message
                .as_deref()
                .is_some_and(|text| text.contains("forbidden"))
        })
        .collect();
    assert!(refused.is_empty(), "{refused:#?}");
    let requests = harness.ctx.controller_requests().await;
    assert!(requests.forbidden().is_empty(), "{:#?}", requests.forbidden());
}

#[tokio::test]
#[ignore = "real nodes, which need root and Debian: just e2e"]
async fn a_second_replica_leads_when_the_node_of_the_first_loses_its_power() {
    let harness = harness().await;
    let role = "node-role.kubernetes.io/control-plane";
    harness
        .ctx
        .label_node(harness.two.name(), role, Some("true"))
        .await;
    // Replicas that run stay where they are; new ones prefer different nodes.
    harness.deployed.stop().await;
    harness.deployed.scale(2).await;
    let first = harness.deployed.leading().await;
    let on_one = first.spec.as_ref().unwrap().node_name.as_deref() == Some(harness.one.name());
    let (lost, kept) = if on_one {
        (&harness.one, &harness.two)
    } else {
        (&harness.two, &harness.one)
    };
    lost.power_off().await;
    let second = harness.deployed.leading_instead_of(&first).await;
    assert_eq!(second.spec.unwrap().node_name.as_deref(), Some(kept.name()));

    // The node without power is skipped, and upgraded when it is back.
    harness.make("os", &waits(), &json!({ "cordon": true })).await;
    E2eHarness::go(kept);
    let is_skipped = |node: &NodeProgress| node.reason.as_deref() == Some("NodeNotReady");
    harness
        .wait_for_progress("os", lost, "is skipped", is_skipped)
        .await;
    lost.power_on();
    lost.wait_ready().await;
    E2eHarness::go(lost);
    harness.complete("os").await;
    for node in [lost, kept] {
        assert_eq!(node.lines(RUNS), ["v2"]);
    }
}
