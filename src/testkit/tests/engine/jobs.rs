//! Which Job a node gets, and how refit handles lost, deleted and foreign Jobs.

use std::time::Duration;

use super::scenario::{NAMESPACE, Scenario};
use crate::fault::{Effect, Moment, Rule};
use refit_facts::PodStage;
use refit_fixtures::{plan, plan_with};
use refit_job::name::job_name;
use refit_rehearse::Kind;
use refit_rehearse::json::{Value, json};

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
    let mut scenario = Scenario::of_nodes(&["a"]);
    scenario.cluster.put(foreign(&taken)).unwrap();
    scenario.apply_and_settle(plan("p"));
    // The Job with the second name is created, but the response is lost.
    scenario.finish();
    let theirs = scenario.cluster.get(Kind::Job, NAMESPACE, &taken).unwrap();
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
    let mut scenario = Scenario::of_nodes(&["a"]);
    scenario.cluster.put(foreign(&taken)).unwrap();
    // The Job with the second name is created, but neither that nor the lookup gets a response.
    scenario
        .fault_injector
        .add(Rule::on("create", "jobs").nth(2).hang_after());
    scenario
        .fault_injector
        .add(Rule::on("get", "jobs").after(1).times(2).hang());
    scenario.fault_injector.hold_watch("jobs", true);
    scenario.apply(plan("p"));
    scenario.pass_secs(12);
    scenario.delete(Kind::Job, &taken);
    scenario.pass_secs(60);
    scenario.fault_injector.hold_watch("jobs", false);
    scenario.settle();
    assert_eq!(scenario.jobs_for("a").len(), 1);
    scenario.finish();
    assert_eq!(scenario.invariants.upgrades, 1);
}

#[test]
fn a_creation_that_timed_out_after_it_took_effect_is_looked_up_and_not_repeated() {
    let mut scenario = Scenario::of_nodes(&["a"]);
    scenario.fault(Rule::on("create", "jobs").hang_after());
    scenario.fault_injector.hold_watch("jobs", true);
    scenario.apply(plan("p"));
    scenario.pass_secs(30);
    assert_eq!(scenario.requests("POST /jobs"), 1);
    assert!(scenario.requests("GET /jobs/") >= 1);
    assert_eq!(scenario.slots("p"), ["a"]);
    scenario.fault_injector.hold_watch("jobs", false);
    scenario.finish();
    assert_eq!(scenario.invariants.upgrades, 1);
}

#[test]
fn a_creation_that_never_arrived_is_repeated() {
    let mut scenario = Scenario::of_nodes(&["a"]);
    scenario.fault(Rule::on("create", "jobs").hang());
    scenario.apply(plan("p"));
    scenario.pass_secs(30);
    assert_eq!(scenario.requests("POST /jobs"), 1, "the first did not reach it");
    assert_eq!(scenario.jobs_for("a").len(), 1);
    scenario.finish();
}

#[test]
fn a_job_that_was_lost_is_created_again_once_its_pod_is_gone() {
    let mut scenario = Scenario::with(&["a"], plan("p"));
    scenario.steer("a", "delete-delay", Some("20s"));
    scenario.comes_to("a", PodStage::Upgrade);
    let first = scenario.job_for("a");
    scenario.delete(Kind::Job, &first.name);
    scenario.pass_secs(5);
    assert!(scenario.invariants.jobs.is_empty(), "its pod is still at work");
    assert_eq!(scenario.phase("p", "a")[1], "PodLeaving");
    scenario.finish();
    assert_ne!(scenario.job_for("a").uid, first.uid);
}

