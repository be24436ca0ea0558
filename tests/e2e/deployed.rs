//! The controller as a Deployment on a real node, with nothing but what `deploy/` gives it.

use kube::ResourceExt as _;
use kube::api::ListParams;
use refit::api::NodeProgress;
use serde_json::json;

use super::stage::{RUNS, Stage, stage, waits};
use crate::support::real::{PATIENCE, REFIT};
use crate::support::wait;

#[tokio::test]
#[ignore = "real nodes: just e2e"]
async fn a_deleted_controller_is_followed_by_another_that_goes_on() {
    let stage = stage().await;
    let first = stage.deployed.leading().await;
    stage.make("os", &waits(), &json!({ "cordon": true })).await;
    let (begun, other) = stage.first_and_other().await;
    // Its cordon ran from the controller's own image.
    let jobs = stage.world.jobs_of("os").await;
    let images: Vec<_> = jobs
        .iter()
        .flat_map(|job| job.spec.iter())
        .flat_map(|spec| spec.template.spec.iter())
        .flat_map(|pod| pod.init_containers.iter().flatten())
        .map(|container| (container.name.as_str(), container.image.as_deref()))
        .collect();
    assert_eq!(images, [("cordon", Some(REFIT))]);

    stage.deployed.delete(&first).await;
    // Ends while nobody, or somebody new, looks.
    Stage::go(begun);
    let second = stage.deployed.leading().await;
    assert_ne!(second.uid(), first.uid());
    wait::eventually("the other has begun", PATIENCE, async || {
        if other.lines(RUNS).is_empty() {
            Err("it has not".to_owned())
        } else {
            Ok(())
        }
    })
    .await;
    Stage::go(other);
    stage.complete("os").await;
    for node in [begun, other] {
        assert_eq!(node.lines(RUNS), ["v2"]);
    }
    let events = stage.world.events().list(&ListParams::default()).await.unwrap();
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
    let requests = stage.world.controller_requests().await;
    assert!(requests.forbidden().is_empty(), "{:#?}", requests.forbidden());
}

#[tokio::test]
#[ignore = "real nodes: just e2e"]
async fn a_second_replica_leads_when_the_node_of_the_first_loses_its_power() {
    let stage = stage().await;
    let role = "node-role.kubernetes.io/control-plane";
    stage.world.label_node(stage.two.name(), role, Some("true")).await;
    stage.deployed.scale(2).await;
    let first = stage.deployed.leading().await;
    let on_one = first.spec.as_ref().unwrap().node_name.as_deref() == Some(stage.one.name());
    let (lost, kept) = if on_one {
        (&stage.one, &stage.two)
    } else {
        (&stage.two, &stage.one)
    };
    lost.power_off().await;
    let second = stage.deployed.leading_instead_of(&first).await;
    assert_eq!(second.spec.unwrap().node_name.as_deref(), Some(kept.name()));

    // The node that is away is passed over, and done when it is back.
    stage.make("os", &waits(), &json!({ "cordon": true })).await;
    Stage::go(kept);
    let passed_over = |node: &NodeProgress| node.reason.as_deref() == Some("NodeNotReady");
    stage.told("os", lost, "is passed over", passed_over).await;
    lost.power_on();
    lost.wait_ready().await;
    Stage::go(lost);
    stage.complete("os").await;
    for node in [lost, kept] {
        assert_eq!(node.lines(RUNS), ["v2"]);
    }
}
