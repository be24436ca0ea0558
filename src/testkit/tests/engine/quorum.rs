//! The guard of the control plane's majority.

use k8s_openapi::api::core::v1::Toleration;

use super::scenario::Scenario;
use crate::fault::Rule;
use refit_api::{DrainSpec, PlanSpec};
use refit_facts::PodStage;
use refit_fixtures::{plan, plan_with};
use refit_rehearse::Kind;
use refit_rehearse::json::json;

const SERVERS: [&str; 3] = ["s1", "s2", "s3"];

fn add_servers(scenario: &mut Scenario, names: &[&str], label: &str) {
    for name in names {
        scenario.add_node(name, &json!({ "metadata": { "labels": { label: "true" } } }));
    }
}

fn servers(names: &[&str]) -> Scenario {
    let mut scenario = Scenario::empty();
    add_servers(&mut scenario, names, "node-role.kubernetes.io/control-plane");
    scenario
}

/// All nodes at a time.
fn many(spec: &mut PlanSpec) {
    spec.concurrency = Some(9);
}

#[test]
fn a_control_plane_node_starts_only_while_a_majority_stays_without_it() {
    let mut scenario = servers(&SERVERS);
    scenario.add_nodes(&["worker"]);
    scenario.ready("s2", false);
    scenario.apply_and_settle(plan_with("p", many));
    assert_eq!(scenario.slots("p"), ["worker"], "workers continue");
    let text = "without the node, 1 of 3 control-plane nodes would be available, and 2 are needed: s2 is unavailable";
    let entry = scenario.entry("p", "s1");
    assert_eq!(
        (entry.reason.as_deref(), entry.message.as_deref()),
        (Some("ControlPlaneQuorum"), Some(text))
    );
    scenario.succeed("worker");
    let [status, reason, message] = scenario.complete("p");
    assert_eq!((&*status, &*reason), ("False", "ControlPlaneQuorum"));
    assert_eq!(message, format!("Node s1: {text}"));
    assert_eq!(scenario.events_of("ControlPlaneQuorum"), [message]);
    scenario.ready("s2", true);
    scenario.settle();
    assert_eq!(scenario.slots("p").len(), 1, "one after the other");
    scenario.finish();
}

#[test]
fn a_server_of_kubeadm_counts_only_while_its_member_of_etcd_is_ready() {
    let mut scenario = servers(&SERVERS);
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "etcd-s2", "namespace": "kube-system", "labels": { "component": "etcd" } },
        "spec": { "nodeName": "s2", "containers": [{ "name": "etcd", "image": "etcd" }] },
    });
    scenario.cluster.put(pod).unwrap();
    scenario.settle();
    let set_ready = |scenario: &Scenario, ready: &str| {
        let status = json!({ "status": { "conditions": [{ "type": "Ready", "status": ready }] } });
        let (namespace, name) = ("kube-system", "etcd-s2");
        scenario
            .cluster
            .patch_status(Kind::Pod, namespace, name, status)
            .unwrap();
    };
    set_ready(&scenario, "False");
    scenario.apply_and_settle(plan_with("p", many));
    assert_eq!(
        scenario.slots("p"),
        ["s2"],
        "the node whose member is down takes nothing away"
    );
    let entry = scenario.entry("p", "s1");
    assert_eq!(entry.reason.as_deref(), Some("ControlPlaneQuorum"));
    scenario.succeed("s2");
    let entry = scenario.entry("p", "s1");
    let text = "without the node, 1 of 3 control-plane nodes would be available, and 2 are needed: s2 is unavailable; Ready, \
                but without a vote in etcd: s2";
    assert_eq!(entry.message.as_deref(), Some(text));
    set_ready(&scenario, "True");
    scenario.settle();
    assert_eq!(scenario.slots("p").len(), 1);
    scenario.finish();
}

#[test]
fn the_labels_of_older_kubernetes_and_of_other_distributions_count() {
    for label in ["master", "controlplane", "etcd"] {
        let mut scenario = Scenario::empty();
        add_servers(
            &mut scenario,
            &SERVERS,
            &format!("node-role.kubernetes.io/{label}"),
        );
        scenario.apply_and_settle(plan_with("p", many));
        assert_eq!(scenario.slots("p").len(), 1, "{label}");
    }
}

