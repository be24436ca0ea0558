//! The `ConfigMap` `refit`: what holds for all Plans together.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::scenario::{NAMESPACE, Scenario};
use crate::fault::Rule;
use refit_api::limits::NAME;
use refit_facts::PodStage;
use refit_fixtures::{plan, plan_with};
use refit_rehearse::Kind;
use refit_rehearse::json::json;

pub(super) fn set(scenario: &mut Scenario, key: &str, value: Option<&str>) {
    if scenario.cluster.get(Kind::ConfigMap, NAMESPACE, NAME).is_none() {
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": NAME, "namespace": NAMESPACE }, "data": {},
        });
        scenario.cluster.put(map).unwrap();
    }
    scenario.patch(Kind::ConfigMap, NAME, &json!({ "data": { key: value } }));
    scenario.settle();
}

fn frozen(key: &str, value: &str) -> Scenario {
    let mut scenario = Scenario::of_nodes(&["a", "b"]);
    set(&mut scenario, key, Some(value));
    scenario.apply(plan("p"));
    scenario.apply_and_settle(plan_with("q", |spec| spec.cordon = None));
    scenario
}

#[test]
fn a_freeze_starts_no_node_of_any_plan_and_every_plan_says_why() {
    let mut scenario = frozen("freeze", "audit until Monday");
    assert!(scenario.invariants.jobs.is_empty());
    let text = "no node starts, by ConfigMap refit: audit until Monday";
    for name in ["p", "q"] {
        let [status, reason, message] = scenario.complete(name);
        assert_eq!((&*status, &*reason, &*message), ("False", "Frozen", text));
        assert_eq!(scenario.phase(name, "a")[1], "Frozen");
    }
    assert_eq!(scenario.events_of("Frozen"), [text, text]);
    scenario.restart();
    scenario.pass_secs(600);
    assert!(scenario.invariants.jobs.is_empty());
    set(&mut scenario, "freeze", None);
    assert_eq!(scenario.live_nodes("p").len(), 1);
    scenario.finish();
}

#[test]
fn a_node_on_which_the_pod_of_a_deleted_plan_still_runs_counts_for_both_limits() {
    for key in ["maxConcurrent", "maxUnavailable"] {
        let mut scenario = Scenario::of_nodes(&["a", "b"]);
        set(&mut scenario, key, Some("1"));
        scenario.steer("a", "delete-delay", Some("20s"));
        scenario.steer("b", "delete-delay", Some("20s"));
        scenario.apply_and_settle(plan("p"));
        let first = scenario.live_nodes("p").remove(0);
        scenario.comes_to(&first, PodStage::Upgrade);
        scenario.delete(Kind::Plan, "p");
        scenario.apply(plan("q"));
        scenario.pass_secs(5);
        assert_eq!(scenario.pods().count(), 1, "{key}");
        let waits = scenario.complete("q");
        assert_eq!(waits[1], "ClusterLimit", "{key}: {}", waits[2]);
        assert!(waits[2].contains(&format!(": {first}")), "{key}: {}", waits[2]);
        scenario.finish();
    }
}

#[test]
fn nodes_in_progress_finish_in_a_freeze_also_where_their_job_was_lost() {
    let mut scenario = Scenario::with(&["a", "b"], plan("p"));
    let first = scenario.live_nodes("p")[0].clone();
    scenario.comes_to(&first, PodStage::Upgrade);
    set(&mut scenario, "freeze", Some("incident"));
    let job = scenario.live_job(&first).name;
    scenario.delete(Kind::Job, &job);
    scenario.settle();
    scenario.succeed(&first);
    assert!(scenario.is_done(&first, "p") && scenario.live_nodes("p").is_empty());
    scenario.delete(Kind::ConfigMap, NAME);
    scenario.settle();
    assert_eq!(scenario.live_nodes("p").len(), 1);
}

#[test]
fn an_invalid_limit_stops_all_plans_and_names_the_key_the_value_and_the_allowed_values() {
    for (key, value, says) in [
        (
            "frezze",
            "audit",
            "key \"frezze\" is \"audit\": the keys are freeze",
        ),
        (
            "maxUnavailable",
            "many",
            "key \"maxUnavailable\" is \"many\": it must be a number",
        ),
        (
            "blackouts",
            "tomorrow",
            "key \"blackouts\" is \"tomorrow\": it must be a YAML list",
        ),
    ] {
        let mut scenario = frozen(key, value);
        assert!(scenario.invariants.jobs.is_empty());
        let [_, reason, message] = scenario.complete("p");
        assert_eq!(reason, "Frozen");
        assert!(message.contains(says), "{message}");
        assert_eq!(scenario.events_of("Frozen").len(), 2);
        set(&mut scenario, key, None);
        assert_eq!(scenario.live_nodes("p").len(), 1);
    }
}

