//! The controller is lost between any two writes.

use futures::StreamExt as _;

use super::{PLAN, always};
use crate::harness::Harness;
use crate::supervised::SupervisedController;
use crate::testenv::faults::{Moment, Rule};

scenarios! {
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