#[test]
fn a_job_of_which_nothing_runs_is_replaced_when_the_plan_is_edited_and_one_whose_pod_is_bound_is_not() {
    let mut scenario = Scenario::of_nodes(&["a"]);
    scenario.apply_and_taint("a", plan("p"));
    let first = scenario.job_for("a").uid;
    scenario.edit_and_settle("p", |spec| {
        spec.upgrade.get_or_insert_default().args = Some(vec!["--new".to_owned()]);
    });
    assert_ne!(scenario.job_for("a").uid, first);

    for steering in ["start-delay", "upgrade.run-delay"] {
        let mut scenario = Scenario::of_nodes(&["a"]);
        scenario.steer("a", steering, Some("1h"));
        scenario.apply_and_settle(plan("p"));
        let first = scenario.job_for("a").uid;
        scenario.edit_and_settle("p", |spec| spec.version = Some("v2".to_owned()));
        assert_eq!(scenario.job_for("a").uid, first, "{steering}");
        scenario.steer("a", steering, None);
        scenario.finish();
        assert_eq!(scenario.status("p").latest_version.as_deref(), Some("v2"));
    }
}

#[test]
fn a_pod_that_was_bound_while_the_watch_was_behind_keeps_its_job() {
    let mut scenario = Scenario::of_nodes(&["a"]);
    scenario.apply_and_taint("a", plan("p"));
    let first = scenario.job_for("a").uid;
    scenario.fault_injector.hold_watch("pods", true);
    scenario.patch(Kind::Node, "a", &json!({ "spec": { "taints": null } }));
    scenario.comes_to("a", PodStage::Upgrade);
    scenario.edit_and_settle("p", |spec| spec.version = Some("v2".to_owned()));
    assert_eq!(scenario.job_for("a").uid, first);
    assert_eq!(scenario.requests("DELETE /jobs"), 0, "its pods are read first");
    scenario.fault_injector.hold_watch("pods", false);
    scenario.finish();
}

#[test]
fn a_machine_created_again_under_the_same_name_gets_a_job_of_its_own() {
    let mut scenario = Scenario::with(&["a"], plan("p"));
    scenario.comes_to("a", PodStage::Upgrade);
    let old = scenario.job_for("a");
    scenario.delete(Kind::Node, "a");
    scenario.add_nodes(&["a"]);
    scenario.finish();
    let new = scenario.job_for("a");
    assert!(new.uid != old.uid && new.node_uid != old.node_uid);
}

#[test]
fn a_label_that_arrives_when_another_machine_has_the_name_is_not_set() {
    let mut scenario = Scenario::with(&["a"], plan("p"));
    scenario.comes_to("a", PodStage::Upgrade);
    scenario.fault(
        Rule::on("patch", "nodes")
            .named("a")
            .delay(Duration::from_secs(5)),
    );
    scenario.succeed_unseen("a");
    scenario.pass_secs(1);
    scenario.delete(Kind::Node, "a");
    scenario.add_nodes(&["a"]);
    scenario.pass_secs(6);
    assert_eq!(scenario.done_label("a", "p"), None);
    scenario.finish();
    assert_eq!(scenario.invariants.upgrades, 2);
}

#[test]
fn two_nodes_whose_short_names_are_the_same_get_a_job_each() {
    let mut scenario = Scenario::with(&["a.x", "a.y"], plan_with("p", |spec| spec.concurrency = Some(2)));
    let hash = scenario.hash("p");
    let common = job_name("p", "a.x", &hash);
    assert_eq!(common, job_name("p", "a.y", &hash), "that is why they collide");
    let names = ["a.x", "a.y"].map(|node| scenario.job_for(node).name);
    let with_common = names.iter().filter(|name| ***name == *common).count();
    assert!(names[0] != names[1] && with_common == 1, "{names:?}");
    scenario.finish();
    assert_eq!(scenario.invariants.upgrades, 2);
    let mut said = scenario.events_of("JobComplete");
    said.sort_unstable();
    assert_eq!(said, ["Job completed on Node a.x", "Job completed on Node a.y"]);
}

#[test]
fn nodes_with_each_others_hostname_are_distinguished() {
    let mut scenario = Scenario::empty();
    for (node, hostname) in [("a", "b"), ("b", "a")] {
        let labels = json!({ "labels": { "kubernetes.io/hostname": hostname } });
        scenario.add_node(node, &json!({ "metadata": labels }));
    }
    scenario.apply_and_settle(plan("p"));
    for _ in 0..2 {
        let node = scenario.slots("p").remove(0);
        let other = if node == "a" { "b" } else { "a" };
        assert_eq!(scenario.status("p").applying, Some(vec![other.to_owned()]));
        scenario.succeed(&node);
        assert!(scenario.is_done(&node, "p"));
    }
    scenario.assert_over();
    assert_eq!(scenario.invariants.upgrades, 2);
}

