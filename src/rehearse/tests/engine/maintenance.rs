//! Nodes in maintenance beside Plans: one decision sees both.

use super::limits::set;
use super::scenario::{Scenario, Setup};
use crate::api::{DrainSpec, MarkForm, NodeMark};
use crate::rehearse::Kind;
use crate::rehearse::json::{Value, json};
use crate::rollout::tests::build::{plan, plan_with};
use crate::view::maintenance::{explain_any_node, explain_maintenance};
use crate::view::{PlanOverview, Snapshot, explain_node, table};

fn story(nodes: &[&str]) -> Scenario {
    let mut story = Scenario::new(&Setup {
        enable: Some("maintenance"),
        ..Setup::default()
    });
    story.add_nodes(nodes);
    let leases = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "medik8s-leases" } });
    story.cluster.put(leases).unwrap();
    story
}

fn begin(story: &mut Scenario, name: &str, node: &str) {
    let object = json!({
        "apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance", "metadata": { "name": name },
        "spec": { "nodeName": node },
    });
    story.cluster.create(object).unwrap();
    story.pass_secs(10);
}

fn end(story: &mut Scenario, name: &str) {
    story.cluster.delete(Kind::Maintenance, "", name).unwrap();
    story.pass_secs(10);
    assert!(story.cluster.get(Kind::Maintenance, "", name).is_none());
}

fn status(story: &Scenario, name: &str) -> Value {
    story.cluster.get(Kind::Maintenance, "", name).unwrap()["status"].clone()
}

#[test]
fn a_maintenance_waits_while_the_limits_cannot_be_read_unless_its_node_is_down_anyway() {
    let mut story = story(&["a", "b"]);
    set(&mut story, "maxUnavailable", Some("one"));
    story.cordon("b", true);
    begin(&mut story, "fan", "b");
    assert_eq!(status(&story, "fan")["phase"], "Succeeded");
    begin(&mut story, "disk", "a");
    let waiting = status(&story, "disk");
    assert_eq!(waiting["phase"], "Running");
    let why = waiting["lastError"].as_str().unwrap();
    assert!(why.contains("maxUnavailable"), "{why}");
    assert!(!story.is_cordoned("a"));
    set(&mut story, "maxUnavailable", Some("2"));
    story.pass_secs(10);
    assert_eq!(status(&story, "disk")["phase"], "Succeeded");
}

#[test]
fn a_node_in_maintenance_is_left_alone_by_plans_and_counts_as_unavailable() {
    let mut story = story(&["a", "b", "c"]);
    begin(&mut story, "disk", "a");
    assert_eq!(status(&story, "disk")["phase"], "Succeeded");
    assert!(story.is_cordoned("a"));
    story.apply(plan_with("p", |spec| {
        spec.concurrency = Some(3);
        spec.max_unavailable = Some(k8s_openapi::apimachinery::pkg::util::intstr::IntOrString::Int(2));
    }));
    story.pass_secs(10);
    assert_eq!(story.slots("p").len(), 1, "one node is unavailable already");
    let entry = story.entry("p", "a");
    assert_eq!(entry.reason.as_deref(), Some("NodeBusy"));
    assert_eq!(
        entry.message.as_deref(),
        Some("NodeMaintenance disk works on the node")
    );
    story.restart();
    story.pass_secs(10);
    assert!(story.jobs_for("a").is_empty());
    end(&mut story, "disk");
    assert!(!story.is_cordoned("a") || story.slots("p").contains(&"a".to_owned()));
    story.roll_out();
    story.assert_over();
}

#[test]
fn a_maintenance_waits_for_the_plan_that_is_at_work_and_comes_before_its_next_one() {
    let mut story = story(&["a", "b"]);
    story.apply(plan("p"));
    story.settle();
    let busy = story.slots("p")[0].clone();
    let other = if busy == "a" { "b" } else { "a" };
    begin(&mut story, "now", &busy);
    begin(&mut story, "next", other);
    let why = status(&story, "now")["lastError"].clone();
    assert_eq!(why, "Plan p works on the node");
    assert_eq!(status(&story, "next")["phase"], "Succeeded");
    story.succeed(&busy);
    story.pass_secs(20);
    assert_eq!(status(&story, "now")["phase"], "Succeeded");
    assert!(story.is_done(&busy, "p") && story.is_cordoned(&busy));
    for name in ["now", "next"] {
        end(&mut story, name);
    }
    story.roll_out();
    story.assert_over();
}

