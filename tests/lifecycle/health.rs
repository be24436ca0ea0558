//! Nodes that are cut off or deleted, and Jobs that end while no controller runs.

use kube::ResourceExt as _;
use serde_json::json;

use crate::scenario::Backend;
use crate::testenv::wait::{self, SOON};

scenarios! {
    both {
        a_node_that_is_deleted_in_mid_run_gives_its_slot_to_the_next,
    }
    real {
        a_node_that_was_cut_off_while_its_upgrade_went_on_is_done_when_it_is_back,
    }
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
