//! refit adopts the objects of system-upgrade-controller, and runs no upgrade again.

use super::scenario::{NAMESPACE, Scenario, Setup};
use crate::job::name::job_name;
use crate::rehearse::Kind;
use crate::rehearse::json::{Value, json};
use crate::rollout::tests::build::{plan, plan_with};

/// A cluster after system-upgrade-controller: a Plan with its status, and no running controller.
struct Left {
    story: Scenario,
    hash: String,
}

impl Left {
    fn new(nodes: &[&str], applying: &[&str]) -> Self {
        let hash = Scenario::with(&["x"], plan("p")).hash("p");
        let mut story = Scenario::without_controller(&Setup::default());
        story.add_nodes(nodes);
        let condition = |type_: &str, status: &str, reason: &str| json!({ "type": type_, "status": status, "reason": reason, "lastUpdateTime": "2025-12-31T00:00:00Z" });
        let complete = if applying.is_empty() {
            ("True", "Complete")
        } else {
            ("False", "SyncJob")
        };
        let mut status = json!({
            "conditions": [condition("Complete", complete.0, complete.1), condition("Validated", "True", "PlanIsValid"),
                condition("LatestResolved", "True", "Version")],
            "latestVersion": "v1", "latestHash": hash.as_str(),
        });
        if !applying.is_empty() {
            status["applying"] = applying.to_vec().into();
        }
        story.apply(plan_with("p", |spec| spec.concurrency = Some(2)));
        story
            .cluster
            .patch_status(Kind::Plan, NAMESPACE, "p", json!({ "status": status }))
            .unwrap();
        Self { story, hash }
    }

    /// A Job as system-upgrade-controller creates it. A finished one ended so many minutes ago.
    fn job(&mut self, name: Option<&str>, node: &str, hash: &str, change: &Value) -> String {
        let name = name.map_or_else(|| job_name("p", node, &self.hash), str::to_owned);
        let uid = self.story.cluster.get(Kind::Plan, NAMESPACE, "p").unwrap()["metadata"]["uid"].clone();
        let labels = json!({
            "objectset.rio.cattle.io/hash": "x", "plan.upgrade.cattle.io/p": hash, "upgrade.cattle.io/plan": "p",
            "upgrade.cattle.io/controller": "system-upgrade-controller", "upgrade.cattle.io/node": node,
            "upgrade.cattle.io/version": "v1",
        });
        let mut job = json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": { "name": name.as_str(), "namespace": NAMESPACE, "labels": labels,
                "annotations": { "upgrade.cattle.io/ttl-seconds-after-finished": "900" },
                "ownerReferences": [{ "apiVersion": "upgrade.cattle.io/v1", "kind": "Plan", "name": "p", "uid": uid, "controller": true }] },
            "spec": { "parallelism": 1, "backoffLimit": 2, "template": {
                "metadata": { "labels": labels },
                "spec": { "restartPolicy": "Never", "nodeSelector": { "kubernetes.io/hostname": node },
                    "tolerations": [{ "key": "node.kubernetes.io/unschedulable", "operator": "Exists" }],
                    "containers": [{ "name": "upgrade", "image": "example.com/upgrade:v1" }] } } },
        });
        crate::rehearse::write::merge(&mut job, change);
        self.story.cluster.put(job).unwrap();
        name
    }

    fn take_over(mut self) -> Scenario {
        self.story.pass_secs(1);
        self.story.start();
        self.story.settle();
        self.story
    }
}

/// The status of a Job that completed so many minutes before the start.
fn complete(minutes_ago: i64) -> Value {
    let at = format!("2026-01-01T08:{:02}:00Z", 60 - minutes_ago);
    json!({ "status": { "succeeded": 1, "completionTime": at.as_str(), "conditions": [
        { "type": "Complete", "status": "True", "lastTransitionTime": at.as_str() }] } })
}

#[test]
fn nodes_that_are_done_are_done_and_nothing_is_said_again() {
    let mut left = Left::new(&["a", "b"], &[]);
    let hash = left.hash.clone();
    for node in ["a", "b"] {
        left.story.set_done_label(node, "p", Some(&hash));
    }
    left.story.cordon("a", true);
    left.job(None, "a", &hash, &complete(5));
    let mut story = left.take_over();
    assert_eq!(
        (story.requests("POST /jobs"), story.requests("DELETE /jobs")),
        (0, 0)
    );
    let complete = &story.status("p").conditions[0];
    assert_eq!(
        (complete.status.as_str(), complete.last_update_time.as_deref()),
        ("True", Some("2025-12-31T00:00:00Z"))
    );
    assert!(story.events().is_empty(), "{:?}", story.events());
    let job = story.job_for("a");
    assert!(job.recorded);
    let stored = story.cluster.get(Kind::Job, NAMESPACE, &job.name).unwrap();
    let ttl = stored["spec"]["ttlSecondsAfterFinished"].as_i64().unwrap();
    assert!(ttl >= 900, "its logs stay as long as they would: {ttl}");
    assert!(story.is_cordoned("a"), "that was a person, after it");

    // The Job is spent: without the label the Plan runs again, with a Job of refit under that name.
    story.set_done_label("a", "p", None);
    story.roll_out();
    let again = story.job_for("a");
    assert!(again.name == job.name && again.uid != job.uid);
}

