//! `spec.repeat`: done nodes run the Plan again at the same version.

use std::time::Duration;

use super::scenario::{Scenario, Setup};
use super::sweep::{EFFECTS, sweep};
use crate::fault::{Effect, Moment, Rule};
use refit_api::approval::WaveApproval;
use refit_api::{
    DependencySpec, FailurePolicy, FailureSpec, Plan, PlanSpec, RepeatSpec, RepeatStatus, WaveSpec,
    WindowSpec, names,
};
use refit_fixtures::{plan, plan_with};
use refit_rehearse::Kind;
use refit_rehearse::json::json;
use refit_view::PlanOverview;
use refit_view::table::{self, Look};

const HOUR: u64 = 3600;

/// Scenarios begin on a Thursday at nine.
fn cron(text: &str) -> RepeatSpec {
    RepeatSpec {
        cron: Some(text.to_owned()),
        ..RepeatSpec::default()
    }
}

fn every(text: &str) -> RepeatSpec {
    RepeatSpec {
        every: Some(text.to_owned()),
        ..RepeatSpec::default()
    }
}

fn repeating(repeat: RepeatSpec, change: impl FnOnce(&mut PlanSpec)) -> Plan {
    plan_with("p", |spec| {
        spec.repeat = Some(repeat);
        change(spec);
    })
}

#[track_caller]
fn repeat(scenario: &Scenario) -> RepeatStatus {
    scenario.status("p").repeat.clone().unwrap()
}

fn since(scenario: &Scenario) -> Option<String> {
    repeat(scenario).since
}

/// Version and number of nodes of each roll-out, the oldest first, and when it was due.
fn history(scenario: &Scenario) -> Vec<(String, i64, Option<String>)> {
    let history = scenario.status("p").history.iter().flatten().rev();
    let line = |it: &refit_api::RollOut| (it.version.clone(), it.nodes, it.repeat.clone());
    history.map(line).collect()
}

#[test]
fn done_nodes_run_again_when_a_repetition_is_due() {
    let mut scenario = Scenario::with(&["a", "b"], repeating(cron("0 12 * * *"), |_| {}));
    let hash = scenario.hash("p");
    let same_without = Scenario::with(&["a", "b"], plan("p")).hash("p");
    assert_eq!(hash, same_without, "of the first roll-out");
    scenario.finish();
    assert_eq!(scenario.invariants.upgrades, 2);
    assert_eq!(since(&scenario), None);
    let first = scenario.job_for("a").name;
    assert_eq!(repeat(&scenario).next.as_deref(), Some("2026-01-01T12:00:00Z"));
    assert_eq!(repeat(&scenario).schedule.as_deref(), Some("0 12 * * * UTC"));
    let snapshot = scenario.snapshot();
    let view = PlanOverview::new(&snapshot, &snapshot.plans[0]);
    for (times, text) in [
        (true, "repeats at 2026-01-01T12:00:00Z"),
        (false, "repeats in 2h"),
    ] {
        let look = Look {
            times,
            ..Look::default()
        };
        let table = table::status(std::slice::from_ref(&view), Some(&snapshot), &[], &look);
        assert!(table.contains(text), "{table}");
        let look = Look {
            detailed: true,
            ..look
        };
        let details = table::status(std::slice::from_ref(&view), Some(&snapshot), &[], &look);
        let text = text.replace("repeats ", "  repeats: next ");
        assert!(details.contains(&text), "{details}");
    }

    scenario.pass_secs(4 * HOUR);
    assert_eq!(since(&scenario).as_deref(), Some("2026-01-01T12:00:00Z"));
    assert_eq!(repeat(&scenario).next.as_deref(), Some("2026-01-02T12:00:00Z"));
    assert_eq!(scenario.complete("p")[0], "False");
    assert_eq!(scenario.slots("p").len(), 1, "within the limits of the Plan");
    assert_ne!(scenario.hash("p"), hash);
    assert_eq!(scenario.status("p").latest_version.as_deref(), Some("v1"));
    assert_eq!(
        scenario.events_of("Repeats"),
        [
            "The Plan runs again at version v1, as was due at 2026-01-01T12:00:00Z; next at 2026-01-02T12:00:00Z"
        ]
    );
    scenario.finish();
    assert_eq!(scenario.invariants.upgrades, 4);
    assert_ne!(scenario.job_for("a").name, first);
    let due = Some("2026-01-01T12:00:00Z".to_owned());
    assert_eq!(
        history(&scenario),
        [("v1".to_owned(), 2, None), ("v1".to_owned(), 2, due.clone())]
    );

    // A new version is no repetition, and leaves the next one as it was.
    scenario.edit_and_settle("p", |spec| spec.version = Some("v2".to_owned()));
    scenario.finish();
    assert_eq!(scenario.invariants.upgrades, 6);
    assert_eq!(since(&scenario), due);
    assert_eq!(history(&scenario)[2], ("v2".to_owned(), 2, None));
    assert_eq!(repeat(&scenario).next.as_deref(), Some("2026-01-02T12:00:00Z"));
}

