//! What is lost on the way: pods, Jobs, power, and the controller between any two writes.

use futures::StreamExt as _;
use serde_json::json;

use super::{PLAN, always};
use crate::scene::{Scene, both, has_condition, is_recorded};
use crate::support::controller::Controller;
use crate::support::faults::{Moment, Rule};
use crate::support::wait::SOON;
use crate::tended::Tended;

#[tokio::test]
async fn a_controller_that_is_killed_at_any_write_leaves_one_boot_and_no_more() {
    // Status, Job, record, mark, pod, label, pod again, status: and what is told between.
    let at = (1..=9_u64).flat_map(|n| [(n, Moment::Before), (n, Moment::After)]);
    let tries = at.map(|(n, moment)| async move {
        let scene = Scene::new(["one"]).await;
        let faults = scene.world.faults(n).await;
        faults.add(Rule::write().nth(n).kill(moment));
        let _tended = Tended::start(scene.world.controller().through(&faults));
        scene.plan(PLAN, always()).await;
        scene.is_done_after("one", 1, 1).await;
        assert_eq!(scene.world.jobs_of(PLAN).await.len(), 1);
        faults.faults()
    });
    let killed: Vec<_> = futures::stream::iter(tries).buffer_unordered(2).collect().await;
    assert!(
        killed.iter().filter(|faults| **faults == 1).count() >= 14,
        "{killed:?}"
    );
}

/// A Plan whose upgrade runs on the node, and a controller that is dead before it ends.
async fn complete_without_controller(scene: &Scene) -> Controller {
    let controller = scene.world.controller().start();
    scene.plan(PLAN, always()).await;
    scene.upgrading(PLAN, "one").await;
    controller.kill();
    scene.release("one").await;
    scene.job_is_complete("one").await;
    controller
}

#[tokio::test]
async fn a_pod_that_is_deleted_by_hand_is_made_again_and_the_node_boots_once() {
    let scene = Scene::with(["one"], |set| set.steer("comes-back", "as-if-nothing")).await;
    let controller = scene.world.controller().start();
    scene.plan(PLAN, always()).await;
    let pod = scene.reboot_pod().await;
    controller.kill();
    scene
        .kubelet
        .behaviour(&scene.node("one"), &[("comes-back", "ready")])
        .await;
    scene.delete_pod(&pod).await;
    let _controller = controller.start_again();
    scene.is_done_after("one", 1, 1).await;
}

#[tokio::test]
async fn a_pod_that_the_kubelet_refuses_is_made_again_and_the_node_boots_once() {
    let scene = Scene::held(["one"]).await;
    let _controller = scene.world.controller().start();
    scene.plan(PLAN, always()).await;
    scene.upgrading(PLAN, "one").await;
    let refuses = [("reject", "OutOfpods: too many"), ("upgrade.run-delay", "0")];
    scene.kubelet.behaviour(&scene.node("one"), &refuses).await;
    let pod = scene.reboot_pod().await;
    crate::support::wait::object(scene.world.pods(), &pod, "is refused", SOON, |pod| {
        pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Failed")
    })
    .await;
    scene.kubelet.behaviour(&scene.node("one"), &[]).await;
    scene.is_done_after("one", 1, 1).await;
}

#[tokio::test]
async fn a_node_that_loses_power_during_its_upgrade_has_failed() {
    let scene = Scene::held(["one"]).await;
    let _controller = scene.world.controller().start();
    scene.plan(PLAN, always()).await;
    scene.upgrading(PLAN, "one").await;
    scene.kubelet.reboot(&scene.node("one")).await;
    let failed = scene.held_up(PLAN, "one", "UpgradeInterrupted").await;
    assert_eq!(failed.phase, "Failed");
    assert_eq!(scene.runs("one", "upgrade").await, 1, "not run again by itself");
    scene.all_recorded(PLAN).await;
    assert_eq!(scene.told("JobFailed").await.len(), 1);
}

