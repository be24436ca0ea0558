//! The number of API requests of a large roll-out. A regression shows here on any machine; `just bench` measures the times.

use super::rollout::{NAMESPACE, options, roll_out_in};
use refit_rehearse::json::{Value, json};
use refit_rehearse::{Cluster, Kind, Options};

const NODES: usize = 80;
const SLOTS: usize = 20;

/// Requests per hundred nodes.
#[derive(Debug)]
struct Load {
    requests: usize,
    statuses: usize,
    /// Requests of other clients, such as drains.
    others: usize,
}

/// Upgrades of different lengths, and a workload of which a quarter may be unavailable.
fn populate(cluster: &Cluster) {
    for number in 0..NODES {
        let time = format!("{}s", 120 + number * 67 % 180);
        let steering = json!({ "metadata": { "annotations": { "fake-kubelet/upgrade.run-delay": time } } });
        let node = format!("node-{number:04}");
        cluster.patch(Kind::Node, "", &node, steering).unwrap();
    }
    let labels = json!({ "app": "web" });
    let set = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": { "name": "web", "namespace": "shop" },
        "spec": { "replicas": NODES, "selector": { "matchLabels": labels }, "template": {
            "metadata": { "labels": labels },
            "spec": { "containers": [{ "name": "web", "image": "example.com/web" }] },
        } },
    });
    cluster.put(set).unwrap();
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": { "name": "web", "namespace": "shop" },
        "spec": { "maxUnavailable": "25%", "selector": { "matchLabels": labels } },
    });
    cluster.put(budget).unwrap();
}

fn load(more: &Value) -> Load {
    load_of(options(1), more)
}

fn load_of(options: Options, more: &Value) -> Load {
    let (cluster, _) = roll_out_in(options, NODES, SLOTS, more, populate);
    cluster.with(|state| {
        let status = format!("PATCH /apis/upgrade.cattle.io/v1/namespaces/{NAMESPACE}/plans/upgrade/status");
        let per_hundred = |count: usize| count * 100 / NODES;
        let trace = state.trace();
        let own = |line: &&String| line.contains(" controller ");
        let requests = trace.iter().filter(own).count();
        Load {
            requests: per_hundred(requests),
            statuses: per_hundred(trace.iter().filter(|line| line.contains(&status)).count()),
            others: per_hundred(trace.len() - requests),
        }
    })
}

#[test]
fn a_node_costs_few_requests_and_a_drain_hardly_more_of_the_controller() {
    let plain = load(&json!({}));
    let drained = load(&json!({ "drain": { "force": true } }));
    println!("per 100 nodes:\n{plain:?}\n{drained:?}");
    assert!(
        plain.statuses <= 230 && drained.statuses <= 230,
        "{plain:?} {drained:?}"
    );
    assert!(
        drained.requests * 10 <= plain.requests * 12,
        "{plain:?} {drained:?}"
    );
    assert!(
        plain.others < 100 && drained.others <= 1_500,
        "{plain:?} {drained:?}"
    );
}

/// Of the time that a rehearsal with drains takes, these requests would be a third.
#[test]
fn a_drain_of_an_economical_cluster_lists_its_node_only_after_a_change() {
    let drained = |economical| {
        let mut options = options(1);
        options.economical = economical;
        let steering = &mut options.default_behaviour.steering;
        steering.insert("fake-kubelet/delete-delay".to_owned(), "20s".to_owned());
        load_of(options, &json!({ "drain": { "force": true } }))
    };
    let (all, few) = (drained(false), drained(true));
    println!("per 100 nodes:\n{all:?}\n{few:?}");
    assert!(few.others * 2 < all.others, "{all:?} {few:?}");
    assert!(few.requests <= all.requests, "{all:?} {few:?}");
}
