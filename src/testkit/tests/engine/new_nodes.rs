//! `taintNewNodes`: no pod starts on a node that has joined until the Plan is done there.

use super::scenario::{NAMESPACE, Scenario};
use super::sweep::{EFFECTS, sweep};
use refit_api::{Plan, names};
use refit_fixtures::{plan, plan_with};
use refit_rehearse::Kind;
use refit_rehearse::json::{Value, json};
use refit_view::{PlanOverview, explain_node};

fn tainting() -> Plan {
    plan_with("p", |spec| {
        spec.concurrency = Some(1);
        spec.taint_new_nodes = Some(true);
    })
}

/// The taints of a node that keep pods off new nodes.
fn taints(scenario: &Scenario, node: &str) -> Vec<Value> {
    let node = scenario.cluster.get(Kind::Node, "", node).unwrap();
    let taints = node["spec"]["taints"].as_array().into_iter().flatten();
    let ours = taints.filter(|taint| taint["key"] == names::TAINT_NEW_NODE);
    ours.cloned().collect()
}

fn ours() -> Vec<Value> {
    vec![json!({ "key": names::TAINT_NEW_NODE, "value": NAMESPACE, "effect": "NoSchedule" })]
}

const NONE: [Value; 0] = [];

/// `a` and `b` are done.
fn scenario() -> Scenario {
    let mut scenario = Scenario::of_nodes(&["a", "b"]);
    scenario.apply(tainting());
    scenario.roll_out();
    scenario.pass_secs(10);
    scenario
}

/// Registers a node now. Others have existed for long.
fn register(scenario: &mut Scenario, node: &str) {
    let created = scenario.now().to_string();
    scenario.add_node(node, &json!({ "metadata": { "creationTimestamp": created } }));
}

fn join(scenario: &mut Scenario, node: &str) {
    register(scenario, node);
    scenario.pass_secs(5);
}

#[test]
fn nodes_of_the_first_roll_out_never_get_the_taint_and_a_node_that_joins_has_it_until_it_is_done() {
    let mut scenario = Scenario::of_nodes(&["a", "b"]);
    scenario.apply_and_settle(tainting());
    assert_eq!([taints(&scenario, "a"), taints(&scenario, "b")], [NONE, NONE]);
    scenario.roll_out();
    scenario.pass_secs(10);
    scenario.stop();
    join(&mut scenario, "c");
    scenario.start();
    scenario.pass_secs(5);
    assert_eq!(taints(&scenario, "c"), ours());
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "new", "namespace": "shop" },
        "spec": { "nodeSelector": { "kubernetes.io/hostname": "c" }, "containers": [{ "name": "c", "image": "i" }] },
    });
    scenario.cluster.put(pod).unwrap();
    scenario.restart();
    scenario.pass_secs(5);
    let node = |scenario: &Scenario| {
        let pod = scenario.cluster.get(Kind::Pod, "shop", "new").unwrap();
        pod["spec"]["nodeName"].as_str().map(str::to_owned)
    };
    assert_eq!((scenario.is_done("c", "p"), node(&scenario)), (false, None));
    scenario.pass_secs(60);
    scenario.finish();
    scenario.pass_secs(10);
    assert_eq!([taints(&scenario, "a"), taints(&scenario, "c")], [NONE, NONE]);
    assert!(scenario.is_done("c", "p"));
}

#[test]
fn a_new_version_taints_no_node_that_was_done_and_a_rerun_taints_none() {
    let mut scenario = scenario();
    scenario.edit("p", |spec| spec.version = Some("v2".to_owned()));
    scenario.pass_secs(5);
    assert_eq!(scenario.slots("p").len(), 1);
    assert_eq!([taints(&scenario, "a"), taints(&scenario, "b")], [NONE, NONE]);
    scenario.roll_out();
    scenario.pass_secs(10);
    scenario.set_done_label("a", "p", None);
    scenario.pass_secs(5);
    assert_eq!(taints(&scenario, "a"), NONE);
    scenario.finish();
}

