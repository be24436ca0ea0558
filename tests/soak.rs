//! Roll-outs at length: several side by side, their controllers killed at random moments, with a late Node watch in half of them
//! and Jobs that are gone as soon as their result is recorded in a quarter; and a kill at every single write of a small one.
//!
//! `cargo test` plays a handful of small ones, `just soak` all. `REFIT_SOAK` is how many roll-outs `just soak` plays, `full` or a
//! number; `REFIT_SOAK_SEED` is the seed that an earlier run printed. It decides shapes, weather and the moments of the kills.

use std::time::{Duration, Instant};

use futures::StreamExt as _;

use crate::faults::{MANY, SMALL, killed_at};
use crate::rollout::{RollOut, Shape};
use crate::support::faults::{Moment, Rule};
use crate::support::names;
use crate::support::world::World;
use crate::tended::Tended;

/// How many roll-outs the issue asks for, and of how many nodes.
const FULL: (u64, usize) = (50, 50);

/// As many as keep a machine with two cores busy, and no busier.
const SIDE_BY_SIDE: usize = 4;

/// For each node of a roll-out, on a machine that plays others.
const LIMIT: Duration = Duration::from_secs(20);

/// One roll-out until its end, and every promise checked. Returns how often its controller was killed.
async fn play(seed: u64, number: u64, nodes: usize) -> usize {
    let mut chance = Chance::new(seed ^ number.wrapping_mul(0x9e37_79b9));
    let shape = Shape {
        nodes,
        concurrency: chance.between(2, nodes / 4),
        run: chance.millis(100, 1_500),
    };
    let mut rollout = RollOut::prepare(World::new().await, shape).await;
    rollout.limit = LIMIT * u32::try_from(nodes).expect("a small number");
    let mut setup = rollout.controller();
    let faults = rollout.world.faults(seed).await;
    // The weather of the first four is that of all: a late watch, Jobs that go at once, both, neither.
    let late = number.is_multiple_of(2).then(|| chance.millis(1_000, 4_000));
    if let Some(late) = late {
        faults.add(Rule::on("watch", "nodes").late_events(late));
        setup = setup.through(&faults);
    }
    let at_once = matches!(number % 8, 1 | 2);
    if at_once {
        setup = setup.env("SYSTEM_UPGRADE_JOB_TTL_SECONDS_AFTER_FINISH", "0");
    }
    let started = Instant::now();
    let tended = Tended::start(setup);
    rollout.begin().await;
    let kills = async {
        // Each may live a little longer than the one before it, so that it gets somewhere on the slowest of machines.
        for longest in (3_000..).step_by(300) {
            tokio::time::sleep(chance.millis(200, longest)).await;
            tended.now().kill();
        }
    };
    let plan = tokio::select! {
        plan = rollout.ends() => plan,
        () = kills => unreachable!("there are always more"),
    };
    rollout.check(&plan).await;
    let kills = tended.ends().len();
    let Shape { concurrency, run, .. } = shape;
    eprintln!(
        "soak: roll-out {number}: {nodes} nodes, {concurrency} at a time, upgrades of {run:?}, Node watch late by {late:?}, \
         Jobs kept: {}; {kills} kills, {:.0?}",
        !at_once,
        started.elapsed()
    );
    kills
}

/// So many roll-outs, some side by side.
async fn play_all(count: u64, nodes: usize, side_by_side: usize) {
    let seed = std::env::var("REFIT_SOAK_SEED").map_or_else(
        |_| names::random_bits(),
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
async fn a_handful_of_roll_outs_outlive_their_controllers() {
    play_all(4, 10, 2).await;
}

#[tokio::test]
#[ignore = "long: just soak"]
async fn fifty_roll_outs_of_fifty_nodes_outlive_their_controllers() {
    let count = match std::env::var("REFIT_SOAK").as_deref() {
        Err(_) | Ok("" | "full") => FULL.0,
        Ok(count) => count.parse().expect("REFIT_SOAK is `full` or a number"),
    };
    play_all(count, FULL.1, SIDE_BY_SIDE).await;
}

/// Kills at the first, the second and so on of these requests, until there is none that far.
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

/// Numbers that are as good as random, and the same for the same seed (SplitMix64).
struct Chance(u64);

impl Chance {
    fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ bits >> 31
    }

    /// From `low` to `high`, both included.
    fn between(&mut self, low: usize, high: usize) -> usize {
        let width = u64::try_from(high - low).expect("a small number") + 1;
        low + usize::try_from(self.next() % width).expect("a small number")
    }

    fn millis(&mut self, low: usize, high: usize) -> Duration {
        Duration::from_millis(u64::try_from(self.between(low, high)).expect("a small number"))
    }
}