#[test]
fn every_counts_from_the_last_repetition() {
    let mut scenario = Scenario::with(&["a"], repeating(every("24h"), |_| {}));
    scenario.finish();
    let first = repeat(&scenario).next;
    for days in 1..4 {
        assert_eq!(scenario.invariants.upgrades, days);
        scenario.pass_secs(24 * HOUR);
        scenario.finish();
    }
    assert_eq!(history(&scenario)[1].2, first);
    let [due, next] = [since(&scenario), repeat(&scenario).next].map(|text| text.unwrap()[10..].to_owned());
    assert_eq!(due, next, "the same time of the day");
    assert_eq!(due, first.unwrap()[10..]);
}

#[test]
fn repeat_that_is_added_edited_or_removed_runs_no_node() {
    let mut scenario = Scenario::with(&["a"], plan("p"));
    scenario.finish();
    scenario.pass_secs(48 * HOUR);
    scenario.edit_and_settle("p", |spec| spec.repeat = Some(cron("0 12 * * *")));
    assert_eq!(repeat(&scenario).next.as_deref(), Some("2026-01-03T12:00:00Z"));
    scenario.rest();
    assert_eq!(scenario.invariants.upgrades, 1);
    scenario.pass_secs(4 * HOUR);
    scenario.finish();
    assert_eq!(scenario.invariants.upgrades, 2);

    // By the old schedule the next time would be tomorrow, and by the new one, from the last time, one has passed.
    scenario.pass_secs(15 * HOUR);
    scenario.edit_and_settle("p", |spec| spec.repeat = Some(every("10h")));
    assert!(repeat(&scenario).next.unwrap().starts_with("2026-01-04T08:"));
    scenario.edit_and_settle("p", |spec| spec.repeat = Some(cron("0 12 * * sat")));
    assert_eq!(repeat(&scenario).next.as_deref(), Some("2026-01-10T12:00:00Z"));
    scenario.rest();

    let hash = scenario.hash("p");
    scenario.edit_and_settle("p", |spec| spec.repeat = None);
    let without = RepeatStatus {
        since: Some("2026-01-03T12:00:00Z".to_owned()),
        ..RepeatStatus::default()
    };
    assert_eq!(repeat(&scenario), without, "the label of the nodes has its hash");
    scenario.pass_secs(14 * 24 * HOUR);
    scenario.restart();
    assert_eq!(scenario.hash("p"), hash);
    scenario.assert_over();
    assert_eq!(scenario.invariants.upgrades, 2);

    // Again: from now on.
    scenario.edit_and_settle("p", |spec| spec.repeat = Some(cron("0 12 * * *")));
    scenario.rest();
    assert_eq!(scenario.invariants.upgrades, 2);
    scenario.pass_secs(24 * HOUR);
    scenario.finish();
    assert_eq!(scenario.invariants.upgrades, 3);
}

#[test]
fn repetitions_that_no_controller_or_a_suspended_plan_missed_are_one() {
    let mut scenario = Scenario::with(&["a"], repeating(cron("0 12 * * *"), |_| {}));
    scenario.finish();
    scenario.stop();
    scenario.pass_secs(3 * 24 * HOUR);
    scenario.start();
    scenario.settle();
    assert_eq!(since(&scenario).as_deref(), Some("2026-01-01T12:00:00Z"));
    assert_eq!(repeat(&scenario).next.as_deref(), Some("2026-01-04T12:00:00Z"));
    scenario.finish();
    assert_eq!(scenario.invariants.upgrades, 2);

    scenario.edit_and_settle("p", |spec| spec.suspend = Some(true));
    scenario.pass_secs(4 * 24 * HOUR);
    assert_eq!(repeat(&scenario).next.as_deref(), Some("2026-01-04T12:00:00Z"));
    assert_eq!(scenario.complete("p")[0], "True", "nothing has begun");
    scenario.edit_and_settle("p", |spec| spec.suspend = None);
    assert_eq!(since(&scenario).as_deref(), Some("2026-01-04T12:00:00Z"));
    scenario.finish();
    assert_eq!(scenario.invariants.upgrades, 3);

    // As `refit abort` does.
    scenario.annotate(Kind::Plan, "p", names::ANNOTATION_ABORT, Some(""));
    scenario.pass_secs(2 * 24 * HOUR);
    assert_eq!(since(&scenario).as_deref(), Some("2026-01-04T12:00:00Z"));
}

