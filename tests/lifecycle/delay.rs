//! After the Job: `postCompleteDelay` and `postCompleteLabels` (S39, S59).

use std::time::Duration;

use kube::ResourceExt as _;
use serde_json::json;

use crate::harness::{is_cordoned, ledger, record};
use crate::scenario::Backend;
use crate::testenv::context::cluster::done;
use crate::testenv::wait::{self, SOON};

scenarios! {
    in_process {
        a_node_is_uncordoned_before_the_delay_and_labelled_after_it,
        labels_of_a_finished_node_are_expanded,
    }
}

async fn a_node_is_uncordoned_before_the_delay_and_labelled_after_it(on: Backend) {
    let harness = on.harness(["one", "two"]).await;
    let _controller = harness
        .ctx
        .controller()
        .env("SYSTEM_UPGRADE_JOB_TTL_SECONDS_AFTER_FINISH", "7")
        .start();
    let spec = json!({ "cordon": true, "postCompleteDelay": "4s" });
    harness.plan_with("waits", spec).await;
    let first = wait::eventually("a Job is made", SOON, async || {
        harness.made_for().await.first().cloned().ok_or_else(String::new)
    })
    .await;
    let other = if first == "one" { "two" } else { "one" };
    let back =
        |node: &k8s_openapi::api::core::v1::Node| !is_cordoned(node) && record(node, "waits").is_some();
    // All of it is over with the delay: each is waited for from the beginning.
    let name = harness.node(&first);
    let (settling, node, _) = tokio::join!(
        harness.held_up("waits", &first, "PostCompleteDelay"),
        harness.ctx.node_until(&name, "is uncordoned", SOON, back),
        harness.held_up("waits", other, "NoSlot"),
    );
    assert_eq!(settling.phase, "Settling");
    assert_eq!(ledger(&node), None);
    assert_eq!(
        done(&node, "waits"),
        None,
        "the label comes when the delay is over"
    );

    let plan_hash = harness.complete("waits").await;
    harness
        .made_once_each([("one", &plan_hash), ("two", &plan_hash)])
        .await;
    let requests = harness.ctx.controller_requests().await;
    for node in ["one", "two"] {
        let job = harness.job("waits", node).await;
        assert_eq!(
            job.annotations()["upgrade.cattle.io/ttl-seconds-after-finished"],
            "64",
            "4 s and a minute"
        );
        assert!(job.spec.as_ref().unwrap().ttl_seconds_after_finished >= Some(64));
        let completed = job.status.as_ref().unwrap().completion_time.as_ref().unwrap().0;
        let labelled = requests
            .0
            .iter()
            .find(|it| {
                it.resource == "nodes"
                    && it.name == harness.node(node)
                    && !it.sent["metadata"]["labels"].is_null()
            })
            .unwrap();
        let waited = labelled.at.duration_since(completed).unsigned_abs();
        assert!(waited >= Duration::from_secs(4), "{node}: {waited:?}");
        assert_eq!(record(&harness.get(node).await, "waits"), None);
    }
    // The second was begun when the first was labelled, not when its Job was complete.
    let second = &harness.made().await[1];
    let first_done = requests.0.iter().find(|it| {
        it.resource == "nodes" && it.name == harness.node(&first) && !it.sent["metadata"]["labels"].is_null()
    });
    assert!(second.at >= first_done.unwrap().at);
    harness
        .expect_events(
            "JobCompleteWaiting",
            ["one", "two"].map(|node| {
                format!(
                    "Job completed on Node {}, waiting 4s PostCompleteDelay",
                    harness.node(node)
                )
            }),
        )
        .await;
    harness.expect_complete_events(["one", "two"]).await;
}

async fn labels_of_a_finished_node_are_expanded(on: Backend) {
    let harness = on.harness(["one"]).await;
    let _controller = harness.ctx.controller().start();
    let labels = json!({
        "example.com/version": "$(LATEST_VERSION)",
        "example.com/hash": "h-$(LATEST_HASH)",
        "example.com/static": "yes",
        "example.com/empty": "",
    });
    harness
        .plan_with(
            "labels",
            json!({ "version": "v1.2.3+k3s1", "postCompleteLabels": labels }),
        )
        .await;
    let plan_hash = harness.complete("labels").await;
    let node = harness.done("labels", "one", &plan_hash).await;
    let labels = node.labels();
    assert_eq!(labels["example.com/version"], "v1.2.3-k3s1");
    assert_eq!(labels["example.com/hash"], format!("h-{plan_hash}"));
    assert_eq!(labels["example.com/static"], "yes");
    assert_eq!(labels["example.com/empty"], "");
}
