//! The reboot as it should be, and Plans that change on the way.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::json;

use super::{PLAN, noted, notes, on, patiently, reboots, with};
use crate::e2e::stage::{RUNS, Stage, stage, stage_in};
use crate::scene::{hash, is_cordoned, ledger, record};
use crate::support::real::{self, PATIENCE, RealNode};
use crate::support::wait;
use crate::support::world::done;

/// What may go of a node's time besides the payload's work, the boot and what pods are spared for, in seconds.
const OVERHEAD: f64 = 15.0;

/// What the drain says of a pod that a budget spares, and after how many seconds it asks again, as kubectl does.
const SPARED: (&str, f64) = ("(will retry after 5s)", 5.0);

/// Where the payload of [`clocked`] writes when it began and when it ended.
const CLOCK: &str = "/var/lib/clock";

/// A payload of two seconds that writes down when it began and ended.
fn clocked() -> String {
    let now = format!("cut -d ' ' -f 1 /proc/uptime >>/host{CLOCK}");
    format!("{now}\n{}\nsleep 2\n{now}", notes())
}

/// Times of one node, by [`real::uptime`].
struct Times {
    /// Ready in its new boot.
    ready: Duration,
    /// Labelled and given back.
    done: Duration,
}

impl Stage {
    /// Waits until the node is done that is Ready since then.
    async fn times(&self, node: &RealNode, ready: Duration) -> Times {
        let is_done = |node: &Node| done(node, PLAN).is_some() && !is_cordoned(node);
        self.world
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

/// What of a node's time was neither payload nor boot nor a pod that a budget spared because the one of the other node was not
/// back yet, in seconds, and a line that says where it went.
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
#[ignore = "real nodes: just e2e"]
async fn two_nodes_are_drained_upgraded_and_rebooted_once_each_and_one_after_the_other() {
    let stage = stage_in(real::world_to_measure().await).await;
    let pods = stage.a_pod_on_each_node().await;
    let begun = real::uptime();
    stage.make(PLAN, &clocked(), &reboots()).await;
    let all = async {
        let (first, other) = stage.first_and_other().await;
        let ready = tokio::select! {
            ready = stage.ready_again(first) => ready,
            never = stage.untouched(other) => never,
        };
        let times = stage.times(first, ready).await;
        let over = overhead(first, begun, &times);
        let ready = stage.ready_again(other).await;
        let others = stage.times(other, ready).await;
        (first, other, [over, overhead(other, times.done, &others)])
    };
    let (first, other, overheads) = tokio::select! {
        done = all => done,
        never = stage.budget_is_kept() => never,
    };

    for (_, line) in &overheads {
        println!("{line}");
    }
    stage.is_done(PLAN, &[first, other]).await;
    for node in [first, other] {
        assert_eq!(node.boots(), 2);
        assert_eq!(node.lines(RUNS), [noted("v2", node, 1)], "once, and on the host");
    }
    assert_eq!(stage.world.requests().await.most_jobs_at_once(PLAN), 1);
    let now = stage.web_has(2).await;
    assert!(
        now.iter()
            .all(|pod| pods.iter().all(|before| before.uid() != pod.uid())),
        "both were evicted"
    );
    // The Job of the second node is not older than the first node's being Ready; both clocks are this machine's.
    let jobs = stage.world.jobs_of(PLAN).await;
    let job = jobs
        .iter()
        .find(|job| job.annotations().get("refit.rs/node").map(String::as_str) == Some(other.name()));
    let made = job
        .and_then(ResourceExt::creation_timestamp)
        .expect("its Job is kept");
    let there = stage.node(first).await;
    let ready = there
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    let since = ready
        .filter(|it| it.type_ == "Ready")
        .find_map(|it| it.last_transition_time.clone());
    assert!(
        made.0 >= since.as_ref().unwrap().0,
        "made {made:?}, Ready since {since:?}"
    );

    assert!(
        overheads.iter().all(|(over, _)| *over <= OVERHEAD),
        "{overheads:#?}"
    );
}

#[tokio::test]
#[ignore = "real nodes: just e2e"]
async fn a_file_on_the_host_says_whether_its_node_is_rebooted() {
    let stage = stage().await;
    // As packages of Debian do, on one of them.
    stage.two.write("/var/lib/kernel", "");
    let script = format!(
        "{}\n[ ! -e /host/var/lib/kernel ] || touch /host/run/reboot-required",
        notes()
    );
    let if_required = json!({ "concurrency": 2, "reboot": { "when": "IfRequired" } });
    stage.make(PLAN, &script, &with(reboots(), &if_required)).await;
    stage.is_done(PLAN, &[&stage.one, &stage.two]).await;
    assert_eq!((stage.one.boots(), stage.two.boots()), (1, 2));
    for node in [&stage.one, &stage.two] {
        assert_eq!(node.lines(RUNS), [noted("v2", node, 1)]);
    }
}

#[tokio::test]
#[ignore = "real nodes: just e2e"]
async fn a_node_that_a_person_had_cordoned_is_rebooted_and_stays_cordoned() {
    let stage = stage().await;
    let node = &stage.two;
    stage.world.cordon(node.name()).await;
    stage.make(PLAN, &notes(), &on(node, reboots())).await;
    let plan = stage.world.plan_complete(PLAN, 2 * PATIENCE).await;
    let there = stage.node(node).await;
    assert_eq!(done(&there, PLAN), Some(hash(&plan)));
    assert!(is_cordoned(&there) && ledger(&there).is_none() && record(&there, PLAN).is_none());
    assert_eq!(node.boots(), 2);
    assert_eq!(node.lines(RUNS), [noted("v2", node, 1)]);
}

#[tokio::test]
#[ignore = "real nodes: just e2e"]
async fn a_plan_deleted_between_drain_and_reboot_gives_its_node_back_in_the_boot_that_it_is_in() {
    let stage = stage().await;
    let node = &stage.two;
    stage.make(PLAN, &notes(), &on(node, patiently())).await;
    stage.phase(PLAN, node, "Rebooting").await;
    stage.reboot_pod("runs", super::runs).await;
    assert!(stage.is_cordoned(node).await);
    let plans = stage.world.plans();
    plans.delete(PLAN, &DeleteParams::default()).await.unwrap();
    let back = |node: &Node| !is_cordoned(node) && ledger(node).is_none() && record(node, PLAN).is_none();
    stage
        .world
        .node_until(node.name(), "is given back", PATIENCE, back)
        .await;
    stage.no_reboot_pods().await;
    Stage::nobody_reboots(node).await;
    assert_eq!(node.boots(), 1);
    assert_eq!(node.lines(RUNS), [noted("v2", node, 1)]);
    assert_eq!(done(&stage.node(node).await, PLAN), None);
}

#[tokio::test]
#[ignore = "real nodes: just e2e"]
async fn a_plan_edited_to_a_new_version_between_job_and_reboot_ends_that_reboot_first() {
    let stage = stage().await;
    let node = &stage.two;
    stage.make(PLAN, &notes(), &on(node, patiently())).await;
    stage.phase(PLAN, node, "Rebooting").await;
    stage.edit(PLAN, json!({ "version": "v3" })).await;
    let resolved = |plan: &refit::api::Plan| {
        let status = plan.status.as_ref();
        status.is_some_and(|status| status.latest_version.as_deref() == Some("v3"))
    };
    stage.world.plan_until(PLAN, "is at v3", PATIENCE, resolved).await;
    // Whatever the new version asks for, it waits.
    wait::always("nothing else is begun", Duration::from_secs(3), async || {
        let made = stage.world.jobs_of(PLAN).await.len();
        if made == 1 && node.boots() == 1 {
            Ok(())
        } else {
            Err(format!("{made} Jobs, {} boots", node.boots()))
        }
    })
    .await;
    Stage::let_reboot(node);
    stage.is_done(PLAN, &[node]).await;
    assert_eq!(node.lines(RUNS), [noted("v2", node, 1), noted("v3", node, 2)]);
    assert_eq!(node.boots(), 3);
}
