//! What a roll-out does for load balancers, autoscalers, evicted pods and slow registries, and that nothing of it is left.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, ListParams};
use refit_api::{MarkForm, NodeMark, Plan};
use serde_json::json;

use crate::harness::Harness;
use crate::scenario::Backend;
use crate::testenv::context::cluster::{create, done};
use crate::testenv::manifest;
use crate::testenv::plan::says;
use crate::testenv::wait::{self, SOON};

scenarios! {
    in_process {
        marks_taints_and_early_images_are_there_in_time_and_gone_at_the_end,
    }
    real {
        a_node_with_a_pod_that_may_not_be_disturbed_waits_and_starts_when_the_pod_has_ended,
    }
}

/// Whether the node has the taint of nodes that the Plan is still to upgrade.
fn is_pending(node: &Node) -> bool {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints
        .into_iter()
        .any(|taint| taint.key == "pending.refit.rs/p" && taint.effect == "PreferNoSchedule")
}

/// How many marks the node has.
fn marks(node: &Node) -> usize {
    let meta = &node.metadata;
    let has = |mark: &NodeMark| {
        let of_kind = if mark.form() == MarkForm::Label {
            &meta.labels
        } else {
            &meta.annotations
        };
        of_kind.as_ref().is_some_and(|all| all.contains_key(mark.key()))
    };
    NodeMark::OF_DRAIN.iter().filter(|mark| has(mark)).count()
}

async fn marks_taints_and_early_images_are_there_in_time_and_gone_at_the_end(on: Backend) {
    let harness = on.held(["one", "two"]).await;
    let controller = harness.ctx.controller().start();
    let drain = json!({
        "force": true, "waitForDetach": true, "excludeFromLoadBalancers": true, "preventScaleDown": true,
        "avoidPendingNodes": true,
    });
    harness
        .plan_with("p", json!({ "drain": drain, "prepull": true }))
        .await;
    let (first, second) = harness.first_of_two("p").await;
    harness.upgrading("p", first).await;
    let states = async || {
        let (first, second) = (harness.get(first).await, harness.get(second).await);
        [&first, &second].map(|node| (marks(node), is_pending(node)))
    };
    wait::until("the first node is in progress", states, |states| {
        *states == [(3, true), (0, true)]
    })
    .await;
    let api = Api::<Job>::namespaced(harness.ctx.client.clone(), harness.ctx.namespace());
    let early = async || {
        let labelled = ListParams::default().labels("refit.rs/prepull=true");
        let jobs = api.list(&labelled).await.expect("Jobs").items;
        let succeeded = |job: &Job| job.status.as_ref().and_then(|status| status.succeeded) == Some(1);
        jobs.iter().filter(|job| succeeded(job)).count()
    };
    wait::until("the next node has pulled the image", early, |pulled| *pulled == 1).await;

    controller.kill();
    let _again = controller.start_again();
    harness.release(first).await;
    harness.upgrading("p", second).await;
    wait::until("only the second node is in progress", states, |states| {
        *states == [(0, false), (3, true)]
    })
    .await;
    harness.release(second).await;
    harness.complete("p").await;
    wait::until("nothing is left", states, |states| *states == [(0, false); 2]).await;
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
