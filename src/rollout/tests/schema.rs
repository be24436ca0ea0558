//! While another CRD is served, our fields are lost on reading, and a write would make that last.

use super::build::{plan, plan_with};
use super::toy::{Fate, Toy};
use crate::api::names::ANNOTATION_FIELDS;
use crate::rollout::{Blocker, Kind, Schema, Step};

fn note(toy: &Toy) -> Option<String> {
    toy.plans["p"]
        .it
        .object
        .metadata
        .annotations
        .as_ref()?
        .get(ANNOTATION_FIELDS)
        .cloned()
}

#[test]
fn nothing_is_written_while_the_schema_lacks_our_fields() {
    let mut toy = Toy::with(&["a"], plan("p"));
    toy.succeeds_unseen("a");
    toy.schema_is(false);
    let (plan, node) = (toy.plans["p"].version, toy.nodes["a"].version);
    toy.settle();
    toy.later(3600);
    assert_eq!((toy.plans["p"].version, toy.nodes["a"].version), (plan, node));
    assert!(!toy.job_for("a").facts.recorded);
    toy.schema_is(true);
    toy.settle();
    assert!(toy.is_done("a", "p"));
}

#[test]
fn that_the_schema_is_outdated_is_told_once_and_by_the_report() {
    let mut toy = Toy::with(&["a"], plan("p"));
    toy.schema_is(false);
    toy.settle();
    toy.later(60);
    let text = "the CustomResourceDefinition that is served lacks spec.suspend";
    assert_eq!(toy.told_of("SchemaOutdated"), [text]);
    assert_eq!(
        toy.blocker("p", "a"),
        Some(Blocker::SchemaOutdated {
            missing: "spec.suspend".to_owned()
        })
    );
}

#[test]
fn an_answer_without_our_fields_of_status_stops_the_roll_out_for_a_while() {
    let mut toy = Toy::new();
    toy.add_nodes(&["a"]);
    toy.strict = false; // an API server from before there was field validation
    toy.schema = false; // which the watch of the CRD does not tell
    toy.apply(plan("p"));
    toy.settle();
    assert_eq!(toy.status("p").applying, Some(vec!["a".to_owned()]));
    assert!(toy.jobs.is_empty(), "the answer came before the Job");
    assert_eq!(toy.decision().wake, Some("2026-01-01T09:00:10Z".parse().unwrap()));
    toy.schema = true; // the other API servers follow
    toy.later(10);
    assert_eq!(toy.jobs.len(), 1);
}

#[test]
fn a_plan_that_uses_our_fields_carries_a_note_of_them() {
    let mut toy = Toy::with(&["a"], plan_with("p", |spec| spec.suspend = Some(true)));
    let first = note(&toy).unwrap();
    assert!(first.starts_with("1:"), "{first}");
    toy.edit("p", |spec| spec.suspend = Some(false));
    toy.settle();
    let second = note(&toy).unwrap();
    assert!(second.starts_with("2:") && second[2..] != first[2..], "{second}");
    toy.edit("p", |spec| spec.suspend = None);
    toy.settle();
    assert_eq!(note(&toy), None);
    assert!(toy.steps().is_empty());
}

#[test]
fn a_plan_that_uses_none_of_our_fields_carries_no_note() {
    let toy = Toy::with(&["a"], plan("p"));
    assert_eq!(note(&toy), None);
}

#[test]
fn a_plan_that_lost_its_fields_starts_nobody() {
    let mut toy = Toy::with(&["a"], plan_with("p", |spec| spec.suspend = Some(true)));
    let before = note(&toy);
    // Pruned on reading, and stored so by a write of somebody else: the generation stays.
    toy.change_plan("p", |facts| {
        facts.object.spec.suspend = None;
        facts.object.metadata.generation = Some(0);
    });
    toy.settle();
    assert!(toy.jobs.is_empty());
    assert_eq!(toy.complete("p").1, "SpecPruned");
    assert_eq!(
        note(&toy),
        before,
        "the note stays until somebody applies the Plan again"
    );
    toy.edit("p", |spec| spec.concurrency = Some(2));
    toy.settle();
    assert_eq!(toy.jobs.len(), 1, "an edit is an edit");
}

#[test]
fn a_note_that_is_refused_does_not_hold_up_the_status() {
    let mut toy = Toy::with(&["a"], plan_with("p", |spec| spec.suspend = Some(true)));
    toy.edit("p", |spec| spec.suspend = Some(false));
    toy.tell_all();
    for _ in 0..4 {
        toy.decides();
        for flight in toy.sent() {
            let fate = if toy.notes_fields(flight) {
                Fate::Forbidden
            } else {
                Fate::Fine
            };
            toy.reaches(flight, fate);
        }
        while !toy.engine.flights.is_empty() {
            toy.hears(0);
        }
    }
    assert_eq!(toy.slots("p"), ["a"]);
}

#[test]
fn the_note_is_not_written_beside_a_status() {
    let mut toy = Toy::new();
    toy.apply(plan_with("p", |spec| spec.suspend = Some(true)));
    toy.tell_all();
    let steps = toy.steps();
    assert!(steps.iter().any(|step| matches!(step, Step::WriteStatus { .. })));
    assert!(!steps.iter().any(|step| matches!(step, Step::NoteFields { .. })));
}

