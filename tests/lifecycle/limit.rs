//! The limit holds also while the API server has not answered: a status that is on its way may be stored or not, and a Job
//! that is being made may be there or not.

use std::time::Duration;

use kube::ResourceExt as _;
use refit_api::Plan;
use refit_job::digest::plan_hash;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::harness::Harness;
use crate::testenv::faults::Rule;
use crate::testenv::wait::SOON;

/// Longer than a controller takes to decide again.
const LATE: Duration = Duration::from_millis(1_500);

/// A version whose hash puts the second node before the first (S50).
fn version_for_which_the_second_comes_first(plan: &Plan, [first, second]: &[String; 2]) -> String {
    let comes_first = |version: &String| {
        let hash = plan_hash(plan, version, std::iter::empty::<&str>());
        let order = |node: &String| Sha256::digest(format!("{node}{}{hash}", plan.uid().unwrap()));
        order(second) < order(first)
    };
    (2..)
        .map(|number| format!("v{number}"))
        .find(comes_first)
        .unwrap()
}

#[tokio::test]
async fn a_slot_that_a_status_on_its_way_gives_to_another_node_is_not_used_by_the_first() {
    let harness = Harness::held(["one", "two"]).await;
    let faults = harness.ctx.faults(1).await;
    let _controller = harness.ctx.controller().through(&faults).start();
    let plan = harness.plan_with("moves", json!({ "version": "v1" })).await;
    let (first, other) = harness.first_of_two("moves").await;
    let uids = [first, other].map(|node| harness.node(node));
    let uids =
        [harness.ctx.node(&uids[0]).await, harness.ctx.node(&uids[1]).await].map(|node| node.uid().unwrap());
    let version = version_for_which_the_second_comes_first(&plan, &uids);
    harness.edit("moves", json!({ "version": version })).await;
    let is_there = |plan: &Plan| plan.status.as_ref().unwrap().latest_version.as_ref() == Some(&version);
    harness
        .ctx
        .plan_until("moves", "is at the new version", SOON, is_there)
        .await;

    // The first node gets the label of v1, and with that its slot goes to the one that is next: the other.
    // That the label is there is heard of when mere progress has been written, so that this is the next thing to write.
    faults.add(Rule::on("patch", "plans/status").late(LATE));
    faults.add(Rule::on("watch", "plans").late_events(LATE));
    faults.add(Rule::on("patch", "nodes").late(2 * LATE));
    faults.add(Rule::on("watch", "nodes").late_events(2 * LATE));
    faults.cut_watches("plans");
    faults.cut_watches("nodes");
    for node in ["one", "two"] {
        harness.release(node).await;
    }
    let new = harness.complete("moves").await;
    let made = harness.made().await;
    let old = &made[0].hash;
    harness
        .made_once_each([(first, old), (first, &new), (other, &new)])
        .await;
    let requests = harness.ctx.requests().await;
    assert_eq!(requests.most_jobs_at_once("moves"), 1);
    assert_eq!(requests.most_applying("moves"), 1);
}
