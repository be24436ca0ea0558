//! `spec.failure`: what follows for the others, retries, and the cordon of a failed node.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::scenario::{Scenario, Setup};
use refit_api::{DrainSpec, FailurePolicy, FailureSpec, NodePhase, PlanSpec, TimeWindowSpec};
use refit_facts::PodStage;
use refit_facts::record::Phase;
use refit_fixtures::plan_with;
use refit_rehearse::Kind;
use refit_rehearse::json::json;

fn policy(spec: &mut PlanSpec, policy: FailurePolicy) -> &mut FailureSpec {
    spec.failure.insert(FailureSpec {
        policy: Some(policy),
        ..FailureSpec::default()
    })
}

fn set_policy(spec: &mut PlanSpec, which: FailurePolicy) {
    policy(spec, which);
}

fn retries(spec: &mut PlanSpec, retries: i64, backoff: &str) {
    let failure = spec.failure.get_or_insert_default();
    (failure.retries, failure.backoff) = (Some(retries), Some(backoff.to_owned()));
}

/// Runs the only node in progress to a failure, and returns it.
fn fail_next(scenario: &mut Scenario) -> String {
    let node = scenario.live_nodes("p")[0].clone();
    scenario.fail(&node);
    node
}

#[test]
fn under_hold_a_failed_node_keeps_its_slot_and_status_and_one_event_say_what_to_do() {
    let mut scenario = Scenario::with(
        &["a", "b"],
        plan_with("p", |spec| set_policy(spec, FailurePolicy::Hold)),
    );
    let failed = fail_next(&mut scenario);
    assert_eq!(scenario.slots("p"), [failed.as_str()]);
    let ends =
        "; the node keeps its slot: repair it, then annotate it with refit.rs/retry=p, or edit the Plan";
    assert!(
        scenario.complete("p")[2].ends_with(ends),
        "{}",
        scenario.complete("p")[2]
    );
    let entry = scenario.entry("p", &failed);
    assert!(entry.message.unwrap().ends_with(ends));
    let events = scenario.events_of("JobFailed");
    assert!(events.len() == 1 && events[0].ends_with(ends), "{events:?}");
}

#[test]
fn under_continue_the_others_go_on_and_the_failed_node_is_retried_when_a_slot_is_free() {
    let mut scenario = Scenario::with(
        &["a", "b", "c"],
        plan_with("p", |spec| set_policy(spec, FailurePolicy::Continue)),
    );
    let failed = fail_next(&mut scenario);
    let next = scenario.live_nodes("p");
    assert_eq!(next.len(), 1, "its slot is free");
    assert_eq!(scenario.status("p").applying.as_ref(), Some(&next));
    assert_eq!(scenario.phase("p", &failed)[0], "Failed");
    assert!(scenario.is_cordoned(&failed));
    scenario.retry(&failed, "p");
    scenario.settle();
    assert_eq!(scenario.live_nodes("p"), next, "no more than concurrency");
    let text = scenario.entry("p", &failed).message.unwrap();
    assert!(
        text.ends_with("; it is tried again once it may start: the Plan's only slot is in use"),
        "{text}"
    );
    scenario.restart();
    scenario.succeed(&next[0]);
    assert_eq!(
        scenario.live_nodes("p"),
        [failed.as_str()],
        "before nodes that are new"
    );
    assert_eq!(scenario.live_job(&failed).attempt, 2);
    scenario.finish();
    assert_eq!(scenario.events_of("JobFailed").len(), 1);
}

#[test]
fn a_plan_with_a_failed_node_is_never_complete_under_continue() {
    let mut scenario = Scenario::with(
        &["a", "b"],
        plan_with("p", |spec| set_policy(spec, FailurePolicy::Continue)),
    );
    let failed = fail_next(&mut scenario);
    let other = scenario.live_nodes("p")[0].clone();
    scenario.succeed(&other);
    assert!(scenario.is_done(&other, "p") && scenario.status("p").applying.is_none());
    let [status, reason, message] = scenario.complete("p");
    assert_eq!((&*status, &*reason), ("False", "JobFailed"));
    assert!(
        message.contains(&failed) && message.contains("the roll-out continues without the node"),
        "{message}"
    );
    scenario.restart();
    scenario.pass_secs(3600);
    assert_eq!(scenario.complete("p")[1], "JobFailed");
    assert_eq!(scenario.record(&failed, "p").phase, Phase::Failed);
}

