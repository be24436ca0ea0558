//! Which Job a node gets, and how refit handles lost, deleted and foreign Jobs.

use std::time::Duration;

use super::scenario::{NAMESPACE, Scenario};
use crate::job::name::job_name;
use crate::rehearse::Kind;
use crate::rehearse::fault::{Effect, Moment, Rule};
use crate::rehearse::json::{Value, json};
use crate::rollout::PodStage;
use crate::rollout::tests::build::plan;

/// A Job of another owner.
fn foreign(name: &str) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": name, "namespace": NAMESPACE },
        "spec": { "suspend": true, "template": { "spec": {
            "restartPolicy": "Never", "containers": [{ "name": "x", "image": "example.com/x" }] } } },
    })
}

fn hash() -> String {
    Scenario::with(&["a"], plan("p")).hash("p")
}

#[test]
fn a_name_that_someone_else_has_is_left_to_them() {
    let taken = job_name("p", "a", &hash());
    let mut story = Scenario::empty();
    story.add_nodes(&["a"]);
    story.cluster.put(foreign(&taken)).unwrap();
    story.apply(plan("p"));
    story.settle();
    // The Job with the second name is created, but the response is lost.
    story.roll_out();
    story.assert_over();
    let theirs = story.cluster.get(Kind::Job, NAMESPACE, &taken).unwrap();
    assert!(
        theirs["metadata"]["labels"]
            .get("upgrade.cattle.io/plan")
            .is_none(),
        "theirs is untouched"
    );
}

#[test]
fn no_other_name_is_tried_while_it_is_not_known_whether_the_job_was_made() {
    let taken = job_name("p", "a", &hash());
    let mut story = Scenario::empty();
    story.add_nodes(&["a"]);
    story.cluster.put(foreign(&taken)).unwrap();
    // The Job with the second name is created, but neither that nor the lookup gets a response.
    story
        .fault_injector
        .add(Rule::on("create", "jobs").nth(2).hang_after());
    story
        .fault_injector
        .add(Rule::on("get", "jobs").after(1).times(2).hang());
    story.fault_injector.hold_watch("jobs", true);
    story.apply(plan("p"));
    story.pass_secs(12);
    story.delete(Kind::Job, &taken);
    story.pass_secs(60);
    story.fault_injector.hold_watch("jobs", false);
    story.settle();
    assert_eq!(story.jobs_for("a").len(), 1);
    story.roll_out();
    story.assert_over();
    assert_eq!(story.invariants.upgrades, 1);
}

#[test]
fn a_creation_that_timed_out_after_it_took_effect_is_looked_up_and_not_repeated() {
    let mut story = Scenario::empty();
    story.add_nodes(&["a"]);
    story.fault(Rule::on("create", "jobs").hang_after());
    story.fault_injector.hold_watch("jobs", true);
    story.apply(plan("p"));
    story.pass_secs(30);
    assert_eq!(story.requests("POST /jobs"), 1);
    assert!(story.requests("GET /jobs/") >= 1);
    assert_eq!(story.slots("p"), ["a"]);
    story.fault_injector.hold_watch("jobs", false);
    story.roll_out();
    story.assert_over();
    assert_eq!(story.invariants.upgrades, 1);
}

#[test]
fn a_creation_that_never_arrived_is_repeated() {
    let mut story = Scenario::empty();
    story.add_nodes(&["a"]);
    story.fault(Rule::on("create", "jobs").hang());
    story.apply(plan("p"));
    story.pass_secs(30);
    assert_eq!(story.requests("POST /jobs"), 1, "the first did not reach it");
    assert_eq!(story.jobs_for("a").len(), 1);
    story.roll_out();
    story.assert_over();
}

#[test]
fn a_job_that_was_lost_is_created_again_once_its_pod_is_gone() {
    let mut story = Scenario::with(&["a"], plan("p"));
    story.steer("a", "delete-delay", Some("20s"));
    story.comes_to("a", PodStage::Upgrade);
    let first = story.job_for("a");
    story.delete(Kind::Job, &first.name);
    story.pass_secs(5);
    assert!(story.invariants.jobs.is_empty(), "its pod is still at work");
    assert_eq!(story.phase("p", "a").1, "PodLeaving");
    story.roll_out();
    story.assert_over();
    assert_ne!(story.job_for("a").uid, first.uid);
}

#[test]
fn a_job_of_which_nothing_runs_is_replaced_when_the_plan_is_edited_and_one_whose_pod_is_bound_is_not() {
    // A taint keeps the pod from being scheduled.
    let taint = json!({ "spec": { "taints": [{ "key": "example.com/full", "effect": "NoSchedule" }] } });
    let mut story = Scenario::empty();
    story.add_node("a", &taint);
    story.apply(plan("p"));
    story.settle();
    let first = story.job_for("a").uid;
    story.edit("p", |spec| {
        spec.upgrade.get_or_insert_default().args = Some(vec!["--new".to_owned()]);
    });
    story.settle();
    assert_ne!(story.job_for("a").uid, first);

    for steering in ["start-delay", "upgrade.run-delay"] {
        let mut story = Scenario::empty();
        story.add_nodes(&["a"]);
        story.steer("a", steering, Some("1h"));
        story.apply(plan("p"));
        story.settle();
        let first = story.job_for("a").uid;
        story.edit("p", |spec| spec.version = Some("v2".to_owned()));
        story.settle();
        assert_eq!(story.job_for("a").uid, first, "{steering}");
        story.steer("a", steering, None);
        story.roll_out();
        story.assert_over();
        assert_eq!(story.status("p").latest_version.as_deref(), Some("v2"));
    }
}

