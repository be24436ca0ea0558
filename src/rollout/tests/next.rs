//! Nodes that are next: where many have slots, status names them before there is a slot, and they begin as soon as there is.

use jiff::SignedDuration;

use super::build::{plan_with, reboot};
use super::toy::{Fate, Toy};
use crate::api::{Plan, PlanSpec, RebootWhen};
use crate::rollout::Step;

fn plan(slots: i64) -> Plan {
    plan_with("p", |spec| spec.concurrency = Some(slots))
}

fn toy(nodes: usize, plan: Plan) -> Toy {
    let names: Vec<_> = (10..10 + nodes).map(|n| format!("n{n}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let mut toy = Toy::with(&names, plan);
    toy.later(2);
    toy
}

/// Those that status names as next.
fn next(toy: &Toy) -> Vec<String> {
    let active = toy.status("p").active.iter().flatten();
    let next = active.filter(|node| node.phase == "Waiting" && node.uid.is_some());
    next.map(|node| node.name.clone()).collect()
}

/// The Job on a node succeeds, and the node has its label; what follows from it has not been begun, and no status has
/// reached the API server.
fn is_done(toy: &mut Toy, node: &str) {
    toy.succeeds_unseen(node);
    toy.decides();
    let label = toy.node_patches();
    assert_eq!(label.len(), 1, "{label:?}");
    toy.reaches(label[0], Fate::Fine);
    toy.hears(label[0]);
    toy.tell_all();
    assert!(toy.is_done(node, "p"));
}

/// Until nothing is left to do, and status says so.
fn ends(toy: &mut Toy) {
    for _ in 0..20 {
        toy.rolls_out();
        toy.later(1);
    }
}

/// Nodes that have a Job, of those that had none.
fn begun(toy: &Toy, of: &[String]) -> Vec<String> {
    let has_job = |node: &&String| toy.jobs.values().any(|job| *job.it.facts.node == ***node);
    of.iter().filter(has_job).cloned().collect()
}

#[test]
fn the_next_nodes_are_named_where_more_than_five_have_slots() {
    for (slots, count) in [(1, 0), (5, 0), (6, 1), (10, 2), (20, 4)] {
        let toy = toy(40, plan(slots));
        assert_eq!(next(&toy).len(), count, "{slots} slots");
        let waiting: Vec<_> = toy.status("p").active.clone().unwrap();
        let waiting = waiting.iter().filter(|node| node.phase == "Waiting");
        let waiting: Vec<_> = waiting.map(|node| node.name.clone()).collect();
        assert_eq!(next(&toy), waiting[..count], "the first in their order");
    }
    assert!(next(&toy(6, plan(6))).is_empty(), "nobody waits");
}

#[test]
fn the_next_node_begins_as_soon_as_there_is_a_slot_and_status_tells_it_afterwards() {
    let mut toy = toy(20, plan(10));
    let (slots, line) = (toy.slots("p"), next(&toy));
    let written = toy.plans["p"].version;
    toy.succeeds(&slots[0]);
    assert_eq!(begun(&toy, &line), line[..1]);
    assert_eq!(toy.plans["p"].version, written, "it is not told yet");
    toy.passes(SignedDuration::from_millis(30));
    toy.settle();
    let told = toy.slots("p");
    assert!(told.contains(&line[0]) && !told.contains(&slots[0]), "{told:?}");
    assert_eq!(next(&toy)[0], line[1]);
    ends(&mut toy);
    assert_eq!(toy.jobs.len(), 20, "one Job for each");
}

#[test]
fn no_more_begin_than_are_next_before_status_is_written() {
    let mut toy = toy(20, plan(10));
    let (slots, line) = (toy.slots("p"), next(&toy));
    for node in &slots[..5] {
        toy.succeeds_unseen(node);
    }
    toy.settle();
    assert_eq!(begun(&toy, &line), line);
    assert_eq!(toy.jobs.len(), 10 + 2);
    toy.later(1);
    assert_eq!(toy.slots("p").len(), 10);
    assert_eq!(toy.jobs.len(), 10 + 5);
}

#[test]
fn who_was_told_a_second_ago_that_it_is_next_is_told_of_its_slot_first() {
    for (millis, begins) in [(0, true), (999, true), (1_000, false), (-1, false)] {
        let mut toy = toy(20, plan(10));
        let (slots, line) = (toy.slots("p"), next(&toy));
        toy.upgrades(&slots[0]);
        toy.later(2);
        toy.passes(SignedDuration::from_millis(millis));
        is_done(&mut toy, &slots[0]);
        let steps = toy.steps();
        let creates = steps
            .iter()
            .any(|step| matches!(step, Step::CreateJob { node, .. } if **node == *line[0]));
        assert_eq!(creates, begins, "after {millis} ms: {steps:?}");
        toy.settle();
        toy.later(1);
        assert!(toy.slots("p").contains(&line[0]));
    }
}

#[test]
fn a_status_counts_from_when_it_was_sent_however_late_its_answer_is() {
    for (millis, begins) in [(900, true), (1_100, false)] {
        let mut toy = toy(20, plan(10));
        let (slots, line) = (toy.slots("p"), next(&toy));
        toy.upgrades(&slots[0]);
        toy.passes(SignedDuration::from_secs(2));
        toy.decides();
        let status = toy.sent();
        assert_eq!(status.len(), 1, "progress");
        toy.reaches(status[0], Fate::Fine);
        toy.passes(SignedDuration::from_millis(millis));
        toy.hears(status[0]);
        is_done(&mut toy, &slots[0]);
        let steps = toy.steps();
        let creates = |step: &Step| matches!(step, Step::CreateJob { node, .. } if **node == *line[0]);
        assert_eq!(steps.iter().any(creates), begins, "after {millis} ms: {steps:?}");
    }
}

#[test]
fn a_job_that_was_asked_for_before_an_edit_and_never_made_gives_nobody_a_slot() {
    let edits: [fn(&mut PlanSpec); 2] = [
        |spec| spec.suspend = Some(true),
        |spec| spec.concurrency = Some(9),
    ];
    for edit in edits {
        for fate in [Fate::LostBefore(false), Fate::LostAfter(false)] {
            let mut toy = toy(20, plan(10));
            let (slots, line) = (toy.slots("p"), next(&toy));
            toy.upgrades(&slots[0]);
            is_done(&mut toy, &slots[0]);
            toy.edit("p", edit);
            toy.decides();
            assert!(!toy.sends_status());
            let create = toy.sent().pop().unwrap();
            toy.tell_all();
            toy.passes(SignedDuration::from_secs(1));
            toy.decides();
            assert!(toy.sends_status());
            for flight in toy.sent().into_iter().filter(|flight| *flight != create) {
                toy.reaches(flight, Fate::Fine);
            }
            assert!(
                !toy.slots("p").contains(&line[0]),
                "nobody knows whether it has begun"
            );
            toy.reaches(create, fate);
            toy.settle();
            toy.later(1);
            let began = fate == Fate::LostAfter(false);
            assert_eq!(begun(&toy, &line).len(), usize::from(began));
            assert_eq!(toy.slots("p").contains(&line[0]), began);
        }
    }
}

#[test]
fn who_is_next_does_not_begin_once_the_plan_was_edited() {
    let edits: [fn(&mut PlanSpec); 3] = [
        |spec| spec.suspend = Some(true),
        |spec| spec.concurrency = Some(9),
        |spec| spec.version = Some("v2".to_owned()),
    ];
    for edit in edits {
        let mut toy = toy(20, plan(10));
        let (slots, line) = (toy.slots("p"), next(&toy));
        toy.upgrades(&slots[0]);
        is_done(&mut toy, &slots[0]);
        toy.edit("p", edit);
        toy.tell_all();
        let steps = toy.steps();
        let creates = |step: &Step| matches!(step, Step::CreateJob { .. });
        assert!(!steps.iter().any(creates), "{steps:?}");
        assert!(begun(&toy, &line).is_empty());
    }
}

#[test]
fn a_slot_that_a_status_on_its_way_gives_to_another_node_is_not_free() {
    let mut toy = toy(20, plan(10));
    let (slots, line) = (toy.slots("p"), next(&toy));
    for node in &line {
        toy.ready(node, false);
    }
    is_done(&mut toy, &slots[0]);
    toy.passes(SignedDuration::from_millis(100));
    toy.decides();
    assert!(toy.sends_status(), "it gives the slot to another");
    // Now those are Ready again that the stored status names as next.
    for node in &line {
        toy.ready(node, true);
    }
    toy.tell_all();
    let steps = toy.steps();
    let creates = |step: &Step| matches!(step, Step::CreateJob { .. });
    assert!(!steps.iter().any(creates), "{steps:?}");
    toy.settle();
    toy.later(1);
    assert_eq!((toy.slots("p").len(), toy.jobs.len()), (10, 11));
    assert!(begun(&toy, &line).is_empty());
}

#[test]
fn who_is_to_be_done_again_has_no_slot_once_another_node_has_begun_in_it() {
    for dies in [false, true] {
        let mut toy = toy(20, plan(10));
        let (slots, line) = (toy.slots("p"), next(&toy));
        toy.succeeds(&slots[0]);
        assert_eq!(begun(&toy, &line), line[..1]);
        assert!(toy.slots("p").contains(&slots[0]), "status names it still");
        toy.set_done_label(&slots[0], "p", None);
        if dies {
            toy.wakes_up();
        }
        toy.settle();
        assert!(toy.jobs_for(&slots[0]).iter().all(|job| !job.facts.is_live()));
        toy.later(1);
        let told = toy.slots("p");
        assert!(told.contains(&line[0]) && !told.contains(&slots[0]), "{told:?}");
        ends(&mut toy);
        assert!(toy.is_done(&slots[0], "p"));
    }
}

#[test]
fn a_successor_finds_those_that_began_as_next() {
    for fate in [Fate::LostAfter(false), Fate::LostBefore(false)] {
        let mut toy = toy(20, plan(10));
        let (slots, line) = (toy.slots("p"), next(&toy));
        is_done(&mut toy, &slots[0]);
        toy.decides();
        let create = toy.sent();
        for flight in create {
            toy.reaches(flight, fate);
        }
        toy.wakes_up();
        toy.settle();
        toy.later(1);
        assert!(toy.slots("p").contains(&line[0]));
        assert_eq!((toy.slots("p").len(), toy.jobs_for(&line[0]).len()), (10, 1));
        ends(&mut toy);
        assert_eq!(toy.jobs.len(), 20, "one Job for each");
    }
}

#[test]
fn a_plan_that_may_reboot_names_nobody_as_next() {
    let reboots = plan_with("p", |spec| {
        spec.concurrency = Some(10);
        spec.reboot = Some(reboot(RebootWhen::IfRequired));
    });
    let toy = toy(20, reboots);
    assert_eq!(toy.slots("p").len(), 10);
    assert!(next(&toy).is_empty());
}