/// A suspended Plan that no controller has seen before another CRD was served.
fn suspended_unseen() -> Toy {
    let mut toy = Toy::asleep();
    toy.add_nodes(&["a"]);
    toy.apply(plan_with("p", |spec| spec.suspend = Some(true)));
    toy.schema_is(false);
    toy.wakes_up();
    toy.settle();
    toy
}

#[test]
fn what_was_read_while_another_crd_was_served_is_read_again_though_nothing_has_changed() {
    let mut toy = suspended_unseen();
    let known = |toy: &Toy| toy.world.plan("p").unwrap().object.spec.suspend;
    assert_eq!(known(&toy), None, "it is pruned from what is read");
    toy.schema_is(true);
    toy.decides();
    toy.tell_all();
    assert_eq!(known(&toy), Some(true), "before anything is written");
    assert!(toy.plans["p"].it.object.status.is_none());
    toy.settle();
    assert_eq!(toy.complete("p").1, "Suspended");
    assert!(toy.told_of("SyncJob").is_empty() && toy.jobs.is_empty());
}

#[test]
fn an_api_server_that_has_not_taken_up_the_crd_loses_nothing_and_starts_nobody() {
    let mut toy = suspended_unseen();
    let version = toy.plans["p"].version;
    toy.crd_becomes(true);
    toy.settle();
    toy.later(10);
    assert_eq!(toy.plans["p"].version, version, "the write was refused");
    let text = "the CustomResourceDefinition that is served lacks status.observedGeneration";
    toy.later(10);
    assert_eq!(
        toy.told_of("SchemaOutdated")
            .iter()
            .filter(|told| **told == text)
            .count(),
        1
    );
    toy.serves(true);
    toy.later(10);
    assert_eq!(toy.plans["p"].it.object.spec.suspend, Some(true));
    assert_eq!(toy.complete("p").1, "Suspended");
    assert!(toy.told_of("SyncJob").is_empty() && toy.jobs.is_empty());
}

#[test]
fn a_list_of_an_api_server_that_lags_gives_no_slot_though_the_write_reaches_another() {
    let mut toy = suspended_unseen();
    toy.crd_becomes(true);
    toy.tell_all();
    toy.decides(); // to read again
    toy.tell_all();
    toy.decides();
    toy.serves(true);
    let writes = toy.sent();
    assert!(writes.iter().any(|flight| toy.writes_status(*flight)));
    toy.settle();
    assert_eq!(toy.complete("p").1, "Suspended");
    assert!(toy.told_of("SyncJob").is_empty() && toy.jobs.is_empty());
}

#[test]
fn a_poorer_reading_of_the_same_version_is_no_news() {
    let mut toy = Toy::with(&["a"], plan_with("p", |spec| spec.suspend = Some(true)));
    toy.serves(false);
    toy.list(Kind::Plan);
    toy.settle();
    assert_eq!(toy.world.plan("p").unwrap().object.spec.suspend, Some(true));
    assert_eq!(toy.complete("p").1, "Suspended");
}

#[test]
fn each_time_that_the_schema_is_outdated_is_told_and_a_restart_tells_no_more() {
    let mut toy = Toy::with(&["a"], plan_with("p", |spec| spec.suspend = Some(true)));
    for times in 1..=3 {
        toy.schema_is(false);
        toy.settle();
        toy.wakes_up();
        toy.settle();
        assert_eq!(toy.told_of("SchemaOutdated").len(), times);
        toy.schema_is(true);
        toy.settle();
    }
}

#[test]
fn nothing_is_written_before_the_crd_is_known() {
    let mut toy = Toy::new();
    toy.world.schema_seen(Schema::Unknown, "".into());
    toy.add_nodes(&["a"]);
    toy.apply(plan("p"));
    toy.settle();
    assert_eq!(toy.plans["p"].it.object.status, None);
    assert!(toy.told.is_empty(), "nor told: {:?}", toy.told);
    toy.schema_is(true);
    toy.settle();
    assert_eq!(toy.slots("p"), ["a"]);
}

#[test]
fn while_the_crd_is_away_jobs_go_on_and_nodes_of_plans_that_are_gone_are_given_back() {
    let mut toy = Toy::with(&["a", "b"], plan_with("p", |spec| spec.concurrency = Some(2)));
    toy.apply(plan("q"));
    toy.upgrades("a");
    toy.upgrades("b");
    assert!(toy.is_cordoned("a") && toy.is_cordoned("b"));
    toy.schema_is(false);
    toy.delete_plan("p");
    toy.settle();
    assert!(toy.jobs.values().all(|job| !job.it.facts.deleting) && toy.jobs.len() == 2);
    assert!(toy.is_cordoned("a"), "its upgrade runs");
    toy.runs();
    assert!(!toy.is_cordoned("a") && !toy.is_cordoned("b"));
    assert!(toy.nodes.values().all(|node| node.it.facts.ledger.is_none()));
    assert_eq!(toy.plans["q"].it.status().applying, None, "nothing begins");
    toy.schema_is(true);
    toy.runs();
    assert!(toy.is_done("a", "q") && toy.is_done("b", "q"));
}
