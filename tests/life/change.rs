//! Plans and nodes that change while the roll-out runs: what runs is let finish, what does not run is replaced.

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::api::ListParams;
use refit::api::Plan;
use serde_json::json;

use crate::scene::{A_WHILE, Scene, hash, held, is_cordoned, is_recorded, label, ledger};
use crate::support::wait::{self, SOON};

/// Waits until the Plan is at that version, and returns its hash.
async fn at_version(scene: &Scene, plan: &str, version: &str) -> String {
    let at = |plan: &Plan| plan.status.as_ref().unwrap().latest_version.as_deref() == Some(version);
    let what = format!("is at {version}");
    hash(&scene.world.plan_until(plan, &what, SOON, at).await)
}

#[tokio::test]
async fn a_plan_that_goes_back_runs_again_where_the_new_version_had_been() {
    let scene = Scene::new(["one", "two"]).await;
    let _controller = scene.world.controller().start();
    scene.plan("back", json!({ "spec": { "version": "vA" } })).await;
    let a = scene.complete("back").await;
    scene.all_recorded("back").await;

    // B reaches one of them.
    for node in ["one", "two"] {
        scene.hold(node).await;
    }
    scene.edit("back", json!({ "version": "vB" })).await;
    let b = at_version(&scene, "back", "vB").await;
    let (first, second) = scene.first_of_two("back").await;
    scene.edit("back", json!({ "suspend": true })).await;
    scene.release(first).await;
    scene.done("back", first, &b).await;
    let is_of_b = |job: &_| is_recorded(job) && job.labels()["upgrade.cattle.io/version"] == "vB";
    scene.job_until("back", first, "of B is recorded", is_of_b).await;

    // A's Jobs are still there, complete. They are not what makes the node of B one of A again.
    assert_eq!(scene.world.jobs_of("back").await.len(), 3);
    let back = json!({ "version": "vA", "suspend": null });
    scene.edit("back", back).await;
    assert_eq!(at_version(&scene, "back", "vA").await, a);
    scene.done("back", first, &a).await;
    scene.complete("back").await;
    let made = scene.made().await;
    let count = |node: &str, hash: &str| {
        let right = made
            .iter()
            .filter(|job| job.node == scene.node(node) && job.hash == hash);
        right.count()
    };
    assert_eq!((count(first, &a), count(first, &b)), (2, 1));
    assert_eq!((count(second, &a), count(second, &b)), (1, 0));
}

#[tokio::test]
async fn an_upgrade_that_runs_is_let_finish_when_the_version_changes() {
    let scene = Scene::held(["one", "two"]).await;
    let controller = scene.world.controller().start();
    let plan = scene.plan("moves", json!({ "spec": { "version": "v1" } })).await;
    let (first, other) = scene.first_of_two("moves").await;
    let old = at_version(&scene, "moves", "v1").await;
    scene.edit("moves", json!({ "version": "v2" })).await;
    let new = at_version(&scene, "moves", "v2").await;
    // It holds its slot, and a new controller sees that as well.
    controller.kill();
    let controller = controller.start_again();
    controller.logs("watching", SOON).await;
    for node in ["one", "two"] {
        scene.release(node).await;
    }

    scene.done("moves", first, &old).await;
    scene.complete("moves").await;
    scene
        .made_once_each([(first, &old), (first, &new), (other, &new)])
        .await;
    assert_eq!(scene.runs(first, "upgrade").await, 2);
    assert_eq!(scene.runs(other, "upgrade").await, 1);
    let requests = scene.world.requests().await;
    assert_eq!(requests.most_jobs_at_once("moves"), 1);
    let by_controller = requests.by(&scene.world.user());
    assert_eq!(by_controller.count("delete", "jobs"), 0, "nothing was replaced");
    assert_eq!(scene.world.plans().get("moves").await.unwrap().uid(), plan.uid());
}

#[tokio::test]
async fn a_job_whose_pod_has_no_node_yet_is_replaced_at_once() {
    let tainted = ("maintenance", "true", "NoSchedule");
    let scene = Scene::with(["one"], |set| set.taint(tainted.0, tainted.1, tainted.2)).await;
    let _controller = scene.world.controller().start();
    scene.plan("stuck", json!({ "spec": { "version": "v1" } })).await;
    let waits = scene.held_up("stuck", "one", "PodWaiting").await;
    let why = waits.message.unwrap();
    assert!(why.contains("untolerated taint"), "the scheduler's words: {why}");
    let first = scene.job("stuck", "one").await;

    // Another version, under another name; then the same version with another pod, under the same name.
    scene.edit("stuck", json!({ "version": "v2" })).await;
    let v2 = at_version(&scene, "stuck", "v2").await;
    wait::gone(scene.world.jobs(), &first.name_any(), SOON).await;
    let second = scene.job_until("stuck", "one", "is there", |_| true).await;
    scene.held_up("stuck", "one", "PodWaiting").await;
    let tolerations = json!([{ "key": "maintenance", "operator": "Exists" }]);
    scene.edit("stuck", json!({ "tolerations": tolerations })).await;
    let is_another = |job: &k8s_openapi::api::batch::v1::Job| job.uid() != second.uid();
    let third = scene.job_until("stuck", "one", "is another", is_another).await;
    assert_eq!(third.name_any(), second.name_any());
    assert_eq!(scene.complete("stuck").await, v2);
    assert_eq!(scene.made().await.len(), 3);
    assert_eq!(scene.runs("one", "upgrade").await, 1);
    scene.told_complete(["one"]).await;
}

