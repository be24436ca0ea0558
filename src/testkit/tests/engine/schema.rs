//! Under another CRD, refit's fields are pruned on reading, and a write would lose them for good.

use super::scenario::{Scenario, Setup};
use crate::fault::Rule;
use refit_api::names::ANNOTATION_FIELDS;
use refit_facts::PodStage;
use refit_fixtures::{plan, plan_with};
use refit_rehearse::Kind;
use refit_rehearse::json::json;

fn note(scenario: &Scenario) -> Option<String> {
    scenario.invariants.plans["p"]
        .annotation(ANNOTATION_FIELDS)
        .map(str::to_owned)
}

fn suspended() -> refit_api::Plan {
    plan_with("p", |spec| spec.suspend = Some(true))
}

fn suspend_of(scenario: &Scenario) -> Option<bool> {
    let plan = scenario.cluster.get(Kind::Plan, "system-upgrade", "p").unwrap();
    plan["spec"]["suspend"].as_bool()
}

#[test]
fn while_the_definition_lacks_fields_nothing_is_written_or_started_and_each_process_reports_it_once() {
    let mut scenario = Scenario::with(&["a", "b"], plan("p"));
    let first = scenario.slots("p")[0].clone();
    for times in 1..=2 {
        scenario.serve_definition_of_suc(true);
        scenario.settle();
        if times == 1 {
            scenario.succeed_unseen(&first);
        }
        let writes = ["PATCH /plans", "PATCH /nodes", "PATCH /jobs", "POST /jobs"]
            .map(|pattern| scenario.requests(pattern));
        scenario.pass_secs(600);
        let after = ["PATCH /plans", "PATCH /nodes", "PATCH /jobs", "POST /jobs"]
            .map(|pattern| scenario.requests(pattern));
        assert_eq!(writes, after);
        scenario.restart();
        let events = scenario.events_of("SchemaOutdated");
        assert_eq!(events.len(), times, "a restart sends no more: {events:?}");
        assert!(
            events[0].starts_with("the served CustomResourceDefinition lacks spec."),
            "{events:?}"
        );
        scenario.serve_definition_of_suc(false);
        scenario.settle();
        assert!(scenario.is_done(&first, "p"));
    }
    scenario.finish();
}

#[test]
fn a_plan_carries_a_note_of_the_fields_that_only_refit_has() {
    let mut scenario = Scenario::with(&["a"], suspended());
    let first = note(&scenario).unwrap();
    assert!(first.starts_with("1:"), "{first}");
    scenario.edit_and_settle("p", |spec| spec.suspend = Some(false));
    let second = note(&scenario).unwrap();
    assert!(second.starts_with("2:") && second[2..] != first[2..], "{second}");
    scenario.edit_and_settle("p", |spec| spec.suspend = None);
    assert_eq!(note(&scenario), None, "a Plan that uses none carries none");
}

#[test]
fn a_note_that_is_refused_does_not_hold_up_the_status() {
    let mut scenario = Scenario::with(&["a"], suspended());
    let writes = scenario.requests("PATCH /plans/p?");
    assert!(writes >= 1, "the note is a write of its own");
    scenario.edit("p", |spec| spec.suspend = Some(false));
    // The status is a write of its own.
    scenario.fault(Rule::on("patch", "plans").answer(422));
    scenario.settle();
    assert_eq!(scenario.slots("p"), ["a"]);
}

#[test]
fn a_plan_that_lost_its_fields_starts_no_node_until_someone_edits_it() {
    for applied_again in [false, true] {
        let mut scenario = Scenario::with(&["a"], suspended());
        let before = note(&scenario);
        scenario.stop();
        scenario.serve_definition_of_suc(true);
        scenario.settle();
        // A user writes the Plan, which is stored as it was read.
        scenario.annotate(Kind::Plan, "p", "example.com/x", Some("y"));
        scenario.serve_definition_of_suc(false);
        scenario.settle();
        assert_eq!(suspend_of(&scenario), None);
        scenario.start();
        scenario.settle();
        assert!(scenario.invariants.jobs.is_empty());
        assert_eq!(scenario.complete("p")[1], "SpecPruned");
        assert_eq!(
            note(&scenario),
            before,
            "the note stays until somebody applies the Plan again"
        );
        if applied_again {
            scenario.edit_and_settle("p", |spec| spec.suspend = Some(true));
            assert_eq!(scenario.complete("p")[1], "Suspended", "it is as it was");
            assert!(scenario.invariants.jobs.is_empty());
        } else {
            scenario.edit_and_settle("p", |spec| spec.concurrency = Some(2));
            assert_eq!(scenario.jobs_for("a").len(), 1, "an edit is an edit");
        }
    }
}

