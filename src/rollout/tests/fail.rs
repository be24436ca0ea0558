//! Failure: it is written down, it holds its slot, and what ends it (S54, S59, S61).

use super::build::{plan, plan_with};
use super::toy::Toy;
use crate::rollout::record::Phase;
use crate::rollout::{Outcome, Stage, Step};

const LIMIT: &str =
    "Job has reached the specified backoff limit: container upgrade exited with 1: no space left";

fn failed() -> Toy {
    let mut toy = Toy::with(&["a"], plan("p"));
    toy.fails("a");
    toy
}

#[test]
fn a_failure_is_written_on_the_node_before_it_is_written_on_the_job() {
    let mut toy = Toy::with(&["a"], plan("p"));
    toy.fails_unseen("a");
    let steps = toy.steps();
    let record = steps.iter().find_map(|step| match step {
        Step::PatchNode { change, .. } => Some(change.annotations["plan.refit.rs/p"].clone().unwrap()),
        _ => None,
    });
    assert!(record.unwrap().contains("BackoffLimitExceeded"));
    assert!(!steps.iter().any(|step| matches!(step, Step::MarkRecorded { .. })));
    toy.settle();
    let record = &toy.nodes["a"].it.facts.records["p"];
    assert_eq!((record.phase, record.attempt), (Phase::Failed, 1));
    assert_eq!(record.reason.as_deref(), Some("BackoffLimitExceeded"));
    assert_eq!(record.message.as_deref(), Some(LIMIT));
    assert!(toy.job_for("a").facts.recorded);
}

#[test]
fn a_failure_is_in_status_with_the_jobs_own_words() {
    let toy = failed();
    let job = toy.job_for("a").facts.name.to_string();
    let text = format!("Job system-upgrade/{job} failed on Node a: BackoffLimitExceeded: {LIMIT}");
    assert_eq!(
        toy.complete("p"),
        ("False".to_owned(), "JobFailed".to_owned(), text.clone())
    );
    assert_eq!(toy.told_of("JobFailed"), [text]);
    let entry = toy.entry("p", "a");
    assert_eq!(
        (entry.phase.as_str(), entry.reason.as_deref()),
        ("Failed", Some("BackoffLimitExceeded"))
    );
    assert_eq!((entry.attempt, entry.message.as_deref()), (Some(1), Some(LIMIT)));
    let counts = toy.status("p").nodes.unwrap();
    assert_eq!((counts.failed, counts.applying, counts.done), (1, 0, 0));
}

/// Found on real nodes: at its deadline a Job deletes its pod, and says that it has failed when the pod is gone.
#[test]
fn the_last_words_of_a_pod_are_told_when_it_is_gone_before_its_job_has_failed() {
    let mut toy = Toy::with(&["a"], plan("p"));
    toy.upgrades("a");
    let job = toy.job_of("a");
    let pod = toy.pods.keys().next().unwrap().clone();
    toy.deadline(&job);
    toy.pod_ends(&pod, false);
    toy.settle();
    toy.pod_goes(&pod);
    toy.settle();
    assert!(toy.told_of("JobFailed").is_empty());
    toy.runs();
    let message = toy.entry("p", "a").message.unwrap();
    assert_eq!(
        message,
        "Job was active longer than specified deadline: container upgrade exited with 1: no space left"
    );
}

#[test]
fn a_failed_node_holds_its_slot_and_stays_cordoned() {
    let mut toy = Toy::with(&["a", "b"], plan("p"));
    let first = toy.slots("p")[0].clone();
    toy.fails(&first);
    toy.later(3600);
    assert_eq!(toy.slots("p"), [first.as_str()]);
    assert!(toy.is_cordoned(&first));
    assert!(toy.steps().is_empty());
}

#[test]
fn a_failure_survives_its_job_and_the_controller() {
    let mut toy = failed();
    let job = toy.jobs.keys().next().unwrap().clone();
    toy.job_goes(&job);
    toy.wakes_up();
    toy.later(3600);
    assert!(toy.jobs.is_empty(), "it is not run again");
    assert_eq!(toy.complete("p").1, "JobFailed");
    assert_eq!(toy.entry("p", "a").job, Some(job));
    assert_eq!(toy.told_of("JobFailed").len(), 1);
}

