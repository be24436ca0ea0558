//! Faults of the API server and the network, and a controller that is killed at every write: a roll-out always ends,
//! each node gets one Job, and never more nodes are in progress than the Plan allows.

use std::time::Duration;

use futures::StreamExt as _;
use serde_json::json;

use crate::rollout::{RollOut, Shape};
use crate::supervised::SupervisedController;
use crate::testenv::context::TestContext;
use crate::testenv::controlplane::Options;
use crate::testenv::environment::TestEnv;
use crate::testenv::faults::{FaultProxy, Moment, ProxiedRequest, Rule};
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
async fn an_error_for_every_fifth_request_delays_a_roll_out_and_nothing_else() {
    let rules = WORK.map(|resource| Rule::on("*", resource).every(5).answer(500));
    let faults = run_with_faults(BROAD, rules).await;
    assert!(faults.faults() > 0);
}

#[tokio::test]
async fn a_connection_that_breaks_at_every_fifth_write_delays_a_roll_out_and_nothing_else() {
    let faults = run_with_faults(BROAD, [Rule::write().every(5).refuse()]).await;
    assert!(faults.faults() > 0);
}

#[tokio::test]
async fn an_api_server_that_refuses_a_third_of_all_requests_for_load_is_waited_for() {
    let faults = run_with_faults(
        BROAD,
        WORK.map(|resource| Rule::on("*", resource).chance(0.33).answer(429)),
    )
    .await;
    assert!(faults.faults() > 0);
}

#[tokio::test]
async fn a_slow_api_server_makes_a_slow_roll_out() {
    run_with_faults(BROAD, [Rule::on("*", "*").late(Duration::from_millis(600))]).await;
}

#[tokio::test]
async fn watches_that_are_seconds_late_start_no_second_job() {
    let late = |resource, millis| Rule::on("watch", resource).late_events(Duration::from_millis(millis));
    run_with_faults(
        BROAD,
        [
            late("nodes", 3_000),
            late("jobs", 1_000),
            late("plans", 2_000),
            late("pods", 500),
        ],
    )
    .await;
}

#[tokio::test]
async fn watches_that_break_or_expire_are_restarted() {
    let shape = Shape { nodes: 9, ..BROAD };
    let rollout = RollOut::prepare(TestContext::new().await, shape).await;
    let faults = rollout.ctx.faults(0).await;
    let supervised = SupervisedController::start(rollout.controller().through(&faults));
    rollout.begin().await;
    let kinds = [
        "nodes",
        "jobs",
        "pods",
        "plans",
        "secrets",
        "customresourcedefinitions",
    ];
    for done in [1, 4] {
        rollout.under_way(done).await;
        for kind in kinds {
            if done == 1 {
                faults.cut_watches(kind);
                continue;
            }
            // A watch that pauses before it restarts cannot expire.
            let watched = || {
                let of_kind =
                    |it: &&ProxiedRequest| it.api_request.verb == "watch" && it.api_request.resource == kind;
                let is_open = |it: &&ProxiedRequest| of_kind(it) && it.code.is_some();
                faults.history().iter().filter(is_open).count()
            };
            wait::until("the watch is taken up again", async || watched(), |it| *it > 1).await;
            faults.expire_watches(kind);
        }
    }
    rollout.check_success().await;
    assert_eq!(supervised.ends(), []);
    wait::eventually("every kind is watched again after each end", SOON, async || {
        let history = faults.history();
        let count = |verb: &str, kind: &str| {
            let of_kind =
                |it: &&ProxiedRequest| it.api_request.verb == verb && it.api_request.resource == kind;
            history.iter().filter(of_kind).count()
        };
        // An expired watch starts with a list.
        let kinds = kinds.map(|kind| (kind, count("watch", kind), count("list", kind)));
        let again = kinds
            .iter()
            .all(|(_, watches, lists)| *watches >= 3 && *lists >= 2);
        if again { Ok(()) } else { Err(format!("{kinds:?}")) }
    })
    .await;
}

