//! Failures: they are recorded, keep their slot, and are cleared by an edit, a retry or a deleted Job.

use super::scenario::{Scenario, Setup};
use crate::fault::{Moment, Rule};
use refit_facts::PodStage;
use refit_facts::record::Phase;
use refit_fixtures::{plan, plan_with};
use refit_rehearse::Kind;
use refit_rehearse::json::json;

const LIMIT: &str = "Job has reached the specified backoff limit";

fn failed() -> Scenario {
    let mut scenario = Scenario::with(&["a"], plan("p"));
    scenario.fail("a");
    scenario
}

#[test]
fn a_failure_is_recorded_on_its_node_in_status_and_by_an_event() {
    let scenario = failed();
    let job = scenario.job_for("a");
    assert!(job.recorded);
    let record = scenario.record("a", "p");
    assert_eq!(
        (record.phase, record.attempt, &*record.job_uid),
        (Phase::Failed, 1, &*job.uid)
    );
    assert_eq!(
        (&*record.plan_uid, Some(&*record.node_uid)),
        (&*job.plan_uid, job.node_uid.as_deref())
    );
    assert_eq!(record.reason.as_deref(), Some("BackoffLimitExceeded"));
    let message = record.message.clone().unwrap();
    assert!(
        message.starts_with("container upgrade exited with 1") && message.ends_with(LIMIT),
        "{message}"
    );
    let text = format!(
        "Job system-upgrade/{} failed on Node a: BackoffLimitExceeded: {message}",
        job.name
    );
    assert_eq!(scenario.complete("p"), ["False", "JobFailed", text.as_str()]);
    assert_eq!(scenario.events_of("JobFailed"), [text]);
    let entry = scenario.entry("p", "a");
    assert_eq!(
        (entry.phase.as_str(), entry.reason.as_deref()),
        ("Failed", Some("BackoffLimitExceeded"))
    );
    assert_eq!((entry.attempt, entry.message), (Some(1), Some(message)));
    let counts = scenario.status("p").nodes.unwrap();
    assert_eq!((counts.failed, counts.applying, counts.done), (1, 0, 0));
}

/// Regression, seen on real nodes: a Job that exceeds its deadline deletes its pod, and fails only once the pod is
/// gone.
#[test]
fn a_termination_message_is_kept_when_the_pod_is_gone_before_its_job_has_failed() {
    let mut scenario = Scenario::of_nodes(&["a"]);
    scenario.steer("a", "upgrade.stop-exit-code", Some("7"));
    scenario.apply(plan_with("p", |spec| spec.job_active_deadline_secs = Some(30)));
    scenario.comes_to("a", PodStage::Upgrade);
    scenario.pass_secs(60);
    let message = scenario.entry("p", "a").message.unwrap();
    assert_eq!(
        message,
        "container upgrade exited with 7; Job was active longer than specified deadline"
    );
    assert_eq!(scenario.phase("p", "a"), ["Failed", "DeadlineExceeded"]);
}

#[test]
fn a_container_that_fails_until_the_deadline_is_the_cause_and_not_the_deadline() {
    let mut scenario = Scenario::new(&Setup {
        backoff_limit: 99,
        ..Setup::default()
    });
    scenario.add_nodes(&["a"]);
    scenario.steer("a", "upgrade.exit-code", Some("3"));
    scenario.steer("a", "upgrade.message", Some("checksum mismatch"));
    scenario.steer("a", "upgrade.run-delay", Some("5s"));
    scenario.apply(plan_with("p", |spec| spec.job_active_deadline_secs = Some(300)));
    scenario.pass_secs(330);
    assert_eq!(scenario.phase("p", "a"), ["Failed", "ContainerFailed"]);
    let message = scenario.entry("p", "a").message.unwrap();
    let words =
        "container upgrade exited with 3: checksum mismatch; Job was active longer than specified deadline";
    assert!(message.starts_with(words), "{message}");
}

#[test]
fn a_failed_node_holds_its_slot_and_stays_cordoned_under_any_leader() {
    let mut scenario = Scenario::with(&["a", "b"], plan("p"));
    let first = scenario.slots("p")[0].clone();
    scenario.fail(&first);
    let job = scenario.job_for(&first).name;
    scenario.pass_secs(3600);
    assert!(scenario.invariants.jobs.is_empty(), "its TTL is over");
    scenario.restart();
    scenario.pass_secs(3600);
    assert_eq!(scenario.slots("p"), [first.as_str()]);
    assert!(
        scenario.is_cordoned(&first) && scenario.invariants.jobs.is_empty(),
        "it is not run again"
    );
    assert_eq!(scenario.complete("p")[1], "JobFailed");
    assert_eq!(scenario.entry("p", &first).job.as_deref(), Some(&*job));
    assert_eq!(scenario.events_of("JobFailed").len(), 1);
}

