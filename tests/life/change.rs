//! Plans and nodes that change while the roll-out runs: what runs is let finish, what does not run is replaced.

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use refit::api::Plan;
use serde_json::json;

use crate::scene::{A_WHILE, Scene, applying, both, hash, is_cordoned, is_recorded, label, ledger, steer};
use crate::support::wait::{self, SOON};

/// Waits until the Plan is at that version, and returns its hash.
async fn at_version(scene: &Scene, plan: &str, version: &str) -> String {
    let at = |plan: &Plan| plan.status.as_ref().unwrap().latest_version.as_deref() == Some(version);
    hash(
        &scene
            .world
            .plan_until(plan, &format!("is at {version}"), SOON, at)
            .await,
    )
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
        scene
            .kubelet
            .behaviour(&scene.node(node), &[("upgrade.run-delay", "2s")])
            .await;
    }
    scene.edit("back", json!({ "version": "vB" })).await;
    let b = at_version(&scene, "back", "vB").await;
    let plan = scene
        .world
        .plan_until("back", "applies one", A_WHILE, |plan| applying(plan).len() == 1)
        .await;
    let first = applying(&plan)[0]
        .strip_prefix(&scene.node(""))
        .unwrap()
        .to_owned();
    let second = if first == "one" { "two" } else { "one" };
    scene.edit("back", json!({ "suspend": true })).await;
    scene.done("back", &first, &b).await;
    scene
        .job_until("back", &first, "of B is recorded", |job| {
            is_recorded(job) && job.labels()["upgrade.cattle.io/version"] == "vB"
        })
        .await;

    // A's Jobs are still there, complete. They are not what makes the node of B one of A again.
    assert_eq!(scene.world.jobs_of("back").await.len(), 3);
    scene
        .edit("back", json!({ "version": "vA", "suspend": null }))
        .await;
    assert_eq!(at_version(&scene, "back", "vA").await, a);
    scene.done("back", &first, &a).await;
    scene.complete("back").await;
    let made: Vec<_> = scene
        .made()
        .await
        .into_iter()
        .map(|job| (job.node, job.hash))
        .collect();
    let count = |node: &str, hash: &str| {
        made.iter()
            .filter(|it| **it == (scene.node(node), hash.to_owned()))
            .count()
    };
    assert_eq!(
        [
            count(&first, &a),
            count(&first, &b),
            count(second, &a),
            count(second, &b)
        ],
        [2, 1, 1, 0]
    );
}

#[tokio::test]
async fn an_upgrade_that_runs_is_let_finish_when_the_version_changes() {
    let scene = Scene::new(["one", "two"]).await;
    let controller = scene.world.controller().start();
    scene
        .plan(
            "moves",
            both(
                steer(&[("run-delay", "3s")]),
                json!({ "spec": { "version": "v1" } }),
            ),
        )
        .await;
    let plan = scene
        .world
        .plan_until("moves", "applies one", A_WHILE, |plan| applying(plan).len() == 1)
        .await;
    let (first, old) = (
        applying(&plan)[0]
            .strip_prefix(&scene.node(""))
            .unwrap()
            .to_owned(),
        hash(&plan),
    );
    scene.upgrading("moves", &first).await;
    scene.edit("moves", json!({ "version": "v2" })).await;
    let new = at_version(&scene, "moves", "v2").await;
    // It holds its slot, and a new controller sees that as well.
    controller.kill();
    let _controller = controller.start_again();

    scene.done("moves", &first, &old).await;
    scene.done("moves", &first, &new).await;
    scene.complete("moves").await;
    let other = if first == "one" { "two" } else { "one" };
    scene
        .made_once_each([(&first, &old), (&first, &new), (other, &new)])
        .await;
    assert_eq!(scene.runs(&first, "upgrade").await, 2);
    assert_eq!(scene.runs(other, "upgrade").await, 1);
    let requests = scene.world.requests().await;
    assert_eq!(requests.most_jobs_at_once("moves"), 1);
    assert_eq!(
        requests.by(&scene.world.user()).count("delete", "jobs"),
        0,
        "nothing was replaced"
    );
}

#[tokio::test]
async fn a_job_whose_pod_has_no_node_yet_is_replaced_at_once() {
    let scene = Scene::with(["one"], |set| set.taint("maintenance", "true", "NoSchedule")).await;
    let _controller = scene.world.controller().start();
    scene.plan("stuck", json!({ "spec": { "version": "v1" } })).await;
    let waits = scene.held_up("stuck", "one", "PodWaiting").await;
    assert!(
        waits.message.unwrap().contains("untolerated taint"),
        "the scheduler's words"
    );
    let first = scene.job("stuck", "one").await;

    // Another version, under another name; then the same version with another pod, under the same name.
    scene.edit("stuck", json!({ "version": "v2" })).await;
    let v2 = at_version(&scene, "stuck", "v2").await;
    wait::gone(scene.world.jobs(), &first.name_any(), SOON).await;
    let second = scene.job_until("stuck", "one", "is there", |_| true).await;
    scene.held_up("stuck", "one", "PodWaiting").await;
    scene
        .edit(
            "stuck",
            json!({ "tolerations": [{ "key": "maintenance", "operator": "Exists" }] }),
        )
        .await;
    let third = scene
        .job_until("stuck", "one", "is another", |job| job.uid() != second.uid())
        .await;
    assert_eq!(third.name_any(), second.name_any());
    assert_eq!(scene.complete("stuck").await, v2);
    assert_eq!(scene.made().await.len(), 3);
    assert_eq!(scene.runs("one", "upgrade").await, 1);
    scene
        .told_exactly(
            "JobComplete",
            [format!("Job completed on Node {}", scene.node("one"))],
        )
        .await;
}

