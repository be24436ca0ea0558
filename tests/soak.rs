//! Long roll-outs: several at a time, with controllers killed at random moments, and Jobs that are deleted as soon as
//! their result is recorded in a quarter of them; and a kill at every write of a small one.
//!
//! `cargo cluster` runs a few small ones, `just soak` all. `REFIT_SOAK` is the number of roll-outs of `just soak`, or
//! `full`; `REFIT_SOAK_SEED` is the seed that an earlier run printed. It determines shapes, faults and the moments of
//! the kills.

mod machines;

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use futures::StreamExt as _;

use crate::faults::{MANY, SMALL, killed_at};
use crate::rollout::{RollOut, Shape};
use crate::supervised::SupervisedController;
use crate::testenv::context::TestContext;
use crate::testenv::faults::{Moment, Rule};

/// Number of roll-outs, and of nodes in each, for `REFIT_SOAK=full`.
const FULL: (u64, usize) = (50, 50);

/// As many as keep a machine with two cores busy.
const SIDE_BY_SIDE: usize = 4;

/// Time for each node of a roll-out when several run at once.
const LIMIT: Duration = Duration::from_secs(20);

/// Runs a roll-out, and checks all invariants. Returns how often its controller was killed.
async fn play(seed: u64, number: u64, nodes: usize) -> usize {
    let mut random = fastrand::Rng::with_seed(seed ^ number.wrapping_mul(0x9e37_79b9));
    let shape = Shape {
        nodes,
        concurrency: random.usize(2..=nodes / 4),
        run: random_millis(&mut random, 100..=1_500),
    };
    let mut rollout = RollOut::prepare(TestContext::new().await, shape).await;
    rollout.limit = LIMIT * u32::try_from(nodes).expect("a small number");
    let mut setup = rollout.controller();
    // In a quarter of them.
    let at_once = matches!(number % 8, 1 | 2);
    if at_once {
        setup = setup.env("SYSTEM_UPGRADE_JOB_TTL_SECONDS_AFTER_FINISH", "0");
    }
    let started = Instant::now();
    let supervised = SupervisedController::start(setup);
    rollout.begin().await;
    let kills = async {
        // Each process may live a little longer than the one before, so that there is progress even on a slow machine.
        for longest in (3_000..).step_by(300) {
            tokio::time::sleep(random_millis(&mut random, 200..=longest)).await;
            supervised.now().kill();
        }
    };
    let plan = tokio::select! {
        plan = rollout.ends() => plan,
        () = kills => unreachable!("there are always more"),
    };
    rollout.check(&plan).await;
    let kills = supervised.ends().len();
    let Shape { concurrency, run, .. } = shape;
    eprintln!(
        "soak: roll-out {number}: {nodes} nodes, {concurrency} at a time, upgrades of {run:?}, \
         Jobs kept: {}; {kills} kills, {:.0?}",
        !at_once,
        started.elapsed()
    );
    kills
}

/// Runs so many roll-outs, some of them concurrently.
async fn play_all(count: u64, nodes: usize, side_by_side: usize) {
    let seed = std::env::var("REFIT_SOAK_SEED").map_or_else(
        |_| fastrand::u64(..),
        |seed| seed.parse().expect("REFIT_SOAK_SEED is a number"),
    );
    eprintln!("soak: {count} roll-outs of {nodes} nodes; REFIT_SOAK_SEED={seed} plays them again");
    let mut played = futures::stream::iter(0..count)
        .map(|number| play(seed, number, nodes))
        .buffer_unordered(side_by_side);
    let (mut ended, mut kills) = (0, 0);
    while let Some(more) = played.next().await {
        ended += 1;
        kills += more;
        eprintln!("soak: {ended} of {count} have ended, after {kills} kills");
    }
    assert!(kills > 0, "nobody was killed");
}

#[tokio::test]
async fn some_roll_outs_survive_kills_of_their_controllers() {
    play_all(4, 10, 2).await;
}

#[tokio::test]
#[ignore = "long: just soak"]
async fn fifty_roll_outs_of_fifty_nodes_survive_kills_of_their_controllers() {
    let count = match std::env::var("REFIT_SOAK").as_deref() {
        Err(_) | Ok("" | "full") => FULL.0,
        Ok(count) => count.parse().expect("REFIT_SOAK is `full` or a number"),
    };
    play_all(count, FULL.1, SIDE_BY_SIDE).await;
}

/// Kills the controller at the first, the second and each following one of these requests, until there are no more.
async fn at_each(shape: Shape, kind: &str, rule: impl Fn() -> Rule, moment: Moment) {
    let numbers = futures::stream::iter(1..).map(|n| {
        let rule = rule().nth(n);
        async move { (n, killed_at(shape, rule, moment).await) }
    });
    let mut tries = numbers.buffered(SIDE_BY_SIDE);
    while let Some((n, killed)) = tries.next().await {
        if !killed {
            eprintln!("soak: killed {moment:?} each of {} {kind}", n - 1);
            assert!(n > 8, "a roll-out has more {kind} than that");
            return;
        }
    }
}

#[tokio::test]
#[ignore = "long: just soak"]
async fn a_controller_may_be_killed_at_each_of_its_writes() {
    for shape in [SMALL, MANY] {
        at_each(shape, "writes", Rule::write, Moment::Before).await;
        at_each(shape, "writes", Rule::write, Moment::After).await;
    }
}

#[tokio::test]
#[ignore = "long: just soak"]
async fn a_controller_may_be_killed_at_each_of_its_events() {
    at_each(SMALL, "events", || Rule::on("create", "events"), Moment::Before).await;
    at_each(SMALL, "events", || Rule::on("create", "events"), Moment::After).await;
}

fn random_millis(random: &mut fastrand::Rng, range: RangeInclusive<u64>) -> Duration {
    Duration::from_millis(random.u64(range))
}
