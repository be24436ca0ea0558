//! Evidence that is lost before anybody has read it, of Plans that reboot (design: the reboot).

use super::build::{plan_with, reboot};
use super::toy::Toy;
use crate::api::{Plan, RebootWhen};
use crate::rollout::Stage;

fn always() -> Plan {
    plan_with("p", |spec| spec.reboot = Some(reboot(RebootWhen::Always)))
}

/// The controller stops; the Job of node `a` and its pods go.
fn loses_job(toy: &mut Toy) {
    let job = toy.job_for("a").facts.name.to_string();
    toy.delete_job(&job);
    for pod in toy.pods.keys().cloned().collect::<Vec<_>>() {
        toy.pod_goes(&pod);
    }
}

fn upgrades(toy: &Toy) -> u32 {
    toy.laws.starts.values().sum()
}

fn ends(toy: &mut Toy) {
    for _ in 0..4 {
        toy.rolls_out();
        toy.later(10);
    }
}

/// The Job on node `a` has succeeded, and its pod is gone; the controller knows of neither.
fn pod_is_gone() -> Toy {
    let mut toy = Toy::with(&["a"], always());
    toy.later(2); // status names the Job
    toy.succeeds_unseen("a");
    toy.wakes_up();
    for pod in toy.pods.keys().cloned().collect::<Vec<_>>() {
        toy.pod_goes(&pod);
    }
    toy
}

#[test]
fn a_report_that_comes_after_its_job_is_waited_for() {
    let mut toy = Toy::with(&["a"], always());
    toy.succeeds_unseen("a");
    let pod = toy.pods.keys().next().unwrap().clone();
    let found = toy.pods.get_mut(&pod).unwrap().it.facts.found.take();
    toy.wakes_up();
    toy.settle();
    assert!(toy.nodes["a"].it.facts.records.is_empty() && toy.reboot_pods().is_empty());
    toy.change_pod(&pod, |pod| pod.facts.found = found);
    ends(&mut toy);
    assert!(toy.is_done("a", "p") && toy.boots("a") == 1);
}

#[test]
fn a_node_whose_report_is_lost_is_asked_and_reboots_once() {
    let mut toy = pod_is_gone();
    toy.settle();
    assert!(toy.reboot_pods().is_empty(), "it may be told of a moment later");
    toy.later(5);
    assert_eq!(toy.reboot_pods().len(), 1);
    assert!(
        toy.pods[&toy.reboot_pods()[0]]
            .it
            .facts
            .reboot
            .as_ref()
            .unwrap()
            .boot_id
            .is_none()
    );
    ends(&mut toy);
    assert!(toy.is_done("a", "p") && !toy.is_cordoned("a"));
    assert_eq!((toy.boots("a"), upgrades(&toy), toy.laws.reboots), (1, 1, 1));
    assert!(toy.reboot_pods().is_empty());
}

#[test]
fn a_node_that_cannot_say_any_more_has_failed() {
    let mut toy = pod_is_gone();
    toy.reboots("a");
    toy.settle();
    toy.later(5);
    ends(&mut toy);
    let entry = toy.entry("p", "a");
    assert_eq!(
        (entry.phase.as_str(), entry.reason.as_deref()),
        ("Failed", Some("EvidenceLost"))
    );
    assert!(entry.message.unwrap().contains("refit.rs/retry"), "the way out");
    assert_eq!((upgrades(&toy), toy.laws.reboots), (1, 0));
    assert!(toy.reboot_pods().is_empty() && toy.is_cordoned("a"));
}

#[test]
fn a_node_that_does_not_answer_has_failed_in_the_end() {
    let mut toy = pod_is_gone();
    toy.settle();
    toy.later(5);
    toy.power_cycle("a");
    toy.ready("a", false);
    toy.later(15 * 60);
    assert_eq!(toy.entry("p", "a").reason.as_deref(), Some("EvidenceLost"));
}

