//! `spec.failure`: what follows for the others, retries, and the cordon of a failed node.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::scenario::{Scenario, Setup};
use crate::api::{DrainSpec, FailurePolicy, FailureSpec, PlanSpec, TimeWindowSpec};
use crate::rehearse::Kind;
use crate::rehearse::json::json;
use crate::rollout::PodStage;
use crate::rollout::record::Phase;
use crate::rollout::tests::build::plan_with;

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
fn fail_next(story: &mut Scenario) -> String {
    let node = story.live_nodes("p")[0].clone();
    story.fail(&node);
    node
}

#[test]
fn under_hold_a_failed_node_keeps_its_slot_and_status_and_one_event_say_what_to_do() {
    let mut story = Scenario::with(
        &["a", "b"],
        plan_with("p", |spec| set_policy(spec, FailurePolicy::Hold)),
    );
    let failed = fail_next(&mut story);
    assert_eq!(story.slots("p"), [failed.as_str()]);
    let ends =
        "; the node keeps its slot: repair it, then annotate it with refit.rs/retry=p, or edit the Plan";
    assert!(story.complete("p").2.ends_with(ends), "{}", story.complete("p").2);
    let entry = story.entry("p", &failed);
    assert!(entry.message.unwrap().ends_with(ends));
    let events = story.events_of("JobFailed");
    assert!(events.len() == 1 && events[0].ends_with(ends), "{events:?}");
}

#[test]
fn under_continue_the_others_go_on_and_the_failed_node_is_retried_when_a_slot_is_free() {
    let mut story = Scenario::with(
        &["a", "b", "c"],
        plan_with("p", |spec| set_policy(spec, FailurePolicy::Continue)),
    );
    let failed = fail_next(&mut story);
    let next = story.live_nodes("p");
    assert_eq!(next.len(), 1, "its slot is free");
    assert_eq!(story.status("p").applying.as_ref(), Some(&next));
    assert_eq!(story.phase("p", &failed).0, "Failed");
    assert!(story.is_cordoned(&failed));
    story.retry(&failed, "p");
    story.settle();
    assert_eq!(story.live_nodes("p"), next, "no more than concurrency");
    let text = story.entry("p", &failed).message.unwrap();
    assert!(
        text.ends_with("; it is tried again once it may start: the Plan's only slot is in use"),
        "{text}"
    );
    story.restart();
    story.succeed(&next[0]);
    assert_eq!(
        story.live_nodes("p"),
        [failed.as_str()],
        "before nodes that are new"
    );
    assert_eq!(story.live_job(&failed).attempt, 2);
    story.roll_out();
    story.assert_over();
    assert_eq!(story.events_of("JobFailed").len(), 1);
}

#[test]
fn a_plan_with_a_failed_node_is_never_complete_under_continue() {
    let mut story = Scenario::with(
        &["a", "b"],
        plan_with("p", |spec| set_policy(spec, FailurePolicy::Continue)),
    );
    let failed = fail_next(&mut story);
    let other = story.live_nodes("p")[0].clone();
    story.succeed(&other);
    assert!(story.is_done(&other, "p") && story.status("p").applying.is_none());
    let (status, reason, message) = story.complete("p");
    assert_eq!((&*status, &*reason), ("False", "JobFailed"));
    assert!(
        message.contains(&failed) && message.contains("the roll-out goes on without the node"),
        "{message}"
    );
    story.restart();
    story.pass_secs(3600);
    assert_eq!(story.complete("p").1, "JobFailed");
    assert_eq!(story.record(&failed, "p").phase, Phase::Failed);
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
        let mut story = Scenario::with(
            &nodes,
            plan_with("p", |spec| {
                policy(spec, FailurePolicy::Stop).budget = budget.clone();
            }),
        );
        for _ in 0..failures {
            fail_next(&mut story);
        }
        story.pass_secs(600);
        story.restart();
        assert!(story.live_nodes("p").is_empty(), "{budget:?}");
        let waits = story
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
        assert!(story.complete("p").2.contains(&text), "{}", story.complete("p").2);
        let events = story.events_of("JobFailed");
        assert_eq!(events.len(), failures);
        let last = events[failures - 1];
        assert!(
            last.ends_with(&format!("({failures} of {failures} by now)")),
            "{last}"
        );
        // A person retries what has failed, and the roll-out goes on.
        let failed: Vec<String> = story.slots("p");
        for node in &failed {
            story.retry(node, "p");
        }
        story.roll_out();
        story.assert_over();
    }
}

