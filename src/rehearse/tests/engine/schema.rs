//! Under another CRD, refit's fields are pruned on reading, and a write would lose them for good.

use super::scenario::{Scenario, Setup};
use crate::api::names::ANNOTATION_FIELDS;
use crate::rehearse::Kind;
use crate::rehearse::fault::Rule;
use crate::rehearse::json::json;
use crate::rollout::PodStage;
use crate::rollout::tests::build::{plan, plan_with};

fn note(story: &Scenario) -> Option<String> {
    story.invariants.plans["p"]
        .annotation(ANNOTATION_FIELDS)
        .map(str::to_owned)
}

fn suspended() -> crate::api::Plan {
    plan_with("p", |spec| spec.suspend = Some(true))
}

fn suspend_of(story: &Scenario) -> Option<bool> {
    let plan = story.cluster.get(Kind::Plan, "system-upgrade", "p").unwrap();
    plan["spec"]["suspend"].as_bool()
}

#[test]
fn while_the_definition_lacks_fields_nothing_is_written_or_started_and_each_process_reports_it_once() {
    let mut story = Scenario::with(&["a", "b"], plan("p"));
    let first = story.slots("p")[0].clone();
    for times in 1..=2 {
        story.serve_definition_of_suc(true);
        story.settle();
        if times == 1 {
            story.succeed_unseen(&first);
        }
        let writes = ["PATCH /plans", "PATCH /nodes", "PATCH /jobs", "POST /jobs"]
            .map(|pattern| story.requests(pattern));
        story.pass_secs(600);
        let after = ["PATCH /plans", "PATCH /nodes", "PATCH /jobs", "POST /jobs"]
            .map(|pattern| story.requests(pattern));
        assert_eq!(writes, after);
        story.restart();
        let events = story.events_of("SchemaOutdated");
        assert_eq!(events.len(), times, "a restart sends no more: {events:?}");
        assert!(
            events[0].starts_with("the served CustomResourceDefinition lacks spec."),
            "{events:?}"
        );
        story.serve_definition_of_suc(false);
        story.settle();
        assert!(story.is_done(&first, "p"));
    }
    story.roll_out();
    story.assert_over();
}

#[test]
fn a_plan_carries_a_note_of_the_fields_that_only_refit_has() {
    let mut story = Scenario::with(&["a"], suspended());
    let first = note(&story).unwrap();
    assert!(first.starts_with("1:"), "{first}");
    story.edit("p", |spec| spec.suspend = Some(false));
    story.settle();
    let second = note(&story).unwrap();
    assert!(second.starts_with("2:") && second[2..] != first[2..], "{second}");
    story.edit("p", |spec| spec.suspend = None);
    story.settle();
    assert_eq!(note(&story), None, "a Plan that uses none carries none");
}

#[test]
fn a_note_that_is_refused_does_not_hold_up_the_status() {
    let mut story = Scenario::with(&["a"], suspended());
    let writes = story.requests("PATCH /plans/p?");
    assert!(writes >= 1, "the note is a write of its own");
    story.edit("p", |spec| spec.suspend = Some(false));
    // The status is a write of its own.
    story.fault(Rule::on("patch", "plans").answer(422));
    story.settle();
    assert_eq!(story.slots("p"), ["a"]);
}

#[test]
fn a_plan_that_lost_its_fields_starts_no_node_until_someone_edits_it() {
    let mut story = Scenario::with(&["a"], suspended());
    let before = note(&story);
    story.stop();
    story.serve_definition_of_suc(true);
    story.settle();
    // A user writes the Plan, which is stored as it was read.
    story.annotate(Kind::Plan, "p", "example.com/x", Some("y"));
    story.serve_definition_of_suc(false);
    story.settle();
    assert_eq!(suspend_of(&story), None);
    story.start();
    story.settle();
    assert!(story.invariants.jobs.is_empty());
    assert_eq!(story.complete("p").1, "SpecPruned");
    assert_eq!(
        note(&story),
        before,
        "the note stays until somebody applies the Plan again"
    );
    story.edit("p", |spec| spec.concurrency = Some(2));
    story.settle();
    assert_eq!(story.jobs_for("a").len(), 1, "an edit is an edit");
}

