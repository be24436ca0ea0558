//! Faults of the API server and the network, and what `just soak` needs to kill a controller at a write: a roll-out always ends,
//! each node gets one Job, and never more nodes are in progress than the Plan allows.

use std::time::Duration;

use serde_json::json;

use crate::rollout::{RollOut, Shape};
use crate::supervised::SupervisedController;
use crate::testenv::context::TestContext;
use crate::testenv::controlplane::Options;
use crate::testenv::environment::TestEnv;
use crate::testenv::faults::{FaultProxy, Moment, Rule};
use crate::testenv::wait::{self, SOON};

pub(crate) const SMALL: Shape = Shape {
    nodes: 3,
    concurrency: 1,
    run: Duration::from_millis(200),
};

const BROAD: Shape = Shape {
    nodes: 8,
    concurrency: 3,
    run: Duration::from_millis(400),
};

/// Enough slots for statuses to be collected.
pub(crate) const MANY: Shape = Shape {
    nodes: 20,
    concurrency: 10,
    run: Duration::from_millis(600),
};

/// Duration of an outage of the API server: longer than the timeout of a request, and than a Lease of the tests.
const OUTAGE: Duration = Duration::from_secs(15);

/// Runs a roll-out whose controller uses a proxy with these rules.
async fn run_with_faults(shape: Shape, rules: impl IntoIterator<Item = Rule>) -> FaultProxy {
    let mut rollout = RollOut::prepare(TestContext::new().await, shape).await;
    rollout.rough = true;
    let faults = rollout.ctx.faults(1).await;
    for rule in rules {
        faults.add(rule);
    }
    let supervised = SupervisedController::start(rollout.controller().through(&faults));
    rollout.begin().await;
    rollout.check_success().await;
    assert_eq!(supervised.ends(), [], "it went through all of it");
    faults
}

/// Requests of a roll-out. Other tests cover the controller's start, where a failure is final (S4), and its Lease.
const WORK: [&str; 7] = [
    "nodes",
    "jobs",
    "plans",
    "plans/status",
    "pods",
    "secrets",
    "events",
];

#[tokio::test]
async fn an_api_server_that_refuses_a_third_of_all_requests_for_load_is_waited_for() {
    let faults = run_with_faults(
        BROAD,
        WORK.map(|resource| Rule::on("*", resource).chance(0.33).answer(429)),
    )
    .await;
    assert!(faults.faults() > 0);
}

/// Kills the controller of a roll-out at a request, and restarts it. Returns false if there was no such request.
pub(crate) async fn killed_at(shape: Shape, rule: Rule, moment: Moment) -> bool {
    let mut rollout = RollOut::prepare(TestContext::new().await, shape).await;
    rollout.spec["postCompleteDelay"] = serde_json::json!("100ms");
    let faults = rollout.ctx.faults(0).await;
    faults.add(rule.kill(moment));
    let supervised = SupervisedController::start(rollout.controller().through(&faults));
    rollout.begin().await;
    rollout.check_success().await;
    // At its very last write it may still be about to die.
    wait::eventually("a controller ends only when it is killed", SOON, async || {
        let killed = faults.faults() > 0;
        match supervised.ends().len() {
            ends if ends == usize::from(killed) => Ok(killed),
            ends => Err(format!("killed: {killed}; ended {ends} times")),
        }
    })
    .await
}

/// Runs two roll-outs on a control plane of their own through an outage: one whose controller has a Lease, which
/// expires during the outage, so that its process ends and is restarted; and one whose controller continues.
async fn two_roll_outs_through(outage: impl AsyncFnOnce(&TestEnv)) {
    let test_env = TestEnv::own(Options::default()).await;
    let shape = Shape {
        nodes: 10,
        concurrency: 2,
        run: Duration::from_millis(500),
    };
    let prepare = async || RollOut::prepare(TestContext::at(&test_env).await, shape).await;
    let (mut elected, mut unelected) = tokio::join!(prepare(), prepare());
    for rollout in [&mut elected, &mut unelected] {
        rollout.rough = true;
        rollout.outage = true;
    }
    let leader = SupervisedController::start(elected.controller().lease_times(["8s", "6s", "500ms"]));
    let alone = SupervisedController::start(
        unelected
            .controller()
            .env("SYSTEM_UPGRADE_CONTROLLER_LEADER_ELECT", "false"),
    );
    tokio::join!(elected.begin(), unelected.begin());
    tokio::join!(elected.under_way(2), unelected.under_way(2));
    outage(&test_env).await;
    let until = async |rollout: &RollOut| {
        rollout.check_success().await;
    };
    tokio::join!(until(&elected), until(&unelected));
    assert_eq!(alone.ends(), [], "{}", alone.now().log());
    let log = leader.now().log();
    if !leader.ends().is_empty() {
        assert!(log.contains("leaderelection lost for"), "{log}");
    }
}

#[tokio::test]
async fn an_api_server_that_is_down_for_a_while_stops_nothing_for_good() {
    two_roll_outs_through(async |test_env| {
        let plane = test_env.control_plane();
        plane.stop_apiserver();
        // The outage itself is under test, so this waits for a time.
        tokio::time::sleep(OUTAGE).await;
        plane.start_apiserver().await.expect("the API server is back");
    })
    .await;
}

#[tokio::test]
async fn an_api_server_that_hangs_for_a_while_stops_nothing_for_good() {
    two_roll_outs_through(async |test_env| {
        let plane = test_env.control_plane();
        plane.pause_apiserver();
        tokio::time::sleep(OUTAGE).await;
        plane.resume_apiserver();
    })
    .await;
}

#[tokio::test]
async fn an_etcd_that_is_restarted_stops_nothing_for_good() {
    two_roll_outs_through(async |test_env| test_env.control_plane().restart_etcd().expect("etcd is back"))
        .await;
}

#[tokio::test]
async fn a_controller_that_starts_without_an_api_server_says_so_and_works_when_it_is_started_again() {
    let rollout = RollOut::prepare(TestContext::alone().await, SMALL).await;
    rollout.begin().await;
    let plane = rollout.ctx.test_env.control_plane();
    plane.stop_apiserver();
    let controller = rollout.controller().start();
    let status = controller.ended(SOON).await;
    assert_eq!(status.code(), Some(1), "{}", controller.log());
    let log = controller.log();
    assert!(
        log.contains("cannot get namespaces kube-system") && log.contains("refused"),
        "{log}"
    );

    plane.start_apiserver().await.expect("the API server is back");
    // The journal sees all that follows.
    let seen = json!({ "metadata": { "annotations": { "example.com/seen": "yes" } } });
    rollout.ctx.edit_plan("upgrade", seen).await;
    rollout.journal().await;
    let _again = controller.start_again();
    rollout.check_success().await;
}
