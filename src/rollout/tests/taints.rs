//! Taints that keep the pod of a Job off its node.

use k8s_openapi::api::core::v1::Toleration;

use super::build::{cluster, observe_job, observe_node, outcome, pod, status_of};
use crate::Observation;
use refit_api::Plan;
use refit_facts::{NodeFacts, PodFacts, PodStage, Taint};
use refit_fixtures::{job, morning, node, plan_with, read};

pub(super) fn taint(key: &str, value: Option<&str>, effect: &str) -> Taint {
    Taint {
        key: key.to_owned(),
        value: value.map(str::to_owned),
        effect: effect.to_owned(),
        ..Taint::default()
    }
}

pub(super) fn with_taints(name: &str, taints: impl IntoIterator<Item = Taint>) -> NodeFacts {
    let mut node = node(name, &format!("uid-{name}"));
    node.taints = Some(taints.into_iter().collect());
    node
}

/// A Plan with a toleration that has this key and operator.
pub(super) fn tolerating(key: &str, operator: &str) -> Plan {
    plan_with("p", |spec| {
        spec.concurrency = Some(9);
        spec.tolerations = Some(vec![Toleration {
            key: Some(key.to_owned()),
            operator: Some(operator.to_owned()),
            ..Toleration::default()
        }]);
    })
}

#[test]
fn a_node_starts_unless_it_has_a_taint_that_keeps_the_pod_of_its_job_off() {
    for (key, effect, toleration, starts) in [
        ("dedicated", "NoSchedule", ("other", "Exists"), false),
        ("dedicated", "NoExecute", ("other", "Exists"), false),
        ("dedicated", "PreferNoSchedule", ("other", "Exists"), true),
        ("dedicated", "NoSchedule", ("dedicated", "Exists"), true),
        ("dedicated", "NoExecute", ("", "Exists"), true),
        ("dedicated", "NoSchedule", ("dedicated", "Equal"), true),
        ("example.com/pool", "NoSchedule", ("example.com", "Exists"), false),
        // Jobs tolerate it, because refit cordons their nodes.
        (
            "node.kubernetes.io/unschedulable",
            "NoSchedule",
            ("other", "Exists"),
            true,
        ),
        // The API server adds tolerations of these to all pods.
        (
            "node.kubernetes.io/unreachable",
            "NoExecute",
            ("other", "Exists"),
            true,
        ),
        (
            "node.kubernetes.io/unreachable",
            "NoSchedule",
            ("other", "Exists"),
            false,
        ),
    ] {
        let nodes = [with_taints("a", [taint(key, None, effect)])];
        let (started, waiting) = outcome(&mut cluster(nodes, [tolerating(toleration.0, toleration.1)]));
        assert_eq!(
            started == ["a"],
            starts,
            "{key}:{effect} {toleration:?}: {waiting:?}"
        );
        let named = waiting
            .iter()
            .any(|why| why.starts_with("a TaintNotTolerated: the node has the taint "));
        assert_eq!(named, !starts, "{waiting:?}");
    }
}

#[test]
fn the_reason_names_all_taints_and_their_tolerations_and_no_slot_is_taken_until_they_go() {
    let taints = || {
        [
            taint("dedicated", Some("etcd"), "NoExecute"),
            taint("seen", None, "PreferNoSchedule"),
            taint("gpu", None, "NoSchedule"),
            taint("node.kubernetes.io/disk-pressure", None, "NoSchedule"),
        ]
    };
    let nodes = [
        with_taints("a", taints()),
        with_taints("b", []),
        with_taints("c", taints()),
    ];
    let mut cluster = cluster(nodes, [tolerating("seen", "Exists")]);
    let (started, waiting) = outcome(&mut cluster);
    assert_eq!(started, ["b"]);
    let why = "a TaintNotTolerated: the node has the taints dedicated=etcd:NoExecute, gpu:NoSchedule, \
               node.kubernetes.io/disk-pressure:NoSchedule, which the Plan does not tolerate; to upgrade such nodes, add to \
               spec.tolerations: {key: dedicated, value: \"etcd\", effect: NoExecute}, {key: gpu, operator: Exists, effect: NoSchedule}; \
               Kubernetes removes node.kubernetes.io/disk-pressure:NoSchedule when the node is healthy";
    assert!(waiting.iter().any(|other| other == why), "{waiting:#?}");
    assert_eq!(waiting.len(), 2);
    observe_node(&mut cluster, 2, with_taints("a", []));
    assert_eq!(outcome(&mut cluster).0, ["a", "b"]);
}

#[test]
fn a_pod_that_waits_names_the_taints_only_if_the_scheduler_does() {
    let untolerated = "0/1 nodes are available: 1 node(s) had untolerated taint(s)";
    for (stage, why, is_named) in [
        (PodStage::Unbound, untolerated, true),
        (
            PodStage::Unbound,
            "0/1 nodes are available: 1 Insufficient cpu",
            false,
        ),
        (PodStage::Drain, untolerated, false),
    ] {
        let node = with_taints("a", [taint("gpu", None, "NoSchedule")]);
        let plan = tolerating("other", "Exists");
        let mut cluster = cluster([node.clone()], [plan.clone()]);
        cluster.refresh(morning());
        let hash = cluster.plans["p"].resolved.as_ref().unwrap().hash.clone();
        let job = job("j", &read(plan), &node, &hash);
        let pod = PodFacts {
            job_uid: job.uid.clone(),
            stage,
            waiting: Some(why.to_owned()),
            ..pod("p", "a")
        };
        observe_job(&mut cluster, 2, job);
        cluster.apply(Observation::Pod(2, Box::new(pod)));
        let said = status_of(&mut cluster, "p").active.unwrap().swap_remove(0);
        let said = said.message.unwrap();
        assert_eq!(said.starts_with("the node has the taint gpu"), is_named, "{said}");
        assert!(said.ends_with(why), "{said}");
    }
}
