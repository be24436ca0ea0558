//! A drain that the Plan no longer needs is cancelled.

use std::time::Duration;

use super::scenario::{Scenario, Setup};
use crate::api::{DrainSpec, PlanSpec};
use crate::rehearse::Kind;
use crate::rehearse::fault::{Moment, Rule};
use crate::rollout::PodStage;
use crate::rollout::tests::build::{plan, plan_with};

/// A Plan whose drain of node `a` waits for a budget, and whose Jobs may retry once.
fn draining() -> Scenario {
    let mut story = Scenario::new(&Setup {
        backoff_limit: 2,
        ..Setup::default()
    });
    story.add_nodes(&["a"]);
    story.guard("a");
    story.apply(plan_with("p", |spec| spec.drain = Some(DrainSpec::default())));
    story.comes_to("a", PodStage::Drain);
    story.settle();
    assert!(story.is_cordoned("a"));
    story
}

fn holders(story: &Scenario) -> Vec<(bool, bool)> {
    let ledger = story.node("a").ledger.as_ref();
    let holders = ledger.map_or(&[][..], |ledger| &ledger.holders);
    holders
        .iter()
        .map(|holder| (holder.cancelled, holder.completed))
        .collect()
}

fn is_cancelled(story: &Scenario) -> bool {
    holders(story).iter().any(|(cancelled, _)| *cancelled)
}

fn to_v2(spec: &mut PlanSpec) {
    spec.version = Some("v2".to_owned());
}

fn with_args(spec: &mut PlanSpec) {
    spec.upgrade.get_or_insert_default().args = Some(vec!["--new".to_owned()]);
}

/// Checks that the second Job upgrades the node, and that the first upgraded nothing.
fn ends_with_one_upgrade(story: &mut Scenario) {
    story.open_budget();
    story.roll_out();
    story.assert_over();
    assert_eq!(story.invariants.upgrades, 1, "the old Job never came to its own");
    assert!(story.events_of("JobFailed").is_empty(), "it was asked to");
}

#[test]
fn a_drain_that_is_no_longer_required_is_stopped_and_the_next_job_follows() {
    for edit in [to_v2, with_args] {
        let mut story = draining();
        let old = story.job_for("a");
        story.edit("p", edit);
        story.until("the drain is cancelled", |state| {
            let node = state.get(Kind::Node, "", "a").unwrap();
            let ledger = node["metadata"]["annotations"]["refit.rs/cordon"].as_str();
            ledger.is_some_and(|text| text.contains("cancelled"))
        });
        let limit = story.invariants.jobs[&*old.name].backoff_limit;
        assert_eq!(limit, 0, "no further pod, said before the drain is asked to stop");
        ends_with_one_upgrade(&mut story);
        let new = story
            .jobs_for("a")
            .into_iter()
            .find(|job| job.uid != old.uid)
            .unwrap();
        assert_eq!(new.attempt, 1);
        assert_ne!(
            new.inputs.as_ref().zip(Some(&new.hash)),
            old.inputs.as_ref().zip(Some(&old.hash))
        );
    }
}

#[test]
fn failures_that_a_job_has_are_not_held_against_the_pod_that_runs() {
    let mut story = draining();
    let pod = story.pods().next().unwrap().facts.name.to_string();
    story.delete_pod_now(&pod);
    story.pass_secs(15);
    story.comes_to("a", PodStage::Drain);
    // The patch of the ledger is delayed, so that the Job is first seen with its new limit.
    story.fault(
        Rule::on("patch", "nodes")
            .named("a")
            .delay(Duration::from_secs(8)),
    );
    story.edit("p", to_v2);
    story.settle();
    let job = story.job_for("a");
    assert_eq!((job.failures, job.backoff_limit), (1, 1));
    story.pass_secs(10);
    ends_with_one_upgrade(&mut story);
}

#[test]
fn a_limit_is_lowered_only_in_the_version_in_which_that_was_decided() {
    let mut story = draining();
    story.fault(Rule::on("patch", "jobs").overtake());
    story.edit("p", to_v2);
    story.pass(Duration::from_millis(60));
    ends_with_one_upgrade(&mut story);
    let patches = |code: &str| {
        story.cluster.with(|state| {
            let lines = state.trace().iter();
            lines
                .filter(|line| line.contains("PATCH") && line.contains("/jobs/") && line.ends_with(code))
                .count()
        })
    };
    assert_eq!(patches(" 409"), 1);
}

