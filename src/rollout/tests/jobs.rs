//! Which Job a node gets, and what becomes of it (S28, S29, S51, S57, S59).

use super::build::{NAMESPACE, plan, plan_with};
use super::toy::{Fate, Toy};
use crate::job::name::{job_name, second_job_name};
use crate::rollout::{Blocker, Kind, Outcome, Stage, Step};

#[test]
fn a_job_is_made_once_stored_status_names_the_machine() {
    let mut toy = Toy::new();
    toy.add_nodes(&["a"]);
    toy.apply(plan("p"));
    for kind in [Kind::Node, Kind::Plan] {
        toy.tell(kind);
    }
    let steps = toy.steps();
    assert!(steps.iter().any(|step| matches!(step, Step::WriteStatus { .. })));
    assert!(!steps.iter().any(|step| matches!(step, Step::CreateJob { .. })));
    toy.settle();
    let job = &toy.job_for("a").facts;
    assert_eq!(job.name.as_ref(), job_name("p", "a", &toy.hash("p")));
    assert_eq!(
        (&*job.plan, &*job.node, job.attempt, job.parallelism),
        ("p", "a", 1, 1)
    );
    assert_eq!(job.plan_uid, toy.plans["p"].it.uid);
    assert_eq!(job.node_uid, Some(toy.nodes["a"].it.facts.uid.clone()));
}

#[test]
fn nodes_whose_short_names_are_alike_get_jobs_of_their_own() {
    let mut toy = Toy::with(&["n.x", "n.y"], plan_with("p", |spec| spec.concurrency = Some(2)));
    let (x, y) = (toy.job_for("n.x").facts.clone(), toy.job_for("n.y").facts.clone());
    assert_ne!(x.name, y.name);
    let (uid, hash) = (toy.plans["p"].it.uid.clone(), toy.hash("p"));
    let second = |job: &crate::rollout::JobFacts| {
        second_job_name("p", &uid, &job.node, job.node_uid.as_ref().unwrap(), &hash)
    };
    assert!(*x.name == *second(&x) || *y.name == *second(&y));
    toy.rolls_out();
    assert!(toy.is_done("n.x", "p") && toy.is_done("n.y", "p"));
}

#[test]
fn a_name_that_somebody_else_has_is_left_to_them() {
    let hash = Toy::with(&["a"], plan("p")).hash("p");
    let mut toy = Toy::new();
    toy.add_nodes(&["a"]);
    toy.foreign_job(&job_name("p", "a", &hash));
    toy.apply(plan("p"));
    toy.rolls_out();
    assert!(toy.is_done("a", "p"));
    assert!(
        !toy.jobs[&job_name("p", "a", &hash)].it.ours,
        "theirs is untouched"
    );
}

#[test]
fn where_both_names_are_taken_the_status_says_so() {
    let hash = Toy::with(&["a"], plan("p")).hash("p");
    let mut toy = Toy::new();
    toy.add_node("a", |node| node.uid = "node-uid".into());
    let mut plan = plan("p");
    plan.metadata.uid = Some("plan-uid".to_owned());
    let second = second_job_name("p", "plan-uid", "a", "node-uid", &hash);
    toy.foreign_job(&job_name("p", "a", &hash));
    toy.foreign_job(&second);
    toy.apply(plan);
    toy.settle();
    assert_eq!(toy.entry("p", "a").reason.as_deref(), Some("NameTaken"));
    assert_eq!(
        toy.complete("p").2,
        format!("Node a: another Job has the name {second}")
    );
}

#[test]
fn no_other_name_is_tried_while_it_is_not_known_whether_the_job_was_made() {
    let hash = Toy::with(&["n.x"], plan("p")).hash("p");
    let mut toy = Toy::new();
    toy.add_nodes(&["n.x"]);
    let taken = job_name("p", "n.x", &hash);
    toy.foreign_job(&taken);
    toy.apply(plan("p"));
    // The second name is asked for; it is made, and no answer comes.
    toy.rounds_until(|toy| toy.engine_creates_other_than(&taken));
    let flight = toy.create_under_way();
    toy.reaches(flight, Fate::LostAfter(false));
    toy.hears(flight);
    toy.jobs.remove(&taken);
    toy.passes(jiff::SignedDuration::from_secs(1));
    toy.decides();
    assert!(!toy.engine_creates_other_than(""), "it is looked for first");
    toy.rolls_out();
    assert_eq!(toy.jobs_for("n.x").len(), 1);
}

