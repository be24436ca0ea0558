//! The ledger: a node that was cordoned for an upgrade is given back as it was, and what a person has said counts.

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use refit::api::Plan;
use serde_json::{Value, json};

use crate::scene::{A_WHILE, Scene, both, is_cordoned, is_recorded, label, ledger, steer};
use crate::support::audit::Request;
use crate::support::controller::Controller;
use crate::support::wait::SOON;
use crate::support::world::cluster::done;

const KEEP: &str = "refit.rs/keep-cordoned";

/// The patches of a node by the controller, in order.
async fn patches(scene: &Scene, node: &str) -> Vec<Request> {
    let requests = scene.world.controller_requests().await.0;
    let of_node = |it: &Request| it.resource == "nodes" && it.verb == "patch" && it.name == scene.node(node);
    requests.into_iter().filter(of_node).collect()
}

/// A node whose Plan has failed there, and so keeps it cordoned.
async fn failed(spec: Value) -> (Scene, Controller) {
    let scene = Scene::with(["one"], |set| set.steer("upgrade.exit-code", "1")).await;
    let controller = scene
        .world
        .controller()
        .env("SYSTEM_UPGRADE_JOB_BACKOFF_LIMIT", "0")
        .start();
    scene
        .plan("fails", both(json!({ "spec": { "cordon": true } }), spec))
        .await;
    scene.phase("fails", "one", "Failed").await;
    scene.job_until("fails", "one", "is recorded", is_recorded).await;
    let node = scene.world.node(&scene.node("one")).await;
    assert!(is_cordoned(&node), "nobody knows what state it is in");
    let ledger = ledger(&node).unwrap();
    assert!(!ledger.before);
    assert_eq!(ledger.holders.len(), 1);
    assert_eq!(ledger.holders[0].plan, "fails");
    (scene, controller)
}

async fn given_back(scene: &Scene) -> Node {
    let back = |node: &Node| !is_cordoned(node) && ledger(node).is_none();
    scene
        .world
        .node_until(&scene.node("one"), "is given back", A_WHILE, back)
        .await
}

#[tokio::test]
async fn a_node_is_given_back_with_its_label_in_one_patch() {
    for spec in [json!({ "cordon": true }), json!({ "drain": { "force": true } })] {
        let scene = Scene::held(["one"]).await;
        let _controller = scene.world.controller().start();
        let more = json!({ "spec": { "postCompleteLabels": { "example.com/at": "$(LATEST_VERSION)" } } });
        let plan = scene.plan("once", both(more, json!({ "spec": spec }))).await;
        scene.upgrading("once", "one").await;
        let node = scene.world.node(&scene.node("one")).await;
        assert!(is_cordoned(&node));
        let held = ledger(&node).unwrap();
        assert!(!held.before);
        let [holder] = &held.holders[..] else {
            panic!("{held:?}")
        };
        assert_eq!(holder.namespace, scene.world.namespace());
        assert_eq!(holder.plan_uid, plan.uid().unwrap());
        assert_eq!(holder.controller, crate::support::controller::NAME);

        scene.release("one").await;
        let plan_hash = scene.complete("once").await;
        let node = given_back(&scene).await;
        assert_eq!(done(&node, "once"), Some(plan_hash.clone()));
        let patches = patches(&scene, "one").await;
        let [patch] = &patches[..] else {
            panic!("{patches:#?}")
        };
        assert_eq!(patch.code, 200);
        assert_eq!(patch.sent["metadata"]["labels"][label("once")], plan_hash);
        assert_eq!(patch.sent["metadata"]["labels"]["example.com/at"], "v1");
        assert_eq!(
            patch.sent["metadata"]["annotations"],
            json!({ "refit.rs/cordon": null })
        );
        assert_eq!(patch.sent["spec"], json!({ "unschedulable": null }));
        assert_eq!(patch.sent["metadata"]["uid"], node.uid().unwrap());
        scene.made_once_each([("one", &plan_hash)]).await;
    }
}

#[tokio::test]
async fn a_persons_cordon_from_before_stays() {
    let scene = Scene::held(["one"]).await;
    scene.world.cordon(&scene.node("one")).await;
    let _controller = scene.world.controller().start();
    scene.plan("polite", json!({ "spec": { "drain": {} } })).await;
    scene.upgrading("polite", "one").await;
    assert!(
        ledger(&scene.world.node(&scene.node("one")).await)
            .unwrap()
            .before
    );
    scene.release("one").await;
    let plan_hash = scene.complete("polite").await;
    let node = scene.done("polite", "one", &plan_hash).await;
    assert!(is_cordoned(&node));
    assert_eq!(ledger(&node), None);
}

#[tokio::test]
async fn a_plan_without_cordon_leaves_a_cordoned_node_cordoned() {
    let scene = Scene::new(["one"]).await;
    scene.world.cordon(&scene.node("one")).await;
    let _controller = scene.world.controller().start();
    scene.plan("plain", json!({})).await;
    let plan_hash = scene.complete("plain").await;
    let node = scene.done("plain", "one", &plan_hash).await;
    assert!(is_cordoned(&node));
    let patches = patches(&scene, "one").await;
    assert!(
        patches.iter().all(|patch| patch.sent["spec"].is_null()),
        "{patches:#?}"
    );
}

