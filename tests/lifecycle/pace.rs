//! How many nodes at a time, and which at all: limits, `suspend`, labels, nodes that come later.

use refit::api::Plan;
use serde_json::json;

use crate::harness::{both, label, steer};
use crate::scenario::Backend;
use crate::testenv::wait::SOON;

scenarios! {
    in_process {
        a_quarter_of_eight_nodes_are_two_at_a_time,
        a_node_whose_label_is_removed_runs_the_plan_again,
        a_node_labelled_disabled_is_skipped_until_the_label_goes,
    }
}

async fn a_quarter_of_eight_nodes_are_two_at_a_time(on: Backend) {
    let nodes = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let harness = on.harness(nodes).await;
    let _controller = harness.ctx.controller().start();
    let spec = json!({ "spec": { "concurrency": 5, "maxConcurrent": "25%" } });
    harness
        .plan("quarter", both(steer(&[("run-delay", "700ms")]), spec))
        .await;
    let plan_hash = harness.complete("quarter").await;
    harness
        .made_once_each(nodes.map(|node| (node, &*plan_hash)))
        .await;
    let requests = harness.ctx.requests().await;
    assert_eq!(requests.most_jobs_at_once("quarter"), 2);
    assert_eq!(requests.most_applying("quarter"), 2);
    harness.expect_complete_events(nodes).await;
}

async fn a_node_whose_label_is_removed_runs_the_plan_again(on: Backend) {
    let harness = on.harness(["one", "two"]).await;
    let _controller = harness.ctx.controller().start();
    harness.plan("again", json!({})).await;
    let plan_hash = harness.complete("again").await;
    harness.all_recorded("again").await;
    let first = harness.job("again", "one").await;

    harness
        .ctx
        .label_node(&harness.node("one"), &label("again"), None)
        .await;
    harness.done("again", "one", &plan_hash).await;
    harness.complete("again").await;
    let made = harness.made().await;
    let of_one: Vec<_> = made
        .iter()
        .filter(|job| job.node == harness.node("one"))
        .collect();
    assert_eq!(of_one.len(), 2);
    assert_ne!(of_one[0].uid, of_one[1].uid);
    assert_eq!(
        of_one[0].name, of_one[1].name,
        "the name is free again once its first bearer is gone"
    );
    assert_eq!(first.metadata.uid.as_deref(), Some(&*of_one[0].uid));
    assert_eq!(harness.runs("one", "upgrade").await, 2);
    assert_eq!(harness.runs("two", "upgrade").await, 1);
    harness.all_recorded("again").await;
    let lines = harness.event_lines("JobComplete").await;
    let of_one = format!("Job completed on Node {}", harness.node("one"));
    assert_eq!(
        lines.iter().filter(|text| **text == of_one).count(),
        2,
        "{lines:#?}"
    );
}

async fn a_node_labelled_disabled_is_skipped_until_the_label_goes(on: Backend) {
    let harness = on
        .harness_with(["on", "off"], |set| {
            set.each(|index, node| {
                if index == 1 {
                    node.labels.insert(label("picky"), "disabled".to_owned());
                }
            })
        })
        .await;
    let _controller = harness.ctx.controller().start();
    harness.plan("picky", json!({})).await;
    let plan_hash = harness.complete("picky").await;
    let plan = harness.ctx.plans().get("picky").await.unwrap();
    let counts = plan.status.unwrap().nodes.unwrap();
    assert_eq!((counts.selected, counts.done, counts.disabled), (1, 1, 1));
    harness.made_once_each([("on", &plan_hash)]).await;

    harness
        .ctx
        .label_node(&harness.node("off"), &label("picky"), Some("enabled"))
        .await;
    harness.done("picky", "off", &plan_hash).await;
    harness
        .made_once_each([("on", &plan_hash), ("off", &plan_hash)])
        .await;
    let both = |plan: &Plan| plan.status.as_ref().unwrap().progress.as_deref() == Some("2/2");
    harness
        .ctx
        .plan_until("picky", "is complete with both", SOON, both)
        .await;
}
