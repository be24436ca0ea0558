//! Nodes in maintenance beside Plans: one decision sees both.

use std::time::Duration;

use super::limits::set;
use super::scenario::{Scenario, Setup};
use crate::fault::Rule;
use refit_api::{DrainSpec, MarkForm, NodeMark};
use refit_fixtures::{plan, plan_with};
use refit_rehearse::Kind;
use refit_rehearse::json::{Value, json};
use refit_view::table::{self, Look};
use refit_view::{PlanOverview, Snapshot, explain_node};
use refit_view::{explain_any_node, explain_maintenance};

fn scenario(nodes: &[&str]) -> Scenario {
    let mut scenario = Scenario::new(&Setup {
        enable: Some("maintenance"),
        ..Setup::default()
    });
    scenario.add_nodes(nodes);
    let leases = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "medik8s-leases" } });
    scenario.cluster.put(leases).unwrap();
    scenario
}

pub(super) fn begin(scenario: &mut Scenario, name: &str, node: &str) {
    let object = json!({
        "apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance", "metadata": { "name": name },
        "spec": { "nodeName": node },
    });
    scenario.cluster.create(object).unwrap();
    scenario.pass_secs(10);
}

pub(super) fn end(scenario: &mut Scenario, name: &str) {
    scenario.cluster.delete(Kind::Maintenance, "", name).unwrap();
    scenario.pass_secs(10);
    assert!(scenario.cluster.get(Kind::Maintenance, "", name).is_none());
}

pub(super) fn status(scenario: &Scenario, name: &str) -> Value {
    scenario.cluster.get(Kind::Maintenance, "", name).unwrap()["status"].clone()
}

#[test]
fn a_maintenance_waits_for_a_job_that_is_being_created() {
    let mut scenario = scenario(&["a"]);
    let creation = Rule::on("create", "jobs").delay(Duration::from_secs(8));
    scenario.fault(creation);
    // Without a cordon, so that no lock keeps the node.
    scenario.apply(plan_with("p", |spec| spec.cordon = None));
    scenario.pass_secs(1);
    let object = json!({
        "apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance", "metadata": { "name": "disk" },
        "spec": { "nodeName": "a" },
    });
    scenario.cluster.create(object).unwrap();
    scenario.pass_secs(5);
    assert!(!scenario.is_cordoned("a"));
    assert_eq!(status(&scenario, "disk")["lastError"], "Plan p works on the node");
    scenario.pass_secs(10);
    scenario.succeed("a");
    scenario.pass_secs(30);
    assert_eq!(status(&scenario, "disk")["phase"], "Succeeded");
}

#[test]
fn a_maintenance_waits_while_the_limits_cannot_be_read_unless_its_node_is_down_anyway() {
    let mut scenario = scenario(&["a", "b"]);
    set(&mut scenario, "maxUnavailable", Some("one"));
    scenario.cordon("b", true);
    begin(&mut scenario, "fan", "b");
    assert_eq!(status(&scenario, "fan")["phase"], "Succeeded");
    begin(&mut scenario, "disk", "a");
    let waiting = status(&scenario, "disk");
    assert_eq!(waiting["phase"], "Running");
    let why = waiting["lastError"].as_str().unwrap();
    assert!(why.contains("maxUnavailable"), "{why}");
    assert!(!scenario.is_cordoned("a"));
    set(&mut scenario, "maxUnavailable", Some("2"));
    scenario.pass_secs(10);
    assert_eq!(status(&scenario, "disk")["phase"], "Succeeded");
}

#[test]
fn a_node_in_maintenance_is_left_alone_by_plans_and_counts_as_unavailable() {
    let mut scenario = scenario(&["a", "b", "c"]);
    begin(&mut scenario, "disk", "a");
    assert_eq!(status(&scenario, "disk")["phase"], "Succeeded");
    assert!(scenario.is_cordoned("a"));
    scenario.apply(plan_with("p", |spec| {
        spec.concurrency = Some(3);
        spec.max_unavailable = Some(k8s_openapi::apimachinery::pkg::util::intstr::IntOrString::Int(2));
    }));
    scenario.pass_secs(10);
    assert_eq!(scenario.slots("p").len(), 1, "one node is unavailable already");
    let entry = scenario.entry("p", "a");
    assert_eq!(entry.reason.as_deref(), Some("NodeBusy"));
    assert_eq!(
        entry.message.as_deref(),
        Some("NodeMaintenance disk works on the node")
    );
    scenario.restart();
    scenario.pass_secs(10);
    assert!(scenario.jobs_for("a").is_empty());
    end(&mut scenario, "disk");
    assert!(!scenario.is_cordoned("a") || scenario.slots("p").contains(&"a".to_owned()));
    scenario.finish();
}

