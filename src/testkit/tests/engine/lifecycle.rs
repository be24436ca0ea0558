//! Lifecycle conditions of nodes (KEP-5683): refit's own, and those of other clients.

use super::scenario::{NAMESPACE, Scenario, Setup};
use super::sweep::{EFFECTS, sweep};
use crate::fault::{Effect, Moment, Rule};
use refit_api::{ContainerSpec, DrainSpec, PlanSpec, names};
use refit_facts::NodeCondition;
use refit_fixtures::{plan_with, repetitions};
use refit_rehearse::Kind;
use refit_rehearse::json::json;
use refit_rehearse::store::Key;
use refit_rehearse::write::WriteTarget;
use refit_view::{PlanOverview, explain_node};

const ON: Setup = Setup {
    seed: 1,
    backoff_limit: 0,
    kubectl_image_windows: None,
    own_image: Some("refit:test"),
    held: true,
    leader_elect: false,
    node_conditions: true,
    check_drains: false,
    enable: None,
    polling_interval: None,
};

fn scenario(nodes: &[&str], spec: impl FnOnce(&mut PlanSpec)) -> Scenario {
    let mut scenario = Scenario::new(&ON);
    scenario.add_nodes(nodes);
    scenario.apply_and_settle(plan_with("p", spec));
    scenario.settle();
    scenario
}

fn drains(spec: &mut PlanSpec) {
    spec.drain = Some(DrainSpec::default());
}

/// Types of the conditions of a node that are about its lifecycle, with their reasons.
fn says(scenario: &Scenario, node: &str) -> Vec<String> {
    let conditions = scenario.node(node).conditions.iter();
    let lifecycle = conditions.filter(|one| one.lifecycle().is_some());
    let mut says: Vec<_> = lifecycle
        .map(|one| format!("{} {}", one.type_, one.reason))
        .collect();
    says.sort();
    says
}

fn condition<'s>(scenario: &'s Scenario, node: &str, type_: &str) -> &'s NodeCondition {
    scenario.node(node).condition(type_).unwrap()
}

/// Another client sets conditions of a node, which replace those of the same types, or removes them.
fn set(scenario: &mut Scenario, node: &str, conditions: &[[&str; 3]], removed: &[&str]) {
    let _ = scenario.cluster.with(|state| {
        state.update(
            Kind::Node,
            &Key::new("", node),
            WriteTarget::Status,
            false,
            |old| {
                let mut new = old.clone();
                let mut all = old["status"]["conditions"].as_array().unwrap().clone();
                let goes =
                    |type_: &str| removed.contains(&type_) || conditions.iter().any(|one| one[0] == type_);
                all.retain(|one| !goes(one["type"].as_str().unwrap()));
                all.extend(conditions.iter().map(
                    |[type_, status, reason]| json!({ "type": *type_, "status": *status, "reason": *reason }),
                ));
                new["status"]["conditions"] = all.into();
                Ok(new)
            },
        )
    });
    scenario.settle();
}

/// Number of the controller's writes of conditions of the node.
fn writes(scenario: &Scenario, node: &str) -> usize {
    scenario.requests(&format!("PATCH /api/v1/nodes/{node}/status"))
}

#[test]
fn a_node_says_that_it_is_next_drained_and_held_by_which_plan_until_it_is_released() {
    let mut scenario = scenario(&["a", "b", "c"], drains);
    let first = scenario.slots("p")[0].clone();
    assert_eq!(
        says(&scenario, &first),
        ["Drained RefitPlan", "MaintenanceInProgress RefitPlan"]
    );
    assert_eq!(
        &*condition(&scenario, &first, "MaintenanceInProgress").message,
        format!("refit in {NAMESPACE}: Plan p has the node, version v1")
    );
    assert_eq!(
        &*condition(&scenario, &first, "Drained").message,
        format!("refit in {NAMESPACE}: Plan p has drained the node")
    );
    let others = ["a", "b", "c"].into_iter().filter(|node| **node != *first);
    let said: Vec<_> = others.flat_map(|node| says(&scenario, node)).collect();
    assert_eq!(
        said,
        ["MaintenancePlanned RefitPlan"],
        "one node at a time, so one is next"
    );
    scenario.finish();
    for node in ["a", "b", "c"] {
        let count = writes(&scenario, node);
        assert!((1..=5).contains(&count), "{node}: {count} writes");
    }
}

#[test]
fn a_node_whose_pods_do_not_leave_says_that_it_is_being_drained() {
    let mut scenario = Scenario::new(&ON);
    scenario.add_nodes(&["a"]);
    scenario.guard("a");
    scenario.apply_and_settle(plan_with("p", drains));
    scenario.pass_secs(20);
    assert_eq!(
        says(&scenario, "a"),
        ["DrainInProgress RefitPlan", "MaintenanceInProgress RefitPlan"]
    );
    assert_eq!(
        &*condition(&scenario, "a", "DrainInProgress").message,
        format!("refit in {NAMESPACE}: Plan p drains the node")
    );
    scenario.delete(Kind::Plan, "p");
    scenario.rest();
    assert_eq!(says(&scenario, "a"), [""; 0]);
}