#[tokio::test]
async fn a_person_who_uncordons_ends_the_ledger_at_once() {
    let scene = Scene::held(["one"]).await;
    let _controller = scene.world.controller().start();
    scene
        .plan("overruled", json!({ "spec": { "cordon": true } }))
        .await;
    scene.upgrading("overruled", "one").await;
    scene.world.uncordon(&scene.node("one")).await;
    scene
        .world
        .node_until(&scene.node("one"), "has no ledger", SOON, |node| {
            ledger(node).is_none()
        })
        .await;
    // Later that person cordons it, for a reason of their own: it is not ours to take off.
    scene.world.cordon(&scene.node("one")).await;
    scene.release("one").await;
    let plan_hash = scene.complete("overruled").await;
    assert!(is_cordoned(&scene.done("overruled", "one", &plan_hash).await));
}

#[tokio::test]
async fn a_node_that_a_person_wants_kept_cordoned_is_not_uncordoned() {
    let scene = Scene::held(["one"]).await;
    let _controller = scene.world.controller().start();
    scene.plan("kept", json!({ "spec": { "cordon": true } })).await;
    scene.upgrading("kept", "one").await;
    scene
        .world
        .annotate_node(&scene.node("one"), KEEP, Some(""))
        .await;
    scene.release("one").await;
    let plan_hash = scene.complete("kept").await;
    let node = scene.done("kept", "one", &plan_hash).await;
    assert!(is_cordoned(&node));
    assert_eq!(ledger(&node), None);
}

#[tokio::test]
async fn a_failed_node_is_given_back_when_its_plan_is_deleted() {
    let (scene, controller) = failed(json!({})).await;
    // Also by a controller that was not there when it went.
    controller.kill();
    scene
        .world
        .plans()
        .delete("fails", &Default::default())
        .await
        .unwrap();
    let _controller = controller.start_again();
    let node = given_back(&scene).await;
    assert_eq!(done(&node, "fails"), None);
}

#[tokio::test]
async fn a_failed_node_is_given_back_when_it_is_deselected() {
    let (scene, _controller) = failed(json!({})).await;
    scene
        .edit(
            "fails",
            json!({ "nodeSelector": { "matchLabels": { "no": "such" } } }),
        )
        .await;
    let node = given_back(&scene).await;
    assert_eq!(crate::scene::record(&node, "fails"), None);
    scene.complete("fails").await;
}

#[tokio::test]
async fn a_failed_node_is_given_back_when_it_is_disabled() {
    let (scene, _controller) = failed(json!({})).await;
    scene
        .world
        .label_node(&scene.node("one"), &label("fails"), Some("disabled"))
        .await;
    let node = given_back(&scene).await;
    assert_eq!(crate::scene::record(&node, "fails"), None);
    assert_eq!(node.labels()[&label("fails")], "disabled");
    scene.complete("fails").await;
}

#[tokio::test]
async fn a_second_try_gives_back_what_the_first_has_cordoned() {
    let (scene, _controller) = failed(json!({})).await;
    scene
        .kubelet
        .behaviour(&scene.node("one"), &[("upgrade.exit-code", "0")])
        .await;
    scene
        .world
        .annotate_node(&scene.node("one"), "refit.rs/retry", Some("*"))
        .await;
    let plan_hash = scene.complete("fails").await;
    let node = given_back(&scene).await;
    assert_eq!(done(&node, "fails"), Some(plan_hash));
    assert_eq!(scene.made().await.len(), 2);
}

#[tokio::test]
async fn a_node_stays_cordoned_for_one_plan_when_another_is_done_with_it() {
    let (scene, _controller) = failed(json!({})).await;
    let works = steer(&[("upgrade.exit-code", "0")]);
    scene
        .plan("works", both(works, json!({ "spec": { "cordon": true } })))
        .await;
    let plan_hash = scene.complete("works").await;
    let node = scene.done("works", "one", &plan_hash).await;
    assert!(is_cordoned(&node));
    let held = ledger(&node).unwrap();
    let holders: Vec<_> = held.holders.iter().map(|holder| &*holder.plan).collect();
    assert_eq!((held.before, holders), (false, vec!["fails"]));
    scene
        .world
        .plans()
        .delete("fails", &Default::default())
        .await
        .unwrap();
    given_back(&scene).await;
}

#[tokio::test]
async fn a_failed_node_is_given_back_when_a_new_version_no_longer_cordons() {
    let (scene, _controller) = failed(json!({})).await;
    scene
        .kubelet
        .behaviour(&scene.node("one"), &[("upgrade.exit-code", "0")])
        .await;
    scene
        .edit("fails", json!({ "cordon": false, "version": "v2" }))
        .await;
    let at = |plan: &Plan| plan.status.as_ref().unwrap().latest_version.as_deref() == Some("v2");
    scene.world.plan_until("fails", "is at v2", SOON, at).await;
    let plan_hash = scene.complete("fails").await;
    let node = given_back(&scene).await;
    assert_eq!(done(&node, "fails"), Some(plan_hash));
}