/// Each kind of write, by verb and resource. Of each there are as many as nodes at the least in [`SMALL`], where a node
/// starts when the one before it is done.
const WRITES: [(&str, &str); 6] = [
    ("patch", "plans/status"),
    ("create", "jobs"),
    ("patch", "jobs"),
    ("patch", "nodes"),
    ("create", "events"),
    ("update", "leases"),
];

#[tokio::test]
async fn a_write_whose_answer_is_lost_is_not_done_twice() {
    let tries = WRITES.into_iter().map(|(verb, resource)| async move {
        let faults = run_with_faults(SMALL, [Rule::on(verb, resource).every(3).lose_answer()]).await;
        assert!(faults.faults() >= 1, "{verb} {resource}");
    });
    futures::stream::iter(tries)
        .buffer_unordered(2)
        .collect::<()>()
        .await;
}

#[tokio::test]
async fn a_write_that_took_effect_and_is_answered_after_the_client_gave_up_is_not_done_twice() {
    // The timeout of a request is ten seconds.
    let tries = WRITES.into_iter().map(|(verb, resource)| async move {
        let late = Duration::from_secs(11);
        let faults = run_with_faults(SMALL, [Rule::on(verb, resource).nth(2).late(late)]).await;
        assert_eq!(faults.faults(), 1, "{verb} {resource}");
    });
    futures::stream::iter(tries)
        .buffer_unordered(6)
        .collect::<()>()
        .await;
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

#[tokio::test]
async fn a_controller_that_is_killed_at_a_write_has_a_successor_that_continues_from_there() {
    // `just soak` tries all of them. Each of the three nodes takes four at the least: it is in status, gets a Job and its
    // label, and the result of the Job is recorded.
    let at = [1, 2, 3, 5, 8]
        .into_iter()
        .flat_map(|n| [(n, Moment::Before), (n, Moment::After)]);
    let tries = at.map(|(n, moment)| async move {
        assert!(
            killed_at(SMALL, Rule::write().nth(n), moment).await,
            "there is no write {n}"
        );
    });
    futures::stream::iter(tries)
        .buffer_unordered(2)
        .collect::<()>()
        .await;
}

#[tokio::test]
async fn a_controller_killed_with_many_slots_in_use_loses_none() {
    // The first ten slots are filled; from then on, each Job takes the slot of another node.
    let jobs = || Rule::on("create", "jobs");
    let at = [12, 15].into_iter();
    let at = at.flat_map(|n| [(n, Moment::Before), (n, Moment::After)]);
    let tries = at.map(|(n, moment)| async move {
        assert!(
            killed_at(MANY, jobs().nth(n), moment).await,
            "there is no Job {n}"
        );
    });
    futures::stream::iter(tries)
        .buffer_unordered(2)
        .collect::<()>()
        .await;
}

#[tokio::test]
async fn an_event_is_written_once_even_if_the_controller_is_killed_during_its_write() {
    let at = [1, 4]
        .into_iter()
        .flat_map(|n| [(n, Moment::Before), (n, Moment::After)]);
    let tries = at.map(|(n, moment)| async move {
        // The first two are `Starting` and `Started`.
        assert!(
            killed_at(SMALL, Rule::on("create", "events").nth(n + 2), moment).await,
            "there is no event {n}"
        );
    });
    futures::stream::iter(tries)
        .buffer_unordered(2)
        .collect::<()>()
        .await;
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

#[tokio::test]
async fn a_controller_that_is_killed_repeatedly_completes_the_roll_out() {
    let rollout = RollOut::prepare(TestContext::new().await, BROAD).await;
    let faults = rollout.ctx.faults(0).await;
    // At each fourth of the 32 writes at the least that eight nodes take.
    faults.add(Rule::write().every(4).kill(Moment::After));
    let supervised = SupervisedController::start(rollout.controller().through(&faults));
    rollout.begin().await;
    rollout.check_success().await;
    // One process may make many at a time.
    assert!(supervised.ends().len() > 1, "{:?}", supervised.ends());
    wait::holds("one is running", async || supervised.now().is_running()).await;
}
