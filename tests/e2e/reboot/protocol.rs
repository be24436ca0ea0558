//! Reboots without faults.

use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use serde_json::json;

use super::{PLAN, noted, notes, reboots, with};
use crate::e2e::harness::{E2eHarness, RUNS, harness, harness_in};
use crate::harness::is_cordoned;
use crate::testenv::context::done;
use crate::testenv::real::{self, PATIENCE, RealNode};

/// The part of a node's time besides the payload, the boot and pods that a budget spares, in seconds. It is ten on an idle
/// machine (the test prints it); this limit only catches a wait for a timer, because a busy machine must not fail the test.
const OVERHEAD: f64 = 60.0;

/// Message of a drain for a pod that a budget protects, and the seconds until it retries, as kubectl does.
const SPARED: (&str, f64) = ("(will retry after 5s)", 5.0);

/// Where the payload of [`clocked`] writes when it began and when it ended.
const CLOCK: &str = "/var/lib/clock";

/// A payload of two seconds that records when it began and ended.
fn clocked() -> String {
    let now = format!("cut -d ' ' -f 1 /proc/uptime >>/host{CLOCK}");
    format!("{now}\n{}\nsleep 2\n{now}", notes())
}

/// Times of one node, by [`real::uptime`].
struct Times {
    /// Ready in its new boot.
    ready: Duration,
    /// Labelled and released.
    done: Duration,
}

impl E2eHarness {
    /// Waits until the node, Ready since `ready`, is done.
    async fn times(&self, node: &RealNode, ready: Duration) -> Times {
        let is_done = |node: &Node| done(node, PLAN).is_some() && !is_cordoned(node);
        self.ctx
            .node_until(node.name(), "is done", PATIENCE, is_done)
            .await;
        let done = real::uptime();
        Times { ready, done }
    }

    /// Waits until the node is Ready in its second boot.
    async fn ready_again(&self, node: &RealNode) -> Duration {
        node.wait_boots(2).await;
        node.wait_ready().await;
        real::uptime()
    }
}

/// The seconds of a node that were neither payload nor boot nor the wait for a budget (whose other pod was not Ready again
/// yet), and a line with all parts.
fn overhead(node: &RealNode, begun: Duration, times: &Times) -> (f64, String) {
    let clock: Vec<_> = node.lines(CLOCK).iter().map(|line| real::seconds(line)).collect();
    let [began, ended] = <[Duration; 2]>::try_from(clock).expect("the payload ran once");
    let [asked] = <[Duration; 1]>::try_from(node.asked()).expect("asked to reboot once");
    let between = |from: Duration, to: Duration| to.as_secs_f64() - from.as_secs_f64();
    let (all, payload, boot) = (
        between(begun, times.done),
        between(began, ended),
        between(asked, times.ready),
    );
    let (refusal, pause) = SPARED;
    let refused = node.said_by("drain");
    let spared = refused.matches(refusal).fold(0.0, |all, _| all + pause);
    let over = all - payload - boot - spared;
    let line = format!(
        "{}: {all:.1} s, of which the payload {payload:.1} s, the boot {boot:.1} s and the budget {spared:.1} s; refit and \
         Kubernetes took {over:.1} s: \
         {:.1} s to the payload, {:.1} s from there to the reboot, {:.1} s from Ready to done",
        node.name(),
        between(begun, began) - spared,
        between(ended, asked),
        between(times.ready, times.done),
    );
    (over, line)
}

#[tokio::test]
#[ignore = "real nodes, which need root and Debian: just e2e"]
async fn two_nodes_are_drained_upgraded_and_rebooted_once_each_and_one_after_the_other() {
    let harness = harness_in(real::context_to_measure().await).await;
    let pods = harness.a_pod_on_each_node().await;
    let begun = real::uptime();
    harness.make(PLAN, &clocked(), &reboots()).await;
    let all = async {
        let (first, other) = harness.first_and_other().await;
        let ready = tokio::select! {
            ready = harness.ready_again(first) => ready,
            never = harness.untouched(other) => never,
        };
        let times = harness.times(first, ready).await;
        let over = overhead(first, begun, &times);
        let ready = harness.ready_again(other).await;
        let others = harness.times(other, ready).await;
        (first, other, [over, overhead(other, times.done, &others)])
    };
    let (first, other, overheads) = tokio::select! {
        done = all => done,
        never = harness.budget_is_kept() => never,
    };

    for (_, line) in &overheads {
        println!("{line}");
    }
    harness.is_done(PLAN, &[first, other]).await;
    for node in [first, other] {
        assert_eq!(node.boots(), 2);
        assert_eq!(node.lines(RUNS), [noted("v2", node, 1)], "once, and on the host");
    }
    assert_eq!(harness.ctx.requests().await.most_jobs_at_once(PLAN), 1);
    let now = harness.web_has(2).await;
    assert!(
        now.iter()
            .all(|pod| pods.iter().all(|before| before.uid() != pod.uid())),
        "both were evicted"
    );
    // The Job of the second node was created after the first node was Ready; both clocks are this machine's.
    let jobs = harness.ctx.jobs_of(PLAN).await;
    let of_other =
        |job: &&Job| job.annotations().get("refit.rs/node").map(String::as_str) == Some(other.name());
    let job = jobs.iter().find(of_other);
    let created = job
        .and_then(ResourceExt::creation_timestamp)
        .expect("its Job is kept");
    let status = harness.node(first).await.status.unwrap();
    let ready = status
        .conditions
        .into_iter()
        .flatten()
        .find(|it| it.type_ == "Ready");
    let since = ready.and_then(|it| it.last_transition_time).unwrap();
    assert!(created.0 >= since.0, "created {created:?}, Ready since {since:?}");

    assert!(
        overheads.iter().all(|(over, _)| *over <= OVERHEAD),
        "{overheads:#?}"
    );
}

#[tokio::test]
#[ignore = "real nodes, which need root and Debian: just e2e"]
async fn a_file_on_the_host_says_whether_its_node_is_rebooted() {
    let harness = harness().await;
    // As packages of Debian do, on one of them.
    harness.two.write("/var/lib/kernel", "");
    let script = format!(
        "{}\n[ ! -e /host/var/lib/kernel ] || touch /host/run/reboot-required",
        notes()
    );
    let if_required = json!({ "concurrency": 2, "reboot": { "when": "IfRequired" } });
    harness.make(PLAN, &script, &with(reboots(), &if_required)).await;
    harness.is_done(PLAN, &[&harness.one, &harness.two]).await;
    assert_eq!((harness.one.boots(), harness.two.boots()), (1, 2));
    for node in [&harness.one, &harness.two] {
        assert_eq!(node.lines(RUNS), [noted("v2", node, 1)]);
    }
}