#[test]
fn a_higher_budget_lets_a_stopped_roll_out_go_on() {
    let mut story = Scenario::with(
        &["a", "b", "c"],
        plan_with("p", |spec| set_policy(spec, FailurePolicy::Stop)),
    );
    let failed = fail_next(&mut story);
    assert!(story.live_nodes("p").is_empty());
    story.edit("p", |spec| {
        policy(spec, FailurePolicy::Stop).budget = Some(IntOrString::Int(2));
    });
    story.settle();
    assert_eq!(story.live_nodes("p").len(), 1);
    assert_eq!(story.job_for(&failed).attempt, 1, "the failed node is left alone");
    story.roll_out();
    assert_eq!(story.complete("p").1, "JobFailed");
}

#[test]
fn nodes_in_progress_finish_when_the_roll_out_stops() {
    let mut story = Scenario::with(
        &["a", "b", "c"],
        plan_with("p", |spec| {
            spec.concurrency = Some(2);
            policy(spec, FailurePolicy::Stop);
        }),
    );
    let slots = story.slots("p");
    story.comes_to(&slots[1], PodStage::Upgrade);
    story.fail(&slots[0]);
    assert_eq!(story.live_nodes("p"), [slots[1].as_str()]);
    story.succeed(&slots[1]);
    assert!(story.is_done(&slots[1], "p") && story.live_nodes("p").is_empty());
}

#[test]
fn a_failed_node_is_retried_after_a_backoff_that_doubles_and_survives_restarts() {
    let mut story = Scenario::with(&["a", "b"], plan_with("p", |spec| retries(spec, 2, "5m")));
    let node = fail_next(&mut story);
    let entry = story.entry("p", &node);
    let at = story.record(&node, "p").at;
    let due = at + jiff::SignedDuration::from_mins(5);
    let text = format!("; it is tried again at {due:.0} (retry 1 of 2)");
    assert!(entry.message.unwrap().ends_with(&text));
    assert!(story.events_of("JobFailed")[0].ends_with(&text));
    assert_eq!(
        (entry.phase.as_str(), story.slots("p").len()),
        ("Failed", 1),
        "it keeps its slot"
    );
    story.pass_secs(200);
    story.restart();
    story.pass_secs(60);
    assert!(story.live_nodes("p").is_empty(), "not before its time");
    story.pass_secs(60);
    assert_eq!(story.live_job(&node).attempt, 2);
    story.restart();
    story.fail(&node);
    assert_eq!(
        (story.record(&node, "p").attempt, story.record(&node, "p").retries),
        (2, 1)
    );
    story.pass_secs(590);
    assert!(story.live_nodes("p").is_empty(), "ten minutes this time");
    story.pass_secs(30);
    assert_eq!(story.live_job(&node).attempt, 3);
    story.fail(&node);
    story.pass_secs(24 * 3600);
    assert_eq!(story.record(&node, "p").attempt, 3, "twice, and no more");
    let last = story.entry("p", &node).message.unwrap();
    assert!(last.contains("the node keeps its slot: repair it"), "{last}");
    assert_eq!(story.events_of("JobFailed").len(), 3, "one for each failure");
    story.retry(&node, "p");
    story.settle();
    assert_eq!(story.live_job(&node).attempt, 4);
    assert_eq!(
        story.record(&node, "p").retries,
        0,
        "a person starts the count again"
    );
    story.roll_out();
    story.assert_over();
}

