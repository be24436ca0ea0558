//! Node operations, whose Plans the controller makes and reports on.

use std::time::Duration;

use super::scenario::{NAMESPACE, Scenario, Setup};
use crate::fault::Rule;
use refit_rehearse::Kind;
use refit_rehearse::json::{Value, json};

fn scenario(nodes: &[&str], held: bool) -> Scenario {
    let mut scenario = Scenario::new(&Setup {
        enable: Some("nodeops"),
        held,
        ..Setup::default()
    });
    scenario.add_nodes(nodes);
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
    scenario.cluster.put(namespace).unwrap();
    scenario
}

fn operate(scenario: &mut Scenario, kind: Kind, name: &str, plan_spec: &str) {
    let object = json!({
        "apiVersion": kind.resource_type().api_version(), "kind": kind.resource_type().kind,
        "metadata": { "name": name, "namespace": NAMESPACE, "annotations": { "refit.rs/plan-spec": plan_spec } },
        "spec": { "image": "example.com/operate:v1", "command": ["true"], "concurrency": 1 },
    });
    scenario.cluster.create(object).unwrap();
    scenario.settle();
}

fn status(scenario: &Scenario, name: &str) -> Value {
    scenario.cluster.get(Kind::NodeOp, NAMESPACE, name).unwrap()["status"].clone()
}

#[test]
fn nodes_that_become_done_are_read_one_by_one_and_not_listed_again_each_time() {
    let nodes = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let mut scenario = scenario(&nodes, false);
    operate(&mut scenario, Kind::NodeOp, "op", "{}");
    scenario.rest();
    let status = status(&scenario, "op");
    assert_eq!(status["phase"], "Completed");
    for node in nodes {
        assert_eq!(
            status["nodeStatuses"][node]["phase"], "Completed",
            "{node}: {status}"
        );
    }
    let listed = scenario.requests("GET labelSelector=plan.upgrade.cattle.io");
    assert_eq!(listed, 1, "the first time all are read");
    scenario.assert_over();
}

#[test]
fn a_label_that_is_written_while_the_object_is_deleted_does_not_stay() {
    let mut scenario = scenario(&["a"], true);
    operate(&mut scenario, Kind::NodeOp, "op", "{}");
    let plan = scenario.invariants.plans.keys().next().unwrap().clone();
    scenario.fault(
        Rule::on("patch", "nodes")
            .named("a")
            .delay(Duration::from_secs(8)),
    );
    scenario.succeed_unseen("a");
    scenario.pass_secs(4);
    assert_eq!(scenario.done_label("a", &plan), None, "the label is on its way");
    scenario.cluster.delete(Kind::NodeOp, NAMESPACE, "op").unwrap();
    let label = format!("plan.upgrade.cattle.io/{plan}");
    scenario.until("the label arrives", |state| {
        let node = state.get(Kind::Node, "", "a").unwrap();
        node["metadata"]["labels"][label.as_str()].is_string()
    });
    let jobs = scenario.cluster.with(|state| state.all(Kind::Job).count());
    assert_eq!(jobs, 0, "they do not run on while the Plan stays");
    scenario.pass_secs(25);
    assert_eq!(scenario.done_label("a", &plan), None);
    assert!(scenario.cluster.get(Kind::Plan, NAMESPACE, &plan).is_none());
}

#[test]
fn a_plan_that_lost_its_fields_gets_them_back_without_an_edit() {
    let mut scenario = scenario(&["a"], true);
    operate(&mut scenario, Kind::NodeOp, "op", r#"{"suspend":true}"#);
    operate(
        &mut scenario,
        Kind::NodeOpUpgrade,
        "upgrade",
        r#"{"suspend":true}"#,
    );
    let plans: Vec<String> = scenario.invariants.plans.keys().cloned().collect();
    assert_eq!(plans.len(), 2, "{plans:?}");
    let suspended = |scenario: &Scenario| -> Vec<Option<bool>> {
        let read = |name| scenario.cluster.get(Kind::Plan, NAMESPACE, name).unwrap();
        let all = plans.iter().map(|name| read(name)["spec"]["suspend"].as_bool());
        all.collect()
    };
    scenario.stop();
    scenario.serve_definition_of_suc(true);
    scenario.settle();
    for plan in &plans {
        // Somebody writes the Plan, which is stored as it was read.
        scenario.annotate(Kind::Plan, plan, "example.com/x", Some("y"));
    }
    scenario.serve_definition_of_suc(false);
    scenario.settle();
    assert_eq!(suspended(&scenario), [None, None]);
    scenario.start();
    scenario.settle();
    assert_eq!(suspended(&scenario), [Some(true), Some(true)]);
    assert!(plans.iter().all(|plan| scenario.complete(plan)[1] == "Suspended"));
    assert!(scenario.invariants.jobs.is_empty());
}
