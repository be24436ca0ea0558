//! How long a decision takes in a large cluster. `just bench` prints it.

use std::time::{Duration, Instant};

use super::build::{defaults, labels, morning, node, plan_with};
use super::toy::Toy;
use crate::api::names;
use crate::rollout::facts::Text;
use crate::rollout::{Labels, Missing, World, decide};

const NODES: usize = 5_000;
const SLOTS: usize = 100;

/// A roll-out over 5,000 nodes of which half are done and 100 are upgrading.
fn roll_out() -> Toy {
    let mut toy = Toy::new();
    for number in 0..NODES {
        let name = format!("node-{number:04}");
        toy.add_node(&name, |facts| {
            // Nodes have some twenty labels.
            let some = (0..20).map(|n| {
                (
                    Text::from(format!("example.com/label-{n:02}")),
                    Text::from("value"),
                )
            });
            let own = facts
                .labels
                .iter()
                .map(|(k, v)| (Text::from(k), Text::from(v)))
                .collect::<Vec<_>>();
            facts.labels = Labels::new(some.chain(own));
        });
    }
    toy.apply(plan_with("p", |spec| {
        spec.concurrency = Some(i64::try_from(SLOTS).unwrap());
    }));
    toy.rounds_until(|toy| toy.plans["p"].it.object.status.is_some());
    let hash = toy.hash("p");
    let done: Vec<_> = toy
        .nodes
        .keys()
        .filter(|name| !toy.slots("p").contains(name))
        .take(NODES / 2)
        .cloned()
        .collect();
    for node in &done {
        toy.set_done_label(node, "p", Some(&hash));
    }
    toy.settle();
    for node in toy.slots("p") {
        toy.upgrades(&node);
    }
    toy.later(2);
    toy
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

#[test]
fn a_decision_in_a_large_cluster_takes_a_fraction_of_a_millisecond() {
    let mut toy = roll_out();
    let counts = toy.status("p").nodes.unwrap();
    assert_eq!((counts.done, counts.applying), (2_500, 100));
    let mut times = Vec::new();
    for _ in 0..51 {
        let start = Instant::now();
        let decision = toy.decision();
        times.push(start.elapsed());
        assert!(decision.steps.is_empty(), "{:?}", decision.steps);
    }
    let median = median(times);
    println!("decide, {NODES} nodes, {SLOTS} under way: {median:?}");
    // The budget is one of a release build; a debug build on a machine with other things to do is another matter.
    let bound = if cfg!(debug_assertions) {
        Duration::from_millis(100)
    } else {
        Duration::from_micros(200)
    };
    assert!(median <= bound, "{median:?}");
}

#[test]
fn a_node_that_changes_costs_its_own_look_only() {
    let mut world = World::new(defaults());
    world.permissions_seen(Missing::default());
    let mut toy = Toy::with(&["a"], plan_with("p", |_| {}));
    toy.settle();
    world.plan_seen(1, toy.plans["p"].it.clone());
    for number in 0..NODES {
        world.node_seen(2, node(&format!("node-{number:04}"), &format!("uid-{number}")));
    }
    world.settle(morning());
    let mut times = Vec::new();
    for number in 0..51 {
        let mut changed = node(&format!("node-{number:04}"), &format!("uid-{number}"));
        changed.labels = labels([(names::LABEL_HOSTNAME, "x")]);
        let start = Instant::now();
        assert!(world.node_seen(3, changed));
        world.settle(morning());
        let _ = decide(&world, morning());
        times.push(start.elapsed());
    }
    let median = median(times);
    println!("a change of a Node, and a decision: {median:?}");
    assert!(
        median < Duration::from_millis(if cfg!(debug_assertions) { 100 } else { 1 }),
        "{median:?}"
    );
}