#[test]
fn a_maintenance_waits_for_max_unavailable_of_the_cluster_and_no_plan_takes_the_room_before_it() {
    let mut story = story(&["a", "b", "c"]);
    set(&mut story, "maxUnavailable", Some("1"));
    set(&mut story, "maxConcurrent", Some("1"));
    story.apply(plan_with("p", |spec| spec.concurrency = Some(3)));
    story.settle();
    let busy = story.slots("p")[0].clone();
    let mut others = ["a", "b", "c"].into_iter().filter(|node| **node != *busy);
    let node = others.next_back().unwrap();
    begin(&mut story, "disk", node);
    let why = format!("maxUnavailable of ConfigMap refit is 1, and 1 nodes count: {busy}");
    assert_eq!(status(&story, "disk")["lastError"], why);
    assert!(!story.is_cordoned(node));
    story.succeed(&busy);
    story.pass_secs(20);
    assert_eq!(status(&story, "disk")["phase"], "Succeeded");
    assert!(story.is_done(&busy, "p") && story.slots("p").is_empty());
    // One that is down anyway costs nothing.
    let next = others.next().unwrap();
    story.cordon(next, true);
    begin(&mut story, "fan", next);
    assert_eq!(status(&story, "fan")["phase"], "Succeeded");
    end(&mut story, "fan");
    story.cordon(next, false);
    end(&mut story, "disk");
    story.roll_out();
    story.assert_over();
}

#[test]
fn of_three_servers_one_is_in_maintenance_at_a_time() {
    let mut story = story(&[]);
    let server = json!({ "metadata": { "labels": { "node-role.kubernetes.io/control-plane": "true" } } });
    for name in ["a", "b", "c"] {
        story.add_node(name, &server);
    }
    begin(&mut story, "first", "a");
    begin(&mut story, "second", "b");
    assert_eq!(status(&story, "first")["phase"], "Succeeded");
    let why = status(&story, "second")["lastError"].clone();
    assert!(why.as_str().unwrap().contains("control-plane"), "{why}");
    assert!(!story.is_cordoned("b"));
    end(&mut story, "first");
    story.pass_secs(10);
    assert_eq!(status(&story, "second")["phase"], "Succeeded");
    end(&mut story, "second");
    story.assert_over();
}

#[test]
fn an_object_that_vanishes_with_its_finalizer_leaves_its_node_as_it_was_whatever_controller_sees_it() {
    for restarts in [false, true] {
        let mut story = story(&["a"]);
        begin(&mut story, "disk", "a");
        let taints = story.cluster.get(Kind::Node, "", "a").unwrap()["spec"]["taints"].clone();
        let has = |key: &str| taints.as_array().unwrap().iter().any(|taint| taint["key"] == key);
        let of_medik = [NodeMark::MedikDrain, NodeMark::Unschedulable];
        assert!(
            of_medik
                .iter()
                .all(|mark| mark.form() == MarkForm::Taint && has(mark.key()))
        );
        if restarts {
            story.stop();
        }
        let none = json!({ "metadata": { "finalizers": null } });
        story.cluster.patch(Kind::Maintenance, "", "disk", &none).unwrap();
        story.cluster.delete(Kind::Maintenance, "", "disk").unwrap();
        if restarts {
            story.start();
        }
        story.pass_secs(20);
        assert!(!story.is_cordoned("a"), "restarts: {restarts}");
        story.assert_over();
    }
}

