//! Workloads of generated nodes: applications with disruption budgets, and a DaemonSet.

use crate::json::{Value, json};

/// Number of nodes per set of applications: more nodes have more applications, not larger ones.
const NODES_PER_SET: usize = 20;

/// Applications for so many nodes, and a DaemonSet with a pod on each named node. The caller sets the owner UID of
/// those pods.
pub fn workloads(nodes: &[String], grace_seconds: i64) -> Vec<Value> {
    let mut all = Vec::new();
    application(
        &mut all,
        "kube-system",
        "coredns",
        2.min(nodes.len()),
        grace_seconds,
    );
    all.push(budget("kube-system", "coredns", &json!({ "maxUnavailable": 1 })));
    for (number, nodes) in nodes.chunks(NODES_PER_SET).enumerate() {
        let namespace = match number {
            0 => "shop".to_owned(),
            number => format!("shop-{}", number + 1),
        };
        let namespace = namespace.as_str();
        let count = nodes.len();
        application(&mut all, namespace, "web", count.max(2), grace_seconds);
        all.push(budget(namespace, "web", &json!({ "maxUnavailable": "25%" })));
        application(&mut all, namespace, "api", 3, grace_seconds);
        all.push(budget(namespace, "api", &json!({ "minAvailable": 2 })));
        application(&mut all, namespace, "cache", 1, grace_seconds);
    }
    all.push(json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": { "name": "node-agent", "namespace": "kube-system" },
        "spec": {
            "selector": { "matchLabels": { "app": "node-agent" } },
            "template": template("node-agent", grace_seconds),
        },
    }));
    let mut agent = template("node-agent", grace_seconds);
    agent["apiVersion"] = "v1".into();
    agent["kind"] = "Pod".into();
    agent["metadata"]["namespace"] = "kube-system".into();
    agent["metadata"]["generateName"] = "node-agent-".into();
    agent["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "node-agent", "uid": "",
        "controller": true, "blockOwnerDeletion": true,
    }]);
    // The DaemonSet controller adds such tolerations. Without them, taint eviction would delete the pods of nodes that
    // are down for long, and no simulated controller would create them again.
    agent["spec"]["tolerations"] = json!([{ "operator": "Exists" }]);
    all.extend(nodes.iter().map(|node| {
        let mut pod = agent.clone();
        pod["spec"]["nodeName"] = node.as_str().into();
        pod
    }));
    all
}

/// Describes the assumed workloads.
pub fn describe(nodes: usize) -> String {
    let sets = nodes.div_ceil(NODES_PER_SET);
    let times = if sets > 1 {
        format!(", {sets} times")
    } else {
        String::new()
    };
    format!(
        "workloads: web (a pod a node, PDB maxUnavailable 25%), api (3 pods, PDB minAvailable 2) and cache (1 pod){times}; \
         coredns (PDB maxUnavailable 1) and a DaemonSet"
    )
}

fn template(app: &str, grace_seconds: i64) -> Value {
    json!({
        "metadata": { "labels": { "app": app } },
        "spec": {
            "terminationGracePeriodSeconds": grace_seconds,
            "containers": [{ "name": app, "image": format!("example.com/{app}") }],
        },
    })
}

fn application(all: &mut Vec<Value>, namespace: &str, app: &str, replicas: usize, grace_seconds: i64) {
    all.push(json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": { "name": app, "namespace": namespace },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "app": app } },
            "template": template(app, grace_seconds),
        },
    }));
}

fn budget(namespace: &str, app: &str, limit: &Value) -> Value {
    let mut spec = limit.clone();
    spec["selector"] = json!({ "matchLabels": { "app": app } });
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": { "name": app, "namespace": namespace }, "spec": spec,
    })
}
