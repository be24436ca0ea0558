//! After the Job: `postCompleteDelay` and `postCompleteLabels` (S39, S59).

use std::time::Duration;

use kube::ResourceExt as _;
use serde_json::json;

use crate::scene::{Scene, has_condition, is_cordoned, is_recorded, ledger, record};
use crate::support::wait::{self, SOON};
use crate::support::world::cluster::done;

#[tokio::test]
async fn a_node_is_uncordoned_before_the_delay_and_labelled_after_it() {
    let scene = Scene::new(["one", "two"]).await;
    let _controller = scene
        .world
        .controller()
        .env("SYSTEM_UPGRADE_JOB_TTL_SECONDS_AFTER_FINISH", "7")
        .start();
    let spec = json!({ "cordon": true, "postCompleteDelay": "4s" });
    scene.plan("waits", json!({ "spec": spec })).await;
    let first = wait::eventually("a Job is made", SOON, async || {
        scene.made_for().await.first().cloned().ok_or_else(String::new)
    })
    .await;
    let other = if first == "one" { "two" } else { "one" };
    let settling = scene.held_up("waits", &first, "PostCompleteDelay").await;
    assert_eq!(settling.phase, "Settling");
    let back =
        |node: &k8s_openapi::api::core::v1::Node| !is_cordoned(node) && record(node, "waits").is_some();
    let node = scene
        .world
        .node_until(&scene.node(&first), "is uncordoned", SOON, back)
        .await;
    assert_eq!(ledger(&node), None);
    assert_eq!(
        done(&node, "waits"),
        None,
        "the label comes when the delay is over"
    );
    scene.held_up("waits", other, "NoSlot").await;

    let plan_hash = scene.complete("waits").await;
    scene
        .made_once_each([("one", &plan_hash), ("two", &plan_hash)])
        .await;
    let requests = scene.world.controller_requests().await;
    for node in ["one", "two"] {
        let job = scene.job("waits", node).await;
        assert_eq!(
            job.annotations()["upgrade.cattle.io/ttl-seconds-after-finished"],
            "64",
            "4 s and a minute"
        );
        assert!(job.spec.as_ref().unwrap().ttl_seconds_after_finished >= Some(64));
        let completed = job.status.as_ref().unwrap().completion_time.as_ref().unwrap().0;
        let labelled = requests
            .0
            .iter()
            .find(|it| {
                it.resource == "nodes"
                    && it.name == scene.node(node)
                    && !it.sent["metadata"]["labels"].is_null()
            })
            .unwrap();
        let waited = labelled.at.duration_since(completed).unsigned_abs();
        assert!(waited >= Duration::from_secs(4), "{node}: {waited:?}");
        assert_eq!(record(&scene.world.node(&scene.node(node)).await, "waits"), None);
    }
    // The second was begun when the first was labelled, not when its Job was complete.
    let second = &scene.made().await[1];
    let first_done = requests.0.iter().find(|it| {
        it.resource == "nodes" && it.name == scene.node(&first) && !it.sent["metadata"]["labels"].is_null()
    });
    assert!(second.at >= first_done.unwrap().at);
    scene
        .told_exactly(
            "JobCompleteWaiting",
            ["one", "two"].map(|node| {
                format!(
                    "Job completed on Node {}, waiting 4s PostCompleteDelay",
                    scene.node(node)
                )
            }),
        )
        .await;
    scene.told_complete(["one", "two"]).await;
}

#[tokio::test]
async fn a_delay_goes_on_without_its_job_and_under_another_controller() {
    let scene = Scene::new(["one"]).await;
    let controller = scene.world.controller().start();
    scene
        .plan("waits", json!({ "spec": { "postCompleteDelay": "5s" } }))
        .await;
    scene.held_up("waits", "one", "PostCompleteDelay").await;
    let job = scene.job_until("waits", "one", "is recorded", is_recorded).await;
    assert!(has_condition(&job, "Complete"));
    controller.kill();
    scene.delete_job(&job).await;
    let _controller = controller.start_again();
    let plan_hash = scene.complete("waits").await;
    scene.done("waits", "one", &plan_hash).await;
    scene.made_once_each([("one", &plan_hash)]).await;
    scene.told_complete(["one"]).await;
    assert_eq!(scene.told("JobCompleteWaiting").await.len(), 1);
}

#[tokio::test]
async fn a_plan_that_is_edited_during_the_delay_ends_what_it_began() {
    let scene = Scene::new(["one"]).await;
    let _controller = scene.world.controller().start();
    scene
        .plan(
            "waits",
            json!({ "spec": { "version": "v1", "postCompleteDelay": "3s" } }),
        )
        .await;
    scene.held_up("waits", "one", "PostCompleteDelay").await;
    let old = scene.made().await[0].hash.clone();
    scene.edit("waits", json!({ "version": "v2" })).await;
    scene.done("waits", "one", &old).await;
    let new = scene.complete("waits").await;
    scene.done("waits", "one", &new).await;
    scene.made_once_each([("one", &old), ("one", &new)]).await;
}

#[tokio::test]
async fn labels_of_a_finished_node_are_expanded() {
    let scene = Scene::new(["one"]).await;
    let _controller = scene.world.controller().start();
    let labels = json!({
        "example.com/version": "$(LATEST_VERSION)",
        "example.com/hash": "h-$(LATEST_HASH)",
        "example.com/static": "yes",
        "example.com/empty": "",
    });
    scene
        .plan(
            "labels",
            json!({ "spec": { "version": "v1.2.3+k3s1", "postCompleteLabels": labels } }),
        )
        .await;
    let plan_hash = scene.complete("labels").await;
    let node = scene.done("labels", "one", &plan_hash).await;
    let labels = node.labels();
    assert_eq!(labels["example.com/version"], "v1.2.3-k3s1");
    assert_eq!(labels["example.com/hash"], format!("h-{plan_hash}"));
    assert_eq!(labels["example.com/static"], "yes");
    assert_eq!(labels["example.com/empty"], "");
}
