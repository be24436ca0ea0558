//! Drains that are cancelled while they wait. The node is as schedulable afterwards as before. How soon they end is measured
//! in virtual time (`src/testkit/tests/engine/deadlines.rs`).

use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use self::Release::{After, Before, InMidDrain, InMidUpgrade};
use super::DrainHarness;
use super::plans::{drain_waits, guarded_node, is_released, make, real_drains, wait_for_progress};
use crate::harness::{has_condition, hash, is_free, is_recorded, label};
use crate::testenv::wait::{self, SOON};

/// The Job of the Plan, once its drain waits.
async fn drains(harness: &DrainHarness, plan: &str) -> Job {
    let waits = drain_waits(harness, plan).await;
    harness.ctx.jobs().get(&waits.job.unwrap()).await.unwrap()
}

/// Waits until a cancelled Job has failed. Its drain is not tried again.
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

/// The drain ends, and the node gets the next one.
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

/// When the Plan releases the node.
#[derive(Clone, Copy, Debug)]
enum Release {
    /// While a pod terminates that does not end, so the release is first.
    InMidDrain,
    /// Some milliseconds before the pod is gone, or after that. The drain may end before the release or after it.
    Before(u64),
    After(u64),
    /// While the upgrade runs, so the drain was first.
    InMidUpgrade,
}

/// Either end may be first, and the node is restored in both cases.
#[tokio::test]
async fn a_node_whose_drain_ends_while_it_is_cancelled_is_upgraded_or_released() {
    let harness = real_drains(&["one"]).await;
    let node = harness.node("one");
    let _controller = harness.ctx.controller().start();
    let race = [
        Before(800),
        Before(300),
        Before(100),
        After(0),
        After(100),
        After(300),
        After(800),
    ];
    let moments = race.into_iter().chain([InMidDrain, InMidUpgrade]);
    let mut upgrades = 0;
    for (round, moment) in moments.enumerate() {
        let (plan, pod) = (format!("round-{round}"), format!("pod-{round}"));
        let terminates = match moment {
            InMidDrain => "never".to_owned(),
            Before(millis) => format!("{millis}ms"),
            After(_) | InMidUpgrade => "0ms".to_owned(),
        };
        if let InMidUpgrade = moment {
            harness.behave("one", &[("upgrade.run-delay", "never")]).await;
        }
        let slow = json!({ "steer": { "delete-delay": terminates }, "terminationGracePeriodSeconds": 600 });
        harness.pods("one", [pod.as_str()], slow).await;
        make(&harness, &plan, json!({ "drain": {} })).await;
        let seen = async || harness.ctx.pods().get_opt(&pod).await.unwrap();
        let leaves = |seen: &Option<Pod>| {
            let deleted = seen.as_ref().map(|pod| &pod.metadata.deletion_timestamp);
            deleted.is_none_or(Option::is_some)
        };
        wait::until("the pod terminates", seen, leaves).await;
        match moment {
            InMidDrain | Before(_) => {}
            After(millis) => {
                wait::gone(harness.ctx.pods(), &pod, SOON).await;
                tokio::time::sleep(Duration::from_millis(millis)).await;
            }
            InMidUpgrade => {
                wait_for_progress(&harness, &plan, "is upgrading", |node| node.phase == "Upgrading").await;
            }
        }
        harness
            .ctx
            .label_node(&node, &label(&plan), Some("disabled"))
            .await;
        if let InMidUpgrade = moment {
            harness.behave("one", &[]).await;
        }
        harness.ctx.node_until(&node, "is free", SOON, is_free).await;
        let jobs = harness.ctx.jobs_of(&plan).await;
        assert_eq!(jobs.len(), 1, "{jobs:#?}");
        let is_through = has_condition(&jobs[0], "Complete");
        match moment {
            InMidDrain => assert!(!is_through, "{:?}", jobs[0].status),
            InMidUpgrade => assert!(is_through, "{:?}", jobs[0].status),
            Before(_) | After(_) => {}
        }
        assert!(
            is_through || has_condition(&jobs[0], "Failed"),
            "{:?}",
            jobs[0].status
        );
        upgrades += u32::from(is_through);
        let runs = harness.kubelet.runs(&node, "upgrade").await;
        assert_eq!(runs, upgrades, "{moment:?}: {:?}", jobs[0].status);
        if let InMidDrain = moment {
            let now = DeleteParams::default().grace_period(0);
            harness.ctx.pods().delete(&pod, &now).await.unwrap();
        }
        wait::gone(harness.ctx.pods(), &pod, SOON).await;
    }
    no_failure_was_reported(&harness).await;
}
