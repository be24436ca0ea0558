//! The index of facts with late, repeated and missing observations.

use super::build::{
    apply_effect, defaults, job, morning, node, observe_job, observe_node, observe_plan, plan, plan_with,
    read,
};
use crate::rollout::{
    ClusterState, JobFacts, JobOutcome, Kind, ListCounts, NodeFacts, Observation, StepEffect,
};

fn cluster() -> ClusterState {
    ClusterState::new(defaults())
}

fn cordoned(uid: &str) -> NodeFacts {
    NodeFacts {
        unschedulable: true,
        ..node("a", uid)
    }
}

#[test]
fn an_older_version_never_replaces_a_newer_one() {
    let mut cluster = cluster();
    assert!(observe_node(&mut cluster, 7, cordoned("n1")));
    assert!(!observe_node(&mut cluster, 6, node("a", "n1")));
    assert!(cluster.node("a").unwrap().unschedulable);
    assert!(observe_node(&mut cluster, 8, node("a", "n1")));
}

#[test]
fn a_node_update_that_changes_no_fact_needs_no_decision() {
    let mut cluster = cluster();
    assert!(observe_node(&mut cluster, 7, node("a", "n1")));
    assert!(!observe_node(&mut cluster, 8, node("a", "n1")), "a heartbeat");
    assert_eq!(cluster.node_version("a"), Some(8));
}

#[test]
fn a_late_response_does_not_restore_a_deleted_node() {
    let mut cluster = cluster();
    observe_node(&mut cluster, 7, node("a", "n1"));
    assert!(cluster.apply(Observation::NodeDeleted("a".into(), "n1".into())));
    let answer = Observation::Node(8, Box::new(cordoned("n1")));
    assert!(!apply_effect(&mut cluster, StepEffect::Observed(answer)));
    assert!(cluster.node("a").is_none());
    assert!(observe_node(&mut cluster, 9, node("a", "n2")));
    assert!(
        !cluster.apply(Observation::NodeDeleted("a".into(), "n1".into())),
        "that was another node"
    );
}

#[test]
fn a_node_that_a_list_does_not_show_is_removed() {
    let mut cluster = cluster();
    observe_node(&mut cluster, 1, node("a", "n1"));
    observe_node(&mut cluster, 2, node("b", "n2"));
    cluster.apply(Observation::ListStarted(Kind::Node));
    assert!(!observe_node(&mut cluster, 2, node("b", "n2")));
    assert!(cluster.apply(Observation::ListFinished(Kind::Node)));
    assert!(cluster.node("a").is_none() && cluster.node("b").is_some());
}

#[test]
fn a_response_during_a_list_does_not_count_as_listed() {
    let mut cluster = cluster();
    observe_node(&mut cluster, 5, node("a", "n1"));
    cluster.apply(Observation::ListStarted(Kind::Node));
    // The response to a write that was made before the deletion.
    let answer = Observation::Node(6, Box::new(cordoned("n1")));
    assert!(apply_effect(&mut cluster, StepEffect::Observed(answer)));
    assert!(cluster.apply(Observation::ListFinished(Kind::Node)));
    assert!(cluster.node("a").is_none());
}

/// Whether a response with a Job that was not known, to a request sent at `sent`, makes it known.
fn is_added(cluster: &mut ClusterState, name: &str, sent: ListCounts) -> bool {
    let facts = job(name, &read(plan("p")), &node("a", "n1"), "hash");
    let answer = StepEffect::Observed(Observation::Job(1, Box::new(facts)));
    let news = cluster.apply_effect(answer, sent, morning());
    assert_eq!(cluster.job(name).is_some(), news);
    news
}

#[test]
fn a_response_older_than_a_list_does_not_add_an_unknown_job() {
    let mut cluster = cluster();
    let sent = cluster.lists();
    assert!(is_added(&mut cluster, "before-all-lists", sent));
    // A list of pods does not affect Jobs.
    cluster.apply(Observation::ListStarted(Kind::Pod));
    cluster.apply(Observation::ListFinished(Kind::Pod));
    assert!(is_added(&mut cluster, "after-a-list-of-pods", sent));
    cluster.apply(Observation::ListStarted(Kind::Job));
    assert!(!is_added(&mut cluster, "sent-before-the-list", sent));
    // It may be older or newer than the list.
    let during = cluster.lists();
    assert!(!is_added(&mut cluster, "sent-during-the-list", during));
    cluster.apply(Observation::ListFinished(Kind::Job));
    assert!(!is_added(&mut cluster, "received-after-the-list", sent));
    let after = cluster.lists();
    assert!(is_added(&mut cluster, "sent-after-the-list", after));
}

#[test]
fn a_secret_that_was_deleted_before_it_was_read_stays_deleted() {
    let mut cluster = cluster();
    let seen = |version| Observation::Secret(version, "s".into());
    let read = |version, hash: &str| StepEffect::Secret("s".into(), version, hash.to_owned());
    assert!(cluster.apply(seen(5)));
    assert!(apply_effect(&mut cluster, read(5, "hash")));
    assert!(
        !cluster.apply(seen(5)),
        "seen in the version in which it was read"
    );
    assert!(cluster.apply(seen(6)));
    assert!(!apply_effect(&mut cluster, read(5, "old")), "read before that");
    assert!(cluster.apply(Observation::SecretDeleted("s".into())));
    assert!(!apply_effect(&mut cluster, read(6, "hash")));
}

#[test]
fn a_second_observation_of_the_same_version_changes_nothing() {
    let mut cluster = cluster();
    let suspended = plan_with("p", |spec| spec.suspend = Some(true));
    assert!(observe_plan(&mut cluster, 5, read(suspended)));
    assert!(!observe_plan(&mut cluster, 5, read(plan("p"))));
    assert_eq!(cluster.plan("p").unwrap().object.spec.suspend, Some(true));
}

#[test]
fn a_job_that_is_being_deleted_stays_so_while_the_watch_is_behind() {
    let mut cluster = cluster();
    let facts = job("j", &read(plan("p")), &node("a", "n1"), "hash");
    assert!(observe_job(&mut cluster, 5, facts.clone()));
    assert!(apply_effect(
        &mut cluster,
        StepEffect::JobDeleting("j".into(), facts.uid.clone())
    ));
    assert!(observe_job(&mut cluster, 6, JobFacts { failures: 1, ..facts }));
    assert!(cluster.job("j").unwrap().deleting);
}

#[test]
fn a_deleted_job_is_kept_until_its_result_is_recorded() {
    let mut cluster = super::build::cluster([node("a", "n1")], [plan("p")]);
    let facts = job("j", &read(plan("p")), &node("a", "n1"), "hash");
    let failed = JobFacts {
        outcome: JobOutcome::Failed {
            at: facts.created,
            reason: "DeadlineExceeded".to_owned(),
            message: String::new(),
        },
        ..facts
    };
    assert!(observe_job(&mut cluster, 5, failed.clone()));
    cluster.apply(Observation::JobDeleted("j".into(), failed.uid.clone()));
    assert!(cluster.job("j").is_some(), "its result is needed");
    // The response to a delete arrives after the watch has reported the deletion.
    assert!(!apply_effect(
        &mut cluster,
        StepEffect::JobDeleting("j".into(), failed.uid.clone())
    ));
    assert!(!cluster.job("j").unwrap().deleting);
    assert!(cluster.has_work_on_nodes());
}
