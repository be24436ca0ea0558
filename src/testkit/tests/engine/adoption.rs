//! refit adopts the objects of system-upgrade-controller, and runs no upgrade again.

use super::scenario::{NAMESPACE, Scenario, Setup};
use refit_fixtures::{plan, plan_with};
use refit_job::name::job_name;
use refit_rehearse::Kind;
use refit_rehearse::json::{Value, json};

/// A cluster after system-upgrade-controller: a Plan with its status, and no running controller.
struct Left {
    scenario: Scenario,
    hash: String,
}

impl Left {
    fn new(nodes: &[&str], applying: &[&str]) -> Self {
        let hash = Scenario::with(&["x"], plan("p")).hash("p");
        let mut scenario = Scenario::without_controller(&Setup::default());
        scenario.add_nodes(nodes);
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
        scenario.apply(plan_with("p", |spec| spec.concurrency = Some(2)));
        scenario
            .cluster
            .patch_status(Kind::Plan, NAMESPACE, "p", json!({ "status": status }))
            .unwrap();
        Self { scenario, hash }
    }

    /// A Job as system-upgrade-controller creates it. A finished one ended so many minutes ago.
    fn job(&mut self, name: Option<&str>, node: &str, hash: &str, change: &Value) -> String {
        let name = name.map_or_else(|| job_name("p", node, &self.hash), str::to_owned);
        let uid = self.scenario.cluster.get(Kind::Plan, NAMESPACE, "p").unwrap()["metadata"]["uid"].clone();
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
        refit_rehearse::write::merge(&mut job, change);
        self.scenario.cluster.put(job).unwrap();
        name
    }

    fn take_over(mut self) -> Scenario {
        self.scenario.pass_secs(1);
        self.scenario.start();
        self.scenario.settle();
        self.scenario
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
        left.scenario.set_done_label(node, "p", Some(&hash));
    }
    left.scenario.cordon("a", true);
    left.job(None, "a", &hash, &complete(5));
    let mut scenario = left.take_over();
    assert_eq!(
        (scenario.requests("POST /jobs"), scenario.requests("DELETE /jobs")),
        (0, 0)
    );
    for condition in &scenario.status("p").conditions {
        assert_eq!(
            (condition.status.as_str(), condition.last_update_time.as_deref()),
            ("True", Some("2025-12-31T00:00:00Z")),
            "since when it has said so"
        );
    }
    assert_eq!(scenario.hash("p"), hash);
    assert_eq!(scenario.status("p").progress.as_deref(), Some("2/2"));
    assert!(scenario.events().is_empty(), "{:?}", scenario.events());
    let job = scenario.job_for("a");
    assert!(job.recorded);
    let stored = scenario.cluster.get(Kind::Job, NAMESPACE, &job.name).unwrap();
    let ttl = stored["spec"]["ttlSecondsAfterFinished"].as_i64().unwrap();
    assert!(ttl >= 900, "its logs stay as long as they would: {ttl}");
    assert!(scenario.is_cordoned("a"), "that was a person, after it");

    // The Job is spent: without the label the Plan runs again, with a Job of refit under that name.
    scenario.set_done_label("a", "p", None);
    scenario.roll_out();
    let again = scenario.job_for("a");
    assert!(again.name == job.name && again.uid != job.uid);
    scenario.add_nodes(&["late"]);
    scenario.roll_out();
    assert!(scenario.is_done("late", "p") && scenario.jobs_for("b").is_empty());
}

#[test]
fn a_job_that_runs_is_adopted_also_where_the_hostname_is_not_the_name() {
    let mut left = Left::new(&[], &["host-1"]);
    left.scenario.add_node(
        "a",
        &json!({ "metadata": { "labels": { "kubernetes.io/hostname": "host-1" } } }),
    );
    let hash = left.hash.clone();
    let pod = json!({ "spec": { "template": { "spec": { "nodeSelector": { "kubernetes.io/hostname": "host-1" } } } } });
    left.job(None, "a", &hash, &pod);
    let mut scenario = left.take_over();
    let uid = scenario.job_for("a").uid;
    assert_eq!(scenario.slots("p"), ["a"]);
    assert_eq!(scenario.status("p").applying, Some(vec!["host-1".to_owned()]));
    scenario.roll_out();
    assert!(scenario.is_done("a", "p") && scenario.job_for("a").uid == uid);
    assert_eq!(scenario.events_of("JobComplete").len(), 1);
    assert_eq!(scenario.invariants.upgrades, 1);
}