#[test]
fn jobs_of_others_are_left_alone_and_those_of_refit_that_belong_to_no_plan_go() {
    let mut scenario = Scenario::of_nodes(&["a"]);
    let of = |controller: Option<&str>, plan: Option<&str>| {
        json!({
            "upgrade.cattle.io/controller": controller, "upgrade.cattle.io/plan": plan, "upgrade.cattle.io/node": "a",
            "upgrade.cattle.io/version": "v0", "plan.upgrade.cattle.io/p": "f00d",
        })
    };
    for (name, labels) in [
        ("of-another", of(Some("another-controller"), Some("p"))),
        ("of-nobody", of(None, Some("p"))),
        ("of-no-plan", of(Some("system-upgrade-controller"), None)),
        ("orphan", of(Some("system-upgrade-controller"), Some("gone"))),
    ] {
        let mut job = foreign(name);
        refit_rehearse::write::merge(&mut job, &json!({ "metadata": { "labels": labels } }));
        scenario.cluster.put(job).unwrap();
    }
    scenario.apply(plan("p"));
    scenario.finish();
    assert_eq!(scenario.invariants.upgrades, 1);
    // The end of the Plan is the end of its own Jobs only.
    scenario.delete(Kind::Plan, "p");
    scenario.rest();
    let left = scenario.cluster.with(|state| {
        let jobs = state
            .all(Kind::Job)
            .map(|job| job["metadata"]["name"].as_str().unwrap().to_owned());
        jobs.collect::<Vec<_>>()
    });
    assert_eq!(left, ["of-another", "of-nobody"]);
    for method in ["GET", "PATCH", "DELETE"] {
        assert_eq!(scenario.requests(&format!("{method} /jobs/of-another")), 0);
        assert_eq!(scenario.requests(&format!("{method} /jobs/of-nobody")), 0);
    }
}

#[test]
fn jobs_go_with_their_node_or_their_plan() {
    for kind in [Kind::Node, Kind::Plan] {
        let mut scenario = Scenario::with(&["a"], plan("p"));
        scenario.comes_to("a", PodStage::Upgrade);
        scenario.delete(kind, if kind == Kind::Node { "a" } else { "p" });
        scenario.pass_secs(5);
        assert!(scenario.invariants.jobs.is_empty(), "{kind:?}");
    }
}

#[test]
fn a_plan_created_again_at_once_waits_for_the_pod_of_the_old_one() {
    let mut scenario = Scenario::with(&["a"], plan("p"));
    scenario.steer("a", "delete-delay", Some("20s"));
    scenario.comes_to("a", PodStage::Upgrade);
    let old = scenario.job_for("a").uid;
    scenario.delete(Kind::Plan, "p");
    scenario.apply(plan("p"));
    scenario.pass_secs(5);
    assert!(scenario.invariants.jobs.is_empty());
    assert_eq!(scenario.phase("p", "a")[1], "PodLeaving");
    scenario.finish();
    assert_ne!(scenario.job_for("a").uid, old);
}

#[test]
fn a_plan_created_again_has_the_slots_that_the_old_one_does_not_use_or_cannot_give_back() {
    for (concurrency, is_down) in [(2, false), (1, true)] {
        let mut scenario = Scenario::of_nodes(&["a", "b", "c"]);
        for node in ["a", "b", "c"] {
            scenario.steer(node, "delete-delay", Some("20s"));
        }
        scenario.apply_and_settle(plan("p"));
        let first = scenario.live_nodes("p").remove(0);
        scenario.comes_to(&first, PodStage::Upgrade);
        if is_down {
            scenario.ready(&first, false);
        }
        scenario.delete(Kind::Plan, "p");
        scenario.apply(plan_with("p", |spec| spec.concurrency = Some(concurrency)));
        scenario.pass_secs(5);
        let second = scenario.live_nodes("p");
        assert!(second.len() == 1 && second[0] != first, "{first} {second:?}");
        scenario.ready(&first, true);
        scenario.finish();
    }
}

