//! What people do with a roll-out that runs: abort it, skip a node, retry one, run the Plan again. And what status keeps.

use super::scenario::{Scenario, Setup};
use refit_api::{DrainSpec, RollOut, TimeWindowSpec, names};
use refit_facts::PodStage;
use refit_fixtures::{plan, plan_with};
use refit_rehearse::Kind;
use refit_rehearse::json::json;

const BY: &str = "by alice at 2026-01-01T09:00:00Z";

fn roll_outs(scenario: &Scenario) -> &[RollOut] {
    scenario.status("p").history.as_deref().unwrap_or_default()
}

/// Version, upgraded nodes, failures, and whether it is complete, of each roll-out.
fn summary(scenario: &Scenario) -> Vec<(&str, i64, i64, Option<bool>)> {
    let all = roll_outs(scenario).iter();
    all.map(|it| (it.version.as_str(), it.nodes, it.failures, it.complete))
        .collect()
}

#[test]
fn an_aborted_plan_stops_its_drain_releases_that_node_and_lets_an_upgrade_finish() {
    let mut scenario = Scenario::of_nodes(&["a", "b", "c"]);
    scenario.guard("a");
    scenario.apply(plan_with("p", |spec| {
        spec.drain = Some(DrainSpec::default());
        spec.concurrency = Some(3);
    }));
    scenario.comes_to("a", PodStage::Drain);
    scenario.comes_to("b", PodStage::Upgrade);
    scenario.comes_to("c", PodStage::Upgrade);
    let text = format!("{BY}: wrong version");
    scenario.annotate(Kind::Plan, "p", names::ANNOTATION_ABORT, Some(&text));
    scenario.until("the drained node is released", |state| {
        let node = state.get(Kind::Node, "", "a").unwrap();
        node["spec"]["unschedulable"].is_null() || node["spec"]["unschedulable"] == false
    });
    scenario.settle();
    assert_eq!(
        scenario.slots("p"),
        ["b", "c"],
        "running upgrades keep their slots"
    );
    assert_eq!(scenario.phase("p", "a"), ["Waiting", "Aborted"]);
    scenario.restart();
    scenario.succeed("b");
    scenario.succeed("c");
    assert!(scenario.is_done("b", "p") && scenario.is_done("c", "p") && !scenario.is_done("a", "p"));
    let [status, reason, message] = scenario.complete("p");
    assert_eq!((&*status, &*reason), ("False", "Aborted"));
    assert_eq!(
        message,
        format!("the annotation refit.rs/abort, set {text}, ends the roll-out")
    );
    assert!(
        scenario.events_of("JobFailed").is_empty(),
        "{:?}",
        scenario.events()
    );
    assert!(!scenario.is_cordoned("a") && scenario.node("a").ledger.is_none());

    scenario.annotate(Kind::Plan, "p", names::ANNOTATION_ABORT, None);
    scenario.open_budget();
    scenario.finish();
    assert_eq!(scenario.invariants.upgrades, 3);
}

#[test]
fn a_failed_node_stays_failed_when_its_plan_is_aborted() {
    let mut scenario = Scenario::with(&["a"], plan("p"));
    scenario.fail("a");
    scenario.annotate(Kind::Plan, "p", names::ANNOTATION_ABORT, Some(BY));
    scenario.settle();
    assert_eq!(scenario.phase("p", "a")[0], "Failed");
    scenario.annotate(Kind::Plan, "p", names::ANNOTATION_ABORT, None);
    scenario.retry("a", "p");
    scenario.finish();
}

#[test]
fn a_skipped_node_is_passed_over_and_the_plan_is_complete_without_it() {
    let mut scenario = Scenario::of_nodes(&["a", "b", "c"]);
    let text = format!("other, p@v1 {BY}");
    scenario.annotate(Kind::Node, "b", names::ANNOTATION_SKIP, Some(&text));
    scenario.apply_and_settle(plan("p"));
    assert_eq!(scenario.phase("p", "b"), ["Waiting", "Skipped"]);
    let why = scenario.entry("p", "b").message.unwrap();
    assert!(
        why.contains("by alice at") && why.ends_with("excludes it at v1"),
        "{why}"
    );
    scenario.roll_out();
    let counts = scenario.status("p").nodes.unwrap();
    assert_eq!((counts.selected, counts.done, counts.skipped), (2, 2, Some(1)));
    let [status, _, message] = scenario.complete("p");
    assert_eq!((&*status, &*message), ("True", "skipped (refit.rs/skip): b"));
    assert!(!scenario.is_done("b", "p"));

    scenario.annotate(Kind::Node, "b", names::ANNOTATION_SKIP, None);
    scenario.finish();
    assert_eq!(scenario.status("p").nodes.unwrap().skipped, None);
}

#[test]
fn a_node_is_skipped_only_at_the_version_that_the_annotation_names() {
    let mut scenario = Scenario::of_nodes(&["a"]);
    scenario.annotate(Kind::Node, "a", names::ANNOTATION_SKIP, Some("p@v2"));
    scenario.apply(plan("p"));
    scenario.roll_out();
    assert!(scenario.is_done("a", "p"));
    scenario.edit("p", |spec| spec.version = Some("v2".to_owned()));
    scenario.roll_out();
    assert!(!scenario.is_done("a", "p"));
    scenario.edit("p", |spec| spec.version = Some("v3".to_owned()));
    scenario.finish();
}