#[test]
fn a_failure_that_others_work_around_stays_in_the_condition() {
    let mut toy = Toy::with(&["a", "b"], plan_with("p", |spec| spec.concurrency = Some(2)));
    toy.fails("a");
    toy.comes_to("b", Stage::Upgrade);
    assert_eq!(toy.complete("p").1, "JobFailed");
    toy.succeeds("b");
    assert_eq!(toy.complete("p").1, "JobFailed");
}

#[test]
fn an_edit_of_the_inputs_runs_a_failed_node_again() {
    let mut toy = failed();
    let first = toy.job_for("a").facts.clone();
    toy.edit("p", |spec| spec.upgrade.args = Some(vec!["--force".to_owned()]));
    toy.settle();
    let second = &toy.job_for("a").facts;
    assert_eq!((second.name.clone(), second.attempt), (first.name, 2));
    assert_ne!(second.uid, first.uid);
    assert_eq!(
        toy.nodes["a"].it.facts.records["p"].phase,
        Phase::Retry,
        "written down first"
    );
    assert_eq!(toy.complete("p").1, "SyncJob");
    toy.rolls_out();
    assert!(toy.is_done("a", "p") && !toy.is_cordoned("a"));
    assert!(toy.nodes["a"].it.facts.records.is_empty());
}

#[test]
fn an_edit_while_the_job_runs_runs_it_again_when_it_has_failed() {
    let mut toy = Toy::with(&["a"], plan("p"));
    toy.upgrades("a");
    toy.edit("p", |spec| spec.upgrade.args = Some(vec!["--force".to_owned()]));
    toy.fails("a");
    assert_eq!(toy.job_for("a").facts.attempt, 2);
}

#[test]
fn an_edit_that_changes_no_input_runs_nothing_again() {
    let mut toy = failed();
    toy.edit("p", |spec| spec.concurrency = Some(5));
    toy.settle();
    assert_eq!(toy.job_for("a").facts.attempt, 1);
}

#[test]
fn an_attempt_is_decided_on_once_though_the_controller_dies_in_between() {
    let mut toy = failed();
    toy.retry("a", "p");
    toy.rounds_until(|toy| toy.nodes["a"].it.facts.records["p"].phase == Phase::Retry);
    toy.wakes_up();
    toy.settle();
    assert_eq!(toy.job_for("a").facts.attempt, 2);
    let job = toy.job_of("a");
    toy.delete_job(&job);
    toy.rolls_out();
    assert!(toy.is_done("a", "p"));
    assert_eq!(toy.job_for("a").facts.attempt, 2, "lost, and made again");
}

#[test]
fn a_person_asks_for_another_attempt() {
    for wish in ["p", "*", " p , other "] {
        let mut toy = failed();
        toy.retry("a", wish);
        toy.settle();
        assert_eq!(toy.job_for("a").facts.attempt, 2, "{wish}");
        let left = toy.nodes["a"].it.facts.retry.clone();
        assert_eq!(left.as_deref(), wish.contains("other").then_some("other"));
    }
    let mut toy = failed();
    toy.retry("a", "other");
    toy.settle();
    assert_eq!(toy.job_for("a").facts.attempt, 1);
}

#[test]
fn a_wish_for_all_is_granted_to_all_that_failed() {
    let mut toy = Toy::with(&["a"], plan_with("one", |spec| spec.cordon = None));
    toy.apply(plan_with("two", |spec| spec.cordon = None));
    toy.settle();
    for _ in 0..2 {
        toy.fails("a");
    }
    assert_eq!(
        (toy.complete("one").1, toy.complete("two").1),
        ("JobFailed".to_owned(), "JobFailed".to_owned())
    );
    toy.edit("two", |spec| spec.suspend = Some(true));
    toy.retry("a", "*");
    toy.settle();
    assert_eq!(
        toy.nodes["a"].it.facts.retry.as_deref(),
        Some("two"),
        "that one cannot yet"
    );
    toy.edit("two", |spec| spec.suspend = None);
    toy.rolls_out();
    assert!(toy.is_done("a", "one") && toy.is_done("a", "two"));
    assert_eq!(toy.nodes["a"].it.facts.retry, None);
}