#[test]
fn a_suspended_plan_that_was_read_under_another_definition_is_read_again_before_anything_is_written() {
    let mut story = Scenario::without_controller(&Setup::default());
    story.add_nodes(&["a"]);
    story.apply(suspended());
    story.serve_definition_of_suc(true);
    story.start();
    story.pass_secs(20);
    story.serve_definition_of_suc(false);
    story.pass_secs(20);
    assert_eq!(
        suspend_of(&story),
        Some(true),
        "what was pruned on reading is not pruned from what is stored"
    );
    assert_eq!(story.complete("p").1, "Suspended");
    assert!(story.events_of("SyncJob").is_empty() && story.invariants.jobs.is_empty());
}

#[test]
fn jobs_continue_under_another_definition_and_nodes_of_plans_that_are_gone_are_released() {
    let mut story = Scenario::with(&["a", "b"], plan_with("p", |spec| spec.concurrency = Some(2)));
    story.apply(plan("q"));
    story.settle();
    story.comes_to("a", PodStage::Upgrade);
    story.comes_to("b", PodStage::Upgrade);
    assert!(story.is_cordoned("a") && story.is_cordoned("b"));
    story.serve_definition_of_suc(true);
    story.settle();
    assert_eq!(
        story.invariants.jobs.len(),
        2,
        "a Plan that is not found for a while takes no Job along"
    );
    story.delete(Kind::Plan, "p");
    story.pass_secs(60);
    assert!(!story.is_cordoned("a") && !story.is_cordoned("b"));
    assert!(["a", "b"].iter().all(|node| story.node(node).ledger.is_none()));
    assert_eq!(story.status("q").applying, None, "nothing begins");
    story.serve_definition_of_suc(false);
    story.roll_out();
    story.assert_over();
}

#[test]
fn a_plan_that_is_not_found_for_a_write_keeps_its_jobs() {
    let mut story = Scenario::with(&["a"], plan("p"));
    story.comes_to("a", PodStage::Upgrade);
    let job = story.job_for("a").uid;
    // As while a CRD is deleted and created again.
    for (verb, resource) in [("patch", "plans"), ("patch", "plans/status"), ("get", "plans")] {
        story.fault_always(Rule::on(verb, resource).answer(404));
    }
    story.edit("p", |spec| spec.concurrency = Some(7));
    story.pass_secs(60);
    assert_eq!(story.job_for("a").uid, job);
    story.mend();
    story.roll_out();
    story.assert_over();
    assert_eq!(story.invariants.upgrades, 1);
}

#[test]
fn each_kind_that_is_listed_anew_after_410_is_as_it_was() {
    for resource in ["nodes", "jobs", "pods", "plans", "secrets"] {
        let mut story = Scenario::with(&["a", "b"], plan("p"));
        let first = story.slots("p")[0].clone();
        story.fault_injector.hold_watch(resource, true);
        story.succeed_unseen(&first);
        story.patch(
            Kind::Node,
            &first,
            &json!({ "metadata": { "labels": { "x": "y" } } }),
        );
        story.cluster.with(|state| state.store.forget());
        story.fault_injector.cut_watches(resource);
        story.fault_injector.hold_watch(resource, false);
        story.roll_out();
        story.assert_over();
        assert_eq!(story.invariants.upgrades, 2, "{resource}");
        let lists = story.cluster.with(|state| {
            let lines = state
                .trace()
                .iter()
                .filter(|line| line.contains(&format!("/{resource}?")) && line.contains("limit=100"));
            lines.count()
        });
        assert!(
            lists >= 2 || resource == "secrets",
            "{resource} was listed {lists} times"
        );
    }
}

#[test]
fn what_a_list_after_410_does_not_show_is_gone() {
    for resource in ["jobs", "nodes", "pods"] {
        let mut story = Scenario::with(&["a", "b"], plan("p"));
        let first = story.slots("p")[0].clone();
        let other = if first == "a" { "b" } else { "a" };
        story.comes_to(&first, PodStage::Upgrade);
        story.fault_injector.hold_watch(resource, true);
        if resource == "nodes" {
            story.delete(Kind::Node, other);
        } else {
            let job = story.live_job(&first).name;
            story.delete(Kind::Job, &job);
        }
        story.settle();
        story.cluster.with(|state| state.store.forget());
        story.fault_injector.cut_watches(resource);
        story.fault_injector.hold_watch(resource, false);
        story.roll_out();
        story.assert_over();
        assert_eq!(story.complete("p").0, "True", "{resource}");
        assert_eq!(
            story.invariants.upgrades,
            if resource == "nodes" { 1 } else { 3 },
            "{resource}"
        );
    }
}