#[test]
fn the_result_of_an_earlier_time_is_never_taken_for_a_new_one() {
    let mut scenario = Scenario::with(&["a"], plan("p"));
    scenario.roll_out();
    let first = scenario.job_for("a").uid;
    for version in ["v2", "v1"] {
        scenario.edit_and_settle("p", |spec| spec.version = Some(version.to_owned()));
        scenario.roll_out();
    }
    scenario.assert_over();
    assert!(
        scenario.jobs_for("a").iter().all(|job| job.uid != first),
        "the old Job has made room"
    );
    assert_eq!(scenario.events_of("JobComplete").len(), 3);
    assert_eq!(scenario.invariants.upgrades, 3);
}

#[test]
fn another_service_account_runs_the_plan_again_and_what_is_not_in_the_hash_does_not() {
    let mut scenario = Scenario::with(&["a"], plan("p"));
    scenario.roll_out();
    let first = scenario.hash("p");
    scenario.edit("p", |spec| spec.service_account_name = Some("other".to_owned()));
    scenario.finish();
    let second = scenario.hash("p");
    assert!(second != first && scenario.invariants.upgrades == 2);
    scenario.edit("p", |spec| {
        spec.concurrency = Some(2);
        spec.upgrade.get_or_insert_default().args = Some(vec!["other".to_owned()]);
    });
    scenario.finish();
    assert_eq!((scenario.hash("p"), scenario.invariants.upgrades), (second, 2));
}

#[test]
fn a_job_that_completes_for_an_earlier_version_says_so_on_the_node() {
    let mut scenario = Scenario::with(&["a"], plan("p"));
    let v1 = scenario.hash("p");
    scenario.comes_to("a", PodStage::Upgrade);
    scenario.edit_and_settle("p", |spec| spec.version = Some("v2".to_owned()));
    scenario.succeed("a");
    assert_eq!(scenario.done_label("a", "p"), Some(v1));
    assert_eq!(scenario.slots("p"), ["a"]);
    assert_eq!(
        *scenario.live_job("a").name,
        *job_name("p", "a", &scenario.hash("p"))
    );
}

#[test]
fn a_refused_job_is_reported_and_retried() {
    let mut scenario = Scenario::of_nodes(&["a"]);
    scenario.fault_always(Rule::on("create", "jobs").answer(422));
    scenario.apply_and_settle(plan("p"));
    assert_eq!(scenario.phase("p", "a")[1], "JobRefused");
    let text = "Node a: the Job cannot be created: injected fault 422";
    assert_eq!(scenario.complete("p"), ["False", "SyncJob", text]);
    scenario.pass_secs(60);
    assert_eq!(scenario.events_of("JobRefused"), [text], "once");
    scenario.mend();
    scenario.pass_secs(30);
    assert_eq!(scenario.jobs_for("a").len(), 1);
    scenario.finish();
}

#[test]
fn a_finished_job_is_kept_for_its_ttl_from_when_its_result_was_recorded() {
    let mut scenario = Scenario::with(&["a"], plan("p"));
    scenario.comes_to("a", PodStage::Upgrade);
    scenario.stop();
    scenario.succeed_unseen("a");
    scenario.pass_secs(100);
    scenario.start();
    scenario.settle();
    let job = scenario
        .cluster
        .get(Kind::Job, NAMESPACE, &scenario.job_for("a").name)
        .unwrap();
    let ttl = job["spec"]["ttlSecondsAfterFinished"].as_i64().unwrap();
    assert!((900 + 100..900 + 110).contains(&ttl), "{ttl}");
    assert!(scenario.job_for("a").recorded);
}

