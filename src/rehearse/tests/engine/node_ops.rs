//! Node operations, whose Plans the controller makes and reports on.

use std::time::Duration;

use super::scenario::{NAMESPACE, Scenario, Setup};
use crate::rehearse::Kind;
use crate::rehearse::fault::Rule;
use crate::rehearse::json::{Value, json};

fn story(nodes: &[&str], held: bool) -> Scenario {
    let mut story = Scenario::new(&Setup {
        enable: Some("nodeops"),
        held,
        ..Setup::default()
    });
    story.add_nodes(nodes);
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
    story.cluster.put(namespace).unwrap();
    story
}

fn operate(story: &mut Scenario, kind: Kind, name: &str, plan_spec: &str) {
    let object = json!({
        "apiVersion": kind.resource_type().api_version(), "kind": kind.resource_type().kind,
        "metadata": { "name": name, "namespace": NAMESPACE, "annotations": { "refit.rs/plan-spec": plan_spec } },
        "spec": { "image": "example.com/operate:v1", "command": ["true"], "concurrency": 1 },
    });
    story.cluster.create(object).unwrap();
    story.settle();
}

fn status(story: &Scenario, name: &str) -> Value {
    story.cluster.get(Kind::NodeOp, NAMESPACE, name).unwrap()["status"].clone()
}

#[test]
fn nodes_that_become_done_are_read_one_by_one_and_not_listed_again_each_time() {
    let nodes = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let mut story = story(&nodes, false);
    operate(&mut story, Kind::NodeOp, "op", "{}");
    story.rest();
    let status = status(&story, "op");
    assert_eq!(status["phase"], "Completed");
    for node in nodes {
        assert_eq!(
            status["nodeStatuses"][node]["phase"], "Completed",
            "{node}: {status}"
        );
    }
    let listed = story.requests("GET labelSelector=plan.upgrade.cattle.io");
    assert_eq!(listed, 1, "the first time all are read");
    story.assert_over();
}

#[test]
fn a_label_that_is_written_while_the_object_is_deleted_does_not_stay() {
    let mut story = story(&["a"], true);
    operate(&mut story, Kind::NodeOp, "op", "{}");
    let plan = story.invariants.plans.keys().next().unwrap().clone();
    story.fault(
        Rule::on("patch", "nodes")
            .named("a")
            .delay(Duration::from_secs(8)),
    );
    story.succeed_unseen("a");
    story.pass_secs(4);
    assert_eq!(story.done_label("a", &plan), None, "the label is on its way");
    story.cluster.delete(Kind::NodeOp, NAMESPACE, "op").unwrap();
    let label = format!("plan.upgrade.cattle.io/{plan}");
    story.until("the label arrives", |state| {
        let node = state.get(Kind::Node, "", "a").unwrap();
        node["metadata"]["labels"][label.as_str()].is_string()
    });
    let jobs = story.cluster.with(|state| state.all(Kind::Job).count());
    assert_eq!(jobs, 0, "they do not run on while the Plan stays");
    story.pass_secs(25);
    assert_eq!(story.done_label("a", &plan), None);
    assert!(story.cluster.get(Kind::Plan, NAMESPACE, &plan).is_none());
}

#[test]
fn a_plan_that_lost_its_fields_gets_them_back_without_an_edit() {
    let mut story = story(&["a"], true);
    operate(&mut story, Kind::NodeOp, "op", r#"{"suspend":true}"#);
    operate(&mut story, Kind::NodeOpUpgrade, "upgrade", r#"{"suspend":true}"#);
    let plans: Vec<String> = story.invariants.plans.keys().cloned().collect();
    assert_eq!(plans.len(), 2, "{plans:?}");
    let suspended = |story: &Scenario| -> Vec<Option<bool>> {
        let read = |name| story.cluster.get(Kind::Plan, NAMESPACE, name).unwrap();
        let all = plans.iter().map(|name| read(name)["spec"]["suspend"].as_bool());
        all.collect()
    };
    story.stop();
    story.serve_definition_of_suc(true);
    story.settle();
    for plan in &plans {
        // Somebody writes the Plan, which is stored as it was read.
        story.annotate(Kind::Plan, plan, "example.com/x", Some("y"));
    }
    story.serve_definition_of_suc(false);
    story.settle();
    assert_eq!(suspended(&story), [None, None]);
    story.start();
    story.settle();
    assert_eq!(suspended(&story), [Some(true), Some(true)]);
    assert!(plans.iter().all(|plan| story.complete(plan).1 == "Suspended"));
    assert!(story.invariants.jobs.is_empty());
}