#[test]
fn a_node_that_failed_says_that_it_is_held_until_a_retry_ends_well() {
    let mut scenario = scenario(&["a"], drains);
    scenario.fail("a");
    scenario.rest();
    assert_eq!(
        says(&scenario, "a"),
        ["Drained RefitPlan", "MaintenanceInProgress RefitPlan"]
    );
    scenario.invariants.check_held().unwrap();
    scenario.retry("a", "*");
    scenario.finish();
}

#[test]
fn conditions_go_with_a_plan_that_is_deleted_while_no_controller_runs() {
    let mut scenario = scenario(&["a", "b"], drains);
    scenario.stop();
    scenario.delete(Kind::Plan, "p");
    scenario.pass_secs(60);
    scenario.start();
    scenario.rest();
    for node in ["a", "b"] {
        assert_eq!(says(&scenario, node), [""; 0]);
        assert!(!scenario.is_cordoned(node));
    }
}

#[test]
fn nodes_whose_window_is_near_say_when_it_opens() {
    let mut scenario = scenario(&["a", "b"], |spec| {
        // It is 9 o'clock.
        spec.not_before = Some("2026-01-01T11:00:00Z".to_owned());
    });
    assert_eq!(says(&scenario, "a"), [""; 0]);
    scenario.pass_secs(60 * 60 + 10);
    assert_eq!(says(&scenario, "a"), ["MaintenancePlanned RefitPlanWindow"]);
    let text =
        format!("refit in {NAMESPACE}: Plan p may upgrade the node from 2026-01-01T11:00:00Z on, version v1");
    assert_eq!(&*condition(&scenario, "a", "MaintenancePlanned").message, text);
    let count = writes(&scenario, "a");
    scenario.pass_secs(30 * 60);
    assert_eq!(writes(&scenario, "a"), count, "the text has no countdown");
    scenario.pass_secs(30 * 60);
    assert_eq!(says(&scenario, "a"), ["MaintenanceInProgress RefitPlan"]);
    scenario.finish();
}

#[test]
fn a_node_in_maintenance_by_another_client_waits_and_one_that_runs_goes_on() {
    for type_ in ["MaintenanceInProgress", "DrainInProgress"] {
        let mut scenario = Scenario::of_nodes(&["a", "b"]);
        set(&mut scenario, "a", &[[type_, "True", "AdminRequested"]], &[]);
        set(&mut scenario, "b", &[["Drained", "True", "AdminRequested"]], &[]);
        scenario.apply_and_settle(plan_with("p", |spec| spec.concurrency = Some(2)));
        assert_eq!(scenario.slots("p"), ["b"]);
        assert_eq!(scenario.phase("p", "a"), ["Waiting", "NodeBusy"]);
        let text = format!(
            "another client works on the node: its condition {type_} is True, with reason \"AdminRequested\""
        );
        assert_eq!(scenario.entry("p", "a").message.as_deref(), Some(&*text));
        // Everybody who may write the status of a node can do that, so it is easy to get rid of.
        let snapshot = scenario.snapshot();
        let view = PlanOverview::new(&snapshot, &snapshot.plans[0]);
        let explanation = explain_node(&view, "a").to_text();
        let command = format!(
            r#"kubectl patch node a --subresource=status -p '{{"status":{{"conditions":[{{"type":"{type_}","$patch":"delete"}}]}}}}'"#
        );
        assert!(explanation.contains(&command), "{explanation}");
        set(&mut scenario, "b", &[[type_, "True", "AdminRequested"]], &[]);
        scenario.succeed("b");
        assert!(scenario.is_done("b", "p"), "it had begun");
        set(&mut scenario, "a", &[], &[type_]);
        assert_eq!(scenario.slots("p"), ["a"]);
        scenario.finish();
    }
}

#[test]
fn a_condition_of_another_client_stays_as_it_is_whatever_it_says() {
    for status in ["True", "False"] {
        let mut scenario = Scenario::new(&ON);
        scenario.add_nodes(&["a"]);
        let theirs = [
            ["MaintenancePlanned", status, "AdminRequested"],
            ["Drained", status, "AdminRequested"],
        ];
        set(&mut scenario, "a", &theirs, &[]);
        scenario.apply_and_settle(plan_with("p", drains));
        scenario.settle();
        let mine = "MaintenanceInProgress RefitPlan";
        let theirs = ["Drained AdminRequested", "MaintenancePlanned AdminRequested"];
        assert_eq!(says(&scenario, "a"), [theirs[0], mine, theirs[1]]);
        // It takes over what refit had written.
        set(
            &mut scenario,
            "a",
            &[["MaintenanceInProgress", status, "AdminRequested"]],
            &[],
        );
        scenario.finish();
        assert_eq!(says(&scenario, "a").len(), 3);
    }
}

