//! Several Jobs on one node, and those of others.

use jiff::SignedDuration;

use super::build::{apply_effect, cluster, observe_job, outcome, pod};
use crate::{ClusterState, GlobalLimits, Observation, Step, StepEffect, decide};
use refit_api::{Plan, SkipWhenSpec, names};
use refit_facts::{JobFacts, JobOutcome, NodeFacts};
use refit_fixtures::{job, morning, node, plan, plan_with, read};

type Change<'a> = &'a dyn Fn(&mut JobFacts);

/// The node `a`, its Plan, and a Job of it that was created so many seconds ago.
fn with_jobs(plan: &Plan, node: &NodeFacts, jobs: &[(i64, Change<'_>)]) -> ClusterState {
    let mut cluster = cluster([node.clone()], [plan.clone()]);
    cluster.refresh(morning());
    let hash = cluster.plans["p"].resolved.as_ref().unwrap().hash.clone();
    for (number, (age, change)) in jobs.iter().enumerate() {
        let mut facts = job(&format!("job-{number}"), &read(plan.clone()), node, &hash);
        facts.created = morning() - SignedDuration::from_secs(*age);
        change(&mut facts);
        observe_job(&mut cluster, 2, facts);
    }
    cluster
}

/// Whether the decision labels the node as done.
fn labels_node(cluster: &mut ClusterState) -> bool {
    cluster.refresh(morning());
    let label = format!("{}p", names::LABEL_PLAN_PREFIX);
    let decision = decide(cluster, morning());
    decision.steps.iter().any(|step| match step {
        Step::PatchNode { change, .. } if change.labels.contains_key(&label) => {
            assert!(change.exact, "only if the node is as it was");
            true
        }
        _ => false,
    })
}

#[test]
fn a_later_job_supersedes_the_result_of_an_earlier_one_only_if_it_is_recorded() {
    let complete = |job: &mut JobFacts| {
        let at = morning() - SignedDuration::from_secs(60);
        job.outcome = JobOutcome::Complete { at };
    };
    let leaves = |job: &mut JobFacts| job.deleting = true;
    let recorded = |job: &mut JobFacts| job.recorded = true;
    for (later, age, counts) in [
        (&leaves as Change<'_>, 30, true),
        (&recorded, 30, false),
        // It ran beside the other one.
        (&recorded, 90, true),
    ] {
        let mut cluster = with_jobs(&plan("p"), &node("a", "n1"), &[(120, &complete), (age, later)]);
        assert_eq!(labels_node(&mut cluster), counts, "{age}");
    }
}

#[test]
fn a_node_that_has_the_version_already_is_not_done_while_a_job_of_that_name_is_there() {
    let skipping = plan_with("p", |spec| {
        spec.skip_when = Some(SkipWhenSpec {
            kubelet_version: Some(true),
            ..SkipWhenSpec::default()
        });
    });
    let mut node = node("a", "n1");
    node.kubelet = "v1".into();
    let is_of_another_plan = |job: &mut JobFacts| (job.plan_uid, job.deleting) = ("earlier".into(), true);
    let is_recorded = |job: &mut JobFacts| job.recorded = true;
    for (jobs, is_done) in [
        (vec![], true),
        (vec![(60, &is_of_another_plan as Change<'_>)], false),
        (vec![(60, &is_recorded as Change<'_>)], true),
    ] {
        assert_eq!(labels_node(&mut with_jobs(&skipping, &node, &jobs)), is_done);
    }
}

#[test]
fn a_pod_that_was_left_behind_keeps_its_own_plan_and_disruptive_ones_off_the_node() {
    for (of, cordons, starts) in [
        ("p", true, false),
        ("q", true, false),
        ("p", false, false),
        ("q", false, true),
    ] {
        let plan = plan_with("p", |spec| spec.cordon = Some(cordons));
        let mut cluster = cluster([node("a", "n1")], [plan]);
        cluster.apply(Observation::Pod(2, Box::new(pod(of, "a"))));
        let (started, waiting) = outcome(&mut cluster);
        assert_eq!(started == ["a"], starts, "{of} {cordons}: {waiting:?}");
    }
}

#[test]
fn a_node_on_which_the_job_of_a_deleted_plan_still_runs_counts_as_unavailable() {
    for (parallelism, starts) in [(1, false), (0, true)] {
        let mut cluster = cluster([node("a", "n1"), node("b", "n2")], [plan("p")]);
        let limits = [("maxUnavailable".to_owned(), "1".to_owned())];
        cluster.apply(Observation::Limits(GlobalLimits::Present(limits.into())));
        let of_deleted = JobFacts {
            parallelism,
            ..job("q-job", &read(plan("q")), &node("b", "n2"), "hash")
        };
        observe_job(&mut cluster, 2, of_deleted);
        let (started, waiting) = outcome(&mut cluster);
        assert_eq!(!started.is_empty(), starts, "{waiting:?}");
    }
}

#[test]
fn a_pod_that_was_deleted_is_known_to_be_before_the_watch_says_so() {
    let mut cluster = cluster([node("a", "n1")], [plan("p")]);
    cluster.apply(Observation::Pod(2, Box::new(pod("p", "a"))));
    let deleted = |uid: &str| StepEffect::PodDeleting("pod".into(), uid.into());
    assert!(!apply_effect(&mut cluster, deleted("another")));
    assert!(apply_effect(&mut cluster, deleted("pod-uid")));
    assert!(!apply_effect(&mut cluster, deleted("pod-uid")), "no news");
}