#[test]
fn a_failure_that_others_work_around_stays_in_the_condition() {
    let mut scenario = Scenario::with(&["a", "b"], plan_with("p", |spec| spec.concurrency = Some(2)));
    scenario.fail("a");
    assert_eq!(scenario.complete("p")[1], "JobFailed");
    scenario.succeed("b");
    assert_eq!(scenario.complete("p")[1], "JobFailed");
}

#[test]
fn an_edit_of_the_inputs_runs_a_failed_node_again_and_another_edit_does_not() {
    let mut scenario = failed();
    let first = scenario.job_for("a");
    scenario.edit_and_settle("p", |spec| spec.concurrency = Some(5));
    assert_eq!(scenario.job_for("a").attempt, 1);
    scenario.edit_and_settle("p", |spec| {
        spec.upgrade.get_or_insert_default().args = Some(vec!["--force".to_owned()]);
    });
    let second = scenario.job_for("a");
    assert_eq!((&second.name, second.attempt), (&first.name, 2));
    assert_ne!(second.uid, first.uid);
    assert_eq!(
        scenario.record("a", "p").phase,
        Phase::Retry,
        "written down first"
    );
    assert_eq!(scenario.complete("p")[1], "SyncJob");
    scenario.finish();
}

#[test]
fn an_edit_while_the_job_runs_runs_it_again_when_it_has_failed() {
    let mut scenario = Scenario::with(&["a"], plan("p"));
    scenario.comes_to("a", PodStage::Upgrade);
    scenario.edit("p", |spec| {
        spec.upgrade.get_or_insert_default().args = Some(vec!["--force".to_owned()]);
    });
    scenario.fail("a");
    assert_eq!(scenario.job_for("a").attempt, 2);
}

#[test]
fn an_attempt_is_decided_on_once_though_the_controller_dies_in_between() {
    for write in 0..5 {
        let mut scenario = failed();
        scenario
            .fault_injector
            .add(Rule::write_or_event().nth(write + 1).kill(Moment::After));
        scenario.retry("a", "p");
        scenario.pass_secs(10);
        let job = scenario.live_job("a");
        assert_eq!(job.attempt, 2, "write {write}");
        scenario.delete(Kind::Job, &job.name);
        scenario.finish();
        assert_eq!(scenario.job_for("a").attempt, 2, "lost, and made again");
    }
}

#[test]
fn a_user_requests_another_attempt() {
    for (wish, attempt, left) in [
        ("p", 2, None),
        ("*", 2, None),
        (" p , other ", 2, Some("other")),
        ("other", 1, Some("other")),
    ] {
        let mut scenario = failed();
        scenario.retry("a", wish);
        scenario.settle();
        assert_eq!(scenario.job_for("a").attempt, attempt, "{wish}");
        assert_eq!(scenario.node("a").retry.as_deref(), left, "{wish}");
    }
}

#[test]
fn a_wish_for_all_is_granted_to_all_that_failed_as_soon_as_they_may_start() {
    let mut scenario = Scenario::with(&["a"], plan_with("one", |spec| spec.cordon = None));
    scenario.apply_and_settle(plan_with("two", |spec| spec.cordon = None));
    scenario.steer("a", "upgrade.exit-code", Some("1"));
    scenario.roll_out();
    assert_eq!(scenario.complete("one")[1].as_str(), "JobFailed");
    assert_eq!(scenario.complete("two")[1].as_str(), "JobFailed");
    scenario.steer("a", "upgrade.exit-code", None);
    scenario.edit_and_settle("two", |spec| spec.suspend = Some(true));
    scenario.retry("a", "*");
    scenario.settle();
    assert_eq!(
        scenario.node("a").retry.as_deref(),
        Some("two"),
        "that one cannot yet"
    );
    assert_eq!(scenario.complete("two")[1], "JobFailed");
    scenario.edit("two", |spec| spec.suspend = None);
    scenario.finish();
    assert_eq!(scenario.node("a").retry, None);
}

