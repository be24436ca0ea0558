//! The index of facts: what comes late, comes twice or does not come at all.

use super::build::{defaults, node, plan};
use super::toy::{Fate, Toy};
use crate::rollout::{JobFacts, Kind, NodeFacts, Outcome, World};

fn world() -> World {
    World::new(defaults())
}

fn cordoned(uid: &str) -> NodeFacts {
    NodeFacts {
        unschedulable: true,
        ..node("a", uid)
    }
}

#[test]
fn an_older_version_never_replaces_a_newer_one() {
    let mut world = world();
    assert!(world.node_seen(7, cordoned("n1")));
    assert!(!world.node_seen(6, node("a", "n1")));
    assert!(world.node("a").unwrap().unschedulable);
    assert!(world.node_seen(8, node("a", "n1")));
}

#[test]
fn what_changes_no_fact_is_no_news() {
    let mut world = world();
    assert!(world.node_seen(7, node("a", "n1")));
    assert!(!world.node_seen(8, node("a", "n1")), "a heartbeat");
    assert_eq!(world.node_version("a"), Some(8));
}

#[test]
fn an_answer_that_comes_late_brings_nobody_back() {
    let mut world = world();
    world.node_seen(7, node("a", "n1"));
    assert!(world.node_gone("a", "n1"));
    assert!(!world.node_seen(8, cordoned("n1")));
    assert!(world.node("a").is_none());
    assert!(world.node_seen(9, node("a", "n2")));
    assert!(!world.node_gone("a", "n1"), "that was another machine");
}

#[test]
fn what_a_list_does_not_show_is_gone() {
    let mut world = world();
    world.node_seen(1, node("a", "n1"));
    world.node_seen(2, node("b", "n2"));
    world.list_begins(Kind::Node);
    assert!(!world.node_seen(2, node("b", "n2")));
    world.is_shown(Kind::Node, "b");
    assert!(world.list_ends(Kind::Node));
    assert!(world.node("a").is_none() && world.node("b").is_some());
}

#[test]
fn an_answer_during_a_list_does_not_stand_for_the_list() {
    let mut world = world();
    world.node_seen(5, node("a", "n1"));
    world.list_begins(Kind::Node);
    world.node_seen(6, cordoned("n1")); // the answer to a write that was made before it went
    assert!(world.list_ends(Kind::Node));
    assert!(world.node("a").is_none());
}

#[test]
fn an_answer_that_a_list_has_overtaken_is_not_believed_of_what_is_not_known() {
    let mut world = world();
    let sent = world.lists();
    assert!(!world.is_overtaken(Kind::Job, "j", sent));
    world.list_begins(Kind::Pod);
    world.list_ends(Kind::Pod);
    assert!(
        !world.is_overtaken(Kind::Job, "j", sent),
        "a list of pods says nothing of Jobs"
    );
    world.list_begins(Kind::Job);
    assert!(world.is_overtaken(Kind::Job, "j", sent));
    assert!(
        world.is_overtaken(Kind::Job, "j", world.lists()),
        "before or after the list?"
    );
    world.list_ends(Kind::Job);
    assert!(world.is_overtaken(Kind::Job, "j", sent));
    assert!(!world.is_overtaken(Kind::Job, "j", world.lists()));
}

#[test]
fn a_job_that_came_and_went_while_its_answer_was_under_way_is_no_ghost() {
    let mut toy = Toy::new();
    toy.add_nodes(&["a"]);
    toy.apply(plan("p"));
    toy.rounds_until(|toy| toy.sent().iter().any(|flight| toy.creates(*flight)));
    let flight = toy.create_under_way();
    toy.reaches(flight, Fate::Fine);
    let job = toy.jobs.keys().next().unwrap().clone();
    toy.delete_job(&job);
    toy.list(Kind::Job); // shows neither its coming nor its going
    toy.tell_all();
    toy.hears(flight);
    assert!(toy.world.job(&job).is_none());
    toy.rolls_out();
    assert!(toy.is_done("a", "p"));
}