#[test]
fn max_concurrent_counts_the_nodes_of_all_plans() {
    let mut scenario = Scenario::of_nodes(&["a", "b", "c", "d"]);
    set(&mut scenario, "maxConcurrent", Some("50%"));
    for name in ["p", "q"] {
        scenario.apply(plan_with(name, |spec| spec.concurrency = Some(4)));
    }
    scenario.settle();
    let count = |scenario: &Scenario| {
        let mut nodes = [scenario.live_nodes("p"), scenario.live_nodes("q")].concat();
        nodes.sort();
        nodes.dedup();
        nodes.len()
    };
    assert_eq!(count(&scenario), 2);
    let waits = scenario
        .status("q")
        .active
        .iter()
        .flatten()
        .find(|node| node.phase == "Waiting")
        .cloned();
    assert!(waits.is_some());
    set(&mut scenario, "maxConcurrent", Some("3"));
    assert_eq!(count(&scenario), 3);
    set(&mut scenario, "maxConcurrent", None);
    assert_eq!(count(&scenario), 4);
    scenario.finish();
}

#[test]
fn max_unavailable_counts_all_nodes_of_the_cluster() {
    let mut scenario = Scenario::of_nodes(&["a", "b", "c"]);
    // No Plan selects it.
    scenario.add_node(
        "x",
        &json!({ "metadata": { "labels": { "kubernetes.io/hostname": null } } }),
    );
    scenario.cordon("x", true);
    set(&mut scenario, "maxUnavailable", Some("1"));
    scenario.apply_and_settle(plan_with("p", |spec| spec.concurrency = Some(3)));
    assert!(scenario.live_nodes("p").is_empty());
    let [_, reason, message] = scenario.complete("p");
    assert_eq!(
        (&*reason, &*message),
        (
            "ClusterLimit",
            "maxUnavailable of ConfigMap refit is 1, and 1 nodes count: x"
        )
    );
    scenario.cordon("b", true);
    scenario.settle();
    assert_eq!(scenario.live_nodes("p"), ["b"], "it costs nothing");
    set(&mut scenario, "maxUnavailable", Some("3"));
    assert_eq!(scenario.live_nodes("p").len(), 2);
    scenario.cordon("x", false);
    scenario.settle();
    assert_eq!(scenario.live_nodes("p").len(), 3);
}

#[test]
fn a_plans_own_limit_holds_beside_that_of_all() {
    let mut scenario = Scenario::of_nodes(&["a", "b", "c"]);
    set(&mut scenario, "maxConcurrent", Some("3"));
    scenario.apply_and_settle(plan_with("p", |spec| {
        spec.max_concurrent = Some(IntOrString::Int(2));
    }));
    assert_eq!(scenario.live_nodes("p").len(), 2);
}

#[test]
fn a_blackout_of_all_plans_holds() {
    let mut scenario = frozen(
        "blackouts",
        "[{start: 2026-01-01, end: 2026-01-01, reason: new year}]",
    );
    assert!(scenario.invariants.jobs.is_empty());
    let text = "a blackout of ConfigMap refit lasts until 2026-01-02T00:00:00Z: new year";
    assert_eq!(scenario.complete("p")[2], text);
    assert_eq!(
        scenario.status("p").next_window.as_deref(),
        Some("2026-01-02T00:00:00Z")
    );
    scenario.pass_secs(15 * 3600 + 10);
    assert_eq!(scenario.live_nodes("p").len(), 1);
}

#[test]
fn nobody_starts_before_it_was_read() {
    let mut scenario = Scenario::of_nodes(&["a"]);
    scenario.fault_always(Rule::on("list", "configmaps").answer(500));
    scenario.apply(plan("p"));
    scenario.pass_secs(120);
    assert!(scenario.invariants.jobs.is_empty());
    scenario.mend();
    scenario.pass_secs(120);
    assert_eq!(scenario.live_nodes("p"), ["a"]);
}
