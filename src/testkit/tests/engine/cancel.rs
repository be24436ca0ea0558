//! A drain that the Plan no longer needs is cancelled.

use std::time::Duration;

use serde_json::json;

use super::limits::set as set_limit;
use super::scenario::{NAMESPACE, Scenario, Setup};
use crate::fault::{Moment, Rule};
use refit_api::{DrainSpec, PlanSpec, names};
use refit_facts::PodStage;
use refit_fixtures::{plan, plan_with};
use refit_rehearse::Kind;

/// A Plan whose drain of node `a` waits for a budget, and whose Jobs may retry once.
pub(super) fn draining() -> Scenario {
    let mut scenario = Scenario::new(&Setup {
        backoff_limit: 2,
        ..Setup::default()
    });
    scenario.add_nodes(&["a"]);
    scenario.guard("a");
    scenario.apply(plan_with("p", |spec| spec.drain = Some(DrainSpec::default())));
    scenario.comes_to("a", PodStage::Drain);
    scenario.settle();
    assert!(scenario.is_cordoned("a"));
    scenario
}

fn holders(scenario: &Scenario) -> Vec<(bool, bool)> {
    let ledger = scenario.node("a").ledger.as_ref();
    let holders = ledger.map_or(&[][..], |ledger| &ledger.holders);
    holders
        .iter()
        .map(|holder| (holder.cancelled, holder.completed))
        .collect()
}

fn is_cancelled(scenario: &Scenario) -> bool {
    holders(scenario).iter().any(|(cancelled, _)| *cancelled)
}

fn to_v2(spec: &mut PlanSpec) {
    spec.version = Some("v2".to_owned());
}

fn with_args(spec: &mut PlanSpec) {
    spec.upgrade.get_or_insert_default().args = Some(vec!["--new".to_owned()]);
}

/// Checks that the second Job upgrades the node, and that the first upgraded nothing.
fn ends_with_one_upgrade(scenario: &mut Scenario) {
    scenario.open_budget();
    scenario.finish();
    assert_eq!(
        scenario.invariants.upgrades, 1,
        "the old Job never came to its own"
    );
    assert!(scenario.events_of("JobFailed").is_empty(), "it was asked to");
}