#[test]
fn skipping_a_failed_node_frees_its_slot_and_releases_it() {
    let mut scenario = Scenario::with(&["a", "b"], plan("p"));
    let first = scenario.slots("p")[0].clone();
    scenario.fail(&first);
    assert!(scenario.is_cordoned(&first), "a failed node stays cordoned");
    let other = if first == "a" { "b" } else { "a" };
    assert_eq!(scenario.phase("p", other)[1], "NoSlot");
    scenario.annotate(Kind::Node, &first, names::ANNOTATION_SKIP, Some("p"));
    scenario.settle();
    assert_eq!(scenario.slots("p"), [other]);
    assert!(!scenario.is_cordoned(&first) && scenario.node(&first).records.is_empty());
    scenario.roll_out();
    assert_eq!(scenario.complete("p")[0], "True");
    scenario.annotate(Kind::Node, &first, names::ANNOTATION_SKIP, None);
    scenario.finish();
}

#[test]
fn a_node_in_an_upgrade_that_is_skipped_finishes_it() {
    let mut scenario = Scenario::with(&["a"], plan("p"));
    scenario.comes_to("a", PodStage::Upgrade);
    scenario.annotate(Kind::Node, "a", names::ANNOTATION_SKIP, Some("p"));
    scenario.settle();
    assert_eq!(scenario.slots("p"), ["a"]);
    scenario.succeed("a");
    assert!(scenario.is_done("a", "p"));
    scenario.assert_over();
}

#[test]
fn an_entry_of_retry_may_say_who_wrote_it_and_the_others_stay() {
    let mut scenario = Scenario::with(&["a"], plan("p"));
    scenario.fail("a");
    scenario.retry("a", &format!("other {BY}, p {BY}"));
    scenario.settle();
    let left = scenario.node("a").retry.as_deref().map(str::to_owned);
    assert_eq!(left, Some(format!("other {BY}")));
    assert_eq!(scenario.entry("p", "a").attempt, Some(2));
    scenario.finish();
}

#[test]
fn a_plan_whose_labels_are_removed_runs_again_on_these_nodes_as_another_roll_out() {
    let mut scenario = Scenario::with(&["a", "b", "c"], plan("p"));
    scenario.roll_out();
    scenario.annotate(Kind::Plan, "p", names::ANNOTATION_RERUN, Some(BY));
    scenario.set_done_label("a", "p", None);
    scenario.set_done_label("c", "p", None);
    scenario.finish();
    assert_eq!(scenario.invariants.upgrades, 5);
    assert_eq!(
        summary(&scenario),
        [("v1", 2, 0, Some(true)), ("v1", 3, 0, Some(true))]
    );
    assert_eq!(roll_outs(&scenario)[0].rerun.as_deref(), Some(BY));
}

#[test]
fn the_history_counts_nodes_and_failures_once_through_restarts() {
    let mut scenario = Scenario::new(&Setup::default());
    scenario.add_nodes(&["a", "b", "c"]);
    scenario.apply_and_settle(plan("p"));
    let first = scenario.slots("p")[0].clone();
    scenario.fail(&first);
    scenario.restart();
    scenario.restart();
    assert_eq!(summary(&scenario), [("v1", 0, 1, None)]);
    scenario.retry(&first, "p");
    scenario.settle();
    scenario.fail(&first);
    scenario.restart();
    assert_eq!(summary(&scenario), [("v1", 0, 2, None)]);
    scenario.retry(&first, "p");
    scenario.succeed(&first);
    scenario.restart();
    scenario.finish();
    assert_eq!(summary(&scenario), [("v1", 3, 2, Some(true))]);
    let current = &roll_outs(&scenario)[0];
    assert!(current.shortest_seconds <= current.longest_seconds && current.shortest_seconds.is_some());
    assert!(current.to.as_ref() > Some(&current.from));
}

#[test]
fn a_node_that_leaves_its_plan_is_not_counted_as_done() {
    let mut scenario = Scenario::with(&["a", "b"], plan("p"));
    let first = scenario.slots("p")[0].clone();
    scenario.comes_to(&first, PodStage::Upgrade);
    scenario.set_done_label(&first, "p", Some("disabled"));
    scenario.succeed(&first);
    scenario.finish();
    assert_eq!(summary(&scenario), [("v1", 1, 0, Some(true))]);
}

#[test]
fn a_version_that_replaces_another_ends_its_roll_out_and_ten_are_kept() {
    let mut scenario = Scenario::with(&["a"], plan("p"));
    scenario.fail("a");
    for number in 2..=12 {
        scenario.edit_and_settle("p", |spec| spec.version = Some(format!("v{number}")));
        if number > 2 {
            scenario.roll_out();
        } else {
            scenario.fail("a");
        }
    }
    let all = summary(&scenario);
    assert_eq!(all.len(), 10);
    assert_eq!(all[0], ("v12", 1, 0, Some(true)));
    assert_eq!(all[9], ("v3", 1, 0, Some(true)));
    let size = serde_json::to_string(roll_outs(&scenario)).unwrap().len();
    assert!(size < 4_096, "{size}");
}