#[test]
fn a_repetition_waits_for_the_roll_out_before_it() {
    let mut scenario = Scenario::with(&["a", "b"], repeating(cron("0 * * * *"), |_| {}));
    let first = scenario.slots("p");
    let hash = scenario.hash("p");
    scenario.pass_secs(3 * HOUR);
    scenario.succeed(&first[0]);
    scenario.pass_secs(HOUR);
    assert_eq!(scenario.hash("p"), hash, "b is yet to be done");
    assert_eq!(repeat(&scenario).next.as_deref(), Some("2026-01-01T10:00:00Z"));
    let second = scenario.slots("p");
    assert_ne!(first, second);
    scenario.succeed(&second[0]);
    assert_eq!(since(&scenario).as_deref(), Some("2026-01-01T10:00:00Z"));
    assert_eq!(scenario.slots("p").len(), 1, "one for four that were due");
    scenario.finish();
    assert_eq!(scenario.invariants.upgrades, 4);
}

#[test]
fn a_repetition_waits_for_its_window() {
    let mut scenario = Scenario::with(
        &["a"],
        repeating(cron("0 0 * * *"), |spec| {
            spec.windows = Some(vec![WindowSpec {
                cron: Some("0 9 * * *".to_owned()),
                duration: Some("4h".to_owned()),
                ..WindowSpec::default()
            }]);
            spec.job_active_deadline_secs = Some(600);
        }),
    );
    scenario.finish();
    scenario.pass_secs(16 * HOUR);
    assert_eq!(since(&scenario).as_deref(), Some("2026-01-02T00:00:00Z"));
    assert!(scenario.live_nodes("p").is_empty());
    assert_eq!(
        scenario.status("p").next_window.as_deref(),
        Some("2026-01-02T09:00:00Z")
    );
    scenario.pass_secs(8 * HOUR);
    assert_eq!(scenario.live_nodes("p"), ["a"]);
    scenario.finish();
}

#[test]
fn each_repetition_has_its_waves_and_asks_for_their_approval() {
    let mut scenario = Scenario::with(
        &["a", "b"],
        repeating(cron("0 12 * * *"), |spec| {
            let wave = json!({ "name": "canary", "nodes": 1, "approval": true });
            let wave: WaveSpec = serde_json::from_value(serde_json::to_value(&wave).unwrap()).unwrap();
            spec.waves = Some(vec![wave]);
        }),
    );
    let approve = |scenario: &mut Scenario| {
        let approval = WaveApproval::new("canary", &scenario.hash("p")).to_string();
        scenario.annotate(Kind::Plan, "p", names::ANNOTATION_APPROVE, Some(&approval));
        scenario.settle();
    };
    for round in 0..2 {
        let canary = scenario.slots("p");
        assert_eq!(canary.len(), 1);
        scenario.succeed(&canary[0]);
        assert_eq!(scenario.complete("p")[1], "WaveNotApproved");
        // The roll-out is not over, so that the next repetition does not begin.
        scenario.pass_secs(24 * HOUR);
        assert!(scenario.slots("p").is_empty());
        approve(&mut scenario);
        let second = scenario.slots("p");
        assert_eq!(second.len(), 1);
        assert_eq!(scenario.invariants.upgrades, 2 * round + 2);
        scenario.succeed(&second[0]);
        let due = format!("2026-01-0{}T12:00:00Z", round + 1);
        assert_eq!(since(&scenario), Some(due));
    }
}

