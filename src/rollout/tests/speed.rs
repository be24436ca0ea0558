//! Processor time of a decision in a large cluster. `just bench` prints it.

use std::time::Duration;

use jiff::SignedDuration;

use super::build::{cluster, observe_job, observe_node, observe_plan};
use crate::{ClusterState, Step, decide};
use refit_api::names;
use refit_facts::{Labels, NodeFacts, PlanFacts, Text};
use refit_fixtures::{job, labels, morning, node, plan_with, processor_time, read};

const NODES: usize = 5_000;
const SLOTS: usize = 100;

/// Nodes have some twenty labels.
fn large(number: usize, done: Option<&str>) -> NodeFacts {
    let mut facts = node(&format!("node-{number:04}"), &format!("uid-{number}"));
    let label = |n| Text::from(format!("example.com/label-{n:02}"));
    let some = (0..20).map(|n| (label(n), Text::from("value")));
    let own: Vec<_> = facts.labels.iter().map(|(k, v)| (k.into(), v.into())).collect();
    let label = Text::from(names::plan_label("p"));
    let done = done.map(|hash| (label, Text::from(hash)));
    facts.labels = Labels::new(some.chain(own).chain(done));
    facts
}

/// A roll-out over 5,000 nodes, of which half are done and 100 are upgrading.
fn roll_out() -> ClusterState {
    let plan = || plan_with("p", |spec| spec.concurrency = Some(i64::try_from(SLOTS).unwrap()));
    let mut cluster = cluster((0..NODES).map(|number| large(number, None)), [plan()]);
    let mut stored = read(plan());
    store_status(&mut cluster, &mut stored, 2);
    let hash = stored.status().latest_hash.clone().unwrap();
    let slots = stored.status().applying.clone().unwrap();
    let others = (0..NODES).filter(|number| !slots.contains(&format!("node-{number:04}")));
    for number in others.take(NODES / 2) {
        observe_node(&mut cluster, 2, large(number, Some(&hash)));
    }
    cluster.refresh(morning());
    for step in decide(&cluster, morning()).steps {
        if let Step::CreateJob { node, job: name, .. } = step {
            let on = cluster.node(&node).unwrap().clone();
            let mut facts = job(&name, &stored, &on, &hash);
            facts.created = morning() + SignedDuration::from_mins(2); // so that none waits for a pod yet
            facts.inputs = Some(cluster.plans["p"].inputs.clone());
            observe_job(&mut cluster, 3, facts);
        }
    }
    store_status(&mut cluster, &mut stored, 4);
    cluster
}

/// The watch delivers the written status.
fn store_status(cluster: &mut ClusterState, plan: &mut PlanFacts, version: u64) {
    let later = morning() + SignedDuration::from_mins(1);
    cluster.refresh(later);
    let steps = decide(cluster, later).steps;
    let status = steps.into_iter().find_map(|step| match step {
        Step::WriteStatus { status, .. } => Some(*status),
        _ => None,
    });
    plan.object.status = Some(status.unwrap());
    observe_plan(cluster, version, plan.clone());
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

#[test]
fn a_decision_in_a_large_cluster_takes_a_fraction_of_a_millisecond() {
    let mut cluster = roll_out();
    let counts = cluster.plan("p").unwrap().status().nodes.unwrap();
    assert_eq!((counts.done, counts.applying), (2_500, 100));
    let mut times = Vec::new();
    for _ in 0..51 {
        let now = morning() + SignedDuration::from_mins(2);
        let start = processor_time();
        cluster.refresh(now);
        let decision = decide(&cluster, now);
        times.push(processor_time().saturating_sub(start));
        assert!(decision.steps.is_empty(), "{:?}", decision.steps);
    }
    let median = median(times);
    println!("decide, {NODES} nodes, {SLOTS} under way: {median:?}");
    // The budget applies to a release build; a debug build is slower.
    let bound = if cfg!(debug_assertions) {
        Duration::from_millis(100)
    } else {
        Duration::from_micros(200)
    };
    assert!(median <= bound, "{median:?}");
}

#[test]
fn a_changed_node_alone_is_decided_on_again() {
    let nodes = (0..NODES).map(|number| large(number, None));
    let mut cluster = cluster(nodes, [plan_with("p", |_| {})]);
    cluster.refresh(morning());
    let mut times = Vec::new();
    for number in 0..51 {
        let mut changed = large(number, None);
        changed.labels = labels([(names::LABEL_HOSTNAME, "x")]);
        let start = processor_time();
        assert!(observe_node(&mut cluster, 3, changed));
        cluster.refresh(morning());
        let _ = decide(&cluster, morning());
        times.push(processor_time().saturating_sub(start));
    }
    let median = median(times);
    println!("a change of a Node, and a decision: {median:?}");
    let bound = Duration::from_millis(if cfg!(debug_assertions) { 100 } else { 1 });
    assert!(median < bound, "{median:?}");
}

/// As many Plans as a fleet with a Plan for each group of nodes has.
const PLANS: usize = 200;

#[test]
#[ignore = "it selects 5,000 nodes 200 times first: just bench"]
fn a_decision_over_many_plans_at_work_takes_milliseconds() {
    let group = |number: usize| format!("g{}", number % PLANS);
    let nodes = (0..NODES).map(|number| {
        let mut facts = large(number, None);
        let own: Vec<_> = facts.labels.iter().map(|(k, v)| (k.into(), v.into())).collect();
        let group = (Text::from("group"), Text::from(group(number)));
        facts.labels = Labels::new(own.into_iter().chain([group]));
        facts
    });
    let plan = |number: usize| {
        plan_with(&format!("p{number}"), |spec| {
            spec.concurrency = Some(1);
            let selector = serde_json::json!({ "matchLabels": { "group": group(number) } });
            spec.node_selector = Some(serde_json::from_value(selector).unwrap());
        })
    };
    let mut cluster = cluster(nodes, (0..PLANS).map(plan));
    for (at, version) in [(1, 2), (2, 3)] {
        let now = morning() + SignedDuration::from_mins(at);
        cluster.refresh(now);
        for step in decide(&cluster, now).steps {
            if let Step::WriteStatus {
                plan: name, status, ..
            } = step
            {
                let mut stored = cluster.plan(&name).unwrap().clone();
                stored.object.status = Some(*status);
                observe_plan(&mut cluster, version, stored);
            }
        }
    }
    let mut times = Vec::new();
    for _ in 0..51 {
        let now = morning() + SignedDuration::from_mins(3);
        let start = processor_time();
        cluster.refresh(now);
        let decision = decide(&cluster, now);
        times.push(processor_time().saturating_sub(start));
        assert_eq!(decision.pictures.len(), PLANS);
    }
    let median = median(times);
    println!("decide, {NODES} nodes, {PLANS} Plans: {median:?}");
    let bound = Duration::from_millis(if cfg!(debug_assertions) { 1_000 } else { 15 });
    assert!(median <= bound, "{median:?}");
}