#[test]
fn under_stop_no_further_node_starts_once_the_budget_is_used_up() {
    let nodes = ["a", "b", "c", "d", "e"];
    for (budget, failures) in [
        (None, 1),
        (Some(IntOrString::Int(0)), 1),
        (Some(IntOrString::Int(2)), 2),
        (Some(IntOrString::String("40%".to_owned())), 2),
    ] {
        let mut scenario = Scenario::with(
            &nodes,
            plan_with("p", |spec| {
                policy(spec, FailurePolicy::Stop).budget = budget.clone();
            }),
        );
        for _ in 0..failures {
            fail_next(&mut scenario);
        }
        scenario.pass_secs(600);
        scenario.restart();
        assert!(scenario.live_nodes("p").is_empty(), "{budget:?}");
        let waits = scenario
            .status("p")
            .active
            .iter()
            .flatten()
            .find(|node| node.phase == "Waiting")
            .cloned();
        let waits = waits.unwrap();
        assert_eq!(waits.reason.as_deref(), Some("FailureBudget"));
        let text =
            format!("{failures} of the selected nodes have failed, and spec.failure.budget is {failures}");
        assert!(waits.message.unwrap().starts_with(&text));
        assert!(
            scenario.complete("p")[2].contains(&text),
            "{}",
            scenario.complete("p")[2]
        );
        let events = scenario.events_of("JobFailed");
        assert_eq!(events.len(), failures);
        let last = events[failures - 1];
        assert!(
            last.ends_with(&format!("({failures} of {failures} by now)")),
            "{last}"
        );
        // A person retries what has failed, and the roll-out goes on.
        let failed: Vec<String> = scenario.slots("p");
        for node in &failed {
            scenario.retry(node, "p");
        }
        scenario.finish();
    }
}

#[test]
fn a_higher_budget_lets_a_stopped_roll_out_go_on() {
    let mut scenario = Scenario::with(
        &["a", "b", "c"],
        plan_with("p", |spec| set_policy(spec, FailurePolicy::Stop)),
    );
    let failed = fail_next(&mut scenario);
    assert!(scenario.live_nodes("p").is_empty());
    scenario.edit_and_settle("p", |spec| {
        policy(spec, FailurePolicy::Stop).budget = Some(IntOrString::Int(2));
    });
    assert_eq!(scenario.live_nodes("p").len(), 1);
    assert_eq!(
        scenario.job_for(&failed).attempt,
        1,
        "the failed node is left alone"
    );
    scenario.roll_out();
    assert_eq!(scenario.complete("p")[1], "JobFailed");
}

#[test]
fn nodes_in_progress_finish_when_the_roll_out_stops() {
    let mut scenario = Scenario::with(
        &["a", "b", "c"],
        plan_with("p", |spec| {
            spec.concurrency = Some(2);
            policy(spec, FailurePolicy::Stop);
        }),
    );
    let slots = scenario.slots("p");
    scenario.comes_to(&slots[1], PodStage::Upgrade);
    scenario.fail(&slots[0]);
    assert_eq!(scenario.live_nodes("p"), [slots[1].as_str()]);
    scenario.succeed(&slots[1]);
    assert!(scenario.is_done(&slots[1], "p") && scenario.live_nodes("p").is_empty());
}

#[test]
fn a_failed_node_is_retried_after_a_backoff_that_doubles_and_survives_restarts() {
    let mut scenario = Scenario::with(&["a", "b"], plan_with("p", |spec| retries(spec, 2, "5m")));
    let node = fail_next(&mut scenario);
    let entry = scenario.entry("p", &node);
    let at = scenario.record(&node, "p").at;
    let due = at + jiff::SignedDuration::from_mins(5);
    let text = format!("; it is tried again at {due:.0} (retry 1 of 2)");
    assert!(entry.message.unwrap().ends_with(&text));
    assert!(scenario.events_of("JobFailed")[0].ends_with(&text));
    assert_eq!(
        (entry.phase.as_str(), scenario.slots("p").len()),
        ("Failed", 1),
        "it keeps its slot"
    );
    scenario.pass_secs(200);
    scenario.restart();
    scenario.pass_secs(60);
    assert!(scenario.live_nodes("p").is_empty(), "not before its time");
    scenario.pass_secs(60);
    assert_eq!(scenario.live_job(&node).attempt, 2);
    scenario.restart();
    scenario.fail(&node);
    assert_eq!(scenario.record(&node, "p").attempt, 2);
    assert_eq!(scenario.record(&node, "p").retries, 1);
    scenario.pass_secs(590);
    assert!(scenario.live_nodes("p").is_empty(), "ten minutes this time");
    scenario.pass_secs(30);
    assert_eq!(scenario.live_job(&node).attempt, 3);
    scenario.fail(&node);
    scenario.pass_secs(24 * 3600);
    assert_eq!(scenario.record(&node, "p").attempt, 3, "twice, and no more");
    let last = scenario.entry("p", &node).message.unwrap();
    assert!(last.contains("the node keeps its slot: repair it"), "{last}");
    assert_eq!(scenario.events_of("JobFailed").len(), 3, "one for each failure");
    scenario.retry(&node, "p");
    scenario.settle();
    assert_eq!(scenario.live_job(&node).attempt, 4);
    assert_eq!(
        scenario.record(&node, "p").retries,
        0,
        "a person starts the count again"
    );
    scenario.finish();
}