#[test]
fn jobs_of_every_plan_run_on_a_new_node_and_the_taint_is_there_until_the_last_is_done() {
    let mut scenario = scenario();
    scenario.apply(plan("other"));
    scenario.apply(Plan {
        spec: tainting().spec,
        ..plan("second")
    });
    scenario.roll_out();
    scenario.pass_secs(10);
    join(&mut scenario, "c");
    assert_eq!(taints(&scenario, "c"), ours());
    scenario.pass_secs(60);
    scenario.finish();
    scenario.pass_secs(10);
    assert_eq!(taints(&scenario, "c"), NONE);
    for plan in ["p", "other", "second"] {
        assert!(scenario.is_done("c", plan), "{plan}");
    }
}

#[test]
fn the_taint_goes_with_the_plan_the_field_and_the_selection_and_with_a_skipped_node() {
    let changes: [fn(&mut Scenario); 4] = [
        |scenario| scenario.delete(Kind::Plan, "p"),
        |scenario| scenario.edit("p", |spec| spec.taint_new_nodes = None),
        |scenario| {
            scenario.edit("p", |spec| {
                let mut selector = spec.node_selector.clone().unwrap_or_default();
                let labels = selector.match_labels.get_or_insert_default();
                labels.insert("kubernetes.io/hostname".to_owned(), "a".to_owned());
                spec.node_selector = Some(selector);
            });
        },
        |scenario| scenario.annotate(Kind::Node, "c", names::ANNOTATION_SKIP, Some("p")),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let mut scenario = scenario();
        // A suspended Plan taints new nodes, too.
        scenario.edit("p", |spec| spec.suspend = Some(true));
        join(&mut scenario, "c");
        assert_eq!(taints(&scenario, "c"), ours());
        scenario.stop();
        change(&mut scenario);
        scenario.start();
        scenario.pass_secs(10);
        assert_eq!(taints(&scenario, "c"), NONE, "change {number}");
    }
}

#[test]
fn a_failed_new_node_keeps_the_taint_and_status_says_so() {
    let mut scenario = scenario();
    join(&mut scenario, "c");
    scenario.pass_secs(60);
    scenario.fail("c");
    scenario.settle();
    assert_eq!(taints(&scenario, "c"), ours());
    let message = scenario.entry("p", "c").message.unwrap();
    let says = "the node has joined lately, and keeps taint refit.rs/new-node";
    assert!(message.ends_with(says), "{message}");
    let snapshot = scenario.snapshot();
    let explained = explain_node(&PlanOverview::new(&snapshot, &snapshot.plans[0]), "c").to_text();
    assert!(explained.contains(says), "{explained}");
    scenario.retry("c", "p");
    scenario.finish();
    scenario.pass_secs(10);
    assert_eq!(taints(&scenario, "c"), NONE);
}

#[test]
fn a_taint_that_the_kubelet_registers_is_removed_when_the_node_is_done_and_that_of_another_stays() {
    let mut scenario = Scenario::of_nodes(&[]);
    let mine = json!(ours());
    let theirs = json!([{ "key": names::TAINT_NEW_NODE, "value": "elsewhere", "effect": "NoSchedule" }]);
    scenario.add_node("a", &json!({ "spec": { "taints": mine } }));
    scenario.add_node("b", &json!({ "spec": { "taints": theirs } }));
    scenario.apply(tainting());
    scenario.roll_out();
    scenario.pass_secs(10);
    assert!(scenario.is_done("a", "p") && scenario.is_done("b", "p"));
    assert_eq!(taints(&scenario, "a"), NONE);
    assert_eq!(json!(taints(&scenario, "b")), theirs);
}

#[test]
fn a_node_that_joins_meets_any_fault_at_any_write() {
    let run = |scenario: &mut Scenario, _: &str| {
        register(scenario, "c");
        scenario.pass_secs(70);
        scenario.finish();
        scenario.pass_secs(120);
    };
    sweep(5..60, &EFFECTS, scenario, run, |scenario, at| {
        assert_eq!(taints(scenario, "c"), NONE, "{at}");
        assert!(scenario.is_done("c", "p"), "{at}");
    });
}
