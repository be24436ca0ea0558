//! `drain.blockedBy`: a node is not started while a pod runs there that may not be disturbed.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::scenario::Scenario;
use refit_api::{DrainSpec, Plan, PodBlockerSpec};
use refit_fixtures::{plan, plan_with};
use refit_rehearse::Kind;
use refit_rehearse::json::{Value, json};
use refit_view::{PlanOverview, explain_plan};

fn waiting_for_training() -> Plan {
    let labels = BTreeMap::from([("job".to_owned(), "training".to_owned())]);
    plan_with("p", |spec| {
        spec.concurrency = Some(1);
        spec.cordon = None;
        spec.drain = Some(DrainSpec {
            force: Some(true),
            blocked_by: Some(vec![PodBlockerSpec {
                namespace: Some("science".to_owned()),
                selector: Some(LabelSelector {
                    match_labels: Some(labels),
                    ..LabelSelector::default()
                }),
            }]),
            ..DrainSpec::default()
        });
    })
}

fn pod(name: &str, namespace: &str, node: &str, labels: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": namespace, "labels": labels },
        "spec": { "nodeName": node, "containers": [{ "name": "c", "image": "i" }] },
        "status": { "phase": "Running" },
    })
}

/// `a` runs a training job, and pods that have the label or the namespace only.
fn scenario() -> Scenario {
    let scenario = Scenario::of_nodes(&["a", "b", "c"]);
    let training = json!({ "job": "training" });
    for pod in [
        pod("epoch-7", "science", "a", &training),
        pod("other", "science", "b", &json!({ "job": "other" })),
        pod("elsewhere", "shop", "c", &training),
    ] {
        scenario.cluster.put(pod).unwrap();
    }
    scenario
}

#[test]
fn a_node_with_such_a_pod_waits_and_names_it_while_the_others_are_upgraded() {
    let mut scenario = scenario();
    scenario.apply(waiting_for_training());
    scenario.roll_out();
    assert!(scenario.is_done("b", "p") && scenario.is_done("c", "p"));
    let waits = scenario.entry("p", "a");
    assert_eq!(waits.reason.as_deref(), Some("PodBlocks"));
    assert_eq!(
        waits.message.as_deref(),
        Some("spec.drain.blockedBy: pod science/epoch-7 runs on the node, which starts when it has ended")
    );
    assert!(scenario.jobs_for("a").is_empty() && !scenario.is_cordoned("a"));
    assert_eq!(scenario.complete("p")[1], "PodBlocks");

    scenario.restart();
    scenario.pass_secs(90);
    assert!(scenario.jobs_for("a").is_empty());
    scenario.cluster.delete(Kind::Pod, "science", "epoch-7").unwrap();
    scenario.pass_secs(60);
    scenario.roll_out();
    assert!(scenario.is_done("a", "p"));
    scenario.assert_over();
}

#[test]
fn the_pods_of_a_node_are_listed_only_when_its_turn_has_come() {
    let mut scenario = Scenario::with(&["a", "b", "c", "d", "e", "f"], waiting_for_training());
    assert_eq!(scenario.slots("p").len(), 1);
    assert_eq!(scenario.requests("GET /namespaces/science/pods"), 1);
    scenario.finish();
    assert_eq!(scenario.requests("GET /namespaces/science/pods"), 6);
}

#[test]
fn a_plan_without_the_field_lists_no_pods_of_others() {
    let mut scenario = scenario();
    scenario.apply_and_settle(plan_with("p", |spec| spec.drain = Some(DrainSpec::default())));
    assert_eq!(scenario.requests("GET /namespaces/science/pods"), 0);
}

#[test]
fn an_edit_of_the_field_is_a_new_question() {
    let mut scenario = scenario();
    scenario.apply(waiting_for_training());
    scenario.roll_out();
    assert_eq!(scenario.entry("p", "a").reason.as_deref(), Some("PodBlocks"));
    scenario.edit("p", |spec| {
        if let Some(drain) = &mut spec.drain {
            drain.blocked_by = None;
        }
    });
    scenario.roll_out();
    assert!(scenario.is_done("a", "p"));
}

#[test]
fn without_permission_to_list_pods_no_node_starts_and_explain_has_the_commands_that_grant_it() {
    let mut scenario = Scenario::with(&["a"], plan("before"));
    scenario.roll_out();
    // It is refused only this list: the controller has begun already, and watches the pods of its Jobs.
    scenario.fault_injector.allow("list", "pods", false);
    scenario.apply_and_settle(waiting_for_training());
    assert!(scenario.slots("p").is_empty());
    let [_, reason, message] = scenario.complete("p");
    let text = "list pods in all namespaces, which spec.drain.blockedBy needs";
    assert!(
        reason == "MissingPermission" && message.contains(text),
        "{message}"
    );
    scenario.fault_injector.allow("list", "pods", true);
    let snapshot = scenario.snapshot();
    let mut plans = snapshot.plans.iter();
    let of_p = plans.find(|plan| &*plan.name == "p").unwrap();
    let explained = explain_plan(&PlanOverview::new(&snapshot, of_p)).to_text();
    assert!(
        explained.contains(
            "kubectl create clusterrole system-upgrade-controller-pods --verb=list --resource=pods"
        ),
        "{explained}"
    );
    scenario.pass_secs(60);
    scenario.finish();
}

#[test]
fn a_pod_behind_many_that_have_ended_is_found() {
    let mut scenario = scenario();
    for number in 0..20 {
        let mut ended = pod(
            &format!("done-{number:02}"),
            "science",
            "a",
            &json!({ "job": "training" }),
        );
        ended["status"]["phase"] = "Succeeded".into();
        scenario.cluster.put(ended).unwrap();
    }
    scenario.apply(waiting_for_training());
    scenario.roll_out();
    assert!(scenario.is_done("b", "p") && scenario.is_done("c", "p") && !scenario.is_done("a", "p"));
}