#[test]
fn a_drain_that_is_no_longer_required_is_stopped_and_the_next_job_follows() {
    for edit in [to_v2, with_args] {
        let mut scenario = draining();
        let old = scenario.job_for("a");
        scenario.edit("p", edit);
        scenario.until("the drain is cancelled", |state| {
            let node = state.get(Kind::Node, "", "a").unwrap();
            let ledger = node["metadata"]["annotations"]["refit.rs/cordon"].as_str();
            ledger.is_some_and(|text| text.contains("cancelled"))
        });
        let limit = scenario.invariants.jobs[&*old.name].backoff_limit;
        assert_eq!(limit, 0, "no further pod, said before the drain is asked to stop");
        ends_with_one_upgrade(&mut scenario);
        let new = scenario
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
    let mut scenario = draining();
    let pod = scenario.pods().next().unwrap().facts.name.to_string();
    scenario.delete_pod_now(&pod);
    scenario.pass_secs(15);
    scenario.comes_to("a", PodStage::Drain);
    // The patch of the ledger is delayed, so that the Job is first seen with its new limit.
    scenario.fault(
        Rule::on("patch", "nodes")
            .named("a")
            .delay(Duration::from_secs(8)),
    );
    scenario.edit_and_settle("p", to_v2);
    let job = scenario.job_for("a");
    assert_eq!((job.failures, job.backoff_limit), (1, 1));
    scenario.pass_secs(10);
    ends_with_one_upgrade(&mut scenario);
}

#[test]
fn a_limit_is_lowered_only_in_the_version_in_which_that_was_decided() {
    let mut scenario = draining();
    scenario.fault(Rule::on("patch", "jobs").overtake());
    scenario.edit("p", to_v2);
    scenario.pass(Duration::from_millis(60));
    ends_with_one_upgrade(&mut scenario);
    let patches = |code: &str| {
        scenario.cluster.with(|state| {
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
    let mut scenario = draining();
    let v1 = scenario.hash("p");
    scenario.fault(
        Rule::on("patch", "nodes")
            .named("a")
            .delay(Duration::from_secs(8)),
    );
    scenario.edit("p", to_v2);
    scenario.pass_secs(1);
    scenario.open_budget();
    scenario.comes_to("a", PodStage::Upgrade);
    scenario.pass_secs(10);
    assert_eq!(holders(&scenario), [(false, true)]);
    scenario.succeed("a");
    assert_eq!(scenario.done_label("a", "p"), Some(v1));
    scenario.finish();
    assert_eq!(scenario.invariants.upgrades, 2);
}

#[test]
fn a_node_that_leaves_the_plan_in_mid_drain_is_released_and_not_upgraded() {
    for disable in [false, true] {
        let mut scenario = draining();
        if disable {
            scenario.set_done_label("a", "p", Some("disabled"));
        } else {
            scenario.edit("p", |spec| spec.node_selector = None);
        }
        scenario.rest();
        assert!(!scenario.is_cordoned("a") && scenario.node("a").ledger.is_none());
        assert_eq!(scenario.invariants.upgrades, 0);
        assert!(scenario.events_of("JobFailed").is_empty() && scenario.slots("p").is_empty());
    }
}

/// The node is patched at once, the Job later.
#[test]
fn a_cancelled_drain_counts_as_no_failure_however_late_its_job_is_recorded() {
    for fault in [Rule::hang as fn(Rule) -> Rule, |rule| {
        rule.delay(Duration::from_secs(8))
    }] {
        for abort in [false, true] {
            let mut scenario = draining();
            if abort {
                scenario.annotate(Kind::Plan, "p", names::ANNOTATION_ABORT, Some("wrong version"));
            } else {
                scenario.edit("p", |spec| spec.node_selector = None);
            }
            scenario.until("the drain is cancelled", |state| {
                let node = state.get(Kind::Node, "", "a").unwrap();
                let ledger = node["metadata"]["annotations"]["refit.rs/cordon"].as_str();
                ledger.is_some_and(|text| text.contains("cancelled"))
            });
            scenario.fault(fault(Rule::on("patch", "jobs")));
            scenario.pass_secs(90);
            assert!(scenario.events_of("JobFailed").is_empty());
            assert!(scenario.node("a").records.is_empty() && !scenario.is_cordoned("a"));
        }
    }
}

#[test]
fn an_abort_ends_a_drain_also_while_all_plans_are_frozen() {
    let mut scenario = draining();
    set_limit(&mut scenario, "freeze", Some("audit"));
    scenario.annotate(Kind::Plan, "p", names::ANNOTATION_ABORT, Some("wrong version"));
    scenario.pass_secs(60);
    let jobs = scenario.requests("POST /apis/batch/v1/namespaces/system-upgrade/jobs");
    assert!(scenario.slots("p").is_empty() && !scenario.is_cordoned("a"));
    scenario.pass_secs(600);
    assert_eq!(
        scenario.requests("POST /apis/batch/v1/namespaces/system-upgrade/jobs"),
        jobs
    );
    assert!(scenario.live_nodes("p").is_empty());
}

#[test]
fn a_person_who_uncordons_the_node_of_a_cancelled_drain_makes_it_no_failure() {
    let mut scenario = draining();
    scenario.fault(Rule::on("patch", "jobs").nth(2).delay(Duration::from_secs(8)));
    scenario.edit("p", |spec| spec.node_selector = None);
    scenario.until("the drain is cancelled", |state| {
        let node = state.get(Kind::Node, "", "a").unwrap();
        let ledger = node["metadata"]["annotations"]["refit.rs/cordon"].as_str();
        ledger.is_some_and(|text| text.contains("cancelled"))
    });
    scenario.cordon("a", false);
    scenario.pass_secs(60);
    assert!(scenario.events_of("JobFailed").is_empty());
    assert!(scenario.node("a").records.is_empty() && scenario.node("a").ledger.is_none());
}

/// A node whose first attempt has failed, and whose Job may try it again.
fn failed_once(scenario: &mut Scenario) {
    scenario.comes_to("a", PodStage::Upgrade);
    scenario.steer("a", "upgrade.exit-code", Some("1"));
    scenario.steer("a", "upgrade.run-delay", Some("0s"));
    scenario.until("the first attempt fails", |state| {
        state.all(Kind::Job).any(|job| job["status"]["failed"] == 1)
    });
    scenario.steer("a", "upgrade.exit-code", None);
    scenario.steer("a", "upgrade.run-delay", None);
}

fn with_retries() -> Scenario {
    let mut scenario = Scenario::new(&Setup {
        backoff_limit: 5,
        ..Setup::default()
    });
    scenario.add_nodes(&["a"]);
    scenario.apply(plan_with("p", |spec| spec.cordon = Some(true)));
    scenario
}

#[test]
fn an_abort_after_a_failed_attempt_leaves_a_failed_node_unless_the_next_one_succeeds() {
    for (runs, succeeds) in [(false, false), (true, false), (true, true)] {
        let mut scenario = with_retries();
        failed_once(&mut scenario);
        if runs {
            scenario.comes_to("a", PodStage::Upgrade);
        }
        scenario.annotate(Kind::Plan, "p", names::ANNOTATION_ABORT, Some("wrong version"));
        scenario.settle();
        let code = (!succeeds).then_some("1");
        scenario.steer("a", "upgrade.exit-code", code);
        scenario.steer("a", "upgrade.run-delay", Some("0s"));
        scenario.pass_secs(60);
        assert_eq!(scenario.is_done("a", "p"), succeeds, "{runs}");
        assert_eq!(scenario.is_cordoned("a"), !succeeds, "{runs}");
        assert!(scenario.live_nodes("p").is_empty());
        assert_eq!(scenario.events_of("JobFailed").len(), usize::from(!succeeds));
    }
}

#[test]
fn a_plan_that_returns_between_two_attempts_upgrades_the_node_again() {
    let mut scenario = with_retries();
    scenario.succeed("a");
    scenario.edit("p", to_v2);
    failed_once(&mut scenario);
    scenario.edit("p", |spec| spec.version = Some("v1".to_owned()));
    scenario.pass_secs(60);
    assert!(!scenario.is_done("a", "p") && scenario.is_cordoned("a"));
    assert_eq!(scenario.live_nodes("p"), ["a"]);
    scenario.finish();
    assert_eq!(scenario.invariants.upgrades, 3);
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
        let mut scenario = draining();
        let job = scenario.job_for("a");
        scenario.edit("p", edit);
        scenario.pass_secs(20);
        let now = scenario.job_for("a");
        assert_eq!((&now.uid, now.backoff_limit), (&job.uid, job.backoff_limit));
        assert!(!is_cancelled(&scenario));
    }
}

#[test]
fn a_suspended_plan_that_has_lost_its_status_and_its_channel_stops_no_drain() {
    let url = "https://example.com/channel";
    let mut scenario = Scenario::empty();
    scenario.add_nodes(&["a"]);
    scenario.guard("a");
    scenario.offer(url, "v1");
    scenario.apply(plan_with("p", |spec| {
        (spec.version, spec.channel) = (None, Some(url.to_owned()));
        spec.drain = Some(DrainSpec::default());
    }));
    scenario.comes_to("a", PodStage::Drain);
    scenario.edit_and_settle("p", |spec| spec.suspend = Some(true));
    let job = scenario.job_for("a");
    scenario.break_channel(url, "no route to host");
    scenario.stop();
    let cleared = scenario
        .cluster
        .patch_status(Kind::Plan, NAMESPACE, "p", json!({ "status": null }));
    cleared.unwrap();
    scenario.start();
    scenario.pass_secs(20);
    assert!(!is_cancelled(&scenario) && scenario.job_for("a").uid == job.uid);
}

#[test]
fn a_cordon_ends_as_soon_as_it_is_seen() {
    let mut scenario = Scenario::with(&["a"], plan("p"));
    scenario.comes_to("a", PodStage::Upgrade);
    scenario.edit("p", to_v2);
    scenario.pass_secs(20);
    assert!(!is_cancelled(&scenario) && scenario.job_for("a").backoff_limit == 0);
    scenario.finish();
}

#[test]
fn an_edit_that_is_taken_back_leads_to_one_upgrade_all_the_same() {
    let mut scenario = draining();
    scenario.edit("p", to_v2);
    scenario.pass(Duration::from_millis(30));
    scenario.edit("p", |spec| spec.version = Some("v1".to_owned()));
    ends_with_one_upgrade(&mut scenario);
    assert!(scenario.is_done("a", "p"));
}

#[test]
fn a_job_that_is_deleted_while_it_is_being_cancelled_leaves_no_cancel_mark() {
    let mut scenario = draining();
    let old = scenario.job_for("a").name;
    scenario.fault(
        Rule::on("patch", "nodes")
            .named("a")
            .delay(Duration::from_secs(5)),
    );
    scenario.edit("p", to_v2);
    scenario.pass_secs(1);
    scenario.delete(Kind::Job, &old);
    for _ in 0..4 {
        scenario.pass_secs(1);
        assert!(
            scenario.invariants.jobs.is_empty() || !is_cancelled(&scenario),
            "its drain would stop"
        );
    }
    ends_with_one_upgrade(&mut scenario);
}

#[test]
fn a_cancel_mark_that_comes_too_late_does_not_stop_the_next_drain() {
    let mut scenario = draining();
    scenario.change_ledger("a", |ledger| ledger.holders[0].cancelled = true);
    scenario.open_budget();
    scenario.finish();
}

#[test]
fn a_controller_that_dies_after_any_write_of_a_cancellation_is_followed_by_one_that_continues() {
    for write in 0..8 {
        let mut scenario = draining();
        scenario
            .fault_injector
            .add(Rule::write_or_event().nth(write + 1).kill(Moment::After));
        scenario.edit("p", to_v2);
        scenario.pass_secs(15);
        ends_with_one_upgrade(&mut scenario);
    }
}
