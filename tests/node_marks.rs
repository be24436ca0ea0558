//! Pods that may not be disturbed.

use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use refit_api::Plan;
use serde_json::json;

use crate::harness::Harness;
use crate::testenv::context::cluster::{create, done};
use crate::testenv::manifest;
use crate::testenv::plan::says;
use crate::testenv::wait::SOON;

scenarios! {
    real {
        a_node_with_a_pod_that_may_not_be_disturbed_waits_and_starts_when_the_pod_has_ended,
    }
}

/// Lets the controller list pods, as docs/drain.md says.
async fn grant_list_of_pods(harness: &Harness) {
    let (name, namespace) = (
        format!("{}-pods", harness.ctx.namespace()),
        harness.ctx.namespace(),
    );
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": name },
        "rules": [{ "apiGroups": [""], "resources": ["pods"], "verbs": ["list"] }],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": name },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name },
        "subjects": [{ "kind": "ServiceAccount", "name": "system-upgrade-controller", "namespace": namespace }],
    });
    for object in [role, binding] {
        manifest::apply(&harness.ctx.client, &object).await.unwrap();
    }
}

async fn a_node_with_a_pod_that_may_not_be_disturbed_waits_and_starts_when_the_pod_has_ended() {
    let harness = Harness::new(["one", "two"]).await;
    let pod = json!({
        "metadata": {
            "name": "epoch-7", "labels": { "job": "training" }, "annotations": { "fake-kubelet/run-delay": "never" },
        },
        "spec": { "nodeName": harness.node("one"), "containers": [{ "name": "main", "image": "example.com/main" }] },
    });
    create::<Pod>(&harness.ctx.pods(), pod).await;
    let blocked_by = json!([{ "selector": { "matchLabels": { "job": "training" } } }]);
    let _controller = harness.ctx.controller().start();
    harness
        .plan_with(
            "p",
            json!({ "drain": { "force": true, "blockedBy": blocked_by } }),
        )
        .await;
    let held = |reason: &'static str| {
        move |plan: &Plan| says(plan, "Complete").starts_with(&format!("False/{reason}/"))
    };
    let missing = harness
        .ctx
        .plan_until("p", "lacks a permission", SOON, held("MissingPermission"))
        .await;
    assert!(says(&missing, "Complete").contains("list pods"), "{missing:?}");
    assert_eq!(harness.made_for().await, [""; 0], "no node has started");

    grant_list_of_pods(&harness).await;
    let waits = harness.held_up("p", "one", "PodBlocks").await;
    let path = format!("pod {}/epoch-7 runs on the node", harness.ctx.namespace());
    assert!(waits.message.unwrap_or_default().contains(&path));
    harness
        .ctx
        .node_until(&harness.node("two"), "is done", SOON, |node| {
            done(node, "p").is_some()
        })
        .await;
    assert_eq!(harness.made_for().await.len(), 1);
    harness
        .ctx
        .pods()
        .delete("epoch-7", &DeleteParams::default().grace_period(0))
        .await
        .unwrap();
    harness.complete("p").await;
}