#[test]
fn a_retry_succeeds_and_counts_no_failure_under_stop() {
    let mut scenario = Scenario::with(
        &["a", "b"],
        plan_with("p", |spec| {
            policy(spec, FailurePolicy::Stop);
            retries(spec, 1, "1m");
            spec.concurrency = Some(2);
        }),
    );
    scenario.fail("a");
    assert_eq!(scenario.slots("p"), ["a", "b"]);
    scenario.succeed("b");
    scenario.add_nodes(&["c"]);
    scenario.settle();
    assert!(
        scenario.live_nodes("p").contains(&"c".to_owned()),
        "a failure that is retried stops nobody"
    );
    scenario.pass_secs(60);
    scenario.finish();
}

#[test]
fn a_retry_waits_for_the_window_and_for_the_node() {
    let mut scenario = Scenario::with(
        &["a"],
        plan_with("p", |spec| {
            retries(spec, 1, "1h");
            spec.window = Some(TimeWindowSpec {
                days: Some(vec!["thu".to_owned()]),
                start_time: Some("09:00".to_owned()),
                end_time: Some("09:30".to_owned()),
                time_zone: None,
            });
        }),
    );
    scenario.fail("a");
    scenario.pass_secs(2 * 3600);
    assert!(scenario.live_nodes("p").is_empty(), "the window is closed");
    scenario.edit("p", |spec| spec.window = None);
    scenario.ready("a", false);
    scenario.settle();
    assert_eq!(scenario.phase("p", "a")[0], "Failed");
    scenario.ready("a", true);
    scenario.settle();
    assert_eq!(scenario.live_job("a").attempt, 2);
}

#[test]
fn a_retry_without_a_slot_waits_until_its_plan_tolerates_the_node() {
    let mut scenario = Scenario::with(
        &["a"],
        plan_with("p", |spec| set_policy(spec, FailurePolicy::Continue)),
    );
    let failed = fail_next(&mut scenario);
    let taint = |scenario: &Scenario, taints| {
        let change = json!({ "spec": { "taints": taints } });
        scenario.cluster.patch(Kind::Node, "", "a", change).unwrap();
    };
    taint(&scenario, json!([{ "key": "gpu", "effect": "NoSchedule" }]));
    scenario.retry(&failed, "p");
    scenario.settle();
    let entry = scenario.entry("p", "a");
    assert_eq!(entry.phase, NodePhase::Failed);
    let text = entry.message.unwrap();
    let why = "it is tried again once it may start: the node has the taint gpu:NoSchedule, which the Plan does not tolerate";
    assert!(text.contains(why), "{text}");
    assert!(scenario.live_nodes("p").is_empty());
    taint(&scenario, json!([]));
    scenario.settle();
    assert_eq!(scenario.live_job("a").attempt, 2);
    scenario.finish();
}

#[test]
fn a_failure_that_needs_an_operator_is_not_retried() {
    let mut scenario = Scenario::new(&Setup {
        backoff_limit: 6,
        ..Setup::default()
    });
    scenario.add_nodes(&["a"]);
    scenario.apply(plan_with("p", |spec| {
        retries(spec, 3, "1m");
        spec.reboot = Some(refit_fixtures::reboot(refit_api::RebootWhen::Always));
    }));
    scenario.comes_to("a", PodStage::Upgrade);
    scenario.pass_secs(5);
    scenario.reboot("a");
    scenario.pass_secs(4 * 3600);
    let record = scenario.record("a", "p");
    assert_eq!(record.reason.as_deref(), Some("UpgradeInterrupted"));
    assert_eq!((record.attempt, scenario.live_nodes("p").len()), (1, 0));
}

