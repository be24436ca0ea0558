//! A drain that is cancelled while it waits: the Job controller ends its pod. How soon it ends is measured
//! in virtual time (`src/testkit/tests/engine/deadlines.rs`).

use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::DrainHarness;
use super::plans::{drain_waits, guarded_node, is_released, make};
use crate::harness::{has_condition, hash, is_recorded, label};
use crate::testenv::wait::{self, SOON};

/// The Job of the Plan, once its drain waits.
async fn drains(harness: &DrainHarness, plan: &str) -> Job {
    let waits = drain_waits(harness, plan).await;
    harness.ctx.jobs().get(&waits.job.unwrap()).await.unwrap()
}

/// Waits until a cancelled Job has failed. Its drain, which would wait for ever, is not tried again.
async fn is_stopped(harness: &DrainHarness, job: &Job) {
    let (name, uid) = (job.name_any(), job.uid());
    let mine = format!("batch.kubernetes.io/controller-uid={}", job.uid().unwrap());
    let mut pods = 0;
    wait::eventually("the drain has ended and its Job is recorded", SOON, async || {
        pods = pods.max(harness.ctx.pods_with(&mine).await.len());
        match harness.ctx.jobs().get_opt(&name).await.unwrap() {
            Some(seen) if seen.uid() == uid => {
                let is_over = has_condition(&seen, "Failed") && is_recorded(&seen);
                let limit = seen.spec.unwrap().backoff_limit;
                is_over
                    .then_some(())
                    .ok_or_else(|| format!("{limit:?} {:?}", seen.status))
            }
            _ => Ok(()), // replaced by the next Job of its name
        }
    })
    .await;
    assert!(pods <= 1, "{pods}");
}

async fn no_failure_was_reported(harness: &DrainHarness) {
    assert_eq!(harness.ctx.events_with("JobFailed").await, []);
}

async fn edited_while_it_drains(spec: Value) {
    let harness = guarded_node().await;
    let node = harness.node("one");
    let _controller = harness.ctx.controller().start();
    make(&harness, "k3s", json!({ "drain": {} })).await;
    let old = drains(&harness, "k3s").await;
    assert_eq!(
        old.spec.as_ref().unwrap().backoff_limit,
        Some(99),
        "it would be tried again"
    );

    harness.ctx.edit_plan("k3s", json!({ "spec": spec })).await;
    is_stopped(&harness, &old).await;
    assert!(
        harness.is_cordoned("one").await,
        "the next drain goes on from there"
    );
    let next = drain_waits(&harness, "k3s").await;
    let next = harness.ctx.jobs().get(&next.job.unwrap()).await.unwrap();
    assert_ne!(next.uid(), old.uid());
    assert_eq!(harness.on_node("one").await.get("web-1"), Some(&false));
    assert_eq!(harness.kubelet.runs(&node, "upgrade").await, 0);

    harness.open("guard").await;
    let plan = harness.ctx.plan_complete("k3s", SOON).await;
    is_released(&harness).await;
    let done = harness.ctx.node(&node).await;
    assert_eq!(done.labels()[&label("k3s")], hash(&plan));
    assert_eq!(harness.kubelet.runs(&node, "upgrade").await, 1);
    assert_eq!(harness.kubelet.runs(&node, "drain").await, 2);
    no_failure_was_reported(&harness).await;
    let requests = harness.ctx.controller_requests().await;
    assert!(requests.forbidden().is_empty(), "{:#?}", requests.forbidden());
    assert_eq!(requests.jobs_created().len(), 2);
}

#[tokio::test]
async fn a_drain_of_an_earlier_version_ends_and_the_node_gets_the_next_one_only() {
    edited_while_it_drains(json!({ "version": "v2" })).await;
}
