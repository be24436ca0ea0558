//! The `ConfigMap` `refit`: what holds for all Plans together.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::scenario::{NAMESPACE, Scenario};
use crate::api::limits::NAME;
use crate::rehearse::Kind;
use crate::rehearse::fault::Rule;
use crate::rehearse::json::json;
use crate::rollout::PodStage;
use crate::rollout::tests::build::{plan, plan_with};

pub(super) fn set(story: &mut Scenario, key: &str, value: Option<&str>) {
    if story.cluster.get(Kind::ConfigMap, NAMESPACE, NAME).is_none() {
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": NAME, "namespace": NAMESPACE }, "data": {},
        });
        story.cluster.put(map).unwrap();
    }
    story.patch(Kind::ConfigMap, NAME, &json!({ "data": { key: value } }));
    story.settle();
}

fn frozen(key: &str, value: &str) -> Scenario {
    let mut story = Scenario::empty();
    story.add_nodes(&["a", "b"]);
    set(&mut story, key, Some(value));
    story.apply(plan("p"));
    story.apply(plan_with("q", |spec| spec.cordon = None));
    story.settle();
    story
}

#[test]
fn a_freeze_starts_no_node_of_any_plan_and_every_plan_says_why() {
    let mut story = frozen("freeze", "audit until Monday");
    assert!(story.invariants.jobs.is_empty());
    let text = "no node starts, by ConfigMap refit: audit until Monday";
    for name in ["p", "q"] {
        let (status, reason, message) = story.complete(name);
        assert_eq!((&*status, &*reason, &*message), ("False", "Frozen", text));
        assert_eq!(story.phase(name, "a").1, "Frozen");
    }
    assert_eq!(story.events_of("Frozen"), [text, text]);
    story.restart();
    story.pass_secs(600);
    assert!(story.invariants.jobs.is_empty());
    set(&mut story, "freeze", None);
    assert_eq!(story.live_nodes("p").len(), 1);
    story.roll_out();
    story.assert_over();
}

#[test]
fn nodes_in_progress_finish_in_a_freeze_also_where_their_job_was_lost() {
    let mut story = Scenario::with(&["a", "b"], plan("p"));
    let first = story.live_nodes("p")[0].clone();
    story.comes_to(&first, PodStage::Upgrade);
    set(&mut story, "freeze", Some("incident"));
    let job = story.live_job(&first).name;
    story.delete(Kind::Job, &job);
    story.settle();
    story.succeed(&first);
    assert!(story.is_done(&first, "p") && story.live_nodes("p").is_empty());
    story.delete(Kind::ConfigMap, NAME);
    story.settle();
    assert_eq!(story.live_nodes("p").len(), 1);
}

#[test]
fn what_cannot_be_read_freezes_and_says_key_value_and_what_is_allowed() {
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
        let mut story = frozen(key, value);
        assert!(story.invariants.jobs.is_empty());
        let (_, reason, message) = story.complete("p");
        assert_eq!(reason, "Frozen");
        assert!(message.contains(says), "{message}");
        assert_eq!(story.events_of("Frozen").len(), 2);
        set(&mut story, key, None);
        assert_eq!(story.live_nodes("p").len(), 1);
    }
}

#[test]
fn max_concurrent_counts_the_nodes_of_all_plans() {
    let mut story = Scenario::empty();
    story.add_nodes(&["a", "b", "c", "d"]);
    set(&mut story, "maxConcurrent", Some("50%"));
    for name in ["p", "q"] {
        story.apply(plan_with(name, |spec| spec.concurrency = Some(4)));
    }
    story.settle();
    let count = |story: &Scenario| {
        let mut nodes = [story.live_nodes("p"), story.live_nodes("q")].concat();
        nodes.sort();
        nodes.dedup();
        nodes.len()
    };
    assert_eq!(count(&story), 2);
    let waits = story
        .status("q")
        .active
        .iter()
        .flatten()
        .find(|node| node.phase == "Waiting")
        .cloned();
    assert!(waits.is_some());
    set(&mut story, "maxConcurrent", Some("3"));
    assert_eq!(count(&story), 3);
    set(&mut story, "maxConcurrent", None);
    assert_eq!(count(&story), 4);
    story.roll_out();
    story.assert_over();
}

#[test]
fn max_unavailable_counts_all_nodes_of_the_cluster() {
    let mut story = Scenario::empty();
    story.add_nodes(&["a", "b", "c"]);
    // No Plan selects it.
    story.add_node(
        "x",
        &json!({ "metadata": { "labels": { "kubernetes.io/hostname": null } } }),
    );
    story.cordon("x", true);
    set(&mut story, "maxUnavailable", Some("1"));
    story.apply(plan_with("p", |spec| spec.concurrency = Some(3)));
    story.settle();
    assert!(story.live_nodes("p").is_empty());
    let (_, reason, message) = story.complete("p");
    assert_eq!(
        (&*reason, &*message),
        (
            "ClusterLimit",
            "maxUnavailable of ConfigMap refit is 1, and 1 nodes count: x"
        )
    );
    story.cordon("b", true);
    story.settle();
    assert_eq!(story.live_nodes("p"), ["b"], "it costs nothing");
    set(&mut story, "maxUnavailable", Some("3"));
    assert_eq!(story.live_nodes("p").len(), 2);
    story.cordon("x", false);
    story.settle();
    assert_eq!(story.live_nodes("p").len(), 3);
}

#[test]
fn a_plans_own_limit_holds_beside_that_of_all() {
    let mut story = Scenario::empty();
    story.add_nodes(&["a", "b", "c"]);
    set(&mut story, "maxConcurrent", Some("3"));
    story.apply(plan_with("p", |spec| {
        spec.max_concurrent = Some(IntOrString::Int(2));
    }));
    story.settle();
    assert_eq!(story.live_nodes("p").len(), 2);
}

#[test]
fn a_blackout_of_all_plans_holds() {
    let mut story = frozen(
        "blackouts",
        "[{start: 2026-01-01, end: 2026-01-01, reason: new year}]",
    );
    assert!(story.invariants.jobs.is_empty());
    let text = "a blackout of ConfigMap refit lasts until 2026-01-02T00:00:00Z: new year";
    assert_eq!(story.complete("p").2, text);
    assert_eq!(
        story.status("p").next_window.as_deref(),
        Some("2026-01-02T00:00:00Z")
    );
    story.pass_secs(15 * 3600 + 10);
    assert_eq!(story.live_nodes("p").len(), 1);
}

#[test]
fn nobody_starts_before_it_was_read() {
    let mut story = Scenario::empty();
    story.add_nodes(&["a"]);
    story.fault_always(Rule::on("list", "configmaps").answer(500));
    story.apply(plan("p"));
    story.pass_secs(120);
    assert!(story.invariants.jobs.is_empty());
    story.mend();
    story.pass_secs(120);
    assert_eq!(story.live_nodes("p"), ["a"]);
}
