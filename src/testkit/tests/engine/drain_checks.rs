//! `drain.checkFirst`: a node whose drain would not end is left as it is, and the next one starts.

use super::scenario::{Scenario, Setup};
use super::sweep::{KILLS, sweep};
use refit_api::{AfterTimeout, DrainSpec, DrainTimeout, Plan};
use refit_fixtures::{plan, plan_with};
use refit_rehearse::Kind;
use refit_rehearse::json::{Value, json};
use refit_view::{PlanOverview, explain_plan};

fn checking(change: impl FnOnce(&mut DrainSpec)) -> Plan {
    plan_with("p", |spec| {
        spec.concurrency = Some(1);
        spec.cordon = None;
        let mut drain = DrainSpec {
            check_first: Some(true),
            ..DrainSpec::default()
        };
        change(&mut drain);
        spec.drain = Some(drain);
    })
}

/// Checks that `a` waits untouched for this cause while `b` is done.
#[track_caller]
fn waits(scenario: &mut Scenario, says: &str) {
    scenario.roll_out();
    assert!(scenario.is_done("b", "p"));
    let entry = scenario.entry("p", "a");
    assert_eq!(entry.reason.as_deref(), Some("DrainWouldBlock"));
    let message = entry.message.unwrap();
    let begins = "spec.drain.checkFirst: a drain of the node would not end, so it stays as it is: pod ";
    assert!(message.starts_with(begins) && message.contains(says), "{message}");
    assert!(scenario.jobs_for("a").is_empty() && !scenario.is_cordoned("a"));
    assert_eq!(scenario.complete("p")[1], "DrainWouldBlock");
}

#[test]
fn a_node_with_a_pod_that_its_budget_never_lets_go_waits_and_the_others_do_not() {
    let mut scenario = Scenario::of_nodes(&["a", "b"]);
    scenario.guard("a");
    scenario.apply(checking(|_| {}));
    let says = ": PodDisruptionBudget guarded requires 1 of its 1 pods, so that it never allows an eviction";
    waits(&mut scenario, says);
    assert!(
        scenario
            .entry("p", "a")
            .message
            .unwrap()
            .contains("pod shop/guarded-")
    );
    let snapshot = scenario.snapshot();
    let explained = explain_plan(&PlanOverview::new(&snapshot, &snapshot.plans[0])).to_text();
    assert!(explained.contains("DrainWouldBlock"), "{explained}");
    scenario.restart();
    scenario.pass_secs(130);
    assert!(scenario.jobs_for("a").is_empty());
    scenario.open_budget();
    scenario.pass_secs(60);
    scenario.finish();
}

#[test]
fn budgets_do_not_count_where_the_drain_goes_on_in_spite_of_them() {
    for change in [
        |drain: &mut DrainSpec| drain.disable_eviction = Some(true),
        |drain: &mut DrainSpec| {
            drain.timeout = Some(DrainTimeout::Text("10s".to_owned()));
            drain.after_timeout = Some(AfterTimeout::Continue);
        },
        |drain: &mut DrainSpec| drain.check_first = Some(false),
    ] {
        let mut scenario = Scenario::of_nodes(&["a", "b"]);
        scenario.guard("a");
        let mut plan = checking(change);
        plan.spec.concurrency = Some(2);
        scenario.apply_and_settle(plan);
        assert_eq!(scenario.slots("p"), ["a", "b"]);
    }
}

#[test]
fn a_pod_that_the_drain_would_refuse_is_named_with_the_words_of_the_drain() {
    let mut scenario = Scenario::of_nodes(&["a", "b"]);
    let alone = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "alone", "namespace": "shop" },
        "spec": { "nodeName": "a", "containers": [{ "name": "c", "image": "i" }] }, "status": { "phase": "Running" },
    });
    scenario.cluster.put(alone).unwrap();
    scenario.apply(checking(|_| {}));
    let says = "pod shop/alone: cannot delete Pods that declare no controller (use --force to override)";
    waits(&mut scenario, says);
    scenario.edit("p", |spec| spec.drain.as_mut().unwrap().force = Some(true));
    scenario.finish();
}

