//! The guard of the control plane's majority.

use k8s_openapi::api::core::v1::Toleration;

use super::scenario::Scenario;
use crate::api::{DrainSpec, PlanSpec};
use crate::rehearse::Kind;
use crate::rehearse::fault::Rule;
use crate::rehearse::json::json;
use crate::rollout::PodStage;
use crate::rollout::tests::build::{plan, plan_with};

const SERVERS: [&str; 3] = ["s1", "s2", "s3"];

fn add_servers(story: &mut Scenario, names: &[&str], label: &str) {
    for name in names {
        story.add_node(name, &json!({ "metadata": { "labels": { label: "true" } } }));
    }
}

fn servers(names: &[&str]) -> Scenario {
    let mut story = Scenario::empty();
    add_servers(&mut story, names, "node-role.kubernetes.io/control-plane");
    story
}

/// All nodes at a time.
fn many(spec: &mut PlanSpec) {
    spec.concurrency = Some(9);
}

#[test]
fn a_control_plane_node_starts_only_while_a_majority_stays_without_it() {
    let mut story = servers(&SERVERS);
    story.add_nodes(&["worker"]);
    story.ready("s2", false);
    story.apply(plan_with("p", many));
    story.settle();
    assert_eq!(story.slots("p"), ["worker"], "workers continue");
    let text = "without the node, 1 of 3 control-plane nodes would be available, and 2 are needed: s2 is unavailable";
    let entry = story.entry("p", "s1");
    assert_eq!(
        (entry.reason.as_deref(), entry.message.as_deref()),
        (Some("ControlPlaneQuorum"), Some(text))
    );
    story.succeed("worker");
    let (status, reason, message) = story.complete("p");
    assert_eq!((&*status, &*reason), ("False", "ControlPlaneQuorum"));
    assert_eq!(message, format!("Node s1: {text}"));
    assert_eq!(story.events_of("ControlPlaneQuorum"), [message]);
    story.ready("s2", true);
    story.settle();
    assert_eq!(story.slots("p").len(), 1, "one after the other");
    story.roll_out();
    story.assert_over();
}

#[test]
fn the_labels_of_older_kubernetes_and_of_other_distributions_count() {
    for label in ["master", "controlplane", "etcd"] {
        let mut story = Scenario::empty();
        add_servers(&mut story, &SERVERS, &format!("node-role.kubernetes.io/{label}"));
        story.apply(plan_with("p", many));
        story.settle();
        assert_eq!(story.slots("p").len(), 1, "{label}");
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
        let mut story = servers(names);
        story.apply(plan_with("p", many));
        story.settle();
        assert_eq!(story.slots("p").len(), slots, "{names:?}");
        story.roll_out();
        story.assert_over();
    }
}

#[test]
fn etcd_nodes_and_control_plane_nodes_have_a_majority_each() {
    let mut story = servers(&["c1", "c2"]);
    add_servers(&mut story, &["e1", "e2", "e3"], "node-role.kubernetes.io/etcd");
    story.apply(plan_with("p", many));
    story.settle();
    let slots = story.slots("p");
    assert_eq!(slots.len(), 3, "{slots:?}");
    assert_eq!(slots.iter().filter(|node| node.starts_with('e')).count(), 1);
}

#[test]
fn nodes_that_other_plans_take_down_count_and_a_cordon_does_not() {
    let mut story = servers(&SERVERS);
    story.apply(plan("patch"));
    story.settle();
    let busy = story.slots("patch")[0].clone();
    story.apply(plan_with("upgrade", |spec| {
        many(spec);
        spec.drain = Some(DrainSpec::default());
    }));
    story.settle();
    assert!(story.slots("upgrade").is_empty());
    let waits = SERVERS.into_iter().find(|node| *node != busy).unwrap();
    let text = format!(
        "without the node, 1 of 3 control-plane nodes would be available, and 2 are needed: {busy} is unavailable"
    );
    assert_eq!(story.entry("upgrade", waits).message, Some(text));
    story.roll_out();
    story.assert_over();

    let mut story = servers(&SERVERS);
    story.cordon("s1", true);
    story.apply(plan("p"));
    story.settle();
    assert_eq!(story.slots("p").len(), 1);
}

