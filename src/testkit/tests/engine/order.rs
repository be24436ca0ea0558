//! `spec.order`: who starts before whom.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::scenario::{Scenario, Setup};
use refit_api::{ControlPlaneOrder, FailurePolicy, FailureSpec, OrderSpec, Plan};
use refit_fixtures::plan_with;
use refit_rehearse::json::json;

const ZONE: &str = "topology.kubernetes.io/zone";
const SERVER: &str = "node-role.kubernetes.io/control-plane";

fn zones() -> OrderSpec {
    OrderSpec {
        topology_key: Some(ZONE.to_owned()),
        ..OrderSpec::default()
    }
}

fn control_plane(order: ControlPlaneOrder) -> OrderSpec {
    OrderSpec {
        control_plane: Some(order),
        ..OrderSpec::default()
    }
}

fn ordered(order: Vec<OrderSpec>, concurrency: i64) -> Plan {
    plan_with("p", |spec| {
        spec.concurrency = Some(concurrency);
        spec.order = Some(order);
    })
}

/// Nodes of zones: the name of each begins with that of its zone.
fn add_zones(scenario: &mut Scenario, names: &[&str]) {
    for name in names {
        let zone = &name[..1];
        scenario.add_node(name, &json!({ "metadata": { "labels": { ZONE: zone } } }));
    }
}

#[test]
fn one_zone_is_upgraded_at_a_time() {
    let mut scenario = Scenario::empty();
    add_zones(&mut scenario, &["b1", "a1", "a2", "b2"]);
    scenario.add_nodes(&["elsewhere"]);
    scenario.apply_and_settle(ordered(vec![zones()], 5));
    assert_eq!(scenario.slots("p"), ["a1", "a2"]);
    scenario.succeed("a1");
    assert_eq!(
        scenario.slots("p"),
        ["a2"],
        "the next zone waits for the whole zone"
    );
    let waits = scenario.entry("p", "b1");
    assert_eq!(waits.reason.as_deref(), Some("EarlierNodes"));
    assert_eq!(
        waits.message.as_deref(),
        Some("spec.order: a2 is left (topology.kubernetes.io/zone=a), and other nodes wait until it is done")
    );
    scenario.succeed("a2");
    assert_eq!(scenario.slots("p"), ["b1", "b2"]);
    scenario.succeed("b1");
    scenario.succeed("b2");
    assert_eq!(scenario.slots("p"), ["elsewhere"]);
    scenario.finish();
}

#[test]
fn a_node_that_cannot_start_holds_its_zone_and_is_named_until_it_is_repaired_or_left_out() {
    for repairs in [true, false] {
        let mut scenario = Scenario::empty();
        add_zones(&mut scenario, &["a1", "a2", "b1"]);
        scenario.ready("a2", false);
        scenario.apply_and_settle(ordered(vec![zones()], 3));
        assert_eq!(scenario.slots("p"), ["a1"]);
        scenario.succeed("a1");
        assert!(scenario.slots("p").is_empty());
        let text = "spec.order: a2 is left (topology.kubernetes.io/zone=a), and other nodes wait until it is done; the node is \
                    not Ready";
        assert_eq!(scenario.complete("p"), ["False", "EarlierNodes", text]);
        assert_eq!(scenario.events_of("EarlierNodes"), [text]);
        assert_eq!(scenario.phase("p", "a2")[1], "NodeNotReady");
        assert_eq!(scenario.phase("p", "b1")[1], "EarlierNodes");
        if repairs {
            scenario.ready("a2", true);
        } else {
            scenario.set_done_label("a2", "p", Some("disabled"));
        }
        scenario.settle();
        assert_eq!(scenario.slots("p"), [if repairs { "a2" } else { "b1" }]);
        scenario.finish();
    }
}

#[test]
fn a_failed_node_holds_its_zone_and_is_named() {
    let mut scenario = Scenario::empty();
    add_zones(&mut scenario, &["a1", "b1"]);
    scenario.apply_and_settle(ordered(vec![zones()], 3));
    scenario.fail("a1");
    let message = scenario.entry("p", "b1").message.unwrap();
    assert!(
        message.contains("a1 is left (topology.kubernetes.io/zone=a)"),
        "{message}"
    );
    assert!(message.ends_with("; it failed"), "{message}");
    scenario.retry("a1", "p");
    scenario.finish();
}

#[test]
fn a_node_that_joins_an_earlier_zone_waits_for_the_nodes_under_way_and_then_goes_first() {
    let mut scenario = Scenario::empty();
    add_zones(&mut scenario, &["b1", "b2"]);
    scenario.apply_and_settle(ordered(vec![zones()], 1));
    let first = scenario.slots("p")[0].clone();
    add_zones(&mut scenario, &["a1"]);
    scenario.edit_and_settle("p", |spec| spec.concurrency = Some(3));
    assert_eq!(
        scenario.slots("p"),
        std::slice::from_ref(&first),
        "neither zone starts a node beside it"
    );
    scenario.succeed(&first);
    assert_eq!(scenario.slots("p"), ["a1"]);
    scenario.finish();
}

