//! Nodes that are not well: a node that is not Ready is not started, and one that has been upgraded is done when it is
//! Ready again.

use kube::ResourceExt as _;
use kube::api::DeleteParams;
use refit::api::Plan;
use serde_json::json;

use crate::scene::{A_WHILE, Scene, applying, both, has_condition, hash, is_recorded, record, steer};
use crate::support::wait::{self, SOON};
use crate::support::world::cluster::{done, find_condition};

#[tokio::test]
async fn a_node_that_is_not_ready_is_passed_over_and_done_when_it_is_back() {
    let scene = Scene::new(["ill", "well", "fine"]).await;
    scene.kubelet.set_not_ready(&scene.node("ill")).await;
    let _controller = scene.world.controller().start();
    scene.plan("careful", json!({})).await;
    let says_so = |plan: &Plan| {
        let condition = find_condition(plan, "Complete");
        applying(plan).is_empty() && condition.is_some_and(|it| it.reason.as_deref() == Some("NodeNotReady"))
    };
    let plan = scene
        .world
        .plan_until("careful", "waits for the last", A_WHILE, says_so)
        .await;
    let text = format!("Node {}: the node is not Ready", scene.node("ill"));
    assert_eq!(
        find_condition(&plan, "Complete").unwrap().message.as_deref(),
        Some(&*text)
    );
    assert_eq!(plan.status.as_ref().unwrap().progress.as_deref(), Some("2/3"));
    scene.held_up("careful", "ill", "NodeNotReady").await;
    let plan_hash = hash(&plan);
    scene
        .made_once_each([("well", &plan_hash), ("fine", &plan_hash)])
        .await;

    scene.kubelet.set_ready(&scene.node("ill")).await;
    scene.complete("careful").await;
    scene
        .made_once_each(["ill", "well", "fine"].map(|node| (node, &*plan_hash)))
        .await;
}

#[tokio::test]
async fn a_plan_that_tolerates_it_repairs_nodes_that_are_not_ready() {
    let scene = Scene::new(["ill"]).await;
    scene.kubelet.set_not_ready(&scene.node("ill")).await;
    let _controller = scene.world.controller().start();
    let tolerates = json!([{ "key": "node.kubernetes.io/not-ready", "operator": "Exists" }]);
    scene
        .plan("repair", json!({ "spec": { "tolerations": tolerates } }))
        .await;
    let plan_hash = scene.complete("repair").await;
    scene.made_once_each([("ill", &plan_hash)]).await;
}

#[tokio::test]
async fn a_node_is_done_when_it_is_ready_again_and_the_next_waits_until_then() {
    let scene = Scene::held(["one", "two"]).await;
    let controller = scene.world.controller().start();
    scene.plan("settles", json!({ "spec": { "cordon": true } })).await;
    let (first, other) = scene.first_of_two("settles").await;
    scene.kubelet.set_not_ready(&scene.node(first)).await;
    scene.release(first).await;
    scene.release(other).await;

    let job = scene
        .job_until("settles", first, "is Complete", |job| {
            has_condition(job, "Complete")
        })
        .await;
    let settling = scene.phase("settles", first, "Settling").await;
    assert_eq!(settling.reason.as_deref(), Some("NodeNotReady"));
    // What has been reached outlives the Job, and a controller that has just come knows it.
    wait::object(
        scene.world.jobs(),
        &job.name_any(),
        "is recorded",
        SOON,
        is_recorded,
    )
    .await;
    let node = scene.world.node(&scene.node(first)).await;
    assert_eq!(record(&node, "settles").unwrap()["phase"], "Upgraded");
    assert!(crate::scene::is_cordoned(&node) && done(&node, "settles").is_none());
    scene.delete_job(&job).await;
    controller.kill();
    let controller = controller.start_again();
    controller.logs("watching", SOON).await;
    scene.held_up("settles", other, "NoSlot").await;
    assert_eq!(scene.made().await.len(), 1);

    scene.kubelet.set_ready(&scene.node(first)).await;
    let plan_hash = scene.complete("settles").await;
    let node = scene.done("settles", first, &plan_hash).await;
    assert!(!crate::scene::is_cordoned(&node));
    assert_eq!(record(&node, "settles"), None);
    scene
        .made_once_each([(first, &plan_hash), (other, &plan_hash)])
        .await;
    assert_eq!(scene.world.requests().await.most_jobs_at_once("settles"), 1);
    scene.told_complete(["one", "two"]).await;
}

#[tokio::test]
async fn a_node_that_is_lost_under_its_job_is_called_lost_and_the_way_out_is_told() {
    let scene = Scene::new(["one"]).await;
    let _controller = scene.world.controller().start();
    let spec = json!({ "spec": { "jobActiveDeadlineSecs": 4 } });
    scene
        .plan("lost", both(steer(&[("run-delay", "never")]), spec))
        .await;
    scene.upgrading("lost", "one").await;
    scene.kubelet.power_off(&scene.node("one")).await;
    scene.kubelet.declare_lost(&scene.node("one")).await;
    let lost = scene.held_up("lost", "one", "NodeLost").await;
    assert_eq!(lost.phase, "Failed");
    let text = lost.message.unwrap();
    assert!(
        text.contains("DeadlineExceeded") && text.contains("bring the node back, or delete it"),
        "{text}"
    );

    // The node comes back, and with it what its kubelet knows: the real reason replaces that one.
    scene.kubelet.power_on(&scene.node("one")).await;
    let failed = scene.held_up("lost", "one", "DeadlineExceeded").await;
    assert_eq!(failed.phase, "Failed");
    scene.job_until("lost", "one", "is recorded", is_recorded).await;
    assert_eq!(scene.made().await.len(), 1);
    assert_eq!(scene.told("JobFailed").await.len(), 1);
}

