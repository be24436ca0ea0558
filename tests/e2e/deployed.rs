//! The controller as a Deployment on a real node, with nothing but what `deploy/` gives it.

use kube::ResourceExt as _;
use kube::api::ListParams;
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