/// A workload on `a` that requests so many cores.
fn workload(cores: &str) -> Value {
    let labels = json!({ "app": "big" });
    json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": { "name": "big", "namespace": "shop" },
        "spec": { "replicas": 1, "selector": { "matchLabels": labels }, "template": {
            "metadata": { "labels": labels },
            "spec": { "nodeName": "a", "containers": [{
                "name": "c", "image": "i", "resources": { "requests": { "cpu": cores } },
            }] } } },
    })
}

#[test]
fn a_pod_that_fits_on_no_other_node_is_named_and_said_to_be_an_estimate() {
    let mut scenario = Scenario::empty();
    let size = |cores: &str| json!({ "status": { "allocatable": { "cpu": cores, "pods": "110" } } });
    for node in ["a", "b"] {
        scenario.add_node(node, &size("2"));
    }
    scenario.cluster.put(workload("3")).unwrap();
    scenario.settle();
    scenario.apply(checking(|_| {}));
    waits(
        &mut scenario,
        ": by an estimate, it fits on no other node (it requests cpu 3000m)",
    );
    scenario
        .cluster
        .patch_status(Kind::Node, "", "b", size("4"))
        .unwrap();
    scenario.pass_secs(60);
    scenario.roll_out();
    assert!(scenario.is_done("a", "p"));
}

#[test]
fn without_the_field_and_the_setting_nothing_is_asked() {
    let mut scenario = Scenario::of_nodes(&["a"]);
    scenario.apply_and_settle(checking(|drain| drain.check_first = None));
    assert_eq!(scenario.requests("GET /poddisruptionbudgets"), 0);
    scenario.finish();
}

#[test]
fn the_setting_of_the_controller_is_for_all_plans_that_drain_and_do_not_say_otherwise() {
    let begin = |plan: Plan| {
        let mut scenario = Scenario::new(&Setup {
            check_drains: true,
            ..Setup::default()
        });
        scenario.add_nodes(&["a"]);
        scenario.guard("a");
        scenario.apply_and_settle(plan);
        scenario
    };
    let is_held = |scenario: &Scenario| scenario.complete("p")[1] == "DrainWouldBlock";
    assert!(is_held(&begin(checking(|drain| drain.check_first = None))));
    assert!(!is_held(&begin(
        checking(|drain| drain.check_first = Some(false))
    )));
    assert!(!is_held(&begin(plan("p"))));
}

#[test]
fn a_plan_that_asks_drains_no_node_unchecked_while_the_controller_may_not_look() {
    let mut scenario = Scenario::with(&["a"], plan("before"));
    scenario.roll_out();
    scenario
        .fault_injector
        .allow("list", "poddisruptionbudgets", false);
    scenario.apply_and_settle(checking(|_| {}));
    assert!(scenario.slots("p").is_empty());
    let [_, reason, message] = scenario.complete("p");
    let text = "list poddisruptionbudgets.policy in all namespaces, which spec.drain.checkFirst needs";
    let says = format!("{reason}: {message}");
    assert!(reason == "MissingPermission" && message.contains(text), "{says}");
    let snapshot = scenario.snapshot();
    let of_p = snapshot.plans.iter().find(|plan| &*plan.name == "p").unwrap();
    let explained = explain_plan(&PlanOverview::new(&snapshot, of_p)).to_text();
    let grants = "kubectl apply -f deploy/overlays/check-drains/rbac.yaml\n";
    assert!(explained.contains(grants), "{explained}");
    scenario
        .fault_injector
        .allow("list", "poddisruptionbudgets", true);
    scenario.pass_secs(60);
    scenario.finish();
}

#[test]
fn a_check_before_the_cordon_meets_a_kill_at_any_write() {
    let begin = || {
        let mut scenario = Scenario::without_controller(&Setup {
            held: false,
            ..Setup::default()
        });
        scenario.add_nodes(&["a", "b"]);
        scenario.guard("a");
        scenario.apply(checking(|_| {}));
        scenario.start();
        scenario
    };
    let run = |scenario: &mut Scenario, _: &str| {
        scenario.rest();
        assert!(!scenario.is_done("a", "p") && !scenario.is_cordoned("a"));
        scenario.open_budget();
        scenario.pass_secs(60);
        scenario.rest();
    };
    sweep(8..60, &KILLS, begin, run, |scenario, at| {
        scenario.assert_over();
        assert_eq!(scenario.invariants.upgrades, 2, "{at}: each node once");
    });
}
