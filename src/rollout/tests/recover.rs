//! What was evicted from a node has to be whole before the next one starts (design: settle).

use super::build::plan_with;
use super::toy::Toy;
use crate::api::{DrainSpec, SettleSpec};
use crate::rollout::facts::Stage;

const WEB: &str = "ReplicaSet/shop/web-1";
const DB: &str = "StatefulSet/shop/db";

/// Node `a` is drained of pods of these controllers, and its upgrade runs; `b` comes after it.
fn drained(workloads: &[&str]) -> (Toy, String) {
    let mut toy = Toy::with(
        &["a", "b"],
        plan_with("p", |spec| {
            spec.drain = Some(DrainSpec::default());
            spec.settle = Some(SettleSpec {
                workloads: Some(true),
                timeout: Some("2m".to_owned()),
                ..SettleSpec::default()
            });
        }),
    );
    let first = toy.slots("p")[0].clone();
    toy.comes_to(&first, Stage::Upgrade);
    toy.change_node(&first, |node| {
        let holder = &mut node.facts.ledger.as_mut().unwrap().holders[0];
        holder.evicted = workloads.iter().map(ToString::to_string).collect();
    });
    (toy, first)
}

#[test]
fn a_node_is_given_back_first_and_keeps_its_slot_until_its_workloads_are_whole() {
    let (mut toy, first) = drained(&[WEB, DB]);
    toy.workloads = [(WEB.to_owned(), (1, 3)), (DB.to_owned(), (2, 2))].into();
    toy.succeeds(&first);
    assert!(
        toy.is_done(&first, "p") && !toy.is_cordoned(&first),
        "an evicted pod may fit only here"
    );
    toy.later(1);
    let entry = toy.entry("p", &first);
    assert_eq!(
        (entry.phase.as_str(), entry.reason.as_deref()),
        ("Settling", Some("Workloads"))
    );
    assert_eq!(
        entry.message.as_deref(),
        Some("ReplicaSet shop/web-1 has 1 of 3 pods ready")
    );
    assert_eq!(toy.slots("p"), [first.as_str()]);
    assert_eq!(toy.complete("p").0, "False");
    toy.workloads.insert(WEB.to_owned(), (3, 3));
    toy.later(5);
    toy.later(5);
    assert_ne!(toy.slots("p"), [first.as_str()], "the other one");
    assert!(toy.nodes[&first].it.facts.records.is_empty());
    assert_eq!(toy.told_of("JobComplete").len(), 1);
}

#[test]
fn a_workload_that_is_whole_for_a_moment_is_not_whole() {
    let (mut toy, first) = drained(&[WEB]);
    toy.workloads = [(WEB.to_owned(), (1, 1))].into();
    toy.succeeds(&first);
    // Its container fails as it starts, and is started again.
    for ready in [0, 1, 0, 1] {
        toy.later(1);
        let entry = toy.entry("p", &first);
        let told = if ready == 0 {
            "1 of 1 pods ready, and is read once more"
        } else {
            "0 of 1 pods ready"
        };
        assert!(
            entry.message.as_deref().is_some_and(|it| it.ends_with(told)),
            "{entry:?}"
        );
        toy.workloads.insert(WEB.to_owned(), (ready, 1));
        toy.later(4);
    }
    toy.later(1);
    assert_eq!(toy.slots("p"), [first.as_str()]);
    toy.later(5);
    assert_ne!(toy.slots("p"), [first.as_str()], "twice whole");
}

#[test]
fn a_workload_that_is_whole_at_the_last_moment_is_read_once_more_before_that_counts() {
    for stays in [true, false] {
        let (mut toy, first) = drained(&[WEB]);
        toy.workloads = [(WEB.to_owned(), (0, 1))].into();
        toy.succeeds(&first);
        for _ in 0..22 {
            toy.later(5);
        }
        assert_eq!(toy.entry("p", &first).phase, "Settling");
        toy.workloads.insert(WEB.to_owned(), (1, 1));
        toy.later(5);
        toy.workloads.insert(WEB.to_owned(), (i32::from(stays), 1));
        toy.later(4);
        toy.later(1);
        toy.later(5);
        let mine = toy.slots("p") == [first.as_str()];
        assert_eq!(mine, !stays, "{:?}", toy.slots("p"));
        if mine {
            assert_eq!(toy.entry("p", &first).reason.as_deref(), Some("SettleTimedOut"));
        }
    }
}

#[test]
fn a_workload_is_read_now_and_then() {
    let (mut toy, first) = drained(&[WEB]);
    toy.workloads = [(WEB.to_owned(), (0, 1))].into();
    toy.succeeds(&first);
    let reads = |toy: &Toy| {
        toy.trace
            .iter()
            .filter(|line| line.contains("Fine: Workload"))
            .count()
    };
    let before = reads(&toy);
    for _ in 0..20 {
        toy.later(1);
    }
    assert!(
        (3..=5).contains(&(reads(&toy) - before)),
        "{}",
        reads(&toy) - before
    );
}

#[test]
fn a_workload_that_stays_broken_is_a_failure_that_names_it() {
    let (mut toy, first) = drained(&[WEB, DB]);
    toy.workloads = [(WEB.to_owned(), (1, 3)), (DB.to_owned(), (2, 2))].into();
    toy.succeeds(&first);
    toy.later(119);
    assert_eq!(toy.entry("p", &first).phase, "Settling");
    toy.later(1);
    let entry = toy.entry("p", &first);
    assert_eq!(
        (entry.phase.as_str(), entry.reason.as_deref()),
        ("Failed", Some("SettleTimedOut"))
    );
    assert!(
        entry
            .message
            .unwrap()
            .contains("ReplicaSet shop/web-1 has 1 of 3 pods ready")
    );
    assert!(!toy.is_done(&first, "p") && !toy.is_cordoned(&first));
    assert_eq!(toy.slots("p"), [first.as_str()]);
    // Somebody has repaired it.
    toy.workloads.insert(WEB.to_owned(), (3, 3));
    toy.retry(&first, "p");
    toy.rolls_out();
    toy.later(5);
    toy.rolls_out();
    assert!(toy.is_done(&first, "p"));
}

#[test]
fn another_controller_goes_on_waiting() {
    let (mut toy, first) = drained(&[WEB]);
    toy.workloads = [(WEB.to_owned(), (0, 1))].into();
    toy.succeeds(&first);
    let job = toy.jobs_for(&first)[0].facts.name.to_string();
    toy.delete_job(&job);
    toy.wakes_up();
    toy.settle();
    toy.later(30);
    assert_eq!(toy.slots("p"), [first.as_str()]);
    // Gone: it wants no pods.
    toy.workloads.clear();
    toy.later(5);
    assert_ne!(toy.slots("p"), [first.as_str()]);
}

#[test]
fn a_plan_that_evicted_nothing_waits_for_nothing() {
    let (mut toy, first) = drained(&[]);
    toy.succeeds(&first);
    assert_ne!(toy.slots("p"), [first.as_str()]);
    assert!(toy.is_done(&first, "p"));
}
