//! Marks that wait while there is something better to do: nothing is lost by it, and nobody waits for them.

use jiff::SignedDuration;

use super::build::{plan, plan_with, reboot};
use super::toy::Toy;
use crate::api::{DrainSpec, RebootWhen};
use crate::rollout::{Stage, Step};

/// The Job of node `a` has succeeded, the node is done, and the mark waits.
fn put_off(plan: crate::api::Plan) -> Toy {
    let mut toy = Toy::with(&["a"], plan);
    toy.engine.busy = true;
    toy.succeeds_unseen("a");
    toy.settle();
    assert!(toy.is_done("a", "p") && !toy.job_for("a").facts.recorded);
    assert!(toy.steps().is_empty(), "no decision asks for it again");
    assert!(toy.told_of("JobComplete").is_empty());
    toy
}

fn marked(toy: &Toy) {
    assert!(toy.job_for("a").facts.recorded);
    assert_eq!(toy.told_of("JobComplete"), ["Job completed on Node a"]);
}

#[test]
fn a_plan_is_complete_before_its_jobs_are_marked() {
    let mut toy = put_off(plan("p"));
    assert_eq!(toy.complete("p").0, "True");
    toy.engine.busy = false;
    toy.settle();
    marked(&toy);
}

#[test]
fn a_mark_waits_for_a_minute_at_most() {
    let mut toy = put_off(plan("p"));
    let job = toy.job_for("a").facts.name.clone();
    for (seconds, waits) in [(59, true), (1, false)] {
        toy.passes(SignedDuration::from_secs(seconds));
        toy.world.takes_up(&job);
        let marks: Vec<_> = toy
            .steps()
            .into_iter()
            .filter_map(|step| match step {
                Step::MarkRecorded { may_wait, .. } => Some(may_wait),
                _ => None,
            })
            .collect();
        assert_eq!(marks, [waits]);
    }
    toy.settle();
    marked(&toy);
}

#[test]
fn a_node_whose_label_goes_meanwhile_runs_again() {
    let mut toy = put_off(plan("p"));
    let first = toy.job_for("a").facts.uid.clone();
    toy.set_done_label("a", "p", None);
    toy.settle();
    assert!(!toy.is_done("a", "p"));
    assert_eq!(toy.told_of("JobComplete"), ["Job completed on Node a"]);
    assert_ne!(toy.job_for("a").facts.uid, first);
    toy.succeeds("a");
    toy.settle();
    assert!(toy.is_done("a", "p"));
}

#[test]
fn a_job_that_somebody_deletes_meanwhile_is_told_all_the_same() {
    let mut toy = put_off(plan("p"));
    let job = toy.job_for("a").facts.name.to_string();
    toy.delete_job(&job);
    toy.settle();
    toy.engine.busy = false;
    toy.settle();
    assert_eq!(toy.told_of("JobComplete"), ["Job completed on Node a"]);
    assert!(toy.jobs.is_empty() && toy.steps().is_empty());
    toy.set_done_label("a", "p", None);
    toy.settle();
    assert!(!toy.is_done("a", "p") && toy.job_for("a").facts.is_live());
}

#[test]
fn a_successor_marks_at_once_what_was_put_off() {
    let mut toy = put_off(plan("p"));
    toy.wakes_up();
    toy.settle();
    marked(&toy);
}

#[test]
fn a_plan_that_goes_on_to_another_version_marks_the_old_job() {
    let mut toy = put_off(plan("p"));
    let first = toy.job_for("a").facts.name.to_string();
    toy.edit("p", |spec| spec.version = Some("v2".to_owned()));
    toy.settle();
    toy.succeeds("a");
    toy.settle();
    assert!(toy.jobs[&first].it.facts.recorded);
    assert_eq!(toy.told_of("JobComplete"), ["Job completed on Node a"]);
    toy.engine.busy = false;
    toy.settle();
    assert_eq!(toy.told_of("JobComplete").len(), 2);
}

#[test]
fn what_has_a_record_is_marked_at_once() {
    let mut toy = Toy::with(
        &["a"],
        plan_with("p", |spec| spec.post_complete_delay = Some("30s".to_owned())),
    );
    toy.engine.busy = true;
    toy.succeeds_unseen("a");
    toy.settle();
    assert!(!toy.is_done("a", "p") && toy.job_for("a").facts.recorded);
}

fn to(toy: &mut Toy, version: &str) {
    toy.edit("p", |spec| spec.version = Some(version.to_owned()));
    toy.settle();
}

#[test]
fn a_node_that_is_to_reboot_next_is_not_asked_what_became_of_the_job_whose_mark_waits() {
    let mut toy = put_off(plan("p"));
    toy.edit("p", |spec| {
        spec.version = Some("v2".to_owned());
        spec.reboot = Some(reboot(RebootWhen::Always));
    });
    toy.settle();
    assert!(toy.jobs_for("a").iter().any(|job| job.facts.is_live()));
}

#[test]
fn a_mark_that_waits_does_not_hold_up_the_drain_that_follows_one_that_was_stopped() {
    let mut toy = put_off(plan_with("p", |spec| spec.drain = Some(DrainSpec::default())));
    to(&mut toy, "v2");
    toy.comes_to("a", Stage::Drain);
    to(&mut toy, "v3");
    toy.rolls_out();
    assert!(toy.is_done("a", "p") && !toy.is_cordoned("a"));
}

#[test]
fn a_node_that_is_labelled_is_one_that_is_done_and_one_with_a_record_is_not() {
    let mut toy = Toy::with(
        &["a"],
        plan_with("p", |spec| spec.post_complete_delay = Some("30s".to_owned())),
    );
    let patches = |toy: &mut Toy| -> Vec<bool> {
        let steps = toy.steps().into_iter();
        let patches = steps.filter(|step| matches!(step, Step::PatchNode { .. }));
        patches.map(|step| step.moves_node()).collect()
    };
    toy.succeeds_unseen("a");
    assert_eq!(patches(&mut toy), [false]);
    toy.settle();
    toy.passes(SignedDuration::from_secs(31));
    assert_eq!(patches(&mut toy), [true]);
}

/// Nobody leads when the label of node `a` is taken away.
fn taken_while_nobody_leads(toy: &mut Toy) {
    toy.set_done_label("a", "p", None);
    toy.wakes_up();
    toy.settle();
}

#[test]
fn only_a_label_that_is_taken_while_nobody_leads_and_a_mark_waits_comes_back_without_a_run() {
    let mut toy = put_off(plan("p"));
    taken_while_nobody_leads(&mut toy);
    assert!(toy.is_done("a", "p"), "docs/design.md says so");
    marked(&toy);
    taken_while_nobody_leads(&mut toy);
    assert!(!toy.is_done("a", "p") && toy.job_for("a").facts.is_live());
}
