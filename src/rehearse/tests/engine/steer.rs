//! What people do with a roll-out that runs: abort it, skip a node, retry one, run the Plan again. And what status keeps.

use super::scenario::{Scenario, Setup};
use crate::api::{DrainSpec, RollOut, TimeWindowSpec, names};
use crate::rehearse::Kind;
use crate::rehearse::json::json;
use crate::rollout::PodStage;
use crate::rollout::tests::build::{plan, plan_with};

const BY: &str = "by alice at 2026-01-01T09:00:00Z";

fn roll_outs(story: &Scenario) -> &[RollOut] {
    story.status("p").history.as_deref().unwrap_or_default()
}

/// Version, upgraded nodes, failures, and whether it is complete, of each roll-out.
fn summary(story: &Scenario) -> Vec<(&str, i64, i64, Option<bool>)> {
    let all = roll_outs(story).iter();
    all.map(|it| (it.version.as_str(), it.nodes, it.failures, it.complete))
        .collect()
}

#[test]
fn an_aborted_plan_stops_its_drain_releases_that_node_and_lets_an_upgrade_finish() {
    let mut story = Scenario::empty();
    story.add_nodes(&["a", "b", "c"]);
    story.guard("a");
    story.apply(plan_with("p", |spec| {
        spec.drain = Some(DrainSpec::default());
        spec.concurrency = Some(3);
    }));
    story.comes_to("a", PodStage::Drain);
    story.comes_to("b", PodStage::Upgrade);
    story.comes_to("c", PodStage::Upgrade);
    let text = format!("{BY}: wrong version");
    story.annotate(Kind::Plan, "p", names::ANNOTATION_ABORT, Some(&text));
    story.until("the drained node is released", |state| {
        let node = state.get(Kind::Node, "", "a").unwrap();
        node["spec"]["unschedulable"].is_null() || node["spec"]["unschedulable"] == false
    });
    story.settle();
    assert_eq!(story.slots("p"), ["b", "c"], "running upgrades keep their slots");
    assert_eq!(
        story.phase("p", "a"),
        ("Waiting".to_owned(), "Aborted".to_owned())
    );
    story.restart();
    story.succeed("b");
    story.succeed("c");
    assert!(story.is_done("b", "p") && story.is_done("c", "p") && !story.is_done("a", "p"));
    let (status, reason, message) = story.complete("p");
    assert_eq!((&*status, &*reason), ("False", "Aborted"));
    assert_eq!(
        message,
        format!("the annotation refit.rs/abort, set {text}, ends the roll-out")
    );
    assert!(story.events_of("JobFailed").is_empty(), "{:?}", story.events());
    assert!(!story.is_cordoned("a") && story.node("a").ledger.is_none());

    story.annotate(Kind::Plan, "p", names::ANNOTATION_ABORT, None);
    story.open_budget();
    story.roll_out();
    story.assert_over();
    assert_eq!(story.invariants.upgrades, 3);
}

#[test]
fn a_failed_node_stays_failed_when_its_plan_is_aborted() {
    let mut story = Scenario::with(&["a"], plan("p"));
    story.fail("a");
    story.annotate(Kind::Plan, "p", names::ANNOTATION_ABORT, Some(BY));
    story.settle();
    assert_eq!(story.phase("p", "a").0, "Failed");
    story.annotate(Kind::Plan, "p", names::ANNOTATION_ABORT, None);
    story.retry("a", "p");
    story.roll_out();
    story.assert_over();
}

#[test]
fn a_skipped_node_is_passed_over_and_the_plan_is_complete_without_it() {
    let mut story = Scenario::empty();
    story.add_nodes(&["a", "b", "c"]);
    let text = format!("other, p@v1 {BY}");
    story.annotate(Kind::Node, "b", names::ANNOTATION_SKIP, Some(&text));
    story.apply(plan("p"));
    story.settle();
    assert_eq!(
        story.phase("p", "b"),
        ("Waiting".to_owned(), "Skipped".to_owned())
    );
    let why = story.entry("p", "b").message.unwrap();
    assert!(
        why.contains("by alice at") && why.ends_with("excludes it at v1"),
        "{why}"
    );
    story.roll_out();
    let counts = story.status("p").nodes.unwrap();
    assert_eq!((counts.selected, counts.done, counts.skipped), (2, 2, Some(1)));
    let (status, _, message) = story.complete("p");
    assert_eq!((&*status, &*message), ("True", "skipped (refit.rs/skip): b"));
    assert!(!story.is_done("b", "p"));

    story.annotate(Kind::Node, "b", names::ANNOTATION_SKIP, None);
    story.roll_out();
    story.assert_over();
    assert_eq!(story.status("p").nodes.unwrap().skipped, None);
}