#[test]
fn the_expected_end_is_known_only_within_the_window() {
    let expected = |end: &str| {
        let window = TimeWindowSpec {
            start_time: Some("08:00".to_owned()),
            end_time: Some(end.to_owned()),
            days: Some(vec!["thu".to_owned()]),
            ..TimeWindowSpec::default()
        };
        let plan = plan_with("p", |spec| spec.window = Some(window));
        let mut scenario = Scenario::with(&["a", "b", "c", "d"], plan);
        let first = scenario.slots("p")[0].clone();
        scenario.comes_to(&first, PodStage::Upgrade);
        scenario.pass_secs(60);
        scenario.succeed(&first);
        scenario.pass_secs(2);
        scenario.status("p").expected_end.clone()
    };
    assert!(expected("12:00").is_some());
    assert_eq!(expected("09:03"), None, "the nodes that are left take longer");
}

#[test]
fn the_last_nodes_take_a_round_although_they_are_fewer_than_the_slots() {
    let mut scenario = Scenario::with(
        &["a", "b", "c", "d", "e"],
        plan_with("p", |spec| spec.concurrency = Some(2)),
    );
    let first = scenario.slots("p");
    for node in &first {
        scenario.comes_to(node, PodStage::Upgrade);
    }
    scenario.pass_secs(60);
    for node in &first {
        scenario.succeed(node);
    }
    scenario.pass_secs(2);
    assert_eq!(scenario.slots("p").len(), 2, "one node is left waiting");
    let end = scenario.status("p").expected_end.clone().unwrap();
    let earliest: jiff::Timestamp = end.earliest.parse().unwrap();
    let in_seconds = earliest.duration_since(scenario.now()).as_secs();
    assert!((50..100).contains(&in_seconds), "a round of a minute: {end:?}");
}

#[test]
fn the_expected_end_lies_between_the_fastest_and_the_slowest_node_and_goes_when_nothing_starts() {
    let mut scenario = Scenario::with(&["a", "b", "c", "d"], plan("p"));
    assert_eq!(
        scenario.status("p").expected_end,
        None,
        "nothing has been seen yet"
    );
    let first = scenario.slots("p")[0].clone();
    scenario.comes_to(&first, PodStage::Upgrade);
    scenario.pass_secs(60);
    scenario.succeed(&first);
    scenario.pass_secs(2);
    let second = scenario.slots("p")[0].clone();
    scenario.succeed(&second);
    scenario.pass_secs(2);
    let end = scenario.status("p").expected_end.clone().unwrap();
    let at = |text: &str| text.parse::<jiff::Timestamp>().unwrap();
    assert!(at(&end.earliest) < at(&end.latest), "{end:?}");
    let in_seconds = at(&end.latest).duration_since(scenario.now()).as_secs();
    assert!((100..150).contains(&in_seconds), "two nodes of a minute: {end:?}");
    let writes = scenario.requests("PATCH /plans/p/status");
    scenario.pass_secs(30);
    assert_eq!(
        scenario.requests("PATCH /plans/p/status"),
        writes,
        "time alone is not written"
    );
    scenario.edit("p", |spec| spec.suspend = Some(true));
    scenario.annotate(Kind::Plan, "p", names::ANNOTATION_SUSPENDED, Some(BY));
    scenario.settle();
    assert_eq!(scenario.status("p").expected_end, None);
    let last = scenario.slots("p")[0].clone();
    scenario.succeed(&last);
    let [_, reason, message] = scenario.complete("p");
    assert_eq!(
        (&*reason, &*message),
        ("Suspended", &*format!("spec.suspend is true, set {BY}"))
    );
}

#[test]
fn the_commit_of_a_plan_is_in_status_in_the_history_and_in_the_event() {
    let mut scenario = Scenario::of_nodes(&["a"]);
    let mut plan = plan("p");
    let notes = [("refit.rs/commit", "4f1c2d7"), ("refit.rs/author", "alice")];
    plan.metadata.annotations = Some(
        notes
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
    );
    scenario.apply_and_settle(plan);
    let origin = scenario.status("p").origin.clone().unwrap();
    assert_eq!(
        (origin.commit.as_deref(), origin.author.as_deref()),
        (Some("4f1c2d7"), Some("alice"))
    );
    assert_eq!(
        scenario.events_of("Resolved"),
        ["Resolved latest version from Spec.Version: v1 (commit 4f1c2d7 by alice)"]
    );
    assert_eq!(roll_outs(&scenario)[0].commit.as_deref(), Some("4f1c2d7"));
    let patch =
        json!({ "metadata": { "annotations": { "refit.rs/commit": null, "refit.rs/author": null } } });
    scenario.patch(Kind::Plan, "p", &patch);
    scenario.settle();
    assert_eq!(scenario.status("p").origin, None);
}