#[test]
fn a_pod_that_was_bound_while_the_watch_was_behind_keeps_its_job() {
    let taint = json!({ "spec": { "taints": [{ "key": "example.com/full", "effect": "NoSchedule" }] } });
    let mut story = Scenario::empty();
    story.add_node("a", &taint);
    story.apply(plan("p"));
    story.settle();
    let first = story.job_for("a").uid;
    story.fault_injector.hold_watch("pods", true);
    story.patch(Kind::Node, "a", &json!({ "spec": { "taints": null } }));
    story.comes_to("a", PodStage::Upgrade);
    story.edit("p", |spec| spec.version = Some("v2".to_owned()));
    story.settle();
    assert_eq!(story.job_for("a").uid, first);
    assert_eq!(story.requests("DELETE /jobs"), 0, "its pods are read first");
    story.fault_injector.hold_watch("pods", false);
    story.roll_out();
    story.assert_over();
}

#[test]
fn a_machine_created_again_under_the_same_name_gets_a_job_of_its_own() {
    let mut story = Scenario::with(&["a"], plan("p"));
    story.comes_to("a", PodStage::Upgrade);
    let old = story.job_for("a");
    story.delete(Kind::Node, "a");
    story.add_nodes(&["a"]);
    story.roll_out();
    story.assert_over();
    let new = story.job_for("a");
    assert!(new.uid != old.uid && new.node_uid != old.node_uid);
}

#[test]
fn jobs_go_with_their_node_or_their_plan() {
    for kind in [Kind::Node, Kind::Plan] {
        let mut story = Scenario::with(&["a"], plan("p"));
        story.comes_to("a", PodStage::Upgrade);
        story.delete(kind, if kind == Kind::Node { "a" } else { "p" });
        story.pass_secs(5);
        assert!(story.invariants.jobs.is_empty(), "{kind:?}");
    }
}

#[test]
fn a_plan_created_again_at_once_waits_for_the_pod_of_the_old_one() {
    let mut story = Scenario::with(&["a"], plan("p"));
    story.steer("a", "delete-delay", Some("20s"));
    story.comes_to("a", PodStage::Upgrade);
    let old = story.job_for("a").uid;
    story.delete(Kind::Plan, "p");
    story.apply(plan("p"));
    story.pass_secs(5);
    assert!(story.invariants.jobs.is_empty());
    assert_eq!(story.phase("p", "a").1, "PodLeaving");
    story.roll_out();
    story.assert_over();
    assert_ne!(story.job_for("a").uid, old);
}

#[test]
fn the_result_of_an_earlier_time_is_never_taken_for_a_new_one() {
    let mut story = Scenario::with(&["a"], plan("p"));
    story.roll_out();
    let first = story.job_for("a").uid;
    for version in ["v2", "v1"] {
        story.edit("p", |spec| spec.version = Some(version.to_owned()));
        story.settle();
        story.roll_out();
    }
    story.assert_over();
    assert!(
        story.jobs_for("a").iter().all(|job| job.uid != first),
        "the old Job has made room"
    );
    assert_eq!(
        (story.events_of("JobComplete").len(), story.invariants.upgrades),
        (3, 3)
    );
}

#[test]
fn a_job_that_completes_for_an_earlier_version_says_so_on_the_node() {
    let mut story = Scenario::with(&["a"], plan("p"));
    let v1 = story.hash("p");
    story.comes_to("a", PodStage::Upgrade);
    story.edit("p", |spec| spec.version = Some("v2".to_owned()));
    story.settle();
    story.succeed("a");
    assert_eq!(story.done_label("a", "p"), Some(v1));
    assert_eq!(story.slots("p"), ["a"]);
    assert_eq!(*story.live_job("a").name, *job_name("p", "a", &story.hash("p")));
}

#[test]
fn a_refused_job_is_reported_and_retried() {
    let mut story = Scenario::empty();
    story.add_nodes(&["a"]);
    story.fault_always(Rule::on("create", "jobs").answer(422));
    story.apply(plan("p"));
    story.settle();
    assert_eq!(story.phase("p", "a").1, "JobRefused");
    let text = "Node a: the Job cannot be created: injected fault 422";
    assert_eq!(
        story.complete("p"),
        ("False".to_owned(), "SyncJob".to_owned(), text.to_owned())
    );
    story.pass_secs(60);
    assert_eq!(story.events_of("JobRefused"), [text], "once");
    story.mend();
    story.pass_secs(30);
    assert_eq!(story.jobs_for("a").len(), 1);
    story.roll_out();
    story.assert_over();
}

