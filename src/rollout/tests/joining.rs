//! Nodes that have just joined.

use jiff::SignedDuration;

use super::build::{cluster, defaults, observe_node, outcome};
use super::taints::{taint, tolerating, with_taints};
use crate::{ClusterState, decide};
use refit_facts::NodeFacts;
use refit_fixtures::{morning, node, plan};

fn registered(name: &str, seconds_ago: i64) -> NodeFacts {
    let mut node = node(name, &format!("uid-{name}"));
    node.created = morning().checked_sub(SignedDuration::from_secs(seconds_ago)).ok();
    node
}

#[test]
fn a_node_starts_a_minute_after_its_registration() {
    let morning = morning();
    for (seconds_ago, starts) in [(0, false), (59, false), (60, true), (86_400, true), (-5, false)] {
        let mut cluster = cluster([registered("a", seconds_ago)], [plan("p")]);
        let (started, waiting) = outcome(&mut cluster);
        assert_eq!(started == ["a"], starts, "{seconds_ago}: {waiting:?}");
        if starts {
            continue;
        }
        let until = morning + SignedDuration::from_secs(60 - seconds_ago);
        let why = format!(
            "a NodeJoining: the node has just joined, and its labels and taints may not be complete: it may start at {until}"
        );
        assert_eq!(waiting, [why]);
        assert_eq!(decide(&cluster, morning).requeue_at, Some(until));
    }
    // Of a generated cluster, for example.
    assert_eq!(outcome(&mut cluster([node("a", "uid-a")], [plan("p")])).0, ["a"]);
}

#[test]
fn the_time_after_the_registration_is_a_setting() {
    let mut defaults = defaults();
    defaults.min_node_age = SignedDuration::ZERO;
    let mut cluster = cluster([registered("a", 0)], [plan("p")]);
    assert!(outcome(&mut cluster).0.is_empty());
    cluster.defaults = defaults;
    assert_eq!(outcome(&mut cluster).0, ["a"]);
}

#[test]
fn a_node_with_a_start_up_taint_does_not_start_even_if_its_pods_tolerate_everything_else() {
    for (key, starts) in [
        ("node.cloudprovider.kubernetes.io/uninitialized", false),
        ("node.kubernetes.io/network-unavailable", false),
        ("node.cilium.io/agent-not-ready", false),
        ("readiness.k8s.io/storage-ready", false),
        ("startup-taint.cluster-autoscaler.kubernetes.io/gpu", false),
        ("node.cloudprovider.kubernetes.io/shutdown", true),
        ("readiness.k8s.io", true),
        ("dedicated", true),
    ] {
        for effect in ["NoSchedule", "NoExecute", "PreferNoSchedule"] {
            let taints = || [taint(key, None, effect)];
            let run = |key: &str| {
                outcome(&mut cluster(
                    [with_taints("a", taints())],
                    [tolerating(key, "Exists")],
                ))
            };
            let (started, waiting) = run("");
            assert_eq!(started == ["a"], starts, "{key}: {waiting:?}");
            if !starts {
                let why =
                    format!("a NodeJoining: the node is joining: it has the start-up taint {key}:{effect}");
                assert!(waiting[0].starts_with(&why), "{waiting:?}");
            }
            assert_eq!(
                run(key).0,
                ["a"],
                "a Plan that names the taint is about such nodes"
            );
        }
    }
}

#[test]
fn a_node_that_has_joined_holds_up_no_other_node_and_is_no_longer_waited_for_when_it_gets_its_role() {
    let servers_aside = || {
        refit_fixtures::plan_with("p", |spec| {
            spec.concurrency = Some(9);
            let selector = serde_json::json!({ "matchExpressions": [
                { "key": "node-role.kubernetes.io/control-plane", "operator": "DoesNotExist" },
            ] });
            spec.node_selector = Some(serde_json::from_value(selector).unwrap());
        })
    };
    let mut cluster: ClusterState = cluster(
        [registered("agent", 600), registered("server", 2)],
        [servers_aside()],
    );
    let (started, waiting) = outcome(&mut cluster);
    assert_eq!(started, ["agent"]);
    assert!(waiting[0].starts_with("server NodeJoining"), "{waiting:?}");
    let mut server = registered("server", 2);
    server.labels = refit_fixtures::labels([
        ("kubernetes.io/hostname", "server"),
        ("node-role.kubernetes.io/control-plane", ""),
    ]);
    observe_node(&mut cluster, 2, server);
    let (started, waiting) = outcome(&mut cluster);
    assert_eq!((started, waiting), (vec!["agent".to_owned()], Vec::new()));
}