#[test]
fn the_taint_of_a_maintenance_goes_with_it_although_a_plan_holds_the_node_and_the_plan_goes_on_there() {
    let mut story = story(&["a"]);
    story.apply(plan_with("p", |spec| spec.drain = Some(DrainSpec::default())));
    story.settle();
    story.fail("a");
    story.settle();
    assert!(story.is_cordoned("a"), "a failed node stays cordoned");
    begin(&mut story, "disk", "a");
    assert_eq!(status(&story, "disk")["phase"], "Succeeded");
    let has_taint = |story: &Scenario| {
        let taints = story.node("a").taints.iter().flatten();
        taints
            .into_iter()
            .any(|taint| taint.key == NodeMark::MedikDrain.key())
    };
    assert!(has_taint(&story));
    end(&mut story, "disk");
    assert!(
        !has_taint(&story) && story.is_cordoned("a"),
        "the Plan holds it still"
    );
    story.retry("a", "p");
    story.roll_out();
    story.assert_over();
}

fn explained(snapshot: &Snapshot) -> String {
    explain_maintenance(snapshot, &snapshot.maintenances[0]).to_text()
}

#[track_caller]
fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
}

#[test]
fn status_and_explain_say_what_a_maintenance_waits_for_and_who_holds_its_node() {
    let mut story = story(&["a", "b"]);
    story.apply(plan("p"));
    story.settle();
    let busy = story.slots("p")[0].clone();
    begin(&mut story, "disk", &busy);
    let snapshot = story.snapshot();
    assert_eq!(snapshot.gaps, [""; 0]);
    let line = format!("NodeMaintenance disk  {busy}  Running  10s  Plan p works on the node\n");
    has(
        &table::status(&[], Some(&snapshot), &[], false),
        &["there is no Plan\n\n", &line],
    );
    let waits = format!("NodeMaintenance disk waits: Node {busy} is not drained yet\n");
    let explain = format!("refit explain -n system-upgrade p {busy}");
    has(
        &explained(&snapshot),
        &[&waits, "Plan system-upgrade/p: works on the node", &explain],
    );

    story.succeed(&busy);
    story.pass_secs(20);
    let snapshot = story.snapshot();
    let drained =
        format!("NodeMaintenance disk has drained Node {busy}, which stays so until the object is deleted\n");
    let delete = "kubectl delete nodemaintenances.nodemaintenance.medik8s.io disk";
    has(&explained(&snapshot), &[&drained, delete]);
    let of_node = explain_any_node(&snapshot, &busy);
    assert_eq!(of_node.len(), 2, "{of_node:#?}");
    has(&of_node[0].verdict, &[drained.trim_end()]);
    end(&mut story, "disk");
    story.roll_out();
    story.assert_over();
}

#[test]
fn a_node_in_maintenance_is_explained_by_the_object_that_holds_it() {
    let mut story = story(&["a"]);
    begin(&mut story, "disk", "a");
    story.apply(plan("p"));
    story.settle();
    let snapshot = story.snapshot();
    let view = PlanOverview::new(&snapshot, &snapshot.plans[0]);
    let chain = [
        "NodeBusy: NodeMaintenance disk works on the node",
        "NodeMaintenance disk: Succeeded for ",
        "refit explain nodemaintenance/disk",
        "kubectl delete nodemaintenances.nodemaintenance.medik8s.io disk",
    ];
    has(&explain_node(&view, "a").to_text(), &chain);
    end(&mut story, "disk");
    story.roll_out();
    story.assert_over();
}

#[test]
fn a_maintenance_of_a_node_that_does_not_exist_and_a_second_one_for_a_node_are_explained() {
    let mut story = story(&["a"]);
    begin(&mut story, "nowhere", "b");
    has(
        &explained(&story.snapshot()),
        &[
            "NodeMaintenance nowhere has failed",
            "nodes \"b\" not found",
            "kubectl get nodes",
        ],
    );
    end(&mut story, "nowhere");
    begin(&mut story, "first", "a");
    begin(&mut story, "second", "a");
    let snapshot = story.snapshot();
    let text = explain_maintenance(&snapshot, &snapshot.maintenances[1]).to_text();
    has(
        &text,
        &[
            "already exists",
            "NodeMaintenance first: is for Node a, too",
            "delete one of the two",
        ],
    );
    for name in ["first", "second"] {
        end(&mut story, name);
    }
    story.assert_over();
}
