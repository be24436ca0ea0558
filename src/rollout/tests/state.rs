//! The index of facts with late, repeated and missing observations.

use super::build::{apply_effect, defaults, observe_job, observe_node, observe_plan};
use crate::{ClusterState, Kind, ListCounts, Observation, StepEffect};
use refit_api::{Holder, Ledger, names};
use refit_facts::{JobFacts, JobOutcome, NodeFacts};
use refit_fixtures::{CONTROLLER, NAMESPACE, job, labels, morning, node, plan, plan_with, read};

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
fn a_hostname_that_two_nodes_have_had_counts_as_shared() {
    let named = |name: &str, host: &str| NodeFacts {
        labels: labels([(names::LABEL_HOSTNAME, host)]),
        ..node(name, &format!("uid-{name}"))
    };
    let mut cluster = cluster();
    let shared = |cluster: &ClusterState, name: &str| {
        let node = cluster.node(name).unwrap().clone();
        cluster.world.nodes.shares_hostname(&node)
    };
    observe_node(&mut cluster, 1, named("a", "host"));
    assert!(!shared(&cluster, "a"));
    observe_node(&mut cluster, 2, named("b", "host"));
    assert!(shared(&cluster, "a") && shared(&cluster, "b"));
    observe_node(&mut cluster, 3, named("b", "other"));
    assert!(
        shared(&cluster, "a"),
        "the kubelet of b may take the name in turns"
    );
    assert!(!shared(&cluster, "b"));
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
fn apply_job_response(cluster: &mut ClusterState, name: &str, sent: ListCounts) -> bool {
    let facts = job(name, &read(plan("p")), &node("a", "n1"), "hash");
    let answer = StepEffect::Observed(Observation::Job(1, Box::new(facts)));
    let changed = cluster.apply_effect(answer, sent, morning());
    assert_eq!(cluster.world.jobs.get(name).is_some(), changed);
    changed
}

#[test]
fn a_response_older_than_a_list_does_not_add_an_unknown_job() {
    let mut cluster = cluster();
    let sent = cluster.lists();
    assert!(apply_job_response(&mut cluster, "before-all-lists", sent));
    // A list of pods does not affect Jobs.
    cluster.apply(Observation::ListStarted(Kind::Pod));
    cluster.apply(Observation::ListFinished(Kind::Pod));
    assert!(apply_job_response(&mut cluster, "after-a-list-of-pods", sent));
    cluster.apply(Observation::ListStarted(Kind::Job));
    assert!(!apply_job_response(&mut cluster, "sent-before-the-list", sent));
    // It may be older or newer than the list.
    let during = cluster.lists();
    assert!(!apply_job_response(&mut cluster, "sent-during-the-list", during));
    cluster.apply(Observation::ListFinished(Kind::Job));
    assert!(!apply_job_response(&mut cluster, "received-after-the-list", sent));
    let after = cluster.lists();
    assert!(apply_job_response(&mut cluster, "sent-after-the-list", after));
}

#[test]
fn a_secret_that_was_deleted_before_it_was_read_stays_deleted() {
    let mut cluster = with_secret();
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

/// A cluster with a Plan that has the Secret `s` in its hash.
fn with_secret() -> ClusterState {
    let mut cluster = cluster();
    let named = plan_with("p", |spec| {
        spec.secrets = Some(vec![refit_api::SecretSpec {
            name: "s".to_owned(),
            ..refit_api::SecretSpec::default()
        }]);
    });
    assert!(observe_plan(&mut cluster, 5, read(named)));
    cluster
}

#[test]
fn a_secret_that_was_deleted_while_its_content_was_on_its_way_stays_deleted() {
    let content = || StepEffect::Secret("s".into(), 6, "hash".to_owned());
    let gone = [
        Observation::SecretDeleted("s".into()),
        Observation::SecretAbsent(7, "s".into()),
    ];
    for gone in gone {
        let mut cluster = with_secret();
        assert!(cluster.apply(gone));
        assert!(!apply_effect(&mut cluster, content()));
        assert!(cluster.apply(Observation::Secret(8, "s".into())), "created again");
    }
    let mut cluster = with_secret();
    assert!(apply_effect(&mut cluster, content()));
    assert!(
        !cluster.apply(Observation::SecretAbsent(5, "s".into())),
        "a list from before it was created"
    );
}

#[test]
fn a_secret_that_no_plan_names_any_more_is_forgotten_and_read_again_when_one_does() {
    let mut cluster = with_secret();
    assert!(apply_effect(
        &mut cluster,
        StepEffect::Secret("s".into(), 6, "hash".to_owned())
    ));
    let names = cluster.retain_hashed_secrets();
    assert!(names.iter().map(|name| &**name).eq(["s"]), "{names:?}");
    assert_eq!(cluster.world.secrets.table().version("s"), Some(6));
    assert!(observe_plan(&mut cluster, 7, read(plan("p"))));
    assert!(cluster.retain_hashed_secrets().is_empty());
    assert_eq!(cluster.world.secrets.table().version("s"), None);
}

#[test]
fn a_secret_of_a_name_that_none_can_have_is_missing_and_not_requested() {
    let mut cluster = cluster();
    let odd_names = ["../../kube-system/secrets/a", "a?watch=true", "", "A"];
    let odd = plan_with("p", |spec| {
        let named = |name: &str| refit_api::SecretSpec {
            name: name.to_owned(),
            ..refit_api::SecretSpec::default()
        };
        spec.secrets = Some(odd_names.map(named).into());
    });
    observe_plan(&mut cluster, 5, read(odd));
    assert!(cluster.retain_hashed_secrets().is_empty());
    let now = jiff::Timestamp::UNIX_EPOCH;
    cluster.refresh(now);
    let steps = crate::decide(&cluster, now).steps;
    let reads = |step: &crate::Step| matches!(step, crate::Step::Query(_));
    assert!(!steps.iter().any(reads), "{steps:?}");
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
    assert!(cluster.world.jobs.get("j").unwrap().deleting);
}

#[test]
fn a_deleted_job_is_kept_until_its_result_is_recorded() {
    for deleting in [false, true] {
        let mut cluster = super::build::cluster([node("a", "n1")], [plan("p")]);
        let facts = job("j", &read(plan("p")), &node("a", "n1"), "hash");
        let failed = JobFacts {
            outcome: JobOutcome::Failed {
                at: facts.created,
                reason: "DeadlineExceeded".to_owned(),
                message: String::new(),
            },
            deleting,
            ..facts
        };
        assert!(observe_job(&mut cluster, 5, failed.clone()));
        cluster.apply(Observation::JobDeleted("j".into(), failed.uid.clone()));
        assert!(cluster.world.jobs.get("j").is_some(), "its result is needed");
        // The response to a delete arrives after the watch has reported the deletion.
        assert!(!apply_effect(
            &mut cluster,
            StepEffect::JobDeleting("j".into(), failed.uid.clone())
        ));
        assert!(!cluster.world.jobs.get("j").unwrap().deleting);
        assert!(cluster.has_work_on_nodes());
    }
}

#[test]
fn a_note_about_plans_that_somebody_has_overwritten_is_written_again() {
    let mut cluster = super::build::cluster([], [plan("p")]);
    cluster.remember_plans(Some("p-uid"));
    assert_eq!(cluster.note_known_plans(false), None);
    for other in ["", "x,x", "\u{1b}[2J"] {
        cluster.confirm_known_plans(other);
        assert_eq!(
            cluster.note_known_plans(false).as_deref(),
            Some("p-uid"),
            "{other:?}"
        );
        cluster.confirm_known_plans("p-uid");
        assert_eq!(cluster.note_known_plans(false), None);
    }
}

#[test]
fn of_many_plans_that_are_gone_the_last_64_are_remembered_and_those_that_have_left_a_trace() {
    let mut holder = node("a", "n1");
    let held = Holder {
        namespace: NAMESPACE.to_owned(),
        controller: CONTROLLER.to_owned(),
        plan: "held".to_owned(),
        plan_uid: "held".into(),
        cancelled: false,
        completed: false,
        evicted: Vec::new(),
    };
    holder.ledger = Some(Ledger {
        holders: vec![held],
        ..Ledger::default()
    });
    let mut cluster = super::build::cluster([holder], [plan("p")]);
    let gone: Vec<_> = (0..70).map(|number| format!("gone-{number:02}")).collect();
    cluster.remember_plans(Some(&format!("held,{}", gone.join(","))));
    let kept = format!("held,{},p-uid", gone[6..].join(","));
    assert_eq!(cluster.note_known_plans(false), Some(kept));
}