#[test]
fn a_job_that_is_being_deleted_stays_so_while_the_watch_is_behind() {
    let mut toy = Toy::with(&["a"], plan("p"));
    let job = toy.job_of("a");
    let uid = toy.jobs[&job].it.facts.uid.clone();
    assert!(toy.world.job_leaving(&job, &uid));
    toy.change_job(&job, |job| job.facts.failures += 1);
    toy.tell_all();
    assert!(toy.world.job(&job).unwrap().deleting);
}

#[test]
fn a_secret_that_is_gone_by_the_time_it_is_read_stays_gone() {
    let mut world = world();
    let name = "s".into();
    assert!(world.secret_seen(&name, 5));
    assert!(world.secret_read(&name, 5, "hash".to_owned()));
    assert!(
        !world.secret_seen(&name, 5),
        "seen in the version in which it was read"
    );
    assert!(world.secret_seen(&name, 6));
    assert!(!world.secret_read(&name, 5, "old".to_owned()), "read before that");
    assert!(world.secret_gone(&name));
    assert!(!world.secret_read(&name, 6, "hash".to_owned()));
}

#[test]
fn a_plan_that_is_gone_is_not_brought_back_by_the_answer_to_a_write() {
    let mut toy = Toy::new();
    toy.apply(plan("p"));
    toy.tell_all();
    toy.decides();
    let flight = toy
        .sent()
        .into_iter()
        .find(|flight| toy.writes_status(*flight))
        .unwrap();
    toy.reaches(flight, Fate::Fine);
    toy.delete_plan("p");
    toy.tell_all();
    toy.hears(flight);
    assert!(toy.world.plan("p").is_none());
}

#[test]
fn pods_are_of_interest_while_work_may_be_going_on() {
    let mut toy = Toy::with(&["a"], plan("p"));
    assert!(toy.world.has_work_on_nodes());
    toy.rolls_out();
    assert!(!toy.world.has_work_on_nodes());
}

#[test]
fn a_job_that_another_node_had_under_the_name_says_nothing_of_the_one_that_is_asked_for() {
    let mut toy = Toy::new();
    toy.add_nodes(&["a.x", "a.y"]);
    toy.apply(plan("p"));
    toy.rounds_until(|toy| toy.sent().iter().any(|flight| toy.creates(*flight)));
    let asked: Vec<_> = toy.world.making.keys().cloned().collect();
    let job = toy.world.making[&asked[0]].job.clone();
    let other = if &*asked[0].1 == "a.x" { "a.y" } else { "a.x" };
    let hash = toy.hash("p");
    let before = toy.suc_job(&job, "p", other, &hash);
    toy.world.job_seen(7, before);
    assert!(
        toy.world.making.keys().eq(&asked),
        "no other Plan may begin there"
    );
    let mine = toy.suc_job(&job, "p", &asked[0].1, &hash);
    toy.world.job_seen(8, mine);
    assert!(toy.world.making.is_empty());
}

#[test]
fn a_job_that_is_gone_before_its_result_is_recorded_is_not_about_to_go() {
    let mut toy = Toy::with(&["a"], plan("p"));
    let facts = toy.job_for("a").facts.clone();
    let failed = JobFacts {
        outcome: Outcome::Failed {
            at: toy.now,
            reason: "DeadlineExceeded".to_owned(),
            message: String::new(),
        },
        ..facts.clone()
    };
    assert!(toy.world.job_seen(1_000_000, failed));
    toy.world.job_gone(&facts.name, &facts.uid);
    assert!(toy.world.jobs.get(&facts.name).is_some(), "its result is needed");
    // The answer to a delete comes after the watch has told of it.
    assert!(!toy.world.job_leaving(&facts.name, &facts.uid));
    assert!(!toy.world.jobs.get(&facts.name).unwrap().deleting);
}