#[test]
fn without_the_setting_nothing_is_written_and_what_was_written_with_it_goes() {
    let mut scenario = Scenario::of_nodes(&["a", "b"]);
    scenario.apply_and_settle(plan_with("p", drains));
    scenario.finish();
    assert_eq!(writes(&scenario, ""), 0);
    let text = format!("refit in {NAMESPACE}: Plan p has the node, version v1");
    let patch = json!({ "status": { "conditions": [
        { "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready" },
        { "type": "MaintenanceInProgress", "status": "True", "reason": "RefitPlan", "message": text },
    ] } });
    scenario
        .cluster
        .patch_status(Kind::Node, "", "a", &patch)
        .unwrap();
    scenario.settle();
    assert_eq!(says(&scenario, "a"), [""; 0]);
}

#[test]
fn without_the_permission_nodes_are_upgraded_all_the_same() {
    let mut scenario = Scenario::new(&ON);
    scenario.add_nodes(&["a", "b"]);
    let refuse = Effect::Answer(Moment::Before, 403);
    scenario.fault_always(Rule::on("patch", "nodes/status").effect(refuse));
    scenario.apply_and_settle(plan_with("p", drains));
    scenario.roll_out();
    scenario.assert_over();
    assert_eq!(scenario.events_of("MissingPermission"), [""; 0]);
    let reviews = scenario.requests("POST selfsubjectaccessreviews");
    scenario.mend();
    scenario.edit_and_settle("p", |spec| spec.version = Some("v2".to_owned()));
    scenario.pass_secs(60);
    let first = scenario.slots("p")[0].clone();
    assert!(says(&scenario, &first).contains(&"MaintenanceInProgress RefitPlan".to_owned()));
    assert_eq!(scenario.requests("POST selfsubjectaccessreviews"), reviews);
    scenario.finish();
}

#[test]
fn a_node_maintenance_says_what_it_does_to_its_node() {
    let mut scenario = Scenario::new(&Setup {
        enable: Some("maintenance"),
        ..ON
    });
    scenario.add_nodes(&["a"]);
    let leases = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "medik8s-leases" } });
    scenario.cluster.put(leases).unwrap();
    let object = json!({
        "apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance", "metadata": { "name": "disk" },
        "spec": { "nodeName": "a" },
    });
    scenario.cluster.create(object).unwrap();
    scenario.pass_secs(10);
    let held = [
        "Drained RefitNodeMaintenance",
        "MaintenanceInProgress RefitNodeMaintenance",
    ];
    assert_eq!(says(&scenario, "a"), held);
    assert_eq!(
        &*condition(&scenario, "a", "Drained").message,
        format!("refit in {NAMESPACE}: NodeMaintenance disk has drained the node")
    );
    scenario.cluster.delete(Kind::Maintenance, "", "disk").unwrap();
    scenario.pass_secs(10);
    assert_eq!(says(&scenario, "a"), [""; 0]);
}

/// More writes than any of these roll-outs has.
const MOST: u64 = 80;

#[test]
fn a_controller_that_dies_at_any_write_leaves_no_condition_and_says_what_holds() {
    let begin = || {
        let mut scenario = Scenario::without_controller(&Setup { held: false, ..ON });
        scenario.add_nodes(&["a", "b", "c"]);
        scenario.apply(plan_with("p", |spec| {
            drains(spec);
            spec.verify = Some(Box::new(ContainerSpec {
                image: "look".to_owned(),
                ..ContainerSpec::default()
            }));
        }));
        scenario.start();
        scenario
    };
    let run = |scenario: &mut Scenario, _: &str| scenario.rest();
    sweep(8..MOST, &EFFECTS, begin, run, |scenario, at| {
        scenario.assert_over();
        assert_eq!(scenario.invariants.upgrades, 3, "{at}");
    });
}

#[test]
fn a_failed_node_is_held_and_says_so_whatever_write_the_controller_dies_at() {
    for write in repetitions::writes(MOST, 0) {
        let mut scenario = scenario(&["a", "b"], drains);
        let first = scenario.slots("p")[0].clone();
        let rule = Rule::write_or_event().nth(write + 1);
        scenario
            .fault_injector
            .add(rule.effect(Effect::Kill(Moment::After)));
        scenario.fail(&first);
        scenario.rest();
        let was_met = scenario.fault_injector.clear_rules();
        let held = ["Drained RefitPlan", "MaintenanceInProgress RefitPlan"];
        assert_eq!(says(&scenario, &first), held, "at write {write}");
        // An abort releases nothing that failed, and a deleted Plan everything.
        scenario.annotate(Kind::Plan, "p", names::ANNOTATION_ABORT, Some("by user"));
        scenario.rest();
        scenario.invariants.check_held().unwrap();
        scenario.delete(Kind::Plan, "p");
        scenario.rest();
        assert_eq!(says(&scenario, &first), [""; 0], "at write {write}");
        if !was_met {
            return;
        }
    }
}
