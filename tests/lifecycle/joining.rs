//! Nodes on which the pod of a Job could not run yet, or that are not what they seem yet.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use refit_api::names::TAINT_NEW_NODE;
use serde_json::json;

use crate::harness::quick;
use crate::scenario::Backend;
use crate::testenv::kubelet::NodeSet;
use crate::testenv::plan::status;
use crate::testenv::wait::{self, SOON};

scenarios! {
    real {
        a_server_that_joins_without_its_role_label_is_not_taken_for_an_agent,
        a_node_that_joins_after_the_roll_out_takes_no_pods_before_the_plan_is_done_there,
    }
}

/// The nodes of a simulated cluster have existed for long.
async fn a_server_that_joins_without_its_role_label_is_not_taken_for_an_agent() {
    const ROLE: &str = "node-role.kubernetes.io/control-plane";
    let harness = Backend::Real.harness(["server", "agent"]).await;
    let first = harness.ctx.controller().env("REFIT_MIN_NODE_AGE", "1h").start();
    let selector = json!({ "matchExpressions": [{ "key": ROLE, "operator": "DoesNotExist" }] });
    harness
        .plan_with("agents", json!({ "concurrency": 2, "nodeSelector": selector }))
        .await;
    for node in ["server", "agent"] {
        harness.held_up("agents", node, "NodeJoining").await;
    }
    harness
        .ctx
        .label_node(&harness.node("server"), ROLE, Some("true"))
        .await;
    drop(first);
    let _controller = harness.ctx.controller().env("REFIT_MIN_NODE_AGE", "1s").start();
    let plan_hash = harness.complete("agents").await;
    harness.made_once_each([("agent", &plan_hash)]).await;
}

/// The nodes of a simulated cluster have existed for long.
async fn a_node_that_joins_after_the_roll_out_takes_no_pods_before_the_plan_is_done_there() {
    let harness = Backend::Real.harness(["old"]).await;
    let first = harness.ctx.controller().start();
    harness.plan_with("p", json!({ "taintNewNodes": true })).await;
    harness.complete("p").await;
    drop(first);
    let first = harness.ctx.controller().env("REFIT_MIN_NODE_AGE", "1h").start();
    // Times of registration have seconds.
    let plan = harness.ctx.plans().get("p").await.unwrap();
    let complete = status(&plan).history.unwrap()[0].to.clone().unwrap();
    let later = complete.parse::<Timestamp>().unwrap() + SignedDuration::from_secs(1);
    wait::holds("it is later", async || harness.ctx.now() > later).await;
    let new = NodeSet::named([harness.node("new")]).pods(quick());
    let _kubelet = harness.ctx.run(new).await;
    let taints = |node: &Node| {
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone());
        let ours = taints
            .into_iter()
            .flatten()
            .filter(|taint| taint.key == TAINT_NEW_NODE);
        ours.map(|taint| (taint.value.unwrap_or_default(), taint.effect))
            .collect::<Vec<_>>()
    };
    let ours = vec![(harness.ctx.namespace().to_owned(), "NoSchedule".to_owned())];
    let new = harness.node("new");
    harness
        .ctx
        .node_until(&new, "has the taint", SOON, |node| taints(node) == ours)
        .await;
    harness.held_up("p", "new", "NodeJoining").await;
    assert_eq!(taints(&harness.get("old").await), []);
    first.kill();
    let _controller = harness.ctx.controller().env("REFIT_MIN_NODE_AGE", "1s").start();
    harness.complete("p").await;
    harness
        .ctx
        .node_until(&new, "has lost the taint", SOON, |node| taints(node).is_empty())
        .await;
}