#[test]
fn a_failed_node_is_uncordoned_where_the_plan_says_so_and_only_what_refit_had_cordoned() {
    for (before, drains) in [(false, false), (false, true), (true, false)] {
        let mut scenario = Scenario::of_nodes(&["a"]);
        scenario.cordon("a", before);
        scenario.apply_and_settle(plan_with("p", |spec| {
            policy(spec, FailurePolicy::Hold).uncordon = Some(true);
            retries(spec, 1, "1m");
            spec.drain = drains.then(DrainSpec::default);
        }));
        scenario.fail("a");
        assert!(scenario.is_cordoned("a"), "a retry is to come");
        scenario.pass_secs(70);
        scenario.fail("a");
        scenario.settle();
        assert_eq!(scenario.is_cordoned("a"), before);
        assert!(scenario.node("a").ledger.is_none());
        assert_eq!(scenario.phase("p", "a")[0], "Failed");
        scenario.pass_secs(3600);
        scenario.restart();
        assert_eq!(scenario.is_cordoned("a"), before);
        scenario.retry("a", "p");
        scenario.roll_out();
        assert!(scenario.is_done("a", "p"));
        assert_eq!(scenario.is_cordoned("a"), before);
    }
}

#[test]
fn a_failed_windows_node_is_uncordoned_too() {
    let mut scenario = Scenario::empty();
    scenario.add_node(
        "win",
        &json!({ "metadata": { "labels": { "kubernetes.io/os": "windows" } } }),
    );
    scenario.apply(plan_with("p", |spec| {
        policy(spec, FailurePolicy::Continue).uncordon = Some(true);
        spec.drain = Some(DrainSpec::default());
    }));
    scenario.comes_to("win", PodStage::Upgrade);
    scenario.kubectl_cordons("win");
    scenario.fail("win");
    scenario.settle();
    assert!(!scenario.is_cordoned("win"));
    assert_eq!(scenario.phase("p", "win")[0], "Failed");
}

#[test]
fn a_failed_node_without_a_slot_counts_as_unavailable_while_it_is_cordoned() {
    for uncordon in [false, true] {
        let mut scenario = Scenario::with(
            &["a", "b", "c"],
            plan_with("p", |spec| {
                policy(spec, FailurePolicy::Continue).uncordon = Some(uncordon);
                spec.max_unavailable = Some(IntOrString::Int(1));
            }),
        );
        let failed = fail_next(&mut scenario);
        scenario.settle();
        assert_eq!(scenario.live_nodes("p").len(), usize::from(uncordon));
        if !uncordon {
            let waits = scenario
                .status("p")
                .active
                .iter()
                .flatten()
                .find(|node| node.phase == "Waiting")
                .cloned();
            assert_eq!(waits.unwrap().reason.as_deref(), Some("MaxUnavailable"));
            scenario.retry(&failed, "p");
            scenario.settle();
            assert_eq!(scenario.live_nodes("p"), [failed.as_str()], "it costs nothing");
        }
    }
}

/// One of two nodes loses its power during its upgrade, until the Job's deadline is over.
fn with_a_lost_machine() -> (Scenario, String) {
    let mut scenario = Scenario::with(
        &["a", "b"],
        plan_with("p", |spec| {
            policy(spec, FailurePolicy::Continue);
            spec.job_active_deadline_secs = Some(120);
        }),
    );
    let lost = scenario.live_nodes("p")[0].clone();
    scenario.comes_to(&lost, PodStage::Upgrade);
    scenario.power(&lost, false);
    scenario.pass_secs(140);
    (scenario, lost)
}

#[test]
fn a_machine_that_is_lost_holds_up_nobody_under_continue() {
    let (mut scenario, lost) = with_a_lost_machine();
    assert_eq!(scenario.phase("p", &lost), ["Failed", "NodeLost"]);
    let other = if lost == "a" { "b" } else { "a" };
    let job = scenario.job_for(&lost).name.to_string();
    scenario.delete(Kind::Job, &job);
    scenario.settle();
    let applying = scenario.status("p").applying.clone();
    assert_eq!(applying, Some(vec![other.to_owned()]), "the slot is taken");
    let failed = ["Failed", "NodeLost"];
    assert_eq!(scenario.phase("p", &lost), failed, "its failure outlives its Job");
    scenario.succeed(other);
    assert!(scenario.is_done(other, "p"));
    scenario.power(&lost, true);
    scenario.settle();
    assert_eq!(scenario.phase("p", &lost), failed);
    scenario.retry(&lost, "p");
    scenario.finish();
}

