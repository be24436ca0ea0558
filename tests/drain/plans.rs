//! Plans that cordon and drain, until the node is released. The init containers run as processes with their real
//! command lines.

use k8s_openapi::api::core::v1::Pod;
use refit_api::names::LABEL_PLAN;
use refit_api::{NodeProgress, Plan};
use serde_json::{Value, json};

use super::{DRAINER, DrainHarness};
use crate::harness::{self, active, is_cordoned, is_free, ledger};
use crate::node_account::shipped;
use crate::testenv::context::TestContext;
use crate::testenv::context::cluster::done;
use crate::testenv::controller::Controller;
pub(crate) use crate::testenv::kubelet::DrainProcesses;
use crate::testenv::manifest;
use crate::testenv::plan::says;
use crate::testenv::wait::SOON;

/// Nodes whose `cordon` and `drain` containers run for real.
pub(super) async fn real_drains(nodes: &[&str]) -> DrainHarness {
    let ctx = TestContext::new().await;
    let kubeconfig = ctx.write_kubeconfig("containers", &ctx.token(DRAINER).await);
    DrainHarness::with(ctx, nodes, |set| set.task_runner(DrainProcesses { kubeconfig })).await
}

/// A controller whose Jobs fail at their first failure.
fn without_retries(harness: &DrainHarness) -> Controller {
    let controller = harness.ctx.controller();
    controller.env("SYSTEM_UPGRADE_JOB_BACKOFF_LIMIT", "0").start()
}

/// A Plan for all nodes, one at a time.
pub(super) async fn make(harness: &DrainHarness, name: &str, spec: Value) {
    harness
        .ctx
        .plan(&harness::plan(name, json!({ "spec": spec })))
        .await;
}

/// Waits until the status of the node `one` is `good`, and returns it.
pub(super) async fn wait_for_progress(
    harness: &DrainHarness,
    plan: &str,
    what: &str,
    good: impl Fn(&NodeProgress) -> bool,
) -> NodeProgress {
    let node = harness.node("one");
    let plan = harness
        .ctx
        .plan_until(plan, what, SOON, |plan| active(plan, &node).is_some_and(&good))
        .await;
    active(&plan, &node).unwrap().clone()
}

pub(super) async fn is_released(harness: &DrainHarness) {
    harness
        .ctx
        .node_until(&harness.node("one"), "is released", SOON, is_free)
        .await;
}

/// The pods of the Plan's Job that were there.
pub(super) async fn job_pods(harness: &DrainHarness, plan: &str) -> Vec<Pod> {
    harness.ctx.pods_with(&format!("{LABEL_PLAN}={plan}")).await
}

/// As [`real_drains`], with a pod that a budget protects ([`DrainHarness::guard`]).
pub(super) async fn guarded_node() -> DrainHarness {
    let harness = real_drains(&["one"]).await;
    harness.guard().await;
    harness
}

/// Waits until status says that the drain waits for a pod.
pub(super) async fn drain_waits(harness: &DrainHarness, plan: &str) -> NodeProgress {
    let waits = |node: &NodeProgress| node.reason.as_deref() == Some("DrainWaiting");
    wait_for_progress(harness, plan, "waits in its drain", waits).await
}

#[tokio::test]
async fn a_node_is_drained_upgraded_and_uncordoned() {
    let harness = real_drains(&["one"]).await;
    harness
        .pods("one", ["web-1", "web-2"], json!({ "app": "web" }))
        .await;
    harness.pods("one", ["data"], json!({ "data": true })).await;
    let _controller = harness.ctx.controller().start();
    make(
        &harness,
        "k3s",
        json!({ "drain": {}, "upgrade": { "image": "example.com/upgrade" } }),
    )
    .await;
    harness.ctx.plan_complete("k3s", SOON).await;
    is_released(&harness).await;
    let left = harness.on_node("one").await;
    assert!(
        !["web-1", "web-2", "data"]
            .iter()
            .any(|pod| left.contains_key(*pod)),
        "{left:?}"
    );
    assert_eq!(harness.kubelet.runs(&harness.node("one"), "upgrade").await, 1);
    assert_eq!(harness.kubelet.runs(&harness.node("one"), "drain").await, 1);
    let requests = harness.drainer_requests().await;
    assert!(requests.forbidden().is_empty(), "{:#?}", requests.forbidden());
    assert_eq!(harness.evictions(201).await, 3);
}

#[tokio::test]
async fn a_node_is_cordoned_by_the_cordon_container_and_uncordoned() {
    let harness = real_drains(&["one"]).await;
    harness.pods("one", ["stays"], json!({})).await;
    harness.behave("one", &[("upgrade.run-delay", "never")]).await;
    let _controller = harness.ctx.controller().start();
    make(&harness, "k3s", json!({ "cordon": true })).await;
    wait_for_progress(&harness, "k3s", "is upgrading", |node| node.phase == "Upgrading").await;
    let node = harness.get("one").await;
    assert!(is_cordoned(&node));
    let holders = ledger(&node).unwrap().holders;
    assert!(
        holders.len() == 1 && holders[0].completed && holders[0].plan == "k3s",
        "{holders:?}"
    );
    harness.behave("one", &[("upgrade.run-delay", "0s")]).await;
    harness.ctx.plan_complete("k3s", SOON).await;
    is_released(&harness).await;
    assert_eq!(harness.on_node("one").await.get("stays"), Some(&false));
}