#[test]
fn a_suspended_plan_that_was_read_under_another_definition_is_read_again_before_anything_is_written() {
    let mut scenario = Scenario::without_controller(&Setup::default());
    scenario.add_nodes(&["a"]);
    scenario.apply(suspended());
    scenario.serve_definition_of_suc(true);
    scenario.start();
    scenario.pass_secs(20);
    scenario.serve_definition_of_suc(false);
    scenario.pass_secs(20);
    assert_eq!(
        suspend_of(&scenario),
        Some(true),
        "what was pruned on reading is not pruned from what is stored"
    );
    assert_eq!(scenario.complete("p")[1], "Suspended");
    assert!(scenario.events_of("SyncJob").is_empty() && scenario.invariants.jobs.is_empty());
}

#[test]
fn jobs_continue_under_another_definition_and_nodes_of_plans_that_are_gone_are_released() {
    let mut scenario = Scenario::with(&["a", "b"], plan_with("p", |spec| spec.concurrency = Some(2)));
    scenario.apply_and_settle(plan("q"));
    scenario.comes_to("a", PodStage::Upgrade);
    scenario.comes_to("b", PodStage::Upgrade);
    assert!(scenario.is_cordoned("a") && scenario.is_cordoned("b"));
    scenario.serve_definition_of_suc(true);
    scenario.settle();
    assert_eq!(
        scenario.invariants.jobs.len(),
        2,
        "a Plan that is not found for a while takes no Job along"
    );
    scenario.delete(Kind::Plan, "p");
    scenario.pass_secs(60);
    assert!(!scenario.is_cordoned("a") && !scenario.is_cordoned("b"));
    assert!(["a", "b"].iter().all(|node| scenario.node(node).ledger.is_none()));
    assert_eq!(scenario.status("q").applying, None, "nothing begins");
    scenario.serve_definition_of_suc(false);
    scenario.finish();
}

#[test]
fn a_plan_that_is_not_found_for_a_write_keeps_its_jobs() {
    let mut scenario = Scenario::with(&["a"], plan("p"));
    scenario.comes_to("a", PodStage::Upgrade);
    let job = scenario.job_for("a").uid;
    // As while a CRD is deleted and created again.
    for (verb, resource) in [("patch", "plans"), ("patch", "plans/status"), ("get", "plans")] {
        scenario.fault_always(Rule::on(verb, resource).answer(404));
    }
    scenario.edit("p", |spec| spec.concurrency = Some(7));
    scenario.pass_secs(60);
    assert_eq!(scenario.job_for("a").uid, job);
    scenario.mend();
    scenario.finish();
    assert_eq!(scenario.invariants.upgrades, 1);
}

#[test]
fn each_kind_that_is_listed_anew_after_410_is_as_it_was() {
    for resource in ["nodes", "jobs", "pods", "plans", "secrets"] {
        let mut scenario = Scenario::with(&["a", "b"], plan("p"));
        let first = scenario.slots("p")[0].clone();
        scenario.fault_injector.hold_watch(resource, true);
        scenario.succeed_unseen(&first);
        scenario.patch(
            Kind::Node,
            &first,
            &json!({ "metadata": { "labels": { "x": "y" } } }),
        );
        scenario.cluster.with(|state| state.store.forget());
        scenario.fault_injector.cut_watches(resource);
        scenario.fault_injector.hold_watch(resource, false);
        scenario.finish();
        assert_eq!(scenario.invariants.upgrades, 2, "{resource}");
        let lists = scenario.cluster.with(|state| {
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
fn objects_missing_from_a_list_after_410_are_gone() {
    for resource in ["jobs", "nodes", "pods"] {
        let mut scenario = Scenario::with(&["a", "b"], plan("p"));
        let first = scenario.slots("p")[0].clone();
        let other = if first == "a" { "b" } else { "a" };
        scenario.comes_to(&first, PodStage::Upgrade);
        scenario.fault_injector.hold_watch(resource, true);
        if resource == "nodes" {
            scenario.delete(Kind::Node, other);
        } else {
            let job = scenario.live_job(&first).name;
            scenario.delete(Kind::Job, &job);
        }
        scenario.settle();
        scenario.cluster.with(|state| state.store.forget());
        scenario.fault_injector.cut_watches(resource);
        scenario.fault_injector.hold_watch(resource, false);
        scenario.finish();
        assert_eq!(scenario.complete("p")[0], "True", "{resource}");
        assert_eq!(
            scenario.invariants.upgrades,
            if resource == "nodes" { 1 } else { 3 },
            "{resource}"
        );
    }
}