#[test]
fn a_maintenance_waits_for_the_plan_that_is_at_work_and_comes_before_its_next_one() {
    let mut scenario = scenario(&["a", "b"]);
    scenario.apply_and_settle(plan("p"));
    let busy = scenario.slots("p")[0].clone();
    let other = if busy == "a" { "b" } else { "a" };
    begin(&mut scenario, "now", &busy);
    begin(&mut scenario, "next", other);
    let why = status(&scenario, "now")["lastError"].clone();
    assert_eq!(why, "Plan p works on the node");
    assert_eq!(status(&scenario, "next")["phase"], "Succeeded");
    scenario.succeed(&busy);
    scenario.pass_secs(20);
    assert_eq!(status(&scenario, "now")["phase"], "Succeeded");
    assert!(scenario.is_done(&busy, "p") && scenario.is_cordoned(&busy));
    for name in ["now", "next"] {
        end(&mut scenario, name);
    }
    scenario.finish();
}

#[test]
fn a_maintenance_waits_for_max_unavailable_of_the_cluster_and_no_plan_takes_the_room_before_it() {
    let mut scenario = scenario(&["a", "b", "c"]);
    set(&mut scenario, "maxUnavailable", Some("1"));
    set(&mut scenario, "maxConcurrent", Some("1"));
    scenario.apply_and_settle(plan_with("p", |spec| spec.concurrency = Some(3)));
    let busy = scenario.slots("p")[0].clone();
    let mut others = ["a", "b", "c"].into_iter().filter(|node| **node != *busy);
    let node = others.next_back().unwrap();
    begin(&mut scenario, "disk", node);
    let why = format!("maxUnavailable of ConfigMap refit is 1, and 1 nodes count: {busy}");
    assert_eq!(status(&scenario, "disk")["lastError"], why);
    assert!(!scenario.is_cordoned(node));
    scenario.succeed(&busy);
    scenario.pass_secs(20);
    assert_eq!(status(&scenario, "disk")["phase"], "Succeeded");
    assert!(scenario.is_done(&busy, "p") && scenario.slots("p").is_empty());
    // One that is down anyway costs nothing.
    let next = others.next().unwrap();
    scenario.cordon(next, true);
    begin(&mut scenario, "fan", next);
    assert_eq!(status(&scenario, "fan")["phase"], "Succeeded");
    end(&mut scenario, "fan");
    scenario.cordon(next, false);
    end(&mut scenario, "disk");
    scenario.finish();
}

#[test]
fn of_three_servers_one_is_in_maintenance_at_a_time() {
    let mut scenario = scenario(&[]);
    let server = json!({ "metadata": { "labels": { "node-role.kubernetes.io/control-plane": "true" } } });
    for name in ["a", "b", "c"] {
        scenario.add_node(name, &server);
    }
    begin(&mut scenario, "first", "a");
    begin(&mut scenario, "second", "b");
    assert_eq!(status(&scenario, "first")["phase"], "Succeeded");
    let why = status(&scenario, "second")["lastError"].clone();
    assert!(why.as_str().unwrap().contains("control-plane"), "{why}");
    assert!(!scenario.is_cordoned("b"));
    end(&mut scenario, "first");
    scenario.pass_secs(10);
    assert_eq!(status(&scenario, "second")["phase"], "Succeeded");
    end(&mut scenario, "second");
    scenario.assert_over();
}

#[test]
fn an_object_that_vanishes_with_its_finalizer_leaves_its_node_as_it_was_whatever_controller_sees_it() {
    for restarts in [false, true] {
        let mut scenario = scenario(&["a"]);
        begin(&mut scenario, "disk", "a");
        let taints = scenario.cluster.get(Kind::Node, "", "a").unwrap()["spec"]["taints"].clone();
        let has = |key: &str| taints.as_array().unwrap().iter().any(|taint| taint["key"] == key);
        let of_medik = [NodeMark::MedikDrain, NodeMark::Unschedulable];
        assert!(
            of_medik
                .iter()
                .all(|mark| mark.form() == MarkForm::Taint && has(mark.key()))
        );
        if restarts {
            scenario.stop();
        }
        let none = json!({ "metadata": { "finalizers": null } });
        scenario
            .cluster
            .patch(Kind::Maintenance, "", "disk", &none)
            .unwrap();
        scenario.cluster.delete(Kind::Maintenance, "", "disk").unwrap();
        if restarts {
            scenario.start();
        }
        scenario.pass_secs(20);
        assert!(!scenario.is_cordoned("a"), "restarts: {restarts}");
        scenario.assert_over();
    }
}