#[test]
fn a_job_that_was_lost_is_made_again() {
    let mut toy = Toy::with(&["a"], plan("p"));
    toy.upgrades("a");
    let first = toy.job_of("a");
    toy.delete_job(&first);
    toy.later(1);
    assert!(toy.jobs.is_empty(), "its pod is still at work");
    assert_eq!(toy.entry("p", "a").reason.as_deref(), Some("PodLeaving"));
    toy.rolls_out();
    assert!(toy.is_done("a", "p"));
}

#[test]
fn a_job_of_which_nothing_runs_is_replaced_when_the_plan_is_edited() {
    let mut toy = Toy::with(&["a"], plan("p"));
    let first = toy.job_for("a").facts.uid.clone();
    toy.edit("p", |spec| spec.upgrade.args = Some(vec!["--new".to_owned()]));
    toy.settle();
    let second = &toy.job_for("a").facts;
    assert_ne!(second.uid, first);
    assert_eq!(second.inputs.as_deref(), toy.world.inputs("p"));
}

#[test]
fn a_job_whose_pod_is_bound_is_let_finish() {
    for stage in [Stage::Starting, Stage::Prepare, Stage::Cordon, Stage::Upgrade] {
        let mut toy = Toy::with(&["a"], plan("p"));
        toy.comes_to("a", stage);
        let job = toy.job_for("a").facts.uid.clone();
        toy.edit("p", |spec| spec.version = Some("v2".to_owned()));
        toy.settle();
        assert_eq!(toy.job_for("a").facts.uid, job, "{stage:?}");
        toy.succeeds("a");
        toy.rolls_out();
        assert_eq!(toy.status("p").latest_version.as_deref(), Some("v2"));
        assert!(toy.is_done("a", "p"));
    }
}

#[test]
fn a_pod_that_was_bound_while_nobody_looked_keeps_its_job() {
    let mut toy = Toy::with(&["a"], plan("p"));
    toy.comes_to("a", Stage::Unbound);
    let job = toy.job_of("a");
    let pod = toy.pods.keys().next().unwrap().clone();
    toy.play_silently(&pod);
    toy.edit("p", |spec| spec.upgrade.args = Some(vec!["--new".to_owned()]));
    toy.tell(Kind::Plan);
    toy.decides();
    let flight = toy.sent()[0];
    toy.reaches(flight, Fate::Fine);
    assert!(toy.jobs.contains_key(&job));
}

#[test]
fn a_job_between_two_pods_of_which_the_first_failed_is_replaced() {
    let mut toy = Toy::with(&["a"], plan("p"));
    toy.upgrades("a");
    let first = toy.job_for("a").facts.uid.clone();
    let pod = toy.pods.keys().next().unwrap().clone();
    toy.pod_ends(&pod, false);
    toy.edit("p", |spec| spec.upgrade.args = Some(vec!["--new".to_owned()]));
    toy.settle();
    assert_eq!(toy.job_for("a").facts.uid, first, "it may as well have succeeded");
    toy.comes_to("a", Stage::Unbound);
    assert_ne!(toy.job_for("a").facts.uid, first);
}

#[test]
fn a_plan_made_again_at_once_starts_afresh_when_the_old_pod_is_gone() {
    let mut toy = Toy::with(&["a"], plan("p"));
    toy.upgrades("a");
    let old = toy.job_for("a").facts.uid.clone();
    toy.delete_plan("p");
    toy.apply(plan("p"));
    toy.settle();
    assert!(toy.jobs.is_empty());
    assert!(
        matches!(toy.blocker("p", "a"), Some(Blocker::PodLeaving { .. })),
        "{:?}",
        toy.blocker("p", "a")
    );
    toy.rolls_out();
    assert_ne!(toy.job_for("a").facts.uid, old);
    assert!(toy.is_done("a", "p"));
}