#[test]
fn control_plane_nodes_are_done_before_others_start_or_start_when_all_others_are_done() {
    for order in ControlPlaneOrder::ALL {
        let mut scenario = Scenario::empty();
        scenario.add_node("server", &json!({ "metadata": { "labels": { SERVER: "true" } } }));
        scenario.add_nodes(&["agent-1", "agent-2"]);
        scenario.apply_and_settle(ordered(vec![control_plane(*order)], 3));
        let (first, next): (&[&str], &[&str]) = match order {
            ControlPlaneOrder::First => (&["server"], &["agent-1", "agent-2"]),
            ControlPlaneOrder::Last => (&["agent-1", "agent-2"], &["server"]),
        };
        assert_eq!(scenario.slots("p"), first);
        for node in first {
            scenario.succeed(node);
        }
        assert_eq!(scenario.slots("p"), next);
        scenario.finish();
    }
}

#[test]
fn the_node_of_the_controller_is_the_last_of_its_zone() {
    let mut scenario = Scenario::empty();
    for name in ["controller-0", "n1", "n2"] {
        scenario.add_node(name, &json!({ "metadata": { "labels": { ZONE: "a" } } }));
    }
    scenario.add_node("z", &json!({ "metadata": { "labels": { ZONE: "b" } } }));
    scenario.apply(ordered(vec![zones()], 1));
    let mut order = Vec::new();
    for _ in 0..4 {
        scenario.settle();
        let node = scenario.slots("p").remove(0);
        scenario.succeed(&node);
        order.push(node);
    }
    assert_eq!(order[2..], ["controller-0", "z"]);
    scenario.assert_over();
}

#[test]
fn with_an_order_an_unavailable_node_goes_first_only_where_there_is_no_room_for_others() {
    let mut scenario = Scenario::empty();
    for (name, rank) in [("a", "1"), ("b", "2"), ("c", "3")] {
        scenario.add_node(name, &json!({ "metadata": { "labels": { "rank": rank } } }));
    }
    scenario.cordon("c", true);
    let ranked = |unavailable| {
        plan_with("p", |spec| {
            spec.max_unavailable = Some(IntOrString::Int(unavailable));
            spec.order = Some(vec![OrderSpec {
                label_number: Some("rank".to_owned()),
                ..OrderSpec::default()
            }]);
        })
    };
    scenario.apply_and_settle(ranked(2));
    assert_eq!(scenario.slots("p"), ["a"]);
    let mut scenario = {
        let mut scenario = Scenario::of_nodes(&["a", "b", "c"]);
        scenario.cordon("c", true);
        scenario
    };
    scenario.apply_and_settle(ranked(1));
    assert_eq!(scenario.slots("p"), ["c"]);
}

#[test]
fn the_order_holds_through_restarts_of_the_controller() {
    let setup = Setup::default();
    let mut scenario = Scenario::without_controller(&setup);
    add_zones(&mut scenario, &["a1", "a2", "b1", "b2"]);
    scenario.apply(ordered(vec![zones()], 1));
    scenario.start();
    let mut order = Vec::new();
    for _ in 0..4 {
        scenario.settle();
        let node = scenario.slots("p").remove(0);
        scenario.restart();
        scenario.settle();
        assert_eq!(scenario.slots("p"), std::slice::from_ref(&node));
        scenario.succeed(&node);
        order.push(node[..1].to_owned());
    }
    assert_eq!(order.concat(), "aabb");
    scenario.assert_over();
}

#[test]
fn an_edit_of_the_order_applies_to_the_next_node() {
    let mut scenario = Scenario::empty();
    add_zones(&mut scenario, &["a1", "b1", "c1"]);
    scenario.apply_and_settle(ordered(vec![zones()], 1));
    assert_eq!(scenario.slots("p"), ["a1"]);
    scenario.label("b1", ZONE, Some("z"));
    scenario.succeed("a1");
    assert_eq!(scenario.slots("p"), ["c1"]);
    scenario.edit("p", |spec| spec.order = None);
    scenario.finish();
}

#[test]
fn a_zone_does_not_wait_for_a_failed_node_without_which_the_roll_out_goes_on() {
    let mut scenario = Scenario::empty();
    add_zones(&mut scenario, &["a1", "a2", "b1", "b2"]);
    let mut plan = ordered(vec![zones()], 3);
    plan.spec.failure = Some(FailureSpec {
        policy: Some(FailurePolicy::Continue),
        ..FailureSpec::default()
    });
    scenario.apply_and_settle(plan);
    scenario.fail("a1");
    assert_eq!(scenario.live_nodes("p"), ["a2"]);
    scenario.succeed("a2");
    assert_eq!(scenario.live_nodes("p"), ["b1", "b2"]);
    scenario.retry("a1", "p");
    scenario.settle();
    assert_eq!(scenario.live_nodes("p"), ["b1", "b2"], "one zone at a time");
    let text = scenario.entry("p", "a1").message.unwrap();
    assert!(
        text.contains("it is tried again once it may start: spec.order: b1 is left"),
        "{text}"
    );
    scenario.succeed("b1");
    scenario.restart();
    scenario.succeed("b2");
    assert_eq!(scenario.live_nodes("p"), ["a1"]);
    scenario.finish();
}