#[test]
fn a_node_is_skipped_only_at_the_version_that_the_annotation_names() {
    let mut story = Scenario::empty();
    story.add_nodes(&["a"]);
    story.annotate(Kind::Node, "a", names::ANNOTATION_SKIP, Some("p@v2"));
    story.apply(plan("p"));
    story.roll_out();
    assert!(story.is_done("a", "p"));
    story.edit("p", |spec| spec.version = Some("v2".to_owned()));
    story.roll_out();
    assert!(!story.is_done("a", "p"));
    story.edit("p", |spec| spec.version = Some("v3".to_owned()));
    story.roll_out();
    story.assert_over();
}

#[test]
fn skipping_a_failed_node_frees_its_slot_and_releases_it() {
    let mut story = Scenario::with(&["a", "b"], plan("p"));
    let first = story.slots("p")[0].clone();
    story.fail(&first);
    assert!(story.is_cordoned(&first), "a failed node stays cordoned");
    let other = if first == "a" { "b" } else { "a" };
    assert_eq!(story.phase("p", other).1, "NoSlot");
    story.annotate(Kind::Node, &first, names::ANNOTATION_SKIP, Some("p"));
    story.settle();
    assert_eq!(story.slots("p"), [other]);
    assert!(!story.is_cordoned(&first) && story.node(&first).records.is_empty());
    story.roll_out();
    assert_eq!(story.complete("p").0, "True");
    story.annotate(Kind::Node, &first, names::ANNOTATION_SKIP, None);
    story.roll_out();
    story.assert_over();
}

#[test]
fn a_node_in_an_upgrade_that_is_skipped_finishes_it() {
    let mut story = Scenario::with(&["a"], plan("p"));
    story.comes_to("a", PodStage::Upgrade);
    story.annotate(Kind::Node, "a", names::ANNOTATION_SKIP, Some("p"));
    story.settle();
    assert_eq!(story.slots("p"), ["a"]);
    story.succeed("a");
    assert!(story.is_done("a", "p"));
    story.assert_over();
}

#[test]
fn an_entry_of_retry_may_say_who_wrote_it_and_the_others_stay() {
    let mut story = Scenario::with(&["a"], plan("p"));
    story.fail("a");
    story.retry("a", &format!("other {BY}, p {BY}"));
    story.settle();
    let left = story.node("a").retry.as_deref().map(str::to_owned);
    assert_eq!(left, Some(format!("other {BY}")));
    assert_eq!(story.entry("p", "a").attempt, Some(2));
    story.roll_out();
    story.assert_over();
}

#[test]
fn a_plan_whose_labels_are_removed_runs_again_on_these_nodes_as_another_roll_out() {
    let mut story = Scenario::with(&["a", "b", "c"], plan("p"));
    story.roll_out();
    story.annotate(Kind::Plan, "p", names::ANNOTATION_RERUN, Some(BY));
    story.set_done_label("a", "p", None);
    story.set_done_label("c", "p", None);
    story.roll_out();
    story.assert_over();
    assert_eq!(story.invariants.upgrades, 5);
    assert_eq!(
        summary(&story),
        [("v1", 2, 0, Some(true)), ("v1", 3, 0, Some(true))]
    );
    assert_eq!(roll_outs(&story)[0].rerun.as_deref(), Some(BY));
}

#[test]
fn the_history_counts_nodes_and_failures_once_through_restarts() {
    let mut story = Scenario::new(&Setup::default());
    story.add_nodes(&["a", "b", "c"]);
    story.apply(plan("p"));
    story.settle();
    let first = story.slots("p")[0].clone();
    story.fail(&first);
    story.restart();
    story.restart();
    assert_eq!(summary(&story), [("v1", 0, 1, None)]);
    story.retry(&first, "p");
    story.settle();
    story.fail(&first);
    story.restart();
    assert_eq!(summary(&story), [("v1", 0, 2, None)]);
    story.retry(&first, "p");
    story.succeed(&first);
    story.restart();
    story.roll_out();
    story.assert_over();
    assert_eq!(summary(&story), [("v1", 3, 2, Some(true))]);
    let current = &roll_outs(&story)[0];
    assert!(current.shortest_seconds <= current.longest_seconds && current.shortest_seconds.is_some());
    assert!(current.to.as_ref() > Some(&current.from));
}