#[tokio::test]
async fn a_node_that_is_deselected_in_mid_run_comes_to_its_end_and_no_other_takes_its_slot_before() {
    let scene = Scene::with(["one", "two"], |set| set.label("pool", "blue")).await;
    let _controller = scene.world.controller().start();
    let blue = json!({ "spec": { "nodeSelector": { "matchLabels": { "pool": "blue" } } } });
    scene
        .plan("blue", both(steer(&[("run-delay", "2s")]), blue))
        .await;
    let plan = scene
        .world
        .plan_until("blue", "applies one", A_WHILE, |plan| applying(plan).len() == 1)
        .await;
    let first = applying(&plan)[0]
        .strip_prefix(&scene.node(""))
        .unwrap()
        .to_owned();
    let other = if first == "one" { "two" } else { "one" };
    scene.upgrading("blue", &first).await;
    scene
        .world
        .label_node(&scene.node(&first), "pool", Some("green"))
        .await;

    let plan_hash = hash(&plan);
    scene.done("blue", &first, &plan_hash).await;
    scene.done("blue", other, &plan_hash).await;
    scene.complete("blue").await;
    scene
        .made_once_each([(&first, &plan_hash), (other, &plan_hash)])
        .await;
    assert_eq!(scene.world.requests().await.most_jobs_at_once("blue"), 1);
    let plan = scene.world.plans().get("blue").await.unwrap();
    assert_eq!(plan.status.unwrap().progress.as_deref(), Some("1/1"));
}

#[tokio::test]
async fn a_node_that_is_disabled_in_mid_run_comes_to_its_end_and_stays_disabled() {
    let scene = Scene::new(["one", "two"]).await;
    let _controller = scene.world.controller().start();
    let slow = both(
        steer(&[("upgrade.run-delay", "2s")]),
        json!({ "spec": { "cordon": true } }),
    );
    scene.plan("off", slow).await;
    let plan = scene
        .world
        .plan_until("off", "applies one", A_WHILE, |plan| applying(plan).len() == 1)
        .await;
    let first = applying(&plan)[0]
        .strip_prefix(&scene.node(""))
        .unwrap()
        .to_owned();
    let other = if first == "one" { "two" } else { "one" };
    scene.upgrading("off", &first).await;
    scene
        .world
        .label_node(&scene.node(&first), &label("off"), Some("disabled"))
        .await;

    let plan_hash = scene.complete("off").await;
    scene.all_recorded("off").await;
    let node = scene.world.node(&scene.node(&first)).await;
    assert_eq!(node.labels()[&label("off")], "disabled");
    assert!(!is_cordoned(&node));
    assert_eq!(ledger(&node), None);
    assert_eq!(scene.runs(&first, "upgrade").await, 1);
    scene
        .made_once_each([(&first, &plan_hash), (other, &plan_hash)])
        .await;
    scene
        .told_exactly(
            "JobComplete",
            ["one", "two"].map(|node| format!("Job completed on Node {}", scene.node(node))),
        )
        .await;
    // One patch gives it back; nothing goes round in circles.
    let requests = scene.world.controller_requests().await;
    let patches = requests
        .writes()
        .filter(|it| it.resource == "nodes" && it.name == scene.node(&first))
        .count();
    assert_eq!(patches, 1);
}

#[tokio::test]
async fn a_plan_that_is_deleted_in_mid_run_takes_its_jobs_and_pods_along() {
    let scene = Scene::new(["one", "two"]).await;
    let _controller = scene.world.controller().start();
    let endless = steer(&[("upgrade.run-delay", "never")]);
    scene
        .plan(
            "gone",
            both(endless, json!({ "spec": { "concurrency": 2, "cordon": true } })),
        )
        .await;
    scene.upgrading("gone", "one").await;
    scene.upgrading("gone", "two").await;
    scene
        .world
        .plans()
        .delete("gone", &Default::default())
        .await
        .unwrap();
    wait::eventually("Jobs and pods are gone", A_WHILE, async || {
        let jobs = scene.world.jobs_of("gone").await.len();
        let pods = scene
            .world
            .pods()
            .list(&Default::default())
            .await
            .map_err(|error| error.to_string())?
            .items
            .len();
        if jobs + pods == 0 {
            Ok(())
        } else {
            Err(format!("{jobs} Jobs, {pods} pods"))
        }
    })
    .await;
    for node in ["one", "two"] {
        let back = |node: &Node| !is_cordoned(node) && ledger(node).is_none();
        let node = scene
            .world
            .node_until(&scene.node(node), "is given back", SOON, back)
            .await;
        assert!(!node.labels().contains_key(&label("gone")));
    }
}
