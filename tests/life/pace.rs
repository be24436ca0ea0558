//! How many nodes at a time, and which at all: limits, `suspend`, labels, nodes that come later.

use serde_json::json;

use crate::scene::{A_WHILE, Scene, applying, both, hash, label, set, steer};
use crate::support::wait::{self, SOON};
use crate::support::world::cluster::{done, find_condition};

#[tokio::test]
async fn a_quarter_of_eight_nodes_are_two_at_a_time() {
    let nodes = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let scene = Scene::new(nodes).await;
    let _controller = scene.world.controller().start();
    let spec = json!({ "spec": { "concurrency": 5, "maxConcurrent": "25%" } });
    scene
        .plan("quarter", both(steer(&[("run-delay", "700ms")]), spec))
        .await;
    let plan_hash = scene.complete("quarter").await;
    scene.made_once_each(nodes.map(|node| (node, &*plan_hash))).await;
    let requests = scene.world.requests().await;
    assert_eq!(requests.most_jobs_at_once("quarter"), 2);
    assert_eq!(requests.most_applying("quarter"), 2);
    assert_eq!(scene.told("JobComplete").await.len(), nodes.len());
}

#[tokio::test]
async fn a_roll_out_that_is_suspended_finishes_what_it_has_begun_and_goes_on_later() {
    let scene = Scene::held(["a", "b", "c", "d"]).await;
    let controller = scene.world.controller().start();
    let two = json!({ "spec": { "concurrency": 2 } });
    scene.plan("pause", two).await;
    let begun = scene
        .world
        .plan_until("pause", "applies two", A_WHILE, |plan| applying(plan).len() == 2)
        .await;
    let begun = set(applying(&begun));
    scene.edit("pause", json!({ "suspend": true })).await;
    for node in ["a", "b", "c", "d"] {
        scene.release(node).await;
    }

    // Both come to their end. None takes their place, also for a controller that has just come.
    let rests = |plan: &refit::api::Plan| {
        let condition = find_condition(plan, "Complete").unwrap();
        applying(plan).is_empty() && condition.reason.as_deref() == Some("Suspended")
    };
    let plan = scene.world.plan_until("pause", "rests", A_WHILE, rests).await;
    assert_eq!(plan.status.as_ref().unwrap().progress.as_deref(), Some("2/4"));
    let plan_hash = hash(&plan);
    let finished = scene
        .world
        .my_nodes()
        .await
        .into_iter()
        .filter(|node| done(node, "pause") == Some(plan_hash.clone()));
    assert_eq!(set(finished.map(|node| node.metadata.name.unwrap())), begun);
    controller.kill();
    let controller = controller.start_again();
    controller.logs("watching", SOON).await;
    let edited = scene.edit("pause", json!({ "concurrency": 3 })).await;
    scene
        .world
        .plan_until("pause", "is seen", SOON, |plan| {
            plan.status.as_ref().unwrap().observed_generation == edited.metadata.generation
        })
        .await;
    assert_eq!(scene.made().await.len(), 2);

    scene
        .edit("pause", json!({ "suspend": null, "concurrency": 2 }))
        .await;
    scene.complete("pause").await;
    scene
        .made_once_each(["a", "b", "c", "d"].map(|node| (node, &*plan_hash)))
        .await;
    assert_eq!(scene.world.requests().await.most_jobs_at_once("pause"), 2);
}

#[tokio::test]
async fn nodes_that_come_to_a_plan_that_is_complete_are_done_too() {
    let scene = Scene::new(["early"]).await;
    let _controller = scene.world.controller().start();
    scene.plan("grows", json!({})).await;
    let plan_hash = scene.complete("grows").await;
    let _late = scene.more(["late", "later"], |set| set).await;
    for node in ["late", "later"] {
        scene.done("grows", node, &plan_hash).await;
    }
    scene.complete("grows").await;
    scene
        .made_once_each(["early", "late", "later"].map(|node| (node, &*plan_hash)))
        .await;
    assert_eq!(scene.runs("early", "upgrade").await, 1);
    assert_eq!(scene.world.requests().await.most_jobs_at_once("grows"), 1);
}

#[tokio::test]
async fn a_node_whose_label_is_taken_off_runs_the_plan_again() {
    let scene = Scene::new(["one", "two"]).await;
    let _controller = scene.world.controller().start();
    scene.plan("again", json!({})).await;
    let plan_hash = scene.complete("again").await;
    scene.all_recorded("again").await;
    let first = scene.job("again", "one").await;

    scene
        .world
        .label_node(&scene.node("one"), &label("again"), None)
        .await;
    scene.done("again", "one", &plan_hash).await;
    scene.complete("again").await;
    let made = scene.made().await;
    let of_one: Vec<_> = made.iter().filter(|job| job.node == scene.node("one")).collect();
    assert_eq!(of_one.len(), 2);
    assert_ne!(of_one[0].uid, of_one[1].uid);
    assert_eq!(
        of_one[0].name, of_one[1].name,
        "the name is free again once its first bearer is gone"
    );
    assert_eq!(first.metadata.uid.as_deref(), Some(&*of_one[0].uid));
    assert_eq!(scene.runs("one", "upgrade").await, 2);
    assert_eq!(scene.runs("two", "upgrade").await, 1);
    let told = scene.told("JobComplete").await;
    let of_one = format!("Job completed on Node {}", scene.node("one"));
    assert_eq!(
        told.iter().filter(|text| **text == of_one).count(),
        2,
        "{told:#?}"
    );
}

#[tokio::test]
async fn a_node_labelled_disabled_is_passed_over_until_the_label_goes() {
    let scene = Scene::with(["on", "off"], |set| {
        set.each(|index, node| {
            if index == 1 {
                node.labels.insert(label("picky"), "disabled".to_owned());
            }
        })
    })
    .await;
    let _controller = scene.world.controller().start();
    scene.plan("picky", json!({})).await;
    let plan_hash = scene.complete("picky").await;
    let plan = scene.world.plans().get("picky").await.unwrap();
    let counts = plan.status.unwrap().nodes.unwrap();
    assert_eq!((counts.selected, counts.done, counts.disabled), (1, 1, 1));
    scene.made_once_each([("on", &plan_hash)]).await;

    scene
        .world
        .label_node(&scene.node("off"), &label("picky"), Some("enabled"))
        .await;
    scene.done("picky", "off", &plan_hash).await;
    scene
        .made_once_each([("on", &plan_hash), ("off", &plan_hash)])
        .await;
    wait::eventually("the Plan is complete with both", SOON, async || {
        let plan = scene
            .world
            .plans()
            .get("picky")
            .await
            .map_err(|error| error.to_string())?;
        let progress = plan.status.and_then(|status| status.progress).unwrap_or_default();
        if progress == "2/2" { Ok(()) } else { Err(progress) }
    })
    .await;
}