#[test]
fn the_taint_of_a_maintenance_goes_with_it_although_a_plan_holds_the_node_and_the_plan_goes_on_there() {
    let mut scenario = scenario(&["a"]);
    scenario.apply_and_settle(plan_with("p", |spec| spec.drain = Some(DrainSpec::default())));
    scenario.fail("a");
    scenario.settle();
    assert!(scenario.is_cordoned("a"), "a failed node stays cordoned");
    begin(&mut scenario, "disk", "a");
    assert_eq!(status(&scenario, "disk")["phase"], "Succeeded");
    let has_taint = |scenario: &Scenario| {
        let taints = scenario.node("a").taints.iter().flatten();
        taints
            .into_iter()
            .any(|taint| taint.key == NodeMark::MedikDrain.key())
    };
    assert!(has_taint(&scenario));
    end(&mut scenario, "disk");
    assert!(
        !has_taint(&scenario) && scenario.is_cordoned("a"),
        "the Plan holds it still"
    );
    scenario.retry("a", "p");
    scenario.finish();
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
    let mut scenario = scenario(&["a", "b"]);
    scenario.apply_and_settle(plan("p"));
    let busy = scenario.slots("p")[0].clone();
    begin(&mut scenario, "disk", &busy);
    let snapshot = scenario.snapshot();
    assert_eq!(snapshot.gaps, [""; 0]);
    let line = format!("NodeMaintenance disk  {busy}  Running  10s  Plan p works on the node\n");
    has(
        &table::status(&[], Some(&snapshot), &[], &Look::default()),
        &["there is no Plan\n\n", &line],
    );
    let waits = format!("NodeMaintenance disk waits: Node {busy} is not drained yet\n");
    let explain = format!("refit explain -n system-upgrade p {busy}");
    has(
        &explained(&snapshot),
        &[&waits, "Plan system-upgrade/p: works on the node", &explain],
    );

    scenario.succeed(&busy);
    scenario.pass_secs(20);
    let snapshot = scenario.snapshot();
    let drained =
        format!("NodeMaintenance disk has drained Node {busy}, which stays so until the object is deleted\n");
    let delete = "kubectl delete nodemaintenances.nodemaintenance.medik8s.io disk";
    has(&explained(&snapshot), &[&drained, delete]);
    let of_node = explain_any_node(&snapshot, &busy);
    assert_eq!(of_node.len(), 2, "{of_node:#?}");
    has(&of_node[0].verdict, &[drained.trim_end()]);
    end(&mut scenario, "disk");
    scenario.finish();
}

#[test]
fn a_node_in_maintenance_is_explained_by_the_object_that_holds_it() {
    let mut scenario = scenario(&["a"]);
    begin(&mut scenario, "disk", "a");
    scenario.apply_and_settle(plan("p"));
    let snapshot = scenario.snapshot();
    let view = PlanOverview::new(&snapshot, &snapshot.plans[0]);
    let chain = [
        "NodeBusy: NodeMaintenance disk works on the node",
        "NodeMaintenance disk: Succeeded for ",
        "refit explain nodemaintenance/disk",
        "kubectl delete nodemaintenances.nodemaintenance.medik8s.io disk",
    ];
    has(&explain_node(&view, "a").to_text(), &chain);
    end(&mut scenario, "disk");
    scenario.finish();
}

#[test]
fn a_maintenance_of_a_node_that_does_not_exist_and_a_second_one_for_a_node_are_explained() {
    let mut scenario = scenario(&["a"]);
    begin(&mut scenario, "nowhere", "b");
    has(
        &explained(&scenario.snapshot()),
        &[
            "NodeMaintenance nowhere has failed",
            "nodes \"b\" not found",
            "kubectl get nodes",
        ],
    );
    end(&mut scenario, "nowhere");
    begin(&mut scenario, "first", "a");
    begin(&mut scenario, "second", "a");
    let snapshot = scenario.snapshot();
    let text = explain_maintenance(&snapshot, &snapshot.maintenances[1]).to_text();
    has(
        &text,
        &[
            "already exists",
            "NodeMaintenance first: is also for Node a",
            "delete one of the two",
        ],
    );
    for name in ["first", "second"] {
        end(&mut scenario, name);
    }
    scenario.assert_over();
}
