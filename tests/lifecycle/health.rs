//! Nodes that are not well: a node that is not Ready is not started, and one that has been upgraded is done when it is
//! Ready again.

use kube::ResourceExt as _;
use serde_json::json;

use crate::harness::{has_condition, record};
use crate::scenario::Backend;
use crate::testenv::context::cluster::done;
use crate::testenv::wait::{self, SOON};

scenarios! {
    both {
        a_node_that_is_deleted_in_mid_run_gives_its_slot_to_the_next,
        a_job_that_completes_while_no_controller_runs_is_not_run_again,
    }
    in_process {
        a_node_is_done_when_it_is_ready_again_and_the_next_waits_until_then,
    }
    real {
        a_node_that_was_cut_off_while_its_upgrade_went_on_is_done_when_it_is_back,
    }
}

async fn a_node_is_done_when_it_is_ready_again_and_the_next_waits_until_then(on: Backend) {
    let harness = on.held(["one", "two"]).await;
    let controller = harness.ctx.controller().start();
    harness.plan_with("settles", json!({ "cordon": true })).await;
    let (first, other) = harness.first_of_two("settles").await;
    harness.kubelet.set_not_ready(&harness.node(first)).await;
    harness.release(first).await;
    harness.release(other).await;

    let job = harness
        .job_until("settles", first, "is Complete", |job| {
            has_condition(job, "Complete")
        })
        .await;
    let settling = harness.phase("settles", first, "Settling").await;
    assert_eq!(settling.reason.as_deref(), Some("NodeNotReady"));
    // What has been reached outlives the Job, and a controller that has just come knows it.
    harness.recorded(&job.name_any()).await;
    let node = harness.get(first).await;
    assert_eq!(record(&node, "settles").unwrap()["phase"], "Upgraded");
    assert!(crate::harness::is_cordoned(&node) && done(&node, "settles").is_none());
    harness.delete_job(&job).await;
    controller.kill();
    let controller = controller.start_again();
    harness.ctx.wait_until_working(&controller).await;
    harness.held_up("settles", other, "NoSlot").await;
    assert_eq!(harness.made().await.len(), 1);

    harness.kubelet.set_ready(&harness.node(first)).await;
    let plan_hash = harness.complete("settles").await;
    let node = harness.done("settles", first, &plan_hash).await;
    assert!(!crate::harness::is_cordoned(&node));
    assert_eq!(record(&node, "settles"), None);
    harness
        .made_once_each([(first, &plan_hash), (other, &plan_hash)])
        .await;
    assert_eq!(harness.ctx.requests().await.most_jobs_at_once("settles"), 1);
    harness.expect_complete_events(["one", "two"]).await;
}

/// The simulated cluster has no networks that can be cut.
async fn a_node_that_was_cut_off_while_its_upgrade_went_on_is_done_when_it_is_back() {
    let harness = Backend::Real.held(["one", "two"]).await;
    let _controller = harness.ctx.controller().start();
    harness.plan("island", json!({})).await;
    let (first, other) = harness.first_of_two("island").await;
    harness.kubelet.disconnect(&harness.node(first)).await;
    harness.kubelet.declare_lost(&harness.node(first)).await;
    let waits = harness.held_up("island", first, "NodeNotReady").await;
    assert_eq!(waits.phase, "Upgrading", "that is the last that was heard");
    assert_eq!(harness.made().await.len(), 1, "the next one waits");

    harness.release(first).await;
    harness.release(other).await;
    harness.kubelet.reconnect(&harness.node(first)).await;
    let plan_hash = harness.complete("island").await;
    harness
        .made_once_each([(first, &plan_hash), (other, &plan_hash)])
        .await;
    assert_eq!(harness.runs(first, "upgrade").await, 1);
    assert_eq!(harness.ctx.requests().await.most_jobs_at_once("island"), 1);
}

async fn a_node_that_is_deleted_in_mid_run_gives_its_slot_to_the_next(on: Backend) {
    let harness = on.held(["one", "two"]).await;
    let _controller = harness.ctx.controller().start();
    harness.plan("shrinks", json!({})).await;
    let (first, other) = harness.first_of_two("shrinks").await;
    let job = harness.job("shrinks", first).await;
    harness.release(other).await;
    harness.kubelet.delete_node(&harness.node(first)).await;
    let plan_hash = harness.complete("shrinks").await;
    harness.done("shrinks", other, &plan_hash).await;
    wait::gone(harness.ctx.jobs(), &job.name_any(), SOON).await;
    harness
        .made_once_each([(first, &plan_hash), (other, &plan_hash)])
        .await;
}

async fn a_job_that_completes_while_no_controller_runs_is_not_run_again(on: Backend) {
    let harness = on.held(["one", "two"]).await;
    let controller = harness
        .ctx
        .controller()
        .env("SYSTEM_UPGRADE_JOB_TTL_SECONDS_AFTER_FINISH", "0")
        .start();
    harness
        .plan_with("asleep", json!({ "concurrency": 2, "cordon": true }))
        .await;
    for node in ["one", "two"] {
        harness.upgrading("asleep", node).await;
    }
    controller.kill();
    for node in ["one", "two"] {
        harness.release(node).await;
        harness
            .job_until("asleep", node, "is Complete", |job| {
                has_condition(job, "Complete")
            })
            .await;
    }
    let _controller = controller.start_again();
    let plan_hash = harness.complete("asleep").await;
    harness
        .made_once_each([("one", &plan_hash), ("two", &plan_hash)])
        .await;
    harness.expect_complete_events(["one", "two"]).await;
}
