//! The ledger: refit restores the schedulability that a node had before its upgrade, and respects what a user does.

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use crate::harness::{Harness, both, is_cordoned, is_free, is_recorded, label, ledger};
use crate::scenario::Backend;
use crate::testenv::audit::Request;
use crate::testenv::context::cluster::done;
use crate::testenv::controller::Controller;
use crate::testenv::wait::SOON;

scenarios! {
    in_process {
        a_node_is_released_with_its_label_in_one_patch,
        a_failed_node_is_released_when_its_plan_is_deleted,
    }
}

/// The patches of a node by the controller, in order.
async fn patches(harness: &Harness, node: &str) -> Vec<Request> {
    let requests = harness.ctx.controller_requests().await.0;
    let of_node =
        |it: &Request| it.resource == "nodes" && it.verb == "patch" && it.name == harness.node(node);
    requests.into_iter().filter(of_node).collect()
}

/// A node whose Plan has failed there, and so keeps it cordoned.
async fn failed(on: Backend, spec: Value) -> (Harness, Controller) {
    let harness = on
        .harness_with(["one"], |set| set.steer("upgrade.exit-code", "1"))
        .await;
    let controller = harness
        .ctx
        .controller()
        .env("SYSTEM_UPGRADE_JOB_BACKOFF_LIMIT", "0")
        .start();
    harness
        .plan("fails", both(json!({ "spec": { "cordon": true } }), spec))
        .await;
    harness.phase("fails", "one", "Failed").await;
    harness
        .job_until("fails", "one", "is recorded", is_recorded)
        .await;
    let node = harness.get("one").await;
    assert!(is_cordoned(&node), "nobody knows what state it is in");
    let ledger = ledger(&node).unwrap();
    assert!(!ledger.before);
    assert_eq!(ledger.holders.len(), 1);
    assert_eq!(ledger.holders[0].plan, "fails");
    (harness, controller)
}

async fn released(harness: &Harness) -> Node {
    harness
        .ctx
        .node_until(&harness.node("one"), "is released", SOON, is_free)
        .await
}

async fn a_node_is_released_with_its_label_in_one_patch(on: Backend) {
    for spec in [json!({ "cordon": true }), json!({ "drain": { "force": true } })] {
        let harness = on.held(["one"]).await;
        let _controller = harness.ctx.controller().start();
        let more = json!({ "spec": { "postCompleteLabels": { "example.com/at": "$(LATEST_VERSION)" } } });
        let plan = harness.plan("once", both(more, json!({ "spec": spec }))).await;
        harness.upgrading("once", "one").await;
        let node = harness.get("one").await;
        assert!(is_cordoned(&node));
        let held = ledger(&node).unwrap();
        assert!(!held.before);
        let [holder] = &held.holders[..] else {
            panic!("{held:?}")
        };
        assert_eq!(holder.namespace, harness.ctx.namespace());
        assert_eq!(holder.plan_uid, plan.uid().unwrap().into());
        assert_eq!(holder.controller, crate::testenv::controller::NAME);

        harness.release("one").await;
        let plan_hash = harness.complete("once").await;
        let node = released(&harness).await;
        assert_eq!(done(&node, "once"), Some(plan_hash.clone()));
        let job = &harness.made().await[0];
        let labelled = format!("{}/once/{}", harness.ctx.namespace(), job.uid);
        let patches = patches(&harness, "one").await;
        let [patch] = &patches[..] else {
            panic!("{patches:#?}")
        };
        assert_eq!(patch.code, 200);
        assert_eq!(patch.sent["metadata"]["labels"][label("once")], plan_hash);
        assert_eq!(patch.sent["metadata"]["labels"]["example.com/at"], "v1");
        assert_eq!(
            patch.sent["metadata"]["annotations"],
            json!({ "refit.rs/cordon": null, "refit.rs/labelled-jobs": labelled })
        );
        assert_eq!(patch.sent["spec"], json!({ "unschedulable": null }));
        assert_eq!(patch.sent["metadata"]["uid"], node.uid().unwrap());
        harness.made_once_each([("one", &plan_hash)]).await;
    }
}

async fn a_failed_node_is_released_when_its_plan_is_deleted(on: Backend) {
    let (harness, controller) = failed(on, json!({})).await;
    // Also by a controller that was not there when it went.
    controller.kill();
    harness.ctx.delete_plan("fails").await;
    let _controller = controller.start_again();
    let node = released(&harness).await;
    assert_eq!(done(&node, "fails"), None);
}
