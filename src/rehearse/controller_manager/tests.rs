//! The controllers of the cluster over time.

use jiff::Timestamp;

use crate::json::{Value, json};
use crate::{Cluster, Kind, Options, State, in_virtual_time};

const START: &str = "2026-01-05T09:00:00Z";

fn node(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name } },
        "status": {
            "conditions": [{ "type": "Ready", "status": "True" }],
            "nodeInfo": { "bootID": format!("boot-of-{name}") },
        },
    })
}

fn job(steering: &Value, backoff_limit: i64) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "one", "namespace": "default" },
        "spec": {
            "backoffLimit": backoff_limit,
            "template": {
                "metadata": { "annotations": steering },
                "spec": { "restartPolicy": "Never", "containers": [{ "name": "a", "image": "a" }] },
            },
        },
    })
}

/// Runs a cluster until a condition holds, and returns the elapsed seconds.
fn seconds_until(objects: &[Value], holds: impl FnMut(&State) -> bool) -> (Cluster, i64) {
    in_virtual_time(async {
        let start: Timestamp = START.parse().unwrap();
        let cluster = Cluster::new(Options::new(1, start));
        for object in objects {
            cluster.put(object.clone()).unwrap();
        }
        cluster.run_while(cluster.until(holds)).await;
        let seconds = cluster.clock().now().duration_since(start).as_secs();
        (cluster.clone(), seconds)
    })
    .unwrap()
}

fn has(state: &State, condition: &str) -> bool {
    let Some(job) = state.get(Kind::Job, "default", "one") else {
        return false;
    };
    let conditions = job["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|one| one["type"] == condition)
}

#[test]
fn a_job_tries_again_after_ten_and_twenty_seconds_and_gives_up_at_its_limit() {
    let steering = json!({ "fake-kubelet/exit-code": "3", "fake-kubelet/run-delay": "1s" });
    let (cluster, seconds) = seconds_until(&[node("n"), job(&steering, 2)], |state| has(state, "Failed"));
    assert!(
        (33..42).contains(&seconds),
        "3 tries of a second and waits of 10 and 20, not {seconds}"
    );
    cluster.with(|state| {
        let job = state.get(Kind::Job, "default", "one").unwrap();
        assert_eq!(job["status"]["failed"], 3);
        assert_eq!(job["status"]["conditions"][0]["reason"], "BackoffLimitExceeded");
        assert_eq!(state.all(Kind::Pod).count(), 3, "they stay to be looked at");
    });
}

#[test]
fn a_job_that_fails_once_is_complete_after_its_second_pod() {
    let steering = json!({ "fake-kubelet/exit-code-first": "3", "fake-kubelet/run-delay": "1s" });
    let (cluster, seconds) = seconds_until(&[node("n"), job(&steering, 2)], |state| has(state, "Complete"));
    assert!((12..18).contains(&seconds), "{seconds}");
    let job = cluster.get(Kind::Job, "default", "one").unwrap();
    assert_eq!(
        (&job["status"]["failed"], &job["status"]["succeeded"]),
        (&json!(1), &json!(1))
    );
}

#[test]
fn a_replica_set_replaces_what_is_deleted_on_nodes_that_may_be_used() {
    in_virtual_time(async {
        let cluster = Cluster::new(Options::new(1, START.parse().unwrap()));
        cluster.put(node("a")).unwrap();
        cluster.put(node("b")).unwrap();
        let set = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": { "name": "web", "namespace": "shop" },
            "spec": { "replicas": 2, "template": {
                "metadata": { "labels": { "app": "web" } },
                "spec": { "containers": [{ "name": "web", "image": "web" }] },
            } },
        });
        cluster.put(set).unwrap();
        let ready = |state: &State| {
            state.get(Kind::ReplicaSet, "shop", "web").unwrap()["status"]["readyReplicas"] == 2
        };
        let nodes = |state: &State| -> Vec<String> {
            let mut nodes: Vec<_> = state
                .all(Kind::Pod)
                .map(|pod| pod["spec"]["nodeName"].as_str().unwrap_or_default().to_owned())
                .collect();
            nodes.sort();
            nodes
        };
        cluster.run_while(cluster.until(ready)).await;
        assert_eq!(cluster.with(|state| nodes(state)), ["a", "b"], "spread over both");
        let cordon = json!({ "spec": { "unschedulable": true } });
        cluster.patch(Kind::Node, "", "a", &cordon).unwrap();
        let on_a = cluster.with(|state| {
            let pod = state
                .all(Kind::Pod)
                .find(|pod| pod["spec"]["nodeName"] == "a")
                .unwrap();
            pod["metadata"]["name"].as_str().unwrap().to_owned()
        });
        cluster.delete(Kind::Pod, "shop", &on_a).unwrap();
        let moved = |state: &State| nodes(state) == ["b", "b"] && ready(state);
        cluster.run_while(cluster.until(moved)).await;
    })
    .unwrap();
}