#[tokio::test]
async fn a_node_that_loses_power_before_its_upgrade_is_upgraded_in_its_second_boot_and_rebooted() {
    let scene = Scene::with(["one"], |set| set.steer("prepare.run-delay", "never")).await;
    let _controller = scene.world.controller().start();
    let prepare = json!({ "spec": { "prepare": { "image": "example.com/prepare" } } });
    scene.plan(PLAN, both(always(), prepare)).await;
    scene.phase(PLAN, "one", "Preparing").await;
    let prepares = [("prepare.run-delay", "0")];
    scene.kubelet.behaviour(&scene.node("one"), &prepares).await;
    scene.kubelet.reboot(&scene.node("one")).await;
    scene.is_done_after("one", 1, 2).await;
}

#[tokio::test]
async fn a_node_that_loses_power_after_its_upgrade_is_not_rebooted_again() {
    let scene = Scene::held(["one"]).await;
    let controller = complete_without_controller(&scene).await;
    scene.kubelet.reboot(&scene.node("one")).await;
    let _controller = controller.start_again();
    scene.is_done_after("one", 1, 1).await;
}

#[tokio::test]
async fn a_job_that_is_deleted_by_hand_during_the_reboot_is_not_run_again() {
    let scene = Scene::with(["one"], |set| set.steer("boot-delay", "3s")).await;
    let controller = scene.world.controller().start();
    scene.plan(PLAN, always()).await;
    scene.phase(PLAN, "one", "Rebooting").await;
    let job = scene.job(PLAN, "one").await;
    assert!(has_condition(&job, "Complete"));
    scene.delete_job(&job).await;
    controller.kill();
    let _controller = controller.start_again();
    scene.is_done_after("one", 1, 1).await;
}

#[tokio::test]
async fn a_job_that_is_deleted_with_its_pod_while_nobody_looks_is_done_by_the_sentinel() {
    let scene = Scene::held(["one"]).await;
    let controller = complete_without_controller(&scene).await;
    scene.delete_job(&scene.job(PLAN, "one").await).await;
    let _controller = controller.start_again();
    scene.is_done_after("one", 1, 1).await;
    assert_eq!(scene.made().await.len(), 1);
}

#[tokio::test]
async fn a_sentinel_that_an_earlier_job_has_left_says_nothing_of_one_that_is_lost() {
    let scene = Scene::new(["one"]).await;
    let controller = scene.world.controller().start();
    let if_required = json!({ "spec": { "reboot": { "when": "IfRequired" } } });
    scene.plan(PLAN, both(always(), if_required)).await;
    scene.is_done_after("one", 1, 0).await;
    scene.edit(PLAN, json!({ "version": "v2" })).await;
    scene.is_done_after("one", 2, 0).await;
    // Back to a version that was there before in this boot.
    scene.hold("one").await;
    scene.edit(PLAN, json!({ "version": "v1" })).await;
    scene.upgrading(PLAN, "one").await;
    let open = |job: &_| !is_recorded(job);
    let job = scene.job_until(PLAN, "one", "has no result", open).await;
    controller.kill();
    scene.delete_job(&job).await;
    scene.release("one").await;
    let _controller = controller.start_again();
    scene.is_done_after("one", 4, 0).await;
}

#[tokio::test]
async fn a_job_that_is_lost_together_with_its_boot_is_evidence_lost_and_not_run_again() {
    let scene = Scene::held(["one"]).await;
    let controller = complete_without_controller(&scene).await;
    scene.delete_job(&scene.job(PLAN, "one").await).await;
    scene.kubelet.reboot(&scene.node("one")).await;
    let _controller = controller.start_again();
    let message = scene.has_failed("one", "EvidenceLost").await;
    assert!(message.contains("refit.rs/retry"), "{message}");
    assert_eq!(
        (scene.runs("one", "upgrade").await, scene.made().await.len()),
        (1, 1)
    );
    scene.no_reboot_pods().await;
}

#[tokio::test]
async fn a_node_without_its_sentinel_is_not_rebooted() {
    let scene = Scene::held(["one"]).await;
    let controller = complete_without_controller(&scene).await;
    scene.kubelet.lose_sentinels(&scene.node("one")).await;
    let _controller = controller.start_again();
    scene.has_failed("one", "SentinelMissing").await;
    scene.no_reboot_pods().await;
    assert_eq!(scene.reboots("one").await, 0);
}