#[test]
fn nobody_tries_again_while_nobody_may_start() {
    let mut toy = failed();
    toy.edit("p", |spec| spec.suspend = Some(true));
    toy.retry("a", "p");
    toy.settle();
    assert_eq!(toy.complete("p").1, "JobFailed");
    assert_eq!(toy.job_for("a").facts.attempt, 1);
}

#[test]
fn another_version_ends_a_failure() {
    let mut toy = failed();
    toy.edit("p", |spec| spec.version = Some("v2".to_owned()));
    toy.settle();
    assert_eq!(toy.slots("p"), ["a"]);
    toy.rolls_out();
    assert!(toy.is_done("a", "p") && !toy.is_cordoned("a"));
    assert!(toy.nodes["a"].it.facts.records.is_empty());
}

#[test]
fn back_at_the_version_that_failed_the_failure_stands() {
    let mut toy = Toy::with(&["a"], plan("p"));
    toy.upgrades("a");
    toy.edit("p", |spec| spec.version = Some("v2".to_owned()));
    toy.fails("a"); // at v1, while the Plan is at v2
    assert_eq!(toy.told_of("JobFailed").len(), 1);
    toy.edit("p", |spec| spec.version = Some("v1".to_owned()));
    toy.settle();
    assert_eq!(toy.complete("p").1, "JobFailed");
    assert_eq!(toy.laws.starts.len(), 1);
}

#[test]
fn a_deselected_node_has_not_failed() {
    for label in ["disabled", ""] {
        let mut toy = failed();
        if label.is_empty() {
            toy.label("a", "kubernetes.io/hostname", None);
        } else {
            toy.set_done_label("a", "p", Some(label));
        }
        toy.settle();
        assert!(toy.nodes["a"].it.facts.records.is_empty() && !toy.is_cordoned("a"));
        assert_eq!(toy.complete("p").0, "True");
    }
}

#[test]
fn a_job_that_cannot_end_because_its_node_is_away_says_so_until_it_ends() {
    let mut toy = Toy::with(&["a"], plan("p"));
    toy.upgrades("a");
    toy.ready("a", false);
    let job = toy.job_of("a");
    toy.deadline(&job);
    toy.later(1);
    let entry = toy.entry("p", "a");
    assert_eq!(
        (entry.phase.as_str(), entry.reason.as_deref()),
        ("Failed", Some("NodeLost"))
    );
    assert_eq!(
        entry.message.as_deref(),
        Some(
            "DeadlineExceeded: Job was active longer than specified deadline; the node is not Ready, so that nothing is \
             known of its pod: bring the node back, or delete it"
        )
    );
    assert!(toy.nodes["a"].it.facts.records.is_empty() && toy.told_of("JobFailed").is_empty());
    toy.ready("a", true);
    toy.runs();
    assert_eq!(toy.entry("p", "a").reason.as_deref(), Some("DeadlineExceeded"));
    assert!(
        toy.complete("p")
            .2
            .contains("DeadlineExceeded: Job was active longer than specified deadline")
    );
    assert_eq!(toy.told_of("JobFailed").len(), 1);
}

#[test]
fn a_job_about_to_fail_on_a_node_that_is_there_is_still_at_work() {
    let mut toy = Toy::with(&["a"], plan("p"));
    toy.upgrades("a");
    let job = toy.job_of("a");
    toy.deadline(&job);
    toy.later(1);
    assert_eq!(toy.entry("p", "a").phase, "Upgrading");
    assert!(matches!(toy.jobs[&job].it.facts.outcome, Outcome::Failing { .. }));
}

#[test]
fn the_job_of_a_lost_node_goes_with_the_node() {
    let mut toy = Toy::with(&["a"], plan("p"));
    toy.upgrades("a");
    toy.ready("a", false);
    let job = toy.job_of("a");
    toy.deadline(&job);
    toy.delete_node("a");
    toy.settle();
    assert!(toy.jobs.is_empty());
    assert_eq!(toy.complete("p").0, "True");
}