#[test]
fn a_failed_node_runs_at_the_next_repetition_unless_it_keeps_its_slot() {
    for policy in [FailurePolicy::Hold, FailurePolicy::Continue] {
        let mut scenario = Scenario::with(
            &["a", "b"],
            repeating(cron("0 12 * * *"), |spec| {
                spec.concurrency = Some(2);
                spec.failure = Some(FailureSpec {
                    policy: Some(policy),
                    ..FailureSpec::default()
                });
            }),
        );
        scenario.fail("a");
        scenario.succeed("b");
        assert_eq!(scenario.phase("p", "a")[0], "Failed");
        scenario.pass_secs(4 * HOUR);
        if policy == FailurePolicy::Hold {
            assert_eq!(since(&scenario), None);
            // As before a new version, a person has to look at it.
            scenario.retry("a", "p");
            scenario.settle();
            scenario.succeed("a");
        }
        assert_eq!(since(&scenario).as_deref(), Some("2026-01-01T12:00:00Z"));
        assert_eq!(scenario.slots("p"), ["a", "b"]);
        scenario.finish();
    }
}

#[test]
fn a_node_that_is_not_ready_does_not_hold_the_next_repetition() {
    let mut scenario = Scenario::with(
        &["a", "b"],
        repeating(cron("0 12 * * *"), |spec| spec.concurrency = Some(2)),
    );
    scenario.succeed("a");
    scenario.succeed("b");
    scenario.power("b", false);
    scenario.pass_secs(4 * HOUR);
    scenario.succeed("a");
    scenario.pass_secs(24 * HOUR);
    assert_eq!(since(&scenario).as_deref(), Some("2026-01-02T12:00:00Z"));
    scenario.succeed("a");
    assert_eq!(scenario.invariants.upgrades, 4);
    scenario.power("b", true);
    scenario.pass_secs(300);
    assert_eq!(scenario.slots("p"), ["b"]);
    scenario.finish();
    assert_eq!(scenario.invariants.upgrades, 5, "b missed two, and runs once");
}

#[test]
fn a_plan_that_repeats_with_one_that_it_depends_on_comes_after_it() {
    let mut scenario = Scenario::of_nodes(&["a"]);
    // In the order of their names, `p` is decided last.
    let dependent = |spec: &mut PlanSpec| {
        spec.repeat = Some(cron("0 12 * * *"));
        spec.depends_on = Some(vec![DependencySpec { name: "p".to_owned() }]);
    };
    scenario.apply(plan_with("agents", dependent));
    scenario.apply_and_settle(repeating(cron("0 12 * * *"), |_| {}));
    scenario.finish();
    for faults in [false, true] {
        if faults {
            // The status that begins the repetition is late.
            let late = Effect::Delay(Moment::Before, Duration::from_secs(5));
            scenario.fault_always(Rule::on("patch", "plans/status").named("p").effect(late));
        }
        let now = scenario.now();
        let due = format!("{}", now.strftime("%FT12:00:00Z"));
        scenario.until("the repetition begins", |state| {
            state
                .all(Kind::Plan)
                .any(|plan| plan["metadata"]["name"] == "agents" && plan["status"]["repeat"]["since"] == *due)
        });
        scenario.pass_secs(2);
        assert!(scenario.live_nodes("agents").is_empty());
        scenario.pass_secs(30);
        assert_eq!(scenario.live_nodes("p"), ["a"]);
        assert_eq!(scenario.phase("agents", "a")[1], "DependencyNotComplete");
        scenario.mend();
        scenario.finish();
        scenario.pass_secs(12 * HOUR);
    }
    assert_eq!(scenario.invariants.upgrades, 6);
}

#[test]
fn a_repetition_begins_once_whatever_happens_to_its_writes() {
    let begin = || {
        let mut scenario = Scenario::without_controller(&Setup {
            held: false,
            ..Setup::default()
        });
        scenario.add_nodes(&["a", "b"]);
        scenario.apply(repeating(cron("0 12 * * *"), |_| {}));
        scenario.start();
        scenario.rest();
        assert_eq!(scenario.invariants.upgrades, 2);
        scenario
    };
    let run = |scenario: &mut Scenario, _: &str| {
        scenario.pass_secs(4 * HOUR);
        scenario.rest();
    };
    sweep(8..60, &EFFECTS, begin, run, |scenario, at| {
        scenario.assert_over();
        assert_eq!(scenario.invariants.upgrades, 4, "{at}");
        assert_eq!(scenario.events_of("Repeats").len(), 1, "{at}");
        let history = history(scenario).into_iter();
        let nodes: Vec<i64> = history.map(|(_, nodes, _)| nodes).collect();
        assert_eq!(nodes, [2, 2], "{at}");
    });
}