#[test]
fn another_version_ends_a_failure_and_back_at_the_one_that_failed_it_stands() {
    let mut scenario = failed();
    scenario.edit_and_settle("p", |spec| spec.version = Some("v2".to_owned()));
    assert_eq!(scenario.slots("p"), ["a"]);
    scenario.finish();

    let mut scenario = Scenario::with(&["a"], plan("p"));
    scenario.comes_to("a", PodStage::Upgrade);
    // The Plan is at v2 when its Job for v1 fails, and returns to v1 before v2 starts.
    scenario.edit_and_settle("p", |spec| spec.version = Some("v2".to_owned()));
    scenario.fault_always(Rule::on("create", "jobs").answer(422));
    scenario.fail("a");
    assert_eq!(scenario.events_of("JobFailed").len(), 1);
    scenario.edit("p", |spec| spec.version = Some("v1".to_owned()));
    scenario.mend();
    scenario.pass_secs(60);
    assert_eq!(scenario.complete("p")[1], "JobFailed");
    assert_eq!(scenario.invariants.upgrades, 1);
}

#[test]
fn a_deselected_node_has_not_failed() {
    for label in ["plan.upgrade.cattle.io/p", "kubernetes.io/hostname"] {
        let mut scenario = failed();
        let value = label.starts_with("plan").then_some("disabled");
        scenario.label("a", label, value);
        scenario.settle();
        assert!(scenario.node("a").records.is_empty() && !scenario.is_cordoned("a"));
        assert_eq!(scenario.complete("p")[0], "True");
    }
}

#[test]
fn a_job_that_cannot_end_because_its_node_is_away_says_so_until_it_ends() {
    let mut scenario = Scenario::with(
        &["a"],
        plan_with("p", |spec| spec.job_active_deadline_secs = Some(60)),
    );
    scenario.comes_to("a", PodStage::Upgrade);
    scenario.power("a", false);
    scenario.pass_secs(80);
    assert_eq!(scenario.phase("p", "a"), ["Failed", "NodeLost"]);
    assert_eq!(
        scenario.entry("p", "a").message.as_deref(),
        Some(
            "DeadlineExceeded: Job was active longer than specified deadline; the node is not Ready, so the state of its pod is unknown: repair the node, or delete it"
        )
    );
    assert!(scenario.node("a").records.is_empty() && scenario.events_of("JobFailed").is_empty());
    // The kubelet is back, and has not reported the end of the pod yet.
    let ready = json!({ "type": "Ready", "status": "True", "reason": "KubeletReady" });
    scenario
        .cluster
        .patch_status(
            Kind::Node,
            "",
            "a",
            json!({ "status": { "conditions": [ready] } }),
        )
        .unwrap();
    scenario.settle();
    assert_eq!(scenario.phase("p", "a")[0], "Upgrading");
    scenario.power("a", true);
    scenario.settle();
    assert_eq!(scenario.phase("p", "a")[1], "DeadlineExceeded");
    assert_eq!(scenario.events_of("JobFailed").len(), 1);
}

#[test]
fn the_job_of_a_lost_node_goes_with_the_node() {
    let mut scenario = Scenario::with(&["a"], plan("p"));
    scenario.comes_to("a", PodStage::Upgrade);
    scenario.power("a", false);
    scenario.pass_secs(80);
    scenario.delete(Kind::Node, "a");
    scenario.rest();
    assert!(scenario.invariants.jobs.is_empty());
    assert_eq!(scenario.complete("p")[0], "True");
}

#[test]
fn a_job_deletes_no_pod_that_may_have_succeeded_between_two_of_its_pods() {
    let mut scenario = Scenario::new(&Setup {
        backoff_limit: 3,
        ..Setup::default()
    });
    scenario.add_nodes(&["a"]);
    scenario.steer("a", "upgrade.exit-code-first", Some("1"));
    scenario.steer("a", "upgrade.run-delay", Some("1s"));
    scenario.apply_and_settle(plan("p"));
    let first = scenario.job_for("a").uid;
    scenario.edit("p", |spec| {
        spec.upgrade.get_or_insert_default().args = Some(vec!["--new".to_owned()]);
    });
    scenario.pass_secs(2);
    assert_eq!(scenario.job_for("a").uid, first, "it may as well have succeeded");
    scenario.steer("a", "upgrade.exit-code-first", None);
    scenario.finish();
}