#[test]
fn a_job_that_was_lost_after_its_success_does_not_run_again() {
    let mut toy = Toy::with(&["a"], always());
    toy.later(2);
    toy.succeeds_unseen("a");
    loses_job(&mut toy);
    toy.wakes_up();
    ends(&mut toy);
    assert!(toy.is_done("a", "p") && !toy.is_cordoned("a"));
    assert_eq!((toy.boots("a"), upgrades(&toy)), (1, 1), "done by the sentinel");
    assert!(toy.jobs.is_empty());
}

#[test]
fn a_job_that_was_lost_before_status_named_it_does_not_run_again() {
    let mut toy = Toy::with(&["a"], always());
    toy.succeeds_unseen("a");
    assert_eq!(toy.entry("p", "a").job, None);
    loses_job(&mut toy);
    toy.wakes_up();
    ends(&mut toy);
    assert!(toy.is_done("a", "p"));
    assert_eq!((toy.boots("a"), upgrades(&toy)), (1, 1));
}

#[test]
fn a_job_that_was_lost_with_its_boot_has_failed() {
    let mut toy = Toy::with(&["a"], always());
    toy.later(2);
    toy.succeeds_unseen("a");
    loses_job(&mut toy);
    toy.reboots("a");
    toy.wakes_up();
    ends(&mut toy);
    assert_eq!(toy.entry("p", "a").reason.as_deref(), Some("EvidenceLost"));
    assert_eq!(upgrades(&toy), 1);
    toy.retry("a", "p");
    ends(&mut toy);
    assert!(toy.is_done("a", "p"));
    assert_eq!((toy.boots("a"), upgrades(&toy)), (2, 2));
}

#[test]
fn a_job_that_was_lost_before_its_success_is_made_again_in_the_same_boot() {
    for stage in [Stage::Cordon, Stage::Upgrade] {
        let mut toy = Toy::with(&["a"], always());
        toy.later(2);
        toy.comes_to("a", stage);
        loses_job(&mut toy);
        toy.wakes_up();
        ends(&mut toy);
        assert!(toy.is_done("a", "p") && toy.boots("a") == 1);
        assert!(toy.told_of("RebootFailed").is_empty());
        assert!(toy.reboot_pods().is_empty());
    }
}

#[test]
fn a_job_is_made_when_the_pod_that_asked_is_gone() {
    let mut toy = Toy::with(&["a"], always());
    toy.later(2);
    toy.comes_to("a", Stage::Cordon);
    loses_job(&mut toy);
    toy.wakes_up();
    toy.settle();
    let ask = toy.reboot_pods()[0].clone();
    toy.play_go(&ask);
    toy.settle();
    toy.later(2);
    toy.later(2);
    assert!(
        toy.pods[&ask].it.terminating && toy.jobs.is_empty(),
        "its answer is of before"
    );
    assert_eq!(toy.entry("p", "a").reason.as_deref(), Some("PodLeaving"));
    toy.pod_goes(&ask);
    toy.settle();
    assert_eq!(toy.jobs_for("a").len(), 1);
    ends(&mut toy);
    assert!(toy.is_done("a", "p"));
}

#[test]
fn a_controller_that_dies_once_it_has_told_that_no_job_succeeded_leaves_nobody_stuck() {
    let mut toy = Toy::with(&["a"], always());
    toy.later(2);
    toy.comes_to("a", Stage::Cordon);
    loses_job(&mut toy);
    toy.wakes_up();
    toy.settle();
    let ask = toy.reboot_pods()[0].clone();
    toy.play_go(&ask);
    // Its last write; the pod that it asked is still there.
    toy.change_plan("p", |plan| {
        let told = plan.object.status.as_mut().unwrap().active.as_mut().unwrap();
        assert!(told[0].job.take().is_some() && told[0].message.take().is_some());
    });
    toy.wakes_up();
    ends(&mut toy);
    assert!(toy.is_done("a", "p"));
    assert_eq!((toy.boots("a"), upgrades(&toy)), (1, 1));
}

#[test]
fn nobody_is_asked_when_a_roll_out_goes_as_it_should() {
    let mut toy = Toy::with(&["a", "b"], always());
    ends(&mut toy);
    assert!(
        !toy.trace
            .iter()
            .any(|line| line.contains("CreatePod") && line.contains("\"ask-"))
    );
    assert!(toy.is_done("a", "p") && toy.is_done("b", "p"));
}