#[tokio::test]
async fn a_node_that_was_cut_off_while_its_upgrade_went_on_is_done_when_it_is_back() {
    let scene = Scene::held(["one", "two"]).await;
    let _controller = scene.world.controller().start();
    scene.plan("island", json!({})).await;
    let (first, other) = scene.first_of_two("island").await;
    scene.kubelet.disconnect(&scene.node(first)).await;
    scene.kubelet.declare_lost(&scene.node(first)).await;
    let waits = scene.held_up("island", first, "NodeNotReady").await;
    assert_eq!(waits.phase, "Upgrading", "that is the last that was heard");
    assert_eq!(scene.made().await.len(), 1, "the next one waits");

    scene.release(first).await;
    scene.release(other).await;
    scene.kubelet.reconnect(&scene.node(first)).await;
    let plan_hash = scene.complete("island").await;
    scene
        .made_once_each([(first, &plan_hash), (other, &plan_hash)])
        .await;
    assert_eq!(scene.runs(first, "upgrade").await, 1);
    assert_eq!(scene.world.requests().await.most_jobs_at_once("island"), 1);
}

#[tokio::test]
async fn a_node_that_is_deleted_in_mid_run_gives_its_slot_to_the_next() {
    let scene = Scene::held(["one", "two"]).await;
    let _controller = scene.world.controller().start();
    scene.plan("shrinks", json!({})).await;
    let (first, other) = scene.first_of_two("shrinks").await;
    let job = scene.job("shrinks", first).await;
    scene.release(other).await;
    scene.kubelet.delete_node(&scene.node(first)).await;
    let plan_hash = scene.complete("shrinks").await;
    scene.done("shrinks", other, &plan_hash).await;
    wait::gone(scene.world.jobs(), &job.name_any(), SOON).await;
    scene
        .made_once_each([(first, &plan_hash), (other, &plan_hash)])
        .await;
}

#[tokio::test]
async fn a_job_that_a_person_deletes_while_it_runs_is_made_again() {
    let scene = Scene::with(["one"], |set| set.steer("upgrade.run-delay", "never")).await;
    let _controller = scene.world.controller().start();
    scene.plan("deleted", json!({})).await;
    scene.upgrading("deleted", "one").await;
    let job = scene.job("deleted", "one").await;
    scene
        .kubelet
        .behaviour(&scene.node("one"), &[("upgrade.run-delay", "300ms")])
        .await;
    scene
        .world
        .jobs()
        .delete(&job.name_any(), &DeleteParams::background())
        .await
        .unwrap();
    let plan_hash = scene.complete("deleted").await;
    let made = scene.made().await;
    assert_eq!(made.len(), 2);
    assert!(made.iter().all(|job| job.hash == plan_hash));
    assert_eq!(scene.runs("one", "upgrade").await, 2);
    scene.told_complete(["one"]).await;
}

#[tokio::test]
async fn a_job_that_was_lost_before_anybody_saw_it_complete_is_made_again() {
    let scene = Scene::held(["one"]).await;
    let controller = scene.world.controller().start();
    scene.plan("unseen", json!({})).await;
    scene.upgrading("unseen", "one").await;
    controller.kill();
    scene.release("one").await;
    let job = scene
        .job_until("unseen", "one", "is Complete", |job| {
            has_condition(job, "Complete")
        })
        .await;
    scene.delete_job(&job).await;
    let _controller = controller.start_again();
    scene.complete("unseen").await;
    assert_eq!(scene.made().await.len(), 2);
    assert_eq!(scene.told("JobComplete").await.len(), 1);
}

#[tokio::test]
async fn a_job_that_completes_while_no_controller_runs_is_not_run_again() {
    let scene = Scene::held(["one", "two"]).await;
    let controller = scene
        .world
        .controller()
        .env("SYSTEM_UPGRADE_JOB_TTL_SECONDS_AFTER_FINISH", "0")
        .start();
    scene
        .plan("asleep", json!({ "spec": { "concurrency": 2, "cordon": true } }))
        .await;
    for node in ["one", "two"] {
        scene.upgrading("asleep", node).await;
    }
    controller.kill();
    for node in ["one", "two"] {
        scene.release(node).await;
        scene
            .job_until("asleep", node, "is Complete", |job| {
                has_condition(job, "Complete")
            })
            .await;
    }
    let _controller = controller.start_again();
    let plan_hash = scene.complete("asleep").await;
    scene
        .made_once_each([("one", &plan_hash), ("two", &plan_hash)])
        .await;
    scene.told_complete(["one", "two"]).await;
}

#[tokio::test]
async fn a_payload_that_reboots_its_node_once_is_run_again_by_its_job_and_then_done() {
    let scene = Scene::with(["one", "two"], |set| set.steer("upgrade.reboot", "once")).await;
    let _controller = scene.world.controller().start();
    scene.plan("boots", json!({ "spec": { "cordon": true } })).await;
    let plan_hash = scene.complete("boots").await;
    scene
        .made_once_each([("one", &plan_hash), ("two", &plan_hash)])
        .await;
    for node in ["one", "two"] {
        assert_eq!(
            scene.kubelet.boots(&scene.node(node)).await,
            2,
            "{node}: the first boot and another"
        );
        assert_eq!(scene.runs(node, "upgrade").await, 2);
        assert!(!crate::scene::is_cordoned(
            &scene.world.node(&scene.node(node)).await
        ));
    }
    assert_eq!(scene.world.requests().await.most_jobs_at_once("boots"), 1);
}
