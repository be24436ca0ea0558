//! Drains that are cancelled while they wait. The node is as schedulable afterwards as before. How soon they end is measured
//! in virtual time (`src/testkit/tests/engine/deadlines.rs`).

use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use refit_api::Holder;
use serde_json::{Value, json};

use super::plans::{DrainProcesses, drain_waits, guarded_node, is_released, make};
use super::{DRAINER, DrainHarness};
use crate::harness::{has_condition, hash, is_free, is_recorded, label, ledger};
use crate::testenv::context::TestContext;
use crate::testenv::faults::Rule;
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

#[tokio::test]
async fn a_drain_for_an_outdated_container_is_cancelled_and_its_job_replaced() {
    edited_while_it_drains(json!({ "upgrade": { "args": ["--new"] } })).await;
}

#[tokio::test]
async fn a_node_that_leaves_the_plan_while_its_drain_waits_is_released() {
    let harness = guarded_node().await;
    let node = harness.node("one");
    let _controller = harness.ctx.controller().start();
    for disabled in [true, false] {
        let plan = if disabled { "disabled" } else { "deselected" };
        make(&harness, plan, json!({ "drain": {} })).await;
        let job = drains(&harness, plan).await;
        let ctx = &harness.ctx;
        if disabled {
            ctx.label_node(&node, &label(plan), Some("disabled")).await;
        } else {
            let no_nodes = json!({ "spec": { "nodeSelector": { "matchLabels": { "no": "such" } } } });
            ctx.edit_plan(plan, no_nodes).await;
        }
        is_stopped(&harness, &job).await;
        is_released(&harness).await;
        assert_eq!(harness.on_node("one").await.get("web-1"), Some(&false));
        harness.ctx.plan_complete(plan, SOON).await;
    }
    assert_eq!(harness.kubelet.runs(&node, "upgrade").await, 0);
    assert_eq!(harness.kubelet.runs(&node, "drain").await, 2);
    no_failure_was_reported(&harness).await;
}

/// What comes first where a Plan releases a node just as its drain ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum First {
    /// The last write of the drain took effect, which does not know it yet.
    Drain,
    /// The last write of the drain does not arrive before the cancellation.
    Cancellation,
    /// Whatever the machine makes of it.
    Either,
}

/// The Plan releases the node just as the drain ends. Either may be first, and the node is restored in both cases.
#[tokio::test]
async fn a_node_whose_drain_ends_while_it_is_cancelled_is_upgraded_or_released() {
    let ctx = TestContext::new().await;
    let faults = ctx.faults(0).await;
    let kubeconfig = faults.kubeconfig_for(&ctx.write_kubeconfig("containers", &ctx.token(DRAINER).await));
    let processes = DrainProcesses { kubeconfig };
    let harness = DrainHarness::with(ctx, &["one"], |set| set.task_runner(processes)).await;
    let node = harness.node("one");
    let _controller = harness.ctx.controller().start();
    let noted = async |what: &str, good: &dyn Fn(&Holder) -> bool| {
        let is_noted = |node: &Node| ledger(node).is_none_or(|ledger| ledger.holders.iter().any(good));
        harness.ctx.node_until(&node, what, SOON, is_noted).await;
    };
    let mut through = 0;
    let rounds = [
        First::Drain,
        First::Cancellation,
        First::Either,
        First::Either,
        First::Either,
    ];
    for (round, first) in rounds.into_iter().enumerate() {
        harness.guard().await;
        let plan = format!("round-{round}");
        make(&harness, &plan, json!({ "drain": {} })).await;
        drain_waits(&harness, &plan).await;
        let patches = || Rule::on("patch", "nodes");
        match first {
            First::Drain => drop(faults.add(patches().late(Duration::from_secs(3)))),
            First::Cancellation => drop(faults.add(patches().hang())),
            First::Either => {}
        }
        harness.open("guard").await;
        wait::gone(harness.ctx.pods(), "web-1", SOON).await;
        if first == First::Drain {
            noted("is drained", &|holder| holder.completed).await;
        }
        let disabled = Some("disabled");
        harness.ctx.label_node(&node, &label(&plan), disabled).await;
        if first == First::Cancellation {
            noted("notes the cancellation", &|holder| holder.cancelled).await;
        }
        faults.clear_rules();
        harness.ctx.node_until(&node, "is free", SOON, is_free).await;
        let jobs = harness.ctx.jobs_of(&plan).await;
        assert_eq!(jobs.len(), 1, "{jobs:#?}");
        let is_through = has_condition(&jobs[0], "Complete");
        assert!(
            is_through || has_condition(&jobs[0], "Failed"),
            "{:?}",
            jobs[0].status
        );
        match first {
            First::Drain => assert!(is_through, "{:?}", jobs[0].status),
            First::Cancellation => assert!(!is_through, "{:?}", jobs[0].status),
            First::Either => {}
        }
        through += u32::from(is_through);
        let runs = harness.kubelet.runs(&node, "upgrade").await;
        assert_eq!(runs, through, "round {round}: {:?}", jobs[0].status);
    }
    no_failure_was_reported(&harness).await;
}