/// How soon is measured in virtual time (`src/testkit/tests/engine/deadlines.rs`).
#[tokio::test]
async fn status_names_pod_and_budget_and_says_why_it_failed() {
    let harness = guarded_node().await;
    let _controller = without_retries(&harness);
    let namespace = harness.ctx.namespace();
    let pod = format!("{namespace}/web-1 waits for PodDisruptionBudget guard since ");
    make(&harness, "waits", json!({ "drain": {} })).await;
    let waits = drain_waits(&harness, "waits").await;
    assert_eq!(waits.phase, "Draining");
    let message = waits.message.unwrap();
    assert!(
        message.starts_with("0 of 1 pods are gone; ") && message.contains(&pod),
        "{message}"
    );
    harness.ctx.delete_plan("waits").await;
    is_released(&harness).await;

    make(&harness, "k3s", json!({ "drain": { "timeout": "25s" } })).await;
    let failed = wait_for_progress(&harness, "k3s", "has failed", |node| node.phase == "Failed").await;
    let message = failed.message.unwrap();
    assert!(message.contains("container drain exited with 1: "), "{message}");
    assert!(
        message.contains("global timeout reached: 25s; 0 of 1 pods are gone"),
        "{message}"
    );
    assert!(message.contains(&pod), "{message}");
    let node = harness.get("one").await;
    assert!(is_cordoned(&node), "until a user has looked at it");
    assert_eq!(ledger(&node).map(|ledger| ledger.before), Some(false));
    harness.ctx.delete_plan("k3s").await;
    is_released(&harness).await;
}

#[tokio::test]
async fn a_pod_that_prevents_the_drain_is_reported_and_the_node_stays_schedulable() {
    let harness = real_drains(&["one"]).await;
    harness.pods("one", ["lonely"], json!({ "alone": true })).await;
    let _controller = without_retries(&harness);
    make(&harness, "k3s", json!({ "drain": {} })).await;
    let failed = wait_for_progress(&harness, "k3s", "has failed", |node| node.phase == "Failed").await;
    let message = failed.message.unwrap();
    let why = format!(
        "cannot delete Pods that declare no controller (use --force to override): {}/lonely",
        harness.ctx.namespace()
    );
    assert!(message.contains(&why), "{message}");
    let node = harness.get("one").await;
    assert!(is_free(&node));
}

#[tokio::test]
async fn a_node_whose_drain_would_not_end_stays_as_it_is_and_the_next_one_starts() {
    let harness = real_drains(&["one", "two"]).await;
    harness.guard().await;
    let _controller = harness.ctx.controller().start();
    make(&harness, "k3s", json!({ "drain": { "checkFirst": true } })).await;
    let condition = |reason: &'static str| {
        move |plan: &Plan| says(plan, "Complete").starts_with(&format!("False/{reason}/"))
    };
    let missing = condition("MissingPermission");
    let plan = harness
        .ctx
        .plan_until("k3s", "lacks a permission", SOON, missing)
        .await;
    assert!(
        says(&plan, "Complete").contains("list poddisruptionbudgets"),
        "{plan:?}"
    );
    assert!(job_pods(&harness, "k3s").await.is_empty(), "no node has started");

    for mut object in shipped(&harness.ctx, "overlays/check-drains/rbac.yaml") {
        // The roles of a test have its name, and its account is that of `deploy/`.
        if let Some(subject) = object.pointer_mut("/subjects/0/name") {
            *subject = "system-upgrade-controller".into();
        }
        manifest::apply(&harness.ctx.client, &object).await.unwrap();
    }
    let is_held = |node: &NodeProgress| node.reason.as_deref() == Some("DrainWouldBlock");
    let held = wait_for_progress(&harness, "k3s", "would block", is_held).await;
    let path = format!(
        "pod {}/web-1: PodDisruptionBudget guard requires 1 of its 1 pods",
        harness.ctx.namespace()
    );
    assert!(held.message.unwrap_or_default().contains(&path));
    harness
        .ctx
        .node_until(&harness.node("two"), "is done", SOON, |node| {
            done(node, "k3s").is_some()
        })
        .await;
    assert!(!is_cordoned(&harness.get("one").await));
    assert!(harness.on_node("one").await.contains_key("web-1"));

    harness.open("guard").await;
    harness.ctx.plan_complete("k3s", SOON).await;
    is_released(&harness).await;
    let requests = harness.ctx.controller_requests().await;
    assert!(requests.forbidden().is_empty(), "{:#?}", requests.forbidden());
}
