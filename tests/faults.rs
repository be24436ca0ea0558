//! The API server and the network at their worst, and the controller killed at every write: whatever happens, a roll-out ends, each
//! node gets one Job, and never are more nodes worked on than the Plan allows.

use std::time::Duration;

use futures::StreamExt as _;

use crate::rollout::{DISTURBED, PLAN, RollOut, Shape, told_before};
use crate::support::bed::Bed;
use crate::support::controlplane::Options;
use crate::support::faults::{FaultProxy, Moment, Passed, Rule};
use crate::support::wait::{self, SOON};
use crate::support::world::World;
use crate::tended::Tended;

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

/// So many have slots that two are next.
pub(crate) const MANY: Shape = Shape {
    nodes: 20,
    concurrency: 10,
    run: Duration::from_millis(600),
};

/// For how long the API server is away. Longer than a request may take, and than a Lease of the tests lasts.
const OUTAGE: Duration = Duration::from_secs(15);

/// A roll-out whose controller gets to the API server through a proxy with these rules, from its start to its end.
async fn in_weather(shape: Shape, rules: impl IntoIterator<Item = Rule>) -> FaultProxy {
    let mut rollout = RollOut::prepare(World::new().await, shape).await;
    rollout.rough = true;
    let faults = rollout.world.faults(1).await;
    for rule in rules {
        faults.add(rule);
    }
    let tended = Tended::start(rollout.controller().through(&faults));
    rollout.begin().await;
    rollout.ends_well().await;
    assert_eq!(tended.ends(), [], "it went through all of it");
    faults
}

/// What a roll-out asks for. The controller's start, where a failure is the end (S4), and its Lease are other tests' business.
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
    let faults = in_weather(BROAD, rules).await;
    assert!(faults.faults() >= 10, "{}", faults.faults());
}

#[tokio::test]
async fn a_connection_that_breaks_at_every_fifth_write_delays_a_roll_out_and_nothing_else() {
    let faults = in_weather(BROAD, [Rule::write().every(5).refuse()]).await;
    assert!(faults.faults() >= 5, "{}", faults.faults());
}

#[tokio::test]
async fn an_api_server_that_refuses_a_third_of_all_requests_for_load_is_waited_for() {
    let faults = in_weather(
        BROAD,
        WORK.map(|resource| Rule::on("*", resource).chance(0.33).answer(429)),
    )
    .await;
    assert!(faults.faults() >= 10, "{}", faults.faults());
}

#[tokio::test]
async fn a_slow_api_server_makes_a_slow_roll_out() {
    in_weather(BROAD, [Rule::on("*", "*").late(Duration::from_millis(600))]).await;
}

#[tokio::test]
async fn watches_that_are_seconds_late_start_no_second_job() {
    let late = |resource, millis| Rule::on("watch", resource).late_events(Duration::from_millis(millis));
    in_weather(
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
async fn watches_that_break_off_and_expire_are_taken_up_again() {
    let shape = Shape { nodes: 9, ..BROAD };
    let rollout = RollOut::prepare(World::new().await, shape).await;
    let faults = rollout.world.faults(0).await;
    let tended = Tended::start(rollout.controller().through(&faults));
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
            // One that waits a moment before it begins again cannot expire.
            let watched = || {
                let of_kind = |it: &&Passed| it.asked.verb == "watch" && it.asked.resource == kind;
                let is_open = |it: &&Passed| of_kind(it) && it.code.is_some();
                faults.history().iter().filter(is_open).count()
            };
            wait::eventually("the watch is taken up again", SOON, async || match watched() {
                0 | 1 => Err(kind.to_owned()),
                _ => Ok(()),
            })
            .await;
            faults.expire_watches(kind);
        }
    }
    rollout.ends_well().await;
    assert_eq!(tended.ends(), []);
    wait::eventually("every kind is watched again after each end", SOON, async || {
        let history = faults.history();
        let count = |verb: &str, kind: &str| {
            let of_kind = |it: &&Passed| it.asked.verb == verb && it.asked.resource == kind;
            history.iter().filter(of_kind).count()
        };
        // One that has expired is listed again first.
        let kinds = kinds.map(|kind| (kind, count("watch", kind), count("list", kind)));
        let again = kinds
            .iter()
            .all(|(_, watches, lists)| *watches >= 3 && *lists >= 2);
        if again { Ok(()) } else { Err(format!("{kinds:?}")) }
    })
    .await;
}

/// Each kind of write, by verb and resource.
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
        let faults = in_weather(SMALL, [Rule::on(verb, resource).every(3).lose_answer()]).await;
        assert!(faults.faults() >= 1, "{verb} {resource}");
    });
    futures::stream::iter(tries)
        .buffer_unordered(2)
        .collect::<()>()
        .await;
}

#[tokio::test]
async fn a_write_that_took_effect_and_is_answered_after_the_client_gave_up_is_not_done_twice() {
    // A request has ten seconds.
    let tries = WRITES.into_iter().map(|(verb, resource)| async move {
        let late = Duration::from_secs(11);
        let faults = in_weather(SMALL, [Rule::on(verb, resource).nth(2).late(late)]).await;
        assert_eq!(faults.faults(), 1, "{verb} {resource}");
    });
    futures::stream::iter(tries)
        .buffer_unordered(6)
        .collect::<()>()
        .await;
}