#[test]
fn a_machine_that_is_lost_waits_for_its_turn_when_its_job_goes_and_the_version_has_changed() {
    let (mut scenario, lost) = with_a_lost_machine();
    scenario.edit("p", |spec| {
        spec.suspend = Some(true);
        spec.version = Some("v2".to_owned());
    });
    let job = scenario.job_for(&lost).name.to_string();
    scenario.delete(Kind::Job, &job);
    scenario.settle();
    assert!(!scenario.slots("p").contains(&lost));
    scenario.power(&lost, true);
    scenario.edit("p", |spec| spec.suspend = None);
    scenario.finish();
}

#[test]
fn a_new_version_starts_failed_nodes_and_counts_again() {
    let mut scenario = Scenario::with(
        &["a", "b"],
        plan_with("p", |spec| set_policy(spec, FailurePolicy::Stop)),
    );
    fail_next(&mut scenario);
    assert!(scenario.live_nodes("p").is_empty());
    scenario.edit_and_settle("p", |spec| spec.version = Some("v2".to_owned()));
    assert_eq!(scenario.live_nodes("p").len(), 1);
    scenario.finish();
}

#[test]
fn a_new_version_gives_failed_nodes_without_a_slot_no_more_slots_than_there_are() {
    let mut scenario = Scenario::with(
        &["a", "b", "c"],
        plan_with("p", |spec| set_policy(spec, FailurePolicy::Continue)),
    );
    for _ in 0..3 {
        fail_next(&mut scenario);
    }
    assert!(scenario.live_nodes("p").is_empty());
    scenario.edit_and_settle("p", |spec| spec.version = Some("v2".to_owned()));
    assert_eq!(scenario.live_nodes("p").len(), 1);
    scenario.finish();
}

#[test]
fn without_the_field_messages_are_those_of_system_upgrade_controller() {
    let mut scenario = Scenario::with(&["a"], plan_with("p", |_| {}));
    scenario.fail("a");
    let record = scenario.record("a", "p").message.clone().unwrap();
    assert_eq!(scenario.entry("p", "a").message, Some(record.clone()));
    assert!(scenario.events_of("JobFailed")[0].ends_with(&record));
}

/// The label says that the node is done at the version to which its Plan returns, and the node has failed at another since.
#[test]
fn a_plan_that_returns_to_an_earlier_version_upgrades_a_node_that_has_failed_since() {
    let to = |version: &'static str| move |spec: &mut PlanSpec| spec.version = Some(version.to_owned());
    for fails_first in [false, true] {
        let mut scenario = Scenario::with(&["a"], plan_with("p", |spec| spec.cordon = Some(true)));
        scenario.succeed("a");
        scenario.settle();
        let v1 = scenario.done_label("a", "p").unwrap();
        scenario.edit_and_settle("p", to("v2"));
        if fails_first {
            scenario.fail("a");
            assert_eq!(scenario.done_label("a", "p"), None);
            scenario.edit_and_settle("p", to("v1"));
        } else {
            scenario.comes_to("a", PodStage::Upgrade);
            scenario.edit_and_settle("p", to("v1"));
            scenario.fail("a");
        }
        assert_eq!(scenario.live_nodes("p"), ["a"], "{fails_first}");
        assert!(!scenario.is_done("a", "p") && scenario.is_cordoned("a"));
        scenario.finish();
        assert_eq!(scenario.done_label("a", "p"), Some(v1));
        assert_eq!(
            scenario.invariants.upgrades, 3,
            "two versions, and the first one again"
        );
    }
}

#[test]
fn a_mistake_in_the_selector_forgets_no_failure() {
    let mistake = |spec: &mut PlanSpec| {
        let expressions = spec
            .node_selector
            .get_or_insert_default()
            .match_expressions
            .get_or_insert_default();
        expressions.push(LabelSelectorRequirement {
            key: "x".to_owned(),
            operator: "in".to_owned(),
            values: Some(vec!["y".to_owned()]),
        });
    };
    for fails_first in [false, true] {
        let mut scenario = Scenario::with(&["a"], plan_with("p", |spec| spec.cordon = Some(true)));
        let selector = scenario.invariants.plans["p"].object.spec.node_selector.clone();
        scenario.comes_to("a", PodStage::Upgrade);
        if fails_first {
            scenario.fail("a");
            scenario.edit_and_settle("p", mistake);
        } else {
            scenario.edit_and_settle("p", mistake);
            scenario.fail("a");
        }
        scenario.pass_secs(60);
        assert!(scenario.is_cordoned("a"));
        assert_eq!(scenario.record("a", "p").phase, Phase::Failed);
        scenario.edit_and_settle("p", |spec| spec.node_selector = selector);
        assert_eq!(scenario.phase("p", "a")[0], "Failed");
        scenario.retry("a", "p");
        scenario.finish();
    }
}