#[test]
fn an_answer_to_a_creation_that_comes_when_its_job_has_ended_holds_no_slot() {
    let mut scenario = Scenario::of_nodes(&["a", "b"]);
    for node in ["a", "b"] {
        scenario.steer(node, "upgrade.run-delay", Some("1s"));
    }
    scenario.fault(Rule::on("create", "jobs").late(Duration::from_secs(9)));
    scenario.apply(plan("p"));
    scenario.pass_secs(8);
    assert_eq!(
        scenario.events_of("JobComplete").len(),
        2,
        "nobody waits for the answer"
    );
    scenario.rest();
    scenario.assert_over();
    assert_eq!(scenario.invariants.upgrades, 2);
}

#[test]
fn a_job_that_goes_while_its_label_is_on_the_way_is_not_run_again() {
    for effect in [
        None,
        Some(Effect::Hang(Moment::Before)),
        Some(Effect::Hang(Moment::After)),
        Some(Effect::Delay(Moment::Before, Duration::from_secs(5))),
    ] {
        let mut scenario = Scenario::with(&["a"], plan("p"));
        // The watch delivers the patched Node last.
        scenario.fault_injector.hold_watch("nodes", true);
        if let Some(effect) = effect {
            scenario.fault(Rule::on("patch", "nodes").named("a").effect(effect));
        }
        scenario.succeed_unseen("a");
        let job = scenario.job_for("a").name;
        scenario.pass(Duration::from_millis(20));
        scenario.delete(Kind::Job, &job);
        scenario.pass_secs(30);
        scenario.fault_injector.hold_watch("nodes", false);
        scenario.finish();
        assert_eq!(scenario.invariants.upgrades, 1, "{effect:?}");
    }
}

#[test]
fn a_label_that_is_removed_while_the_job_is_being_marked_runs_the_plan_again() {
    let mut scenario = Scenario::with(&["a"], plan("p"));
    scenario.fault(Rule::on("patch", "jobs").delay(Duration::from_secs(5)));
    scenario.succeed("a");
    assert!(scenario.is_done("a", "p"));
    scenario.set_done_label("a", "p", None);
    scenario.pass_secs(1);
    assert_eq!(scenario.done_label("a", "p"), None, "nobody asked for the label");
    scenario.finish();
    assert_eq!(scenario.invariants.upgrades, 2);
}

#[test]
fn a_job_that_was_never_marked_does_not_undo_what_the_next_one_did() {
    let mut scenario = Scenario::with(&["a"], plan("p"));
    scenario.fault_injector.allow("patch", "jobs", false);
    scenario.succeed("a");
    scenario.edit("p", |spec| spec.version = Some("v2".to_owned()));
    scenario.fault_injector.allow("patch", "jobs", true);
    scenario.pass_secs(60);
    scenario.roll_out();
    scenario.restart();
    scenario.finish();
    assert_eq!(scenario.invariants.upgrades, 2);
}

#[test]
fn a_job_that_was_created_and_deleted_before_its_response_arrived_does_not_exist() {
    let mut scenario = Scenario::of_nodes(&["a"]);
    scenario.fault_injector.hold_watch("jobs", true);
    scenario.fault(Rule::on("create", "jobs").late(Duration::from_secs(6)));
    scenario.apply(plan("p"));
    scenario.pass_secs(1);
    let job = scenario.job_for("a").name;
    scenario.delete(Kind::Job, &job);
    // The next list contains no trace of the object.
    scenario.cluster.with(|state| state.store.forget());
    scenario.fault_injector.cut_watches("jobs");
    scenario.fault_injector.hold_watch("jobs", false);
    scenario.finish();
}

#[test]
fn a_plan_that_is_gone_is_not_brought_back_by_the_answer_to_a_write() {
    let mut scenario = Scenario::of_nodes(&["a"]);
    scenario.fault(
        Rule::on("patch", "plans/status")
            .named("p")
            .late(Duration::from_secs(5)),
    );
    scenario.apply(plan("p"));
    scenario.pass_secs(1);
    scenario.delete(Kind::Plan, "p");
    let jobs = scenario.requests("POST /jobs");
    scenario.pass_secs(60);
    assert!(scenario.invariants.jobs.is_empty());
    assert_eq!(scenario.requests("POST /jobs"), jobs);
}
