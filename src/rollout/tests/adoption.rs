//! What system-upgrade-controller left behind is taken over, and nothing of it is run again (F68).

use super::build::{plan, plan_with};
use super::toy::Toy;
use crate::api::{PlanCondition, PlanStatus};
use crate::job::name::job_name;
use crate::rollout::{JobFacts, Outcome, Stage};

/// A cluster in which system-upgrade-controller was at work: a Plan with its status, and no controller any more.
struct Left {
    toy: Toy,
    hash: String,
}

fn left(nodes: &[&str], applying: &[&str]) -> Left {
    let hash = Toy::with(&["x"], plan("p")).hash("p");
    let mut toy = Toy::asleep();
    toy.add_nodes(nodes);
    toy.apply(plan_with("p", |spec| spec.concurrency = Some(2)));
    let condition = |type_: &str, status: &str, reason: &str| PlanCondition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        last_update_time: Some("2025-12-31T00:00:00Z".to_owned()),
        ..PlanCondition::default()
    };
    let complete = if applying.is_empty() {
        ("True", "Complete")
    } else {
        ("False", "SyncJob")
    };
    let status = PlanStatus {
        conditions: vec![
            condition("Complete", complete.0, complete.1),
            condition("Validated", "True", "PlanIsValid"),
            condition("LatestResolved", "True", "Version"),
        ],
        latest_version: Some("v1".to_owned()),
        latest_hash: Some(hash.clone()),
        applying: (!applying.is_empty()).then(|| applying.iter().map(|n| (*n).to_owned()).collect()),
        ..PlanStatus::default()
    };
    toy.change_plan("p", |facts| facts.object.status = Some(status));
    Left { toy, hash }
}

impl Left {
    fn job(&mut self, node: &str, change: impl FnOnce(&mut JobFacts)) -> String {
        let name = job_name("p", node, &self.hash);
        let mut facts = self.toy.suc_job(&name, "p", node, &self.hash);
        change(&mut facts);
        self.toy.add_suc_job(facts, true);
        name
    }

    fn swapped(mut self) -> Toy {
        self.toy.wakes_up();
        self.toy.settle();
        self.toy
    }
}

#[test]
fn nodes_that_are_done_are_done() {
    let mut left = left(&["a", "b"], &[]);
    let hash = left.hash.clone();
    for node in ["a", "b"] {
        left.toy.set_done_label(node, "p", Some(&hash));
    }
    let mut toy = left.swapped();
    assert!(toy.jobs.is_empty());
    assert_eq!(toy.complete("p").0, "True");
    let complete = &toy.status("p").conditions[0];
    assert_eq!(
        complete.last_update_time.as_deref(),
        Some("2025-12-31T00:00:00Z"),
        "it says the same"
    );
    assert!(toy.told.is_empty(), "{:?}", toy.told);
    assert!(toy.steps().is_empty());
}

#[test]
fn a_job_that_runs_is_adopted() {
    let mut left = left(&["a"], &["a"]);
    let name = left.job("a", |_| {});
    let uid = left.toy.jobs[&name].it.facts.uid.clone();
    let mut toy = left.swapped();
    assert_eq!(toy.slots("p"), ["a"]);
    toy.upgrades("a");
    toy.succeeds("a");
    assert_eq!(toy.job_for("a").facts.uid, uid);
    assert!(toy.is_done("a", "p"));
    assert!(!toy.is_cordoned("a"), "S60");
    assert_eq!(toy.told_of("JobComplete").len(), 1);
}

#[test]
fn a_job_left_at_parallelism_0_is_released_once_status_names_its_machine() {
    let mut left = left(&["a"], &["a"]);
    let name = left.job("a", |job| job.parallelism = 0);
    let uid = left.toy.jobs[&name].it.facts.uid.clone();
    let mut toy = left.swapped();
    assert_eq!(toy.jobs[&name].it.facts.parallelism, 1);
    toy.rolls_out();
    assert!(toy.is_done("a", "p"));
    assert_eq!(toy.job_for("a").facts.uid, uid);
}

#[test]
fn a_job_left_at_parallelism_0_waits_when_nobody_may_start() {
    let mut left = left(&["a"], &["a"]);
    let name = left.job("a", |job| job.parallelism = 0);
    left.toy.edit("p", |spec| spec.suspend = Some(true));
    let toy = left.swapped();
    assert_eq!(toy.jobs[&name].it.facts.parallelism, 0);
}

#[test]
fn jobs_left_at_parallelism_0_take_turns_on_a_node() {
    let mut left = left(&["a"], &["a"]);
    left.job("a", |job| job.parallelism = 0);
    left.toy.apply(plan("q"));
    let mut facts = left.toy.suc_job("apply-q", "q", "a", &left.hash);
    facts.parallelism = 0;
    left.toy.add_suc_job(facts, true);
    let mut toy = left.swapped();
    assert_eq!(
        toy.jobs
            .values()
            .filter(|job| job.it.facts.parallelism == 1)
            .count(),
        1
    );
    toy.rolls_out();
    assert!(toy.is_done("a", "p") && toy.is_done("a", "q"));
}