#[test]
fn a_drain_that_gets_through_first_finishes() {
    let mut story = draining();
    let v1 = story.hash("p");
    story.fault(
        Rule::on("patch", "nodes")
            .named("a")
            .delay(Duration::from_secs(8)),
    );
    story.edit("p", to_v2);
    story.pass_secs(1);
    story.open_budget();
    story.comes_to("a", PodStage::Upgrade);
    story.pass_secs(10);
    assert_eq!(holders(&story), [(false, true)]);
    story.succeed("a");
    assert_eq!(story.done_label("a", "p"), Some(v1));
    story.roll_out();
    story.assert_over();
    assert_eq!(story.invariants.upgrades, 2);
}

#[test]
fn a_node_that_leaves_the_plan_in_mid_drain_is_released_and_not_upgraded() {
    for disable in [false, true] {
        let mut story = draining();
        if disable {
            story.set_done_label("a", "p", Some("disabled"));
        } else {
            story.edit("p", |spec| spec.node_selector = None);
        }
        story.rest();
        assert!(!story.is_cordoned("a") && story.node("a").ledger.is_none());
        assert_eq!(story.invariants.upgrades, 0);
        assert!(story.events_of("JobFailed").is_empty() && story.slots("p").is_empty());
    }
}

#[test]
fn a_mistake_in_a_plan_and_an_edit_of_no_input_stop_no_plan() {
    let edits: [fn(&mut PlanSpec); 3] = [
        |spec| spec.version = None,
        |spec| {
            with_args(spec);
            spec.post_complete_delay = Some("soon".to_owned());
        },
        |spec| spec.concurrency = Some(7),
    ];
    for edit in edits {
        let mut story = draining();
        let job = story.job_for("a");
        story.edit("p", edit);
        story.pass_secs(20);
        let now = story.job_for("a");
        assert_eq!((&now.uid, now.backoff_limit), (&job.uid, job.backoff_limit));
        assert!(!is_cancelled(&story));
    }
}

#[test]
fn a_cordon_ends_as_soon_as_it_is_seen() {
    let mut story = Scenario::with(&["a"], plan("p"));
    story.comes_to("a", PodStage::Upgrade);
    story.edit("p", to_v2);
    story.pass_secs(20);
    assert!(!is_cancelled(&story) && story.job_for("a").backoff_limit == 0);
    story.roll_out();
    story.assert_over();
}

#[test]
fn an_edit_that_is_taken_back_leads_to_one_upgrade_all_the_same() {
    let mut story = draining();
    story.edit("p", to_v2);
    story.pass(Duration::from_millis(30));
    story.edit("p", |spec| spec.version = Some("v1".to_owned()));
    ends_with_one_upgrade(&mut story);
    assert!(story.is_done("a", "p"));
}

#[test]
fn a_job_that_is_deleted_while_it_is_being_cancelled_leaves_no_cancel_mark() {
    let mut story = draining();
    let old = story.job_for("a").name;
    story.fault(
        Rule::on("patch", "nodes")
            .named("a")
            .delay(Duration::from_secs(5)),
    );
    story.edit("p", to_v2);
    story.pass_secs(1);
    story.delete(Kind::Job, &old);
    for _ in 0..4 {
        story.pass_secs(1);
        assert!(
            story.invariants.jobs.is_empty() || !is_cancelled(&story),
            "its drain would stop"
        );
    }
    ends_with_one_upgrade(&mut story);
}

#[test]
fn a_cancel_mark_that_comes_too_late_does_not_stop_the_next_drain() {
    let mut story = draining();
    story.change_ledger("a", |ledger| ledger.holders[0].cancelled = true);
    story.open_budget();
    story.roll_out();
    story.assert_over();
}

#[test]
fn a_controller_that_dies_after_any_write_of_a_cancellation_is_followed_by_one_that_continues() {
    for write in 0..8 {
        let mut story = draining();
        story
            .fault_injector
            .add(Rule::write_or_event().nth(write + 1).kill(Moment::After));
        story.edit("p", to_v2);
        story.pass_secs(15);
        ends_with_one_upgrade(&mut story);
    }
}