#[test]
fn a_job_that_runs_is_adopted_also_where_the_hostname_is_not_the_name() {
    let mut left = Left::new(&[], &["host-1"]);
    left.story.add_node(
        "a",
        &json!({ "metadata": { "labels": { "kubernetes.io/hostname": "host-1" } } }),
    );
    let hash = left.hash.clone();
    let pod = json!({ "spec": { "template": { "spec": { "nodeSelector": { "kubernetes.io/hostname": "host-1" } } } } });
    left.job(None, "a", &hash, &pod);
    let mut story = left.take_over();
    let uid = story.job_for("a").uid;
    assert_eq!(story.slots("p"), ["a"]);
    assert_eq!(story.status("p").applying, Some(vec!["host-1".to_owned()]));
    story.roll_out();
    assert!(story.is_done("a", "p") && story.job_for("a").uid == uid);
    assert_eq!(
        (story.events_of("JobComplete").len(), story.invariants.upgrades),
        (1, 1)
    );
}

#[test]
fn a_job_left_at_parallelism_0_is_released_unless_no_node_may_start() {
    for suspended in [false, true] {
        let mut left = Left::new(&["a"], &["a"]);
        let hash = left.hash.clone();
        left.job(None, "a", &hash, &json!({ "spec": { "parallelism": 0 } }));
        left.story
            .edit("p", |spec| spec.suspend = suspended.then_some(true));
        let mut story = left.take_over();
        assert_eq!(story.job_for("a").parallelism, i32::from(!suspended));
        if !suspended {
            story.roll_out();
            assert!(story.is_done("a", "p") && story.invariants.upgrades == 1);
        }
    }
}

#[test]
fn a_node_that_is_applying_without_a_job_gets_one() {
    let mut story = Left::new(&["a", "b", "c"], &["a"]).take_over();
    assert!(story.slots("p").contains(&"a".to_owned()));
    story.roll_out();
    story.assert_over();
}

#[test]
fn a_failed_job_is_recorded_and_not_run_again_before_someone_says_so() {
    let mut left = Left::new(&["a"], &["a"]);
    let hash = left.hash.clone();
    let at = "2026-01-01T08:55:00Z";
    let failed = json!({ "status": { "failed": 3, "conditions": [{ "type": "Failed", "status": "True", "reason": "BackoffLimitExceeded",
        "message": "Job has reached the specified backoff limit", "lastTransitionTime": at }] } });
    let name = left.job(None, "a", &hash, &failed);
    let mut story = left.take_over();
    assert_eq!(story.complete("p").1, "JobFailed");
    assert_eq!(story.record("a", "p").job, name);
    assert!(story.job_for("a").recorded);
    story.delete(Kind::Job, &name);
    story.restart();
    story.pass_secs(60);
    assert!(story.invariants.jobs.is_empty());
    story.edit("p", |spec| {
        spec.upgrade.get_or_insert_default().args = Some(vec!["--again".to_owned()]);
    });
    story.settle();
    assert_eq!(story.job_for("a").attempt, 2);
}

#[test]
fn of_several_finished_jobs_the_last_one_counts_and_none_costs_another_its_slot() {
    let mut left = Left::new(&["a", "b", "c"], &["a"]);
    let hash = left.hash.clone();
    left.job(None, "a", &hash, &complete(1));
    left.job(Some("aaa"), "a", "0123456789", &complete(3));
    left.job(Some("zzz"), "a", "0123456789", &complete(4));
    let mut story = left.take_over();
    assert_eq!(story.done_label("a", "p"), Some(hash));
    assert_eq!(story.jobs_for("a").iter().filter(|job| job.recorded).count(), 3);
    assert_eq!(story.events_of("JobComplete").len(), 1);
    assert_eq!(story.slots("p").len(), 2);
    story.roll_out();
    story.assert_over();
}

#[test]
fn an_edit_replaces_a_job_that_says_nothing_of_its_inputs_only_for_another_hash() {
    let mut left = Left::new(&["a"], &["a"]);
    let hash = left.hash.clone();
    left.story.steer("a", "start-delay", Some("1h"));
    left.job(
        None,
        "a",
        &hash,
        &json!({ "spec": { "template": { "spec": { "nodeSelector": { "nowhere": "to be found" } } } } }),
    );
    let mut story = left.take_over();
    let uid = story.job_for("a").uid;
    story.edit("p", |spec| {
        spec.upgrade.get_or_insert_default().args = Some(vec!["--new".to_owned()]);
    });
    story.settle();
    assert_eq!(story.job_for("a").uid, uid);
    story.edit("p", |spec| spec.version = Some("v2".to_owned()));
    story.settle();
    assert_ne!(story.job_for("a").uid, uid);
}

#[test]
fn jobs_left_at_parallelism_0_take_turns_on_a_node() {
    let mut left = Left::new(&["a"], &["a"]);
    let hash = left.hash.clone();
    left.job(None, "a", &hash, &json!({ "spec": { "parallelism": 0 } }));
    left.story.apply(plan("q"));
    let mut story = left.take_over();
    assert_eq!(
        story
            .invariants
            .jobs
            .values()
            .filter(|job| job.parallelism == 1)
            .count(),
        1
    );
    story.roll_out();
    assert!(story.is_done("a", "p") && story.is_done("a", "q"));
}