#[test]
fn a_job_left_at_parallelism_0_is_released_unless_no_node_may_start() {
    for suspended in [false, true] {
        let mut left = Left::new(&["a"], &["a"]);
        let hash = left.hash.clone();
        left.job(None, "a", &hash, &json!({ "spec": { "parallelism": 0 } }));
        left.scenario
            .edit("p", |spec| spec.suspend = suspended.then_some(true));
        let mut scenario = left.take_over();
        assert_eq!(scenario.job_for("a").parallelism, i32::from(!suspended));
        if !suspended {
            scenario.roll_out();
            assert!(scenario.is_done("a", "p") && scenario.invariants.upgrades == 1);
        }
    }
}

#[test]
fn a_node_that_is_applying_without_a_job_gets_one() {
    let mut scenario = Left::new(&["a", "b", "c"], &["a"]).take_over();
    assert!(scenario.slots("p").contains(&"a".to_owned()));
    scenario.finish();
}

#[test]
fn a_failed_job_is_recorded_and_not_run_again_before_someone_says_so() {
    let mut left = Left::new(&["a"], &["a"]);
    let hash = left.hash.clone();
    let at = "2026-01-01T08:55:00Z";
    let failed = json!({ "status": { "failed": 3, "conditions": [{ "type": "Failed", "status": "True", "reason": "BackoffLimitExceeded",
        "message": "Job has reached the specified backoff limit", "lastTransitionTime": at }] } });
    let name = left.job(None, "a", &hash, &failed);
    let mut scenario = left.take_over();
    assert_eq!(scenario.complete("p")[1], "JobFailed");
    assert_eq!(scenario.record("a", "p").job, name.as_str().into());
    assert!(scenario.job_for("a").recorded);
    scenario.restart();
    assert_eq!(scenario.phase("p", "a"), ["Failed", "BackoffLimitExceeded"]);
    assert_eq!(scenario.events_of("JobFailed").len(), 1);
    scenario.delete(Kind::Job, &name);
    scenario.restart();
    scenario.pass_secs(60);
    assert!(scenario.invariants.jobs.is_empty());
    scenario.edit_and_settle("p", |spec| {
        spec.upgrade.get_or_insert_default().args = Some(vec!["--again".to_owned()]);
    });
    assert_eq!(scenario.job_for("a").attempt, 2);
    scenario.roll_out();
    assert!(scenario.is_done("a", "p") && scenario.events_of("JobFailed").len() == 1);
}

#[test]
fn of_several_finished_jobs_the_last_one_counts_and_none_costs_another_its_slot() {
    let mut left = Left::new(&["a", "b", "c"], &["a"]);
    let hash = left.hash.clone();
    left.job(None, "a", &hash, &complete(1));
    left.job(Some("aaa"), "a", "0123456789", &complete(3));
    left.job(Some("zzz"), "a", "0123456789", &complete(4));
    let mut scenario = left.take_over();
    assert_eq!(scenario.done_label("a", "p"), Some(hash));
    assert_eq!(
        scenario.jobs_for("a").iter().filter(|job| job.recorded).count(),
        3
    );
    assert_eq!(scenario.events_of("JobComplete").len(), 1);
    assert_eq!(scenario.slots("p").len(), 2);
    scenario.finish();
}

#[test]
fn an_edit_replaces_a_job_that_says_nothing_of_its_inputs_only_for_another_hash() {
    let mut left = Left::new(&["a"], &["a"]);
    let hash = left.hash.clone();
    left.scenario.steer("a", "start-delay", Some("1h"));
    left.job(
        None,
        "a",
        &hash,
        &json!({ "spec": { "template": { "spec": { "nodeSelector": { "nowhere": "to be found" } } } } }),
    );
    let mut scenario = left.take_over();
    let uid = scenario.job_for("a").uid;
    scenario.edit_and_settle("p", |spec| {
        spec.upgrade.get_or_insert_default().args = Some(vec!["--new".to_owned()]);
    });
    assert_eq!(scenario.job_for("a").uid, uid);
    scenario.edit_and_settle("p", |spec| spec.version = Some("v2".to_owned()));
    assert_ne!(scenario.job_for("a").uid, uid);
}

#[test]
fn jobs_left_at_parallelism_0_take_turns_on_a_node() {
    let mut left = Left::new(&["a"], &["a"]);
    let hash = left.hash.clone();
    left.job(None, "a", &hash, &json!({ "spec": { "parallelism": 0 } }));
    left.scenario.apply(plan("q"));
    let mut scenario = left.take_over();
    assert_eq!(
        scenario
            .invariants
            .jobs
            .values()
            .filter(|job| job.parallelism == 1)
            .count(),
        1
    );
    scenario.roll_out();
    assert!(scenario.is_done("a", "p") && scenario.is_done("a", "q"));
}