#[test]
fn of_five_servers_two_may_be_down_and_of_two_both() {
    for (names, slots) in [
        (&["s1", "s2", "s3", "s4", "s5"][..], 2),
        (&["s1", "s2", "s3", "s4"][..], 1),
        (&["s1", "s2"][..], 2),
        (&["s1"][..], 1),
    ] {
        let mut scenario = servers(names);
        scenario.apply_and_settle(plan_with("p", many));
        assert_eq!(scenario.slots("p").len(), slots, "{names:?}");
        scenario.finish();
    }
}

#[test]
fn etcd_nodes_and_control_plane_nodes_have_a_majority_each() {
    let mut scenario = servers(&["c1", "c2"]);
    add_servers(&mut scenario, &["e1", "e2", "e3"], "node-role.kubernetes.io/etcd");
    scenario.apply_and_settle(plan_with("p", many));
    let slots = scenario.slots("p");
    assert_eq!(slots.len(), 3, "{slots:?}");
    assert_eq!(slots.iter().filter(|node| node.starts_with('e')).count(), 1);
}

/// A member that has joined and not caught up is Ready, and etcd cannot do without one of the others.
#[test]
fn a_server_without_a_vote_in_etcd_does_not_count_for_its_majority() {
    let mut scenario = Scenario::empty();
    add_servers(&mut scenario, &["e1", "e2", "e3"], "node-role.kubernetes.io/etcd");
    let votes = |voter: &str| {
        let conditions = [("Ready", "True"), ("EtcdIsVoter", voter)];
        let conditions = conditions.map(|(of, is)| json!({ "type": of, "status": is }));
        json!({ "status": { "conditions": (conditions.to_vec()) } })
    };
    let patch = |scenario: &Scenario, voter: &str| {
        let status = votes(voter);
        scenario
            .cluster
            .patch_status(Kind::Node, "", "e1", status)
            .unwrap();
    };
    patch(&scenario, "False");
    scenario.apply_and_settle(plan_with("p", many));
    assert_eq!(scenario.slots("p"), ["e1"], "it takes nothing away");
    let text = "without the node, 1 of 3 etcd nodes would be available, and 2 are needed: e1 is unavailable; Ready, but without a vote in etcd: e1";
    assert_eq!(scenario.entry("p", "e2").message.as_deref(), Some(text));
    scenario.succeed("e1");
    assert_eq!(scenario.slots("p"), Vec::<String>::new(), "it has no vote yet");
    patch(&scenario, "True");
    scenario.settle();
    assert_eq!(scenario.slots("p").len(), 1);
    scenario.finish();
}

#[test]
fn nodes_that_other_plans_take_down_count_and_a_cordon_does_not() {
    let mut scenario = servers(&SERVERS);
    scenario.apply_and_settle(plan("patch"));
    let busy = scenario.slots("patch")[0].clone();
    scenario.apply_and_settle(plan_with("upgrade", |spec| {
        many(spec);
        spec.drain = Some(DrainSpec::default());
    }));
    assert!(scenario.slots("upgrade").is_empty());
    let waits = SERVERS.into_iter().find(|node| *node != busy).unwrap();
    let text = format!(
        "without the node, 1 of 3 control-plane nodes would be available, and 2 are needed: {busy} is unavailable"
    );
    assert_eq!(scenario.entry("upgrade", waits).message, Some(text));
    scenario.finish();

    let mut scenario = servers(&SERVERS);
    scenario.cordon("s1", true);
    scenario.apply_and_settle(plan("p"));
    assert_eq!(scenario.slots("p").len(), 1);
}