#[test]
fn a_node_that_is_applying_without_a_job_gets_one() {
    let mut toy = left(&["a", "b", "c"], &["a"]).swapped();
    assert!(toy.slots("p").contains(&"a".to_owned()));
    toy.rolls_out();
    assert!(["a", "b", "c"].iter().all(|node| toy.is_done(node, "p")));
}

#[test]
fn a_failed_job_is_recorded_and_not_run_again() {
    let mut left = left(&["a"], &["a"]);
    let name = left.job("a", |job| {
        job.outcome = Outcome::Failed {
            at: job.created,
            reason: "BackoffLimitExceeded".to_owned(),
            message: "Job has reached the specified backoff limit".to_owned(),
        };
    });
    let mut toy = left.swapped();
    toy.later(60);
    assert_eq!(toy.complete("p").1, "JobFailed");
    assert_eq!(toy.nodes["a"].it.facts.records["p"].job, name);
    assert!(toy.jobs[&name].it.facts.recorded);
    toy.job_goes(&name);
    toy.wakes_up();
    toy.later(60);
    assert!(toy.jobs.is_empty());
    toy.edit("p", |spec| spec.upgrade.args = Some(vec!["--again".to_owned()]));
    toy.settle();
    assert_eq!(toy.job_for("a").facts.attempt, 2);
}

#[test]
fn jobs_that_were_finished_before_the_swap_are_not_touched_twice() {
    let mut left = left(&["a"], &[]);
    let hash = left.hash.clone();
    left.toy.set_done_label("a", "p", Some(&hash));
    left.toy.cordon("a");
    let name = left.job("a", |job| job.outcome = Outcome::Complete { at: job.created });
    let mut toy = left.swapped();
    assert!(toy.is_cordoned("a"), "that was a person, after it");
    assert!(toy.jobs[&name].it.facts.recorded);
    assert!(toy.told.is_empty(), "{:?}", toy.told);
    assert!(toy.steps().is_empty());
}

#[test]
fn of_several_finished_jobs_the_last_one_counts() {
    let mut left = left(&["a"], &["a"]);
    let hash = left.hash.clone();
    left.toy.passes(jiff::SignedDuration::from_mins(5));
    left.job("a", |job| job.outcome = Outcome::Complete { at: job.created });
    for (name, minutes) in [("aaa", -3), ("zzz", -4)] {
        let mut old = left.toy.suc_job(name, "p", "a", "0123456789");
        let at = old
            .created
            .checked_add(jiff::SignedDuration::from_mins(minutes))
            .unwrap();
        old.outcome = Outcome::Complete { at };
        left.toy.add_suc_job(old, true);
    }
    let toy = left.swapped();
    assert_eq!(toy.done_label("a", "p"), Some(hash));
    assert!(toy.jobs.values().all(|job| job.it.facts.recorded));
    assert_eq!(toy.told_of("JobComplete").len(), 1);
}

#[test]
fn a_finished_job_does_not_cost_the_one_that_runs_its_slot() {
    let mut left = left(&["a", "b", "c"], &["a"]);
    let hash = left.hash.clone();
    let mut old = left.toy.suc_job("apply-old", "p", "a", "0123456789");
    old.outcome = Outcome::Complete { at: old.created };
    left.toy.add_suc_job(old, true);
    left.toy.set_done_label("a", "p", Some("0123456789"));
    left.job("a", |_| {});
    let mut toy = left.swapped();
    assert_eq!(toy.slots("p").len(), 2);
    assert!(toy.slots("p").contains(&"a".to_owned()));
    toy.rolls_out();
    assert_eq!(toy.done_label("a", "p"), Some(hash));
}

#[test]
fn a_node_whose_hostname_is_not_its_name_is_found() {
    let mut left = left(&[], &["host-1"]);
    left.toy.add_node("n1", |node| {
        node.labels = super::build::labels([(crate::api::names::LABEL_HOSTNAME, "host-1")]);
    });
    left.job("n1", |_| {});
    let mut toy = left.swapped();
    assert_eq!(toy.status("p").applying, Some(vec!["host-1".to_owned()]));
    toy.rolls_out();
    assert!(toy.is_done("n1", "p"));
}

#[test]
fn an_edit_replaces_a_job_that_says_nothing_of_its_inputs_only_for_another_hash() {
    let mut left = left(&["a"], &["a"]);
    let name = left.job("a", |_| {});
    let uid = left.toy.jobs[&name].it.facts.uid.clone();
    let mut toy = left.swapped();
    toy.edit("p", |spec| spec.upgrade.args = Some(vec!["--new".to_owned()]));
    toy.settle();
    assert_eq!(toy.job_for("a").facts.uid, uid);
    toy.edit("p", |spec| spec.version = Some("v2".to_owned()));
    toy.settle();
    assert_ne!(toy.job_for("a").facts.uid, uid);
    toy.comes_to("a", Stage::Upgrade);
}