#[test]
fn a_machine_made_again_under_the_same_name_gets_a_job_of_its_own() {
    let mut toy = Toy::with(&["a"], plan("p"));
    toy.upgrades("a");
    let old = toy.job_for("a").facts.clone();
    toy.delete_node("a");
    toy.add_nodes(&["a"]);
    toy.rolls_out();
    let new = &toy.job_for("a").facts;
    assert_ne!((&new.uid, &new.node_uid), (&old.uid, &old.node_uid));
    assert!(toy.is_done("a", "p"));
}

#[test]
fn the_job_of_a_node_that_is_gone_is_deleted() {
    let mut toy = Toy::with(&["a"], plan("p"));
    toy.upgrades("a");
    toy.delete_node("a");
    toy.settle();
    assert!(toy.jobs.is_empty() && toy.slots("p").is_empty());
}

#[test]
fn jobs_of_a_plan_that_is_gone_are_deleted() {
    let mut toy = Toy::with(&["a"], plan("p"));
    toy.delete_plan("p");
    toy.settle();
    assert!(toy.jobs.is_empty());
}

#[test]
fn the_result_of_an_earlier_time_is_never_taken_for_a_new_one() {
    let mut toy = Toy::with(&["a"], plan("p"));
    toy.rolls_out();
    let first = toy.job_for("a").facts.uid.clone();
    toy.edit("p", |spec| spec.version = Some("v2".to_owned()));
    toy.later(1);
    toy.rolls_out();
    toy.edit("p", |spec| spec.version = Some("v1".to_owned()));
    toy.later(1);
    toy.rolls_out();
    assert!(toy.is_done("a", "p"));
    assert!(
        toy.jobs_for("a").iter().all(|job| job.facts.uid != first),
        "A's old Job has made room"
    );
    assert_eq!(toy.told_of("JobComplete").len(), 3);
}

#[test]
fn a_job_that_completes_for_an_earlier_version_says_so_on_the_node() {
    let mut toy = Toy::with(&["a"], plan("p"));
    let v1 = toy.hash("p");
    toy.upgrades("a");
    toy.edit("p", |spec| spec.version = Some("v2".to_owned()));
    toy.succeeds("a");
    assert_eq!(toy.done_label("a", "p"), Some(v1));
    assert_eq!(toy.slots("p"), ["a"]);
    assert_eq!(toy.job_of("a"), job_name("p", "a", &toy.hash("p")));
}

#[test]
fn a_refused_job_is_told_and_tried_again() {
    let mut toy = Toy::new();
    toy.add_nodes(&["a"]);
    toy.refuses_jobs = Some("exceeded quota: pods=0".to_owned());
    toy.apply(plan("p"));
    toy.settle();
    assert_eq!(toy.entry("p", "a").reason.as_deref(), Some("JobRefused"));
    let text = "Node a: the Job cannot be made: exceeded quota: pods=0";
    assert_eq!(
        toy.complete("p"),
        ("False".to_owned(), "SyncJob".to_owned(), text.to_owned())
    );
    assert_eq!(toy.told_of("JobRefused"), [text]);
    toy.refuses_jobs = None;
    toy.later(5);
    assert_eq!(toy.jobs.len(), 1);
    toy.rolls_out();
    assert!(toy.is_done("a", "p"));
}

#[test]
fn a_job_deleted_by_the_ttl_controller_first_leaves_no_trouble_behind() {
    let mut toy = Toy::with(&["a"], plan("p"));
    toy.rolls_out();
    let job = toy.jobs.keys().next().unwrap().clone();
    toy.passes(jiff::SignedDuration::from_secs(1));
    toy.set_done_label("a", "p", None);
    toy.rounds_until(Toy::engine_deletes);
    toy.job_goes(&job);
    let before = toy.now;
    toy.settle();
    assert_eq!(toy.now, before);
    assert_eq!(
        toy.job_for("a").facts.outcome,
        Outcome::Running,
        "its successor is there at once"
    );
}

#[test]
fn a_finished_job_is_kept_for_its_ttl_from_when_its_result_was_recorded() {
    let mut toy = Toy::with(&["a"], plan("p"));
    toy.comes_to("a", Stage::Upgrade);
    let job = toy.job_of("a");
    let pod = toy.pods.keys().next().unwrap().clone();
    toy.pod_ends(&pod, true);
    toy.play_end(&job);
    toy.later(100);
    assert_eq!(toy.jobs[&job].it.ttl, Some(900 + 100));
    assert!(toy.jobs[&job].it.facts.recorded);
}