#[test]
fn a_finished_job_is_kept_for_its_ttl_from_when_its_result_was_recorded() {
    let mut story = Scenario::with(&["a"], plan("p"));
    story.comes_to("a", PodStage::Upgrade);
    story.stop();
    story.succeed_unseen("a");
    story.pass_secs(100);
    story.start();
    story.settle();
    let job = story
        .cluster
        .get(Kind::Job, NAMESPACE, &story.job_for("a").name)
        .unwrap();
    let ttl = job["spec"]["ttlSecondsAfterFinished"].as_i64().unwrap();
    assert!((900 + 100..900 + 110).contains(&ttl), "{ttl}");
    assert!(story.job_for("a").recorded);
}

#[test]
fn an_answer_to_a_creation_that_comes_when_its_job_has_ended_holds_no_slot() {
    let mut story = Scenario::empty();
    story.add_nodes(&["a", "b"]);
    for node in ["a", "b"] {
        story.steer(node, "upgrade.run-delay", Some("1s"));
    }
    story.fault(Rule::on("create", "jobs").late(Duration::from_secs(9)));
    story.apply(plan("p"));
    story.pass_secs(8);
    assert_eq!(
        story.events_of("JobComplete").len(),
        2,
        "nobody waits for the answer"
    );
    story.rest();
    story.assert_over();
    assert_eq!(story.invariants.upgrades, 2);
}

#[test]
fn a_job_that_goes_while_its_label_is_on_the_way_is_not_run_again() {
    for effect in [
        None,
        Some(Effect::Hang(Moment::Before)),
        Some(Effect::Hang(Moment::After)),
        Some(Effect::Delay(Moment::Before, Duration::from_secs(5))),
    ] {
        let mut story = Scenario::with(&["a"], plan("p"));
        // The watch delivers the patched Node last.
        story.fault_injector.hold_watch("nodes", true);
        if let Some(effect) = effect {
            story.fault(Rule::on("patch", "nodes").named("a").effect(effect));
        }
        story.succeed_unseen("a");
        let job = story.job_for("a").name;
        story.pass(Duration::from_millis(20));
        story.delete(Kind::Job, &job);
        story.pass_secs(30);
        story.fault_injector.hold_watch("nodes", false);
        story.roll_out();
        story.assert_over();
        assert_eq!(story.invariants.upgrades, 1, "{effect:?}");
    }
}

#[test]
fn a_label_that_is_removed_while_the_job_is_being_marked_runs_the_plan_again() {
    let mut story = Scenario::with(&["a"], plan("p"));
    story.fault(Rule::on("patch", "jobs").delay(Duration::from_secs(5)));
    story.succeed("a");
    assert!(story.is_done("a", "p"));
    story.set_done_label("a", "p", None);
    story.pass_secs(1);
    assert_eq!(story.done_label("a", "p"), None, "nobody asked for the label");
    story.roll_out();
    story.assert_over();
    assert_eq!(story.invariants.upgrades, 2);
}

#[test]
fn a_job_that_was_never_marked_does_not_undo_what_the_next_one_did() {
    let mut story = Scenario::with(&["a"], plan("p"));
    story.fault_injector.allow("patch", "jobs", false);
    story.succeed("a");
    story.edit("p", |spec| spec.version = Some("v2".to_owned()));
    story.fault_injector.allow("patch", "jobs", true);
    story.pass_secs(60);
    story.roll_out();
    story.restart();
    story.roll_out();
    story.assert_over();
    assert_eq!(story.invariants.upgrades, 2);
}

#[test]
fn what_came_and_went_while_its_answer_was_in_flight_is_no_ghost() {
    let mut story = Scenario::empty();
    story.add_nodes(&["a"]);
    story.fault_injector.hold_watch("jobs", true);
    story.fault(Rule::on("create", "jobs").late(Duration::from_secs(6)));
    story.apply(plan("p"));
    story.pass_secs(1);
    let job = story.job_for("a").name;
    story.delete(Kind::Job, &job);
    // The next list contains no trace of the object.
    story.cluster.with(|state| state.store.forget());
    story.fault_injector.cut_watches("jobs");
    story.fault_injector.hold_watch("jobs", false);
    story.roll_out();
    story.assert_over();
}

#[test]
fn a_plan_that_is_gone_is_not_brought_back_by_the_answer_to_a_write() {
    let mut story = Scenario::empty();
    story.add_nodes(&["a"]);
    story.fault(
        Rule::on("patch", "plans/status")
            .named("p")
            .late(Duration::from_secs(5)),
    );
    story.apply(plan("p"));
    story.pass_secs(1);
    story.delete(Kind::Plan, "p");
    let jobs = story.requests("POST /jobs");
    story.pass_secs(60);
    assert!(story.invariants.jobs.is_empty());
    assert_eq!(story.requests("POST /jobs"), jobs);
}