#[test]
fn a_server_that_is_not_ready_costs_nothing_and_is_repaired() {
    let mut scenario = servers(&SERVERS);
    scenario.ready("s1", false);
    scenario.apply_and_settle(plan_with("p", |spec| {
        many(spec);
        spec.tolerations = Some(vec![Toleration {
            key: Some("node.kubernetes.io/not-ready".to_owned()),
            operator: Some("Exists".to_owned()),
            ..Toleration::default()
        }]);
    }));
    assert_eq!(scenario.slots("p"), ["s1"]);
    scenario.succeed_unseen("s1");
    scenario.ready("s1", true);
    scenario.settle();
    assert!(scenario.is_done("s1", "p"));
    scenario.finish();
}

#[test]
fn a_plan_that_disturbs_nothing_is_guarded_when_it_asks_and_any_plan_can_forgo_it() {
    let calm = |spec: &mut PlanSpec| {
        many(spec);
        spec.cordon = None;
    };
    for (disturbs, asks, slots) in [
        (true, None, 1),
        (true, Some(false), 3),
        (false, None, 3),
        (false, Some(true), 1),
    ] {
        let mut scenario = servers(&SERVERS);
        scenario.apply_and_settle(plan_with("p", |spec| {
            if disturbs {
                many(spec);
            } else {
                calm(spec);
            }
            spec.control_plane_quorum = asks;
        }));
        assert_eq!(scenario.slots("p").len(), slots, "{disturbs} {asks:?}");
    }
}

#[test]
fn a_node_that_has_its_slot_and_no_job_yet_waits_when_another_server_goes_down() {
    let mut scenario = servers(&SERVERS);
    scenario.fault_always(Rule::on("create", "jobs").answer(422));
    scenario.apply_and_settle(plan("p"));
    let slot = scenario.slots("p")[0].clone();
    let other = SERVERS.into_iter().find(|node| *node != slot).unwrap();
    scenario.ready(other, false);
    scenario.settle();
    scenario.mend();
    scenario.restart();
    scenario.pass_secs(120);
    assert!(scenario.jobs_for(&slot).is_empty());
    assert_eq!(scenario.phase("p", &slot)[1], "ControlPlaneQuorum");
    scenario.ready(other, true);
    scenario.settle();
    scenario.comes_to(&slot, PodStage::Upgrade);
    scenario.finish();
}

#[test]
fn a_retry_on_a_server_waits_for_the_majority() {
    let mut scenario = servers(&SERVERS);
    scenario.apply_and_settle(plan("p"));
    let first = scenario.slots("p")[0].clone();
    scenario.fail(&first);
    let other = SERVERS.into_iter().find(|node| *node != first).unwrap();
    scenario.ready(other, false);
    scenario.retry(&first, "p");
    scenario.settle();
    assert_eq!(scenario.phase("p", &first)[1], "ControlPlaneQuorum");
    scenario.ready(other, true);
    scenario.settle();
    assert_eq!(scenario.live_job(&first).attempt, 2);
    scenario.finish();
}

/// A cloud provider deletes the Node of a machine that is off for its reboot.
#[test]
fn a_deleted_server_counts_for_ten_minutes_or_until_it_registers_again() {
    let mut scenario = servers(&SERVERS);
    scenario.apply_and_settle(plan("p"));
    let first = scenario.slots("p")[0].clone();
    scenario.delete(Kind::Node, &first);
    scenario.settle();
    assert!(scenario.slots("p").is_empty());
    let other = SERVERS.into_iter().find(|node| *node != first).unwrap();
    let text = format!(
        "without the node, 1 of 3 control-plane nodes would be available, and 2 are needed: {first} is unavailable"
    );
    assert_eq!(scenario.entry("p", other).message, Some(text));
    scenario.pass_secs(540);
    assert!(scenario.slots("p").is_empty());
    scenario.pass_secs(60);
    assert_eq!(scenario.slots("p").len(), 1, "it is gone for good");

    let mut scenario = servers(&SERVERS);
    scenario.apply_and_settle(plan("p"));
    let first = scenario.slots("p")[0].clone();
    scenario.delete(Kind::Node, &first);
    scenario.settle();
    add_servers(&mut scenario, &[&first], "node-role.kubernetes.io/control-plane");
    scenario.settle();
    assert_eq!(scenario.slots("p").len(), 1);
    scenario.finish();
}