#[test]
fn names_and_namespace_of_a_record_are_those_of_its_job() {
    let mut toy = Toy::with(&["a"], plan("p"));
    let job = toy.job_for("a").facts.clone();
    toy.fails("a");
    let record = &toy.nodes["a"].it.facts.records["p"];
    assert_eq!(
        (&*record.namespace, &*record.job, &*record.job_uid),
        (NAMESPACE, &*job.name, &*job.uid)
    );
    assert_eq!(
        (&*record.plan_uid, Some(record.node_uid.as_str())),
        (&*job.plan_uid, job.node_uid.as_deref())
    );
}

#[test]
fn a_creation_that_is_answered_when_its_job_has_ended_holds_no_slot() {
    let mut toy = Toy::new();
    toy.add_nodes(&["a", "b"]);
    toy.apply(plan("p"));
    toy.rounds_until(|toy| toy.sent().iter().any(|flight| toy.creates(*flight)));
    let flight = toy.create_under_way();
    toy.reaches(flight, Fate::Fine); // and the answer takes its time
    // All else goes on meanwhile, until the other node has the slot.
    let job = toy.jobs.keys().next().unwrap().clone();
    let node = toy.jobs[&job].it.facts.node.to_string();
    for _ in 0..40 {
        assert!(toy.slots("p").len() <= 1, "{:?}", toy.slots("p"));
        if let Some(next) = toy.moves().first() {
            toy.play(&next.clone());
        }
        toy.tell_all();
        toy.decides();
        for flight in toy.sent() {
            toy.reaches(flight, Fate::Fine);
        }
        while let Some(other) = toy.answered().into_iter().find(|flight| !toy.creates(*flight)) {
            toy.hears(other);
        }
    }
    assert!(toy.is_done(&node, "p") && toy.jobs[&job].it.facts.recorded);
    assert!(
        ["a", "b"].iter().all(|node| toy.is_done(node, "p")),
        "the answer was waited for"
    );
    let late = toy.create_under_way();
    toy.hears(late);
    toy.rolls_out();
    assert_eq!(toy.jobs.len(), 2);
}

#[test]
fn a_job_that_goes_before_its_result_is_on_its_node_is_not_run_again() {
    for fate in [
        Fate::Fine,
        Fate::LostBefore(false),
        Fate::LostAfter(false),
        Fate::LostAfter(true),
    ] {
        let mut toy = Toy::with(&["a"], plan("p"));
        toy.succeeds_unseen("a");
        toy.decides();
        let patch = *toy
            .sent()
            .iter()
            .find(|flight| toy.patches_node(**flight))
            .unwrap();
        let job = toy.jobs.keys().next().unwrap().clone();
        toy.reaches(patch, fate);
        // Of what was patched the watch tells last.
        toy.delete_job(&job);
        while toy.kinds_waiting().contains(&Kind::Job) {
            toy.tell(Kind::Job);
        }
        toy.decides();
        toy.hears(patch);
        toy.rolls_out();
        toy.later(60);
        assert!(toy.is_done("a", "p"), "{fate:?}");
        assert_eq!(toy.laws.starts.values().sum::<u32>(), 1, "{fate:?}");
        assert!(toy.jobs.is_empty() && toy.complete("p").0 == "True", "{fate:?}");
    }
}

#[test]
fn a_label_that_is_taken_off_while_the_job_is_being_marked_runs_the_plan_again() {
    let mut toy = Toy::with(&["a"], plan("p"));
    toy.succeeds_unseen("a");
    toy.decides();
    toy.rounds_until(|toy| toy.is_done("a", "p"));
    toy.rounds_until(|toy| toy.sent().iter().any(|flight| !toy.writes_status(*flight)));
    toy.set_done_label("a", "p", None);
    toy.passes(jiff::SignedDuration::from_secs(1));
    toy.tell_all();
    toy.decides();
    assert!(
        !toy.sent().iter().any(|flight| toy.patches_node(*flight)),
        "nobody asked for the label"
    );
    toy.rolls_out();
    assert!(toy.is_done("a", "p"));
    assert_eq!(toy.laws.starts.values().sum::<u32>(), 2);
}