#[test]
fn a_retry_succeeds_and_counts_no_failure_under_stop() {
    let mut story = Scenario::with(
        &["a", "b"],
        plan_with("p", |spec| {
            policy(spec, FailurePolicy::Stop);
            retries(spec, 1, "1m");
            spec.concurrency = Some(2);
        }),
    );
    story.fail("a");
    assert_eq!(story.slots("p"), ["a", "b"]);
    story.succeed("b");
    story.add_nodes(&["c"]);
    story.settle();
    assert!(
        story.live_nodes("p").contains(&"c".to_owned()),
        "a failure that is retried stops nobody"
    );
    story.pass_secs(60);
    story.roll_out();
    story.assert_over();
}

#[test]
fn a_retry_waits_for_the_window_and_for_the_node() {
    let mut story = Scenario::with(
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
    story.fail("a");
    story.pass_secs(2 * 3600);
    assert!(story.live_nodes("p").is_empty(), "the window is closed");
    story.edit("p", |spec| spec.window = None);
    story.ready("a", false);
    story.settle();
    assert_eq!(story.phase("p", "a").0, "Failed");
    story.ready("a", true);
    story.settle();
    assert_eq!(story.live_job("a").attempt, 2);
}

#[test]
fn what_a_person_must_look_at_is_not_retried() {
    let mut story = Scenario::new(&Setup {
        backoff_limit: 6,
        ..Setup::default()
    });
    story.add_nodes(&["a"]);
    story.apply(plan_with("p", |spec| {
        retries(spec, 3, "1m");
        spec.reboot = Some(crate::rollout::tests::build::reboot(
            crate::api::RebootWhen::Always,
        ));
    }));
    story.comes_to("a", PodStage::Upgrade);
    story.pass_secs(5);
    story.reboot("a");
    story.pass_secs(4 * 3600);
    let record = story.record("a", "p");
    assert_eq!(record.reason.as_deref(), Some("UpgradeInterrupted"));
    assert_eq!((record.attempt, story.live_nodes("p").len()), (1, 0));
}

#[test]
fn a_failed_node_is_uncordoned_where_the_plan_says_so_and_only_what_refit_had_cordoned() {
    for (before, drains) in [(false, false), (false, true), (true, false)] {
        let mut story = Scenario::empty();
        story.add_nodes(&["a"]);
        story.cordon("a", before);
        story.apply(plan_with("p", |spec| {
            policy(spec, FailurePolicy::Hold).uncordon = Some(true);
            retries(spec, 1, "1m");
            spec.drain = drains.then(DrainSpec::default);
        }));
        story.settle();
        story.fail("a");
        assert!(story.is_cordoned("a"), "a retry is to come");
        story.pass_secs(70);
        story.fail("a");
        story.settle();
        assert_eq!(story.is_cordoned("a"), before);
        assert!(story.node("a").ledger.is_none());
        assert_eq!(story.phase("p", "a").0, "Failed");
        story.pass_secs(3600);
        story.restart();
        assert_eq!(story.is_cordoned("a"), before);
        story.retry("a", "p");
        story.roll_out();
        assert!(story.is_done("a", "p"));
        assert_eq!(story.is_cordoned("a"), before);
    }
}

#[test]
fn a_failed_windows_node_is_uncordoned_too() {
    let mut story = Scenario::empty();
    story.add_node(
        "win",
        &json!({ "metadata": { "labels": { "kubernetes.io/os": "windows" } } }),
    );
    story.apply(plan_with("p", |spec| {
        policy(spec, FailurePolicy::Continue).uncordon = Some(true);
        spec.drain = Some(DrainSpec::default());
    }));
    story.comes_to("win", PodStage::Upgrade);
    story.kubectl_cordons("win");
    story.fail("win");
    story.settle();
    assert!(!story.is_cordoned("win"));
    assert_eq!(story.phase("p", "win").0, "Failed");
}

#[test]
fn a_failed_node_without_a_slot_counts_as_unavailable_while_it_is_cordoned() {
    for uncordon in [false, true] {
        let mut story = Scenario::with(
            &["a", "b", "c"],
            plan_with("p", |spec| {
                policy(spec, FailurePolicy::Continue).uncordon = Some(uncordon);
                spec.max_unavailable = Some(IntOrString::Int(1));
            }),
        );
        let failed = fail_next(&mut story);
        story.settle();
        assert_eq!(story.live_nodes("p").len(), usize::from(uncordon));
        if !uncordon {
            let waits = story
                .status("p")
                .active
                .iter()
                .flatten()
                .find(|node| node.phase == "Waiting")
                .cloned();
            assert_eq!(waits.unwrap().reason.as_deref(), Some("MaxUnavailable"));
            story.retry(&failed, "p");
            story.settle();
            assert_eq!(story.live_nodes("p"), [failed.as_str()], "it costs nothing");
        }
    }
}

#[test]
fn a_machine_that_is_lost_holds_up_nobody_under_continue() {
    let mut story = Scenario::with(
        &["a", "b"],
        plan_with("p", |spec| {
            policy(spec, FailurePolicy::Continue);
            spec.job_active_deadline_secs = Some(120);
        }),
    );
    let lost = story.live_nodes("p")[0].clone();
    story.comes_to(&lost, PodStage::Upgrade);
    story.power(&lost, false);
    story.pass_secs(140);
    assert_eq!(
        story.phase("p", &lost),
        ("Failed".to_owned(), "NodeLost".to_owned())
    );
    let other = if lost == "a" { "b" } else { "a" };
    let job = story.job_for(&lost).name.to_string();
    story.delete(Kind::Job, &job);
    story.settle();
    let applying = story.status("p").applying.clone();
    assert_eq!(applying, Some(vec![other.to_owned()]), "the slot is taken");
    let failed = ("Failed".to_owned(), "NodeLost".to_owned());
    assert_eq!(story.phase("p", &lost), failed, "its failure outlives its Job");
    story.succeed(other);
    assert!(story.is_done(other, "p"));
    story.power(&lost, true);
    story.settle();
    assert_eq!(story.phase("p", &lost), failed);
    story.retry(&lost, "p");
    story.roll_out();
    story.assert_over();
}

#[test]
fn a_machine_that_is_lost_waits_for_its_turn_when_its_job_goes_and_the_version_has_changed() {
    let mut story = Scenario::with(
        &["a", "b"],
        plan_with("p", |spec| {
            policy(spec, FailurePolicy::Continue);
            spec.job_active_deadline_secs = Some(120);
        }),
    );
    let lost = story.live_nodes("p")[0].clone();
    story.comes_to(&lost, PodStage::Upgrade);
    story.power(&lost, false);
    story.pass_secs(140);
    story.edit("p", |spec| {
        spec.suspend = Some(true);
        spec.version = Some("v2".to_owned());
    });
    let job = story.job_for(&lost).name.to_string();
    story.delete(Kind::Job, &job);
    story.settle();
    assert!(!story.slots("p").contains(&lost));
    story.power(&lost, true);
    story.edit("p", |spec| spec.suspend = None);
    story.roll_out();
    story.assert_over();
}

#[test]
fn a_new_version_starts_failed_nodes_and_counts_again() {
    let mut story = Scenario::with(
        &["a", "b"],
        plan_with("p", |spec| set_policy(spec, FailurePolicy::Stop)),
    );
    fail_next(&mut story);
    assert!(story.live_nodes("p").is_empty());
    story.edit("p", |spec| spec.version = Some("v2".to_owned()));
    story.settle();
    assert_eq!(story.live_nodes("p").len(), 1);
    story.roll_out();
    story.assert_over();
}

#[test]
fn without_the_field_messages_are_those_of_system_upgrade_controller() {
    let mut story = Scenario::with(&["a"], plan_with("p", |_| {}));
    story.fail("a");
    let record = story.record("a", "p").message.clone().unwrap();
    assert_eq!(story.entry("p", "a").message, Some(record.clone()));
    assert!(story.events_of("JobFailed")[0].ends_with(&record));
}
