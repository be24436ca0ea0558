//! Losses: pods, Jobs, power, and the controller between any two writes.

use futures::StreamExt as _;
use serde_json::json;

use super::{PLAN, always};
use crate::harness::{Harness, both, is_recorded};
use crate::scenario::Backend;
use crate::supervised::SupervisedController;
use crate::testenv::controller::Controller;
use crate::testenv::faults::{Moment, Rule};

scenarios! {
    in_process {
        a_job_that_is_deleted_unobserved_with_its_pod_is_done_by_the_sentinel,
        a_sentinel_of_an_earlier_job_proves_nothing_about_a_lost_one,
    }
    real {
        a_controller_that_is_killed_at_any_write_leaves_one_boot_and_no_more,
    }
}

async fn a_controller_that_is_killed_at_any_write_leaves_one_boot_and_no_more() {
    // Status, Job, record, annotation of the Job, pod, label, pod again, status, and the events in between.
    let at = (1..=9_u64).flat_map(|n| [(n, Moment::Before), (n, Moment::After)]);
    let tries = at.map(|(n, moment)| async move {
        let harness = Harness::new(["one"]).await;
        let faults = harness.ctx.faults(n).await;
        faults.add(Rule::write().nth(n).kill(moment));
        let _supervised = SupervisedController::start(harness.ctx.controller().through(&faults));
        harness.plan(PLAN, always()).await;
        harness.is_done_after("one", 1, 1).await;
        assert_eq!(harness.ctx.jobs_of(PLAN).await.len(), 1);
        faults.faults()
    });
    let killed: Vec<_> = futures::stream::iter(tries).buffer_unordered(2).collect().await;
    assert!(
        killed.iter().filter(|faults| **faults == 1).count() >= 14,
        "{killed:?}"
    );
}

/// A Plan whose upgrade runs on the node, and a controller that dies before it ends.
async fn complete_without_controller(harness: &Harness) -> Controller {
    let controller = harness.ctx.controller().start();
    harness.plan(PLAN, always()).await;
    harness.upgrading(PLAN, "one").await;
    controller.kill();
    harness.release("one").await;
    harness.job_is_complete("one").await;
    controller
}

async fn a_job_that_is_deleted_unobserved_with_its_pod_is_done_by_the_sentinel(on: Backend) {
    let harness = on.held(["one"]).await;
    let controller = complete_without_controller(&harness).await;
    harness.delete_job(&harness.job(PLAN, "one").await).await;
    let _controller = controller.start_again();
    harness.is_done_after("one", 1, 1).await;
    assert_eq!(harness.made().await.len(), 1);
}

async fn a_sentinel_of_an_earlier_job_proves_nothing_about_a_lost_one(on: Backend) {
    let harness = on.harness(["one"]).await;
    let controller = harness.ctx.controller().start();
    let if_required = json!({ "spec": { "reboot": { "when": "IfRequired" } } });
    harness.plan(PLAN, both(always(), if_required)).await;
    harness.is_done_after("one", 1, 0).await;
    harness.edit(PLAN, json!({ "version": "v2" })).await;
    harness.is_done_after("one", 2, 0).await;
    // Returns to a version that ran before in this boot.
    harness.hold("one").await;
    harness.edit(PLAN, json!({ "version": "v1" })).await;
    harness.upgrading(PLAN, "one").await;
    let open = |job: &_| !is_recorded(job);
    let job = harness.job_until(PLAN, "one", "has no result", open).await;
    controller.kill();
    harness.delete_job(&job).await;
    harness.release("one").await;
    let _controller = controller.start_again();
    harness.is_done_after("one", 4, 0).await;
}
