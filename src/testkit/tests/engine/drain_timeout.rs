//! `drain.afterTimeout`: what becomes of pods that could not be evicted in time, and of those whose turn had not come.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::scenario::{Scenario, Setup};
use super::sweep::{KILLS, sweep};
use refit_api::{AfterTimeout, DrainSpec, DrainTimeout, Plan};
use refit_fixtures::plan_with;
use refit_rehearse::json::{Value, json};

fn deleting() -> Plan {
    let labels = BTreeMap::from([("app".to_owned(), "osd".to_owned())]);
    plan_with("p", |spec| {
        spec.concurrency = Some(1);
        spec.cordon = None;
        spec.job_active_deadline_secs = Some(900);
        spec.drain = Some(DrainSpec {
            timeout: Some(DrainTimeout::Text("1m".to_owned())),
            after_timeout: Some(AfterTimeout::Delete),
            order: Some(vec![LabelSelector {
                match_labels: Some(labels),
                ..LabelSelector::default()
            }]),
            ..DrainSpec::default()
        });
    })
}

fn storage() -> Value {
    let labels = json!({ "app": "osd" });
    json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": { "name": "osd", "namespace": "shop" },
        "spec": { "replicas": 1, "selector": { "matchLabels": labels }, "template": {
            "metadata": { "labels": labels },
            "spec": { "nodeName": "a", "containers": [{ "name": "c", "image": "i" }] } } },
    })
}

/// When requests with this method and part of the path were sent, by their places among all of them.
fn sent(scenario: &Scenario, method: &str, part: &str) -> Vec<usize> {
    scenario.cluster.with(|state| {
        let lines = state.trace().iter().enumerate();
        let is_such =
            |(_, line): &(usize, &String)| line.contains(&format!(" {method} ")) && line.contains(part);
        lines.filter(is_such).map(|(place, _)| place).collect()
    })
}

#[test]
fn a_pod_whose_turn_had_not_come_is_evicted_after_those_that_are_deleted() {
    let mut scenario = Scenario::of_nodes(&["a"]);
    scenario.guard("a");
    scenario.cluster.put(storage()).unwrap();
    scenario.settle();
    scenario.apply(deleting());
    scenario.finish();
    let deleted = sent(&scenario, "DELETE", "pods/guarded-");
    assert_eq!(deleted.len(), 1);
    assert!(
        sent(&scenario, "DELETE", "pods/osd-").is_empty(),
        "it never blocked"
    );
    let evicted = sent(&scenario, "POST", "pods/osd-");
    assert_eq!(evicted.len(), 1);
    assert!(evicted > deleted);
}

#[test]
fn a_later_group_that_blocks_too_is_deleted_after_a_turn_of_its_own() {
    let mut scenario = Scenario::of_nodes(&["a"]);
    scenario.guard("a");
    scenario.cluster.put(storage()).unwrap();
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": "osd", "namespace": "shop" },
        "spec": { "maxUnavailable": 0, "selector": { "matchLabels": { "app": "osd" } } },
    });
    scenario.cluster.put(budget).unwrap();
    scenario.settle();
    scenario.apply(deleting());
    scenario.pass_secs(130);
    scenario.finish();
    let guarded = sent(&scenario, "DELETE", "pods/guarded-");
    let asked = sent(&scenario, "POST", "pods/osd-");
    let deleted = sent(&scenario, "DELETE", "pods/osd-");
    assert_eq!((guarded.len(), deleted.len()), (1, 1));
    assert!(asked.len() > 5, "it has a minute: {asked:?}");
    assert!(guarded[0] < asked[0] && asked.last() < deleted.first());
}

#[test]
fn a_pod_with_two_budgets_is_deleted_at_the_timeout_too() {
    let mut scenario = Scenario::of_nodes(&["a"]);
    scenario.guard("a");
    let second = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": "second", "namespace": "shop" },
        "spec": { "maxUnavailable": 1, "selector": { "matchLabels": { "app": "guarded" } } },
    });
    scenario.cluster.put(second).unwrap();
    scenario.settle();
    scenario.apply(deleting());
    scenario.pass_secs(40);
    let entry = scenario.entry("p", "a");
    assert_eq!(entry.reason.as_deref(), Some("DrainWaiting"));
    assert!(
        entry
            .message
            .unwrap()
            .contains("more than one PodDisruptionBudget")
    );
    scenario.finish();
    assert_eq!(sent(&scenario, "DELETE", "pods/guarded-").len(), 1);
}

#[test]
fn a_drain_that_deletes_meets_a_kill_at_any_write() {
    let begin = || {
        let mut scenario = Scenario::without_controller(&Setup {
            held: false,
            ..Setup::default()
        });
        scenario.add_nodes(&["a"]);
        scenario.guard("a");
        scenario.cluster.put(storage()).unwrap();
        scenario.apply(deleting());
        scenario.start();
        scenario
    };
    let run = |scenario: &mut Scenario, _: &str| scenario.rest();
    sweep(5..60, &KILLS, begin, run, |scenario, at| {
        scenario.assert_over();
        assert_eq!(scenario.invariants.upgrades, 1, "{at}: once");
        assert_eq!(sent(scenario, "DELETE", "pods/guarded-").len(), 1, "{at}");
    });
}
