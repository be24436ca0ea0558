//! What a node must show before it is done, and payloads that reboot it by themselves.

use super::build::{plan, plan_with};
use super::toy::Toy;
use crate::api::{Plan, SettleSpec};

fn settling(change: impl FnOnce(&mut SettleSpec)) -> Plan {
    plan_with("p", |spec| {
        let mut settle = SettleSpec::default();
        change(&mut settle);
        spec.settle = Some(settle);
    })
}

fn min_ready() -> Plan {
    settling(|settle| settle.min_ready = Some("30s".to_owned()))
}

#[test]
fn a_node_is_done_when_it_has_been_ready_for_long_enough() {
    let mut toy = Toy::with(&["a"], min_ready());
    toy.succeeds("a");
    assert!(toy.is_cordoned("a"), "given back when it is proven");
    toy.later(29);
    let entry = toy.entry("p", "a");
    assert_eq!(
        (entry.phase.as_str(), entry.reason.as_deref()),
        ("Settling", Some("MinReady"))
    );
    toy.later(1);
    assert!(toy.is_done("a", "p") && !toy.is_cordoned("a"));
    assert_eq!(toy.told_of("JobComplete").len(), 1);
}

#[test]
fn a_break_begins_the_time_anew_even_one_that_is_over_before_anybody_looks() {
    let mut toy = Toy::with(&["a"], min_ready());
    toy.succeeds("a");
    toy.later(20);
    toy.ready("a", false);
    toy.ready("a", true);
    toy.tell_all();
    toy.settle();
    toy.later(29);
    assert!(!toy.is_done("a", "p"));
    toy.later(1);
    assert!(toy.is_done("a", "p"));
}

#[test]
fn another_controller_counts_anew() {
    let mut toy = Toy::with(&["a"], min_ready());
    toy.succeeds("a");
    toy.later(20);
    toy.wakes_up();
    toy.settle();
    toy.later(29);
    assert!(!toy.is_done("a", "p"));
    toy.later(1);
    assert!(toy.is_done("a", "p"));
}

#[test]
fn a_node_that_does_not_settle_in_time_has_failed() {
    let mut toy = Toy::with(
        &["a"],
        settling(|settle| {
            settle.min_ready = Some("30s".to_owned());
            settle.timeout = Some("2m".to_owned());
        }),
    );
    toy.succeeds("a");
    for _ in 0..5 {
        toy.later(20);
        toy.ready("a", false);
        toy.settle();
        toy.ready("a", true);
        toy.settle();
    }
    toy.later(20);
    assert_eq!(
        toy.entry("p", "a").phase,
        "Settling",
        "it is Ready, and may stay so"
    );
    toy.ready("a", false);
    toy.settle();
    let entry = toy.entry("p", "a");
    assert_eq!(
        (entry.phase.as_str(), entry.reason.as_deref()),
        ("Failed", Some("SettleTimedOut"))
    );
    assert!(toy.is_cordoned("a") && toy.told_of("SettleFailed").len() == 1);
    toy.later(3600);
    assert_eq!(toy.entry("p", "a").phase, "Failed");
}

#[test]
fn a_kubelet_of_another_version_is_waited_for() {
    let mut toy = Toy::with(&["a"], settling(|settle| settle.kubelet_version = Some(true)));
    toy.edit("p", |spec| spec.version = Some("v1.33.4+k3s1".to_owned()));
    toy.settle();
    toy.succeeds("a");
    toy.later(1);
    let entry = toy.entry("p", "a");
    assert_eq!(entry.reason.as_deref(), Some("KubeletVersion"));
    assert_eq!(
        entry.message.as_deref(),
        Some(r#"the kubelet is of version "v0", and the Plan's is "v1.33.4-k3s1""#)
    );
    toy.change_node("a", |node| node.facts.kubelet = "v1.33.4+k3s1".into());
    toy.settle();
    assert!(toy.is_done("a", "p") && !toy.is_cordoned("a"));
}

#[test]
fn a_kubelet_that_stays_behind_is_a_failure_that_names_both_versions() {
    let mut toy = Toy::with(&["a"], settling(|settle| settle.kubelet_version = Some(true)));
    toy.succeeds("a");
    toy.later(10 * 60);
    let entry = toy.entry("p", "a");
    assert_eq!(entry.reason.as_deref(), Some("SettleTimedOut"));
    let message = entry.message.unwrap();
    assert!(
        message.contains("\"v0\"") && message.contains("\"v1\""),
        "{message}"
    );
}

#[test]
fn without_settle_a_node_that_is_not_ready_is_waited_for_as_long_as_it_takes() {
    let mut toy = Toy::with(&["a"], plan("p"));
    toy.succeeds_unseen("a");
    toy.ready("a", false);
    toy.later(24 * 3600);
    assert_eq!(toy.entry("p", "a").phase, "Settling");
    toy.ready("a", true);
    toy.settle();
    assert!(toy.is_done("a", "p"));
}

#[test]
fn a_payload_that_reboots_its_node_once_is_done_after_its_second_run() {
    let mut toy = Toy::with(&["a"], plan("p"));
    toy.restless.insert("a".to_owned(), 1);
    toy.rolls_out();
    assert!(toy.is_done("a", "p") && !toy.is_cordoned("a"));
    assert_eq!((toy.boots("a"), toy.laws.starts.values().sum::<u32>()), (1, 2));
    assert_eq!(toy.job_for("a").facts.boots.len(), 2, "noted");
    assert!(toy.told_of("JobFailed").is_empty());
}

#[test]
fn a_payload_that_always_reboots_its_node_is_stopped_after_two_boots() {
    let mut toy = Toy::with(&["a"], plan("p"));
    let job = toy.job_of("a");
    toy.change_job(&job, |job| job.facts.backoff_limit = 99);
    toy.restless.insert("a".to_owned(), 99);
    toy.rolls_out();
    assert_eq!(toy.boots("a"), 2);
    let entry = toy.entry("p", "a");
    assert_eq!(
        (entry.phase.as_str(), entry.reason.as_deref()),
        ("Failed", Some("RebootLoop"))
    );
    assert!(
        toy.complete("p").2.contains("rebooted 2 times"),
        "{:?}",
        toy.complete("p")
    );
    let told = toy.told_of("JobFailed");
    assert!(told.len() == 1 && told[0].contains("RebootLoop"), "{told:?}");
    assert!(toy.job_for("a").facts.recorded, "{:?}", toy.job_for("a").facts);
    assert!(toy.is_cordoned("a"));
    // Another controller says the same.
    toy.wakes_up();
    toy.rolls_out();
    assert_eq!(toy.entry("p", "a").reason.as_deref(), Some("RebootLoop"));
    assert_eq!(toy.boots("a"), 2);
}