/// A roll-out whose controller is killed at one request, and started again. False when there was no such request.
pub(crate) async fn killed_at(shape: Shape, rule: Rule, moment: Moment) -> bool {
    let mut rollout = RollOut::prepare(World::new().await, shape).await;
    rollout.spec["postCompleteDelay"] = serde_json::json!("100ms");
    let faults = rollout.world.faults(0).await;
    faults.add(rule.kill(moment));
    let tended = Tended::start(rollout.controller().through(&faults));
    rollout.begin().await;
    rollout.ends_well().await;
    // At its last write of all, it may be about to die.
    wait::eventually("a controller ends only when it is killed", SOON, async || {
        let killed = faults.faults() > 0;
        match tended.ends().len() {
            ends if ends == usize::from(killed) => Ok(killed),
            ends => Err(format!("killed: {killed}; ended {ends} times")),
        }
    })
    .await
}

#[tokio::test]
async fn a_controller_that_is_killed_at_a_write_is_followed_by_one_that_goes_on_from_there() {
    // All of them are the soak's.
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
async fn where_many_have_slots_the_next_begin_before_they_are_told_and_a_killed_controller_loses_none() {
    // Ten are told of their slots; from then on, each Job is another node's.
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

    let rollout = RollOut::prepare(World::new().await, MANY).await;
    let _controller = rollout.controller().start();
    rollout.begin().await;
    rollout.ends_well().await;
    let told = told_before(&rollout.world.requests().await);
    let next = told.iter().filter(|(_, told)| told.as_deref() == Some("Waiting"));
    let next = next.count();
    assert!((1..=MANY.nodes - MANY.concurrency).contains(&next), "{told:?}");
}

#[tokio::test]
async fn an_event_is_told_once_even_when_the_controller_is_killed_while_it_is_told() {
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

/// Two roll-outs on a control plane of their own, both under way: one whose controller has a Lease, which does not last as long as
/// the outage, so that its process ends and is started again; and one that goes through it in one piece.
async fn two_roll_outs_through(outage: impl AsyncFnOnce(&Bed)) {
    let bed = Bed::own(Options::default()).await;
    let shape = Shape {
        nodes: 10,
        concurrency: 2,
        run: Duration::from_millis(500),
    };
    let prepare = async || RollOut::prepare(World::at(&bed).await, shape).await;
    let (mut elected, mut unelected) = tokio::join!(prepare(), prepare());
    for rollout in [&mut elected, &mut unelected] {
        rollout.rough = true;
        rollout.outage = true;
    }
    let leader = Tended::start(elected.world.controller());
    let alone = Tended::start(
        unelected
            .controller()
            .env("SYSTEM_UPGRADE_CONTROLLER_LEADER_ELECT", "false"),
    );
    tokio::join!(elected.begin(), unelected.begin());
    tokio::join!(elected.under_way(2), unelected.under_way(2));
    outage(&bed).await;
    let until = async |rollout: &RollOut| {
        rollout.ends_well().await;
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
    two_roll_outs_through(async |bed| {
        let plane = bed.control_plane();
        plane.stop_apiserver();
        // The outage is what is tried here, not waited for.
        tokio::time::sleep(OUTAGE).await;
        plane.start_apiserver().await.expect("the API server is back");
    })
    .await;
}

#[tokio::test]
async fn an_api_server_that_hangs_for_a_while_stops_nothing_for_good() {
    two_roll_outs_through(async |bed| {
        let plane = bed.control_plane();
        plane.pause_apiserver();
        tokio::time::sleep(OUTAGE).await;
        plane.resume_apiserver();
    })
    .await;
}

#[tokio::test]
async fn an_etcd_that_is_restarted_stops_nothing_for_good() {
    two_roll_outs_through(async |bed| bed.control_plane().restart_etcd().expect("etcd is back")).await;
}

#[tokio::test]
async fn a_controller_that_starts_without_an_api_server_says_so_and_works_when_it_is_started_again() {
    let rollout = RollOut::prepare(World::alone().await, SMALL).await;
    rollout.begin().await;
    let plane = rollout.world.bed.control_plane();
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
    let _again = controller.start_again();
    rollout.ends_well().await;
}

#[tokio::test]
async fn a_controller_that_is_killed_again_and_again_gets_there_in_the_end() {
    let rollout = RollOut::prepare(World::new().await, BROAD).await;
    let faults = rollout.world.faults(0).await;
    // Each one lives for three writes.
    faults.add(Rule::write().every(4).kill(Moment::After));
    let tended = Tended::start(rollout.controller().through(&faults));
    rollout.begin().await;
    rollout.ends_well().await;
    assert!(tended.ends().len() >= 5, "{:?}", tended.ends());
    wait::eventually("one is running", DISTURBED, async || {
        if tended.now().is_running() {
            Ok(())
        } else {
            Err(PLAN.to_owned())
        }
    })
    .await;
}
