//! Drains that the Plan no longer asks for while they wait, and nodes that come out of them as they were.

use std::time::{Duration, Instant};

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::api::ListParams;
use serde_json::{Value, json};

use super::plans::{drain_waits, given_back, held_up, make, stage, told};
use super::{A_WHILE, Bench};
use crate::scene::{has_condition, hash, is_cordoned, is_recorded, label, ledger};
use crate::support::wait;

/// The Job of the Plan, once its drain waits.
async fn drains(bench: &Bench, plan: &str) -> Job {
    let waits = drain_waits(bench, plan).await;
    bench.world.jobs().get(&waits.job.unwrap()).await.unwrap()
}

/// Waits until a Job has failed of being cancelled, and says how many pods it had.
async fn is_stopped(bench: &Bench, job: &Job) -> usize {
    let began = Instant::now();
    let (name, uid) = (job.name_any(), job.uid());
    let mine = ListParams::default().labels(&format!(
        "batch.kubernetes.io/controller-uid={}",
        job.uid().unwrap()
    ));
    let mut pods = 0;
    wait::eventually(
        "the drain has ended and its Job is recorded",
        A_WHILE,
        async || {
            pods = pods.max(bench.world.pods().list(&mine).await.unwrap().items.len());
            match bench.world.jobs().get_opt(&name).await.unwrap() {
                Some(seen) if seen.uid() == uid => {
                    if has_condition(&seen, "Failed") && is_recorded(&seen) {
                        Ok(())
                    } else {
                        Err(format!(
                            "{:?} {:?}",
                            seen.spec.unwrap().backoff_limit,
                            seen.status
                        ))
                    }
                }
                _ => Ok(()), // it has made room for the next one of its name
            }
        },
    )
    .await;
    let took = began.elapsed();
    assert!(
        took < Duration::from_secs(30),
        "a drain that waits looks every few seconds: {took:?}"
    );
    pods
}

async fn no_failure_was_told(bench: &Bench) {
    assert_eq!(bench.world.events_with("JobFailed").await, []);
}

async fn edited_while_it_drains(spec: Value) {
    let bench = held_up().await;
    let node = bench.node("one");
    let _controller = bench.world.controller().start();
    make(&bench, "k3s", json!({ "drain": {} })).await;
    let old = drains(&bench, "k3s").await;
    assert_eq!(
        old.spec.as_ref().unwrap().backoff_limit,
        Some(99),
        "it would be tried again"
    );

    bench.world.edit_plan("k3s", json!({ "spec": spec })).await;
    assert_eq!(is_stopped(&bench, &old).await, 1, "its drain is not tried again");
    assert!(
        bench.is_cordoned("one").await,
        "the next drain goes on from there"
    );
    let next = told(&bench, "k3s", "waits in its next drain", |node| {
        node.reason.as_deref() == Some("DrainWaiting")
    })
    .await;
    let next = bench.world.jobs().get(&next.job.unwrap()).await.unwrap();
    assert_ne!(next.uid(), old.uid());
    assert_eq!(bench.on_node("one").await.get("web-1"), Some(&false));
    assert_eq!(bench.kubelet.runs(&node, "upgrade").await, 0);

    bench.open("guard").await;
    let plan = bench.world.plan_complete("k3s", A_WHILE).await;
    given_back(&bench).await;
    let done = bench.world.node(&node).await;
    assert_eq!(done.labels()[&label("k3s")], hash(&plan));
    assert_eq!(bench.kubelet.runs(&node, "upgrade").await, 1);
    assert_eq!(bench.kubelet.runs(&node, "drain").await, 2);
    no_failure_was_told(&bench).await;
    let requests = bench.world.controller_requests().await;
    assert!(requests.forbidden().is_empty(), "{:#?}", requests.forbidden());
    assert_eq!(requests.jobs_created().len(), 2);
}

#[tokio::test]
async fn a_drain_of_an_earlier_version_ends_and_the_node_gets_the_next_one_only() {
    edited_while_it_drains(json!({ "version": "v2" })).await;
}

#[tokio::test]
async fn a_drain_for_another_container_than_the_plan_has_ends_and_makes_room() {
    edited_while_it_drains(json!({ "upgrade": { "args": ["--new"] } })).await;
}

#[tokio::test]
async fn a_node_that_leaves_the_plan_while_its_drain_waits_is_given_back() {
    let bench = held_up().await;
    let node = bench.node("one");
    let _controller = bench.world.controller().start();
    for disabled in [true, false] {
        let plan = if disabled { "disabled" } else { "deselected" };
        make(&bench, plan, json!({ "drain": {} })).await;
        let job = drains(&bench, plan).await;
        if disabled {
            bench
                .world
                .label_node(&node, &label(plan), Some("disabled"))
                .await;
        } else {
            let nobody = json!({ "spec": { "nodeSelector": { "matchLabels": { "no": "such" } } } });
            bench.world.edit_plan(plan, nobody).await;
        }
        assert_eq!(is_stopped(&bench, &job).await, 1);
        given_back(&bench).await;
        assert_eq!(bench.on_node("one").await.get("web-1"), Some(&false));
        bench.world.plan_complete(plan, A_WHILE).await;
    }
    assert_eq!(bench.kubelet.runs(&node, "upgrade").await, 0);
    no_failure_was_told(&bench).await;
}

/// The Plan lets go of the node while the drain is about to say its last word: one of the two is first, and either way the
/// node is what it was. Each round comes closer to the moment at which they meet.
#[tokio::test]
async fn a_drain_that_ends_while_it_is_cancelled_is_upgraded_or_given_back() {
    let bench = stage(&["one"]).await;
    let node = bench.node("one");
    let _controller = bench.world.controller().start();
    let (mut through, mut stopped) = (0, 0);
    let mut pause = Duration::from_millis(400);
    while through + stopped < 10 || through == 0 || stopped == 0 {
        let round = through + stopped;
        assert!(round < 30, "{through} were through and {stopped} stopped");
        let (plan, pod) = (format!("round-{round}"), format!("pod-{round}"));
        bench.pods("one", [pod.as_str()], json!({})).await;
        make(&bench, &plan, json!({ "drain": {} })).await;
        wait::gone(bench.world.pods(), &pod, A_WHILE).await;
        tokio::time::sleep(pause).await;
        bench
            .world
            .label_node(&node, &label(&plan), Some("disabled"))
            .await;
        let free = |node: &Node| !is_cordoned(node) && ledger(node).is_none();
        bench.world.node_until(&node, "is free", A_WHILE, free).await;
        let jobs = bench.world.jobs_of(&plan).await;
        assert_eq!(jobs.len(), 1, "{jobs:#?}");
        if has_condition(&jobs[0], "Complete") {
            through += 1;
            pause = pause * 7 / 10;
        } else {
            assert!(has_condition(&jobs[0], "Failed"), "{:?}", jobs[0].status);
            stopped += 1;
            pause = pause * 14 / 10 + Duration::from_millis(20);
        }
        let runs = bench.kubelet.runs(&node, "upgrade").await;
        assert_eq!(runs, through, "round {round}: {:?}", jobs[0].status);
    }
    no_failure_was_told(&bench).await;
}