#[test]
fn a_server_that_is_not_ready_costs_nothing_and_is_repaired() {
    let mut story = servers(&SERVERS);
    story.ready("s1", false);
    story.apply(plan_with("p", |spec| {
        many(spec);
        spec.tolerations = Some(vec![Toleration {
            key: Some("node.kubernetes.io/not-ready".to_owned()),
            operator: Some("Exists".to_owned()),
            ..Toleration::default()
        }]);
    }));
    story.settle();
    assert_eq!(story.slots("p"), ["s1"]);
    story.succeed_unseen("s1");
    story.ready("s1", true);
    story.settle();
    assert!(story.is_done("s1", "p"));
    story.roll_out();
    story.assert_over();
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
        let mut story = servers(&SERVERS);
        story.apply(plan_with("p", |spec| {
            if disturbs {
                many(spec);
            } else {
                calm(spec);
            }
            spec.control_plane_quorum = asks;
        }));
        story.settle();
        assert_eq!(story.slots("p").len(), slots, "{disturbs} {asks:?}");
    }
}

#[test]
fn a_node_that_has_its_slot_and_no_job_yet_waits_when_another_server_goes_down() {
    let mut story = servers(&SERVERS);
    story.fault_always(Rule::on("create", "jobs").answer(422));
    story.apply(plan("p"));
    story.settle();
    let slot = story.slots("p")[0].clone();
    let other = SERVERS.into_iter().find(|node| *node != slot).unwrap();
    story.ready(other, false);
    story.settle();
    story.mend();
    story.restart();
    story.pass_secs(120);
    assert!(story.jobs_for(&slot).is_empty());
    assert_eq!(story.phase("p", &slot).1, "ControlPlaneQuorum");
    story.ready(other, true);
    story.settle();
    story.comes_to(&slot, PodStage::Upgrade);
    story.roll_out();
    story.assert_over();
}

#[test]
fn a_retry_on_a_server_waits_for_the_majority() {
    let mut story = servers(&SERVERS);
    story.apply(plan("p"));
    story.settle();
    let first = story.slots("p")[0].clone();
    story.fail(&first);
    let other = SERVERS.into_iter().find(|node| *node != first).unwrap();
    story.ready(other, false);
    story.retry(&first, "p");
    story.settle();
    assert_eq!(story.phase("p", &first).1, "ControlPlaneQuorum");
    story.ready(other, true);
    story.settle();
    assert_eq!(story.live_job(&first).attempt, 2);
    story.roll_out();
    story.assert_over();
}

/// A cloud provider deletes the Node of a machine that is off for its reboot.
#[test]
fn a_deleted_server_counts_for_ten_minutes_or_until_it_registers_again() {
    let mut story = servers(&SERVERS);
    story.apply(plan("p"));
    story.settle();
    let first = story.slots("p")[0].clone();
    story.delete(Kind::Node, &first);
    story.settle();
    assert!(story.slots("p").is_empty());
    let other = SERVERS.into_iter().find(|node| *node != first).unwrap();
    let text = format!(
        "without the node, 1 of 3 control-plane nodes would be available, and 2 are needed: {first} is unavailable"
    );
    assert_eq!(story.entry("p", other).message, Some(text));
    story.pass_secs(540);
    assert!(story.slots("p").is_empty());
    story.pass_secs(60);
    assert_eq!(story.slots("p").len(), 1, "it is gone for good");

    let mut story = servers(&SERVERS);
    story.apply(plan("p"));
    story.settle();
    let first = story.slots("p")[0].clone();
    story.delete(Kind::Node, &first);
    story.settle();
    add_servers(&mut story, &[&first], "node-role.kubernetes.io/control-plane");
    story.settle();
    assert_eq!(story.slots("p").len(), 1);
    story.roll_out();
    story.assert_over();
}