#[tokio::test]
async fn a_node_that_is_deselected_in_mid_run_comes_to_its_end_and_keeps_its_slot_until_then() {
    let scene = Scene::with(["one", "two"], |set| held(set).label("pool", "blue")).await;
    let _controller = scene.world.controller().start();
    let blue = json!({ "matchLabels": { "pool": "blue" } });
    scene
        .plan("blue", json!({ "spec": { "nodeSelector": blue } }))
        .await;
    let (first, other) = scene.first_of_two("blue").await;
    let first_node = scene.node(first);
    scene.world.label_node(&first_node, "pool", Some("green")).await;
    let deselected = |plan: &Plan| {
        let counts = plan.status.as_ref().and_then(|status| status.nodes).unwrap();
        (counts.selected, counts.applying) == (1, 1)
    };
    scene
        .world
        .plan_until("blue", "selects the other only", SOON, deselected)
        .await;
    assert_eq!(scene.made().await.len(), 1);

    scene.release(other).await;
    scene.release(first).await;
    let plan_hash = scene.complete("blue").await;
    scene.done("blue", first, &plan_hash).await;
    scene.done("blue", other, &plan_hash).await;
    scene
        .made_once_each([(first, &plan_hash), (other, &plan_hash)])
        .await;
    assert_eq!(scene.world.requests().await.most_jobs_at_once("blue"), 1);
    let plan = scene.world.plans().get("blue").await.unwrap();
    assert_eq!(plan.status.unwrap().progress.as_deref(), Some("1/1"));
}

#[tokio::test]
async fn a_node_that_is_disabled_in_mid_run_comes_to_its_end_and_stays_disabled() {
    let scene = Scene::held(["one", "two"]).await;
    let _controller = scene.world.controller().start();
    scene.plan("off", json!({ "spec": { "cordon": true } })).await;
    let (first, other) = scene.first_of_two("off").await;
    let first_node = scene.node(first);
    scene
        .world
        .label_node(&first_node, &label("off"), Some("disabled"))
        .await;
    scene.release(other).await;
    scene.release(first).await;

    let plan_hash = scene.complete("off").await;
    scene.all_recorded("off").await;
    let node = scene.world.node(&first_node).await;
    assert_eq!(node.labels()[&label("off")], "disabled");
    assert!(!is_cordoned(&node));
    assert_eq!(ledger(&node), None);
    assert_eq!(scene.runs(first, "upgrade").await, 1);
    scene
        .made_once_each([(first, &plan_hash), (other, &plan_hash)])
        .await;
    scene.told_complete(["one", "two"]).await;
    // One patch gives it back; nothing goes round in circles.
    let requests = scene.world.controller_requests().await;
    let patches = requests
        .writes()
        .filter(|it| it.resource == "nodes" && it.name == first_node);
    assert_eq!(patches.count(), 1);
}

#[tokio::test]
async fn a_plan_that_is_deleted_in_mid_run_takes_its_jobs_and_pods_along() {
    let scene = Scene::held(["one", "two"]).await;
    let _controller = scene.world.controller().start();
    let spec = json!({ "concurrency": 2, "cordon": true });
    scene.plan("gone", json!({ "spec": spec })).await;
    scene.upgrading("gone", "one").await;
    scene.upgrading("gone", "two").await;
    scene.delete_plan("gone").await;
    wait::eventually("Jobs and pods are gone", A_WHILE, async || {
        let jobs = scene.world.jobs_of("gone").await.len();
        let pods = scene.world.pods().list(&ListParams::default()).await;
        let pods = pods.map_err(|error| error.to_string())?.items.len();
        let left = format!("{jobs} Jobs, {pods} pods");
        (jobs + pods == 0).then_some(()).ok_or(left)
    })
    .await;
    for node in ["one", "two"] {
        let back = |node: &Node| !is_cordoned(node) && ledger(node).is_none();
        let node = scene.node(node);
        let node = scene.world.node_until(&node, "is given back", SOON, back).await;
        assert!(!node.labels().contains_key(&label("gone")));
    }
}