#[test]
fn a_version_that_replaces_another_ends_its_roll_out_and_ten_are_kept() {
    let mut story = Scenario::with(&["a"], plan("p"));
    story.fail("a");
    for number in 2..=12 {
        story.edit("p", |spec| spec.version = Some(format!("v{number}")));
        story.settle();
        if number > 2 {
            story.roll_out();
        } else {
            story.fail("a");
        }
    }
    let all = summary(&story);
    assert_eq!(all.len(), 10);
    assert_eq!(all[0], ("v12", 1, 0, Some(true)));
    assert_eq!(all[9], ("v3", 1, 0, Some(true)));
    let size = serde_json::to_string(roll_outs(&story)).unwrap().len();
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
        let mut story = Scenario::with(&["a", "b", "c", "d"], plan);
        let first = story.slots("p")[0].clone();
        story.comes_to(&first, PodStage::Upgrade);
        story.pass_secs(60);
        story.succeed(&first);
        story.pass_secs(2);
        story.status("p").expected_end.clone()
    };
    assert!(expected("12:00").is_some());
    assert_eq!(expected("09:03"), None, "the nodes that are left take longer");
}

#[test]
fn the_expected_end_lies_between_the_fastest_and_the_slowest_node_and_goes_when_nothing_starts() {
    let mut story = Scenario::with(&["a", "b", "c", "d"], plan("p"));
    assert_eq!(story.status("p").expected_end, None, "nothing has been seen yet");
    let first = story.slots("p")[0].clone();
    story.comes_to(&first, PodStage::Upgrade);
    story.pass_secs(60);
    story.succeed(&first);
    story.pass_secs(2);
    let second = story.slots("p")[0].clone();
    story.succeed(&second);
    story.pass_secs(2);
    let end = story.status("p").expected_end.clone().unwrap();
    let at = |text: &str| text.parse::<jiff::Timestamp>().unwrap();
    assert!(at(&end.earliest) < at(&end.latest), "{end:?}");
    let in_seconds = at(&end.latest).duration_since(story.now()).as_secs();
    assert!((100..150).contains(&in_seconds), "two nodes of a minute: {end:?}");
    let writes = story.requests("PATCH /plans/p/status");
    story.pass_secs(30);
    assert_eq!(
        story.requests("PATCH /plans/p/status"),
        writes,
        "time alone is not written"
    );
    story.edit("p", |spec| spec.suspend = Some(true));
    story.annotate(Kind::Plan, "p", names::ANNOTATION_SUSPENDED, Some(BY));
    story.settle();
    assert_eq!(story.status("p").expected_end, None);
    let last = story.slots("p")[0].clone();
    story.succeed(&last);
    let (_, reason, message) = story.complete("p");
    assert_eq!(
        (&*reason, &*message),
        ("Suspended", &*format!("spec.suspend is true, set {BY}"))
    );
}

#[test]
fn the_commit_of_a_plan_is_in_status_in_the_history_and_in_the_event() {
    let mut story = Scenario::empty();
    story.add_nodes(&["a"]);
    let mut plan = plan("p");
    let notes = [("refit.rs/commit", "4f1c2d7"), ("refit.rs/author", "alice")];
    plan.metadata.annotations = Some(
        notes
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
    );
    story.apply(plan);
    story.settle();
    let origin = story.status("p").origin.clone().unwrap();
    assert_eq!(
        (origin.commit.as_deref(), origin.author.as_deref()),
        (Some("4f1c2d7"), Some("alice"))
    );
    assert_eq!(
        story.events_of("Resolved"),
        ["Resolved latest version from Spec.Version: v1 (commit 4f1c2d7 by alice)"]
    );
    assert_eq!(roll_outs(&story)[0].commit.as_deref(), Some("4f1c2d7"));
    let patch =
        json!({ "metadata": { "annotations": { "refit.rs/commit": null, "refit.rs/author": null } } });
    story.patch(Kind::Plan, "p", &patch);
    story.settle();
    assert_eq!(story.status("p").origin, None);
}
