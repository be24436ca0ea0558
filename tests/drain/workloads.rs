//! `settle.workloads` with a real drain: the ledger names the workloads that were evicted, and the node keeps its slot until
//! they are whole again.

use k8s_openapi::api::apps::v1::ReplicaSet;
use kube::api::Api;
use serde_json::json;

use super::DrainHarness;
use super::plans::{make, real_drains};
use crate::harness::hash;
use crate::testenv::context::cluster::{create, done};
use crate::testenv::wait::{self, SOON};

/// Creates a ReplicaSet whose pods each need a node of their own among those of the test, and waits until all are Ready.
async fn pods_on_separate_nodes(harness: &DrainHarness, replicas: i32) -> Api<ReplicaSet> {
    let labels = json!({ "app": "web" });
    let apart = json!({ "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [
        { "labelSelector": { "matchLabels": labels }, "topologyKey": "kubernetes.io/hostname" },
    ] } });
    let api = Api::<ReplicaSet>::namespaced(harness.ctx.client.clone(), harness.ctx.namespace());
    let pod = json!({
        "affinity": apart,
        "nodeSelector": harness.ctx.node_labels(),
        "terminationGracePeriodSeconds": 1,
        "containers": [{ "name": "main", "image": "example.com/main" }],
    });
    let set = json!({
        "metadata": { "name": "web", "namespace": harness.ctx.namespace() },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": pod },
        },
    });
    create(&api, set).await;
    all_are_ready(&api, replicas).await;
    api
}

async fn all_are_ready(api: &Api<ReplicaSet>, replicas: i32) {
    let is_ready = |set: &ReplicaSet| {
        let status = set.status.as_ref();
        status.and_then(|status| status.ready_replicas) == Some(replicas)
    };
    wait::object(api.clone(), "web", "has all pods ready", SOON, is_ready).await;
}

#[tokio::test]
async fn a_pod_that_fits_only_on_the_drained_node_is_back_before_the_next_node_starts() {
    let harness = real_drains(&["one", "two"]).await;
    let web = pods_on_separate_nodes(&harness, 2).await;
    let _controller = harness.ctx.controller().start();
    let spec = json!({ "drain": {}, "settle": { "workloads": true } });
    make(&harness, "waits", spec).await;
    let plan = harness.ctx.plan_complete("waits", SOON).await;
    all_are_ready(&web, 2).await;
    for node in ["one", "two"] {
        let there = harness.get(node).await;
        assert_eq!(done(&there, "waits"), Some(hash(&plan)));
    }
    // refit reads each workload until it is whole, which it cannot be while one of its pods fits on no node.
    let requests = harness.ctx.controller_requests().await;
    assert!(
        requests.count("get", "replicasets") >= 2,
        "{:?}",
        requests.tally()
    );
    assert!(requests.forbidden().is_empty());
    assert_eq!(harness.ctx.requests().await.most_jobs_at_once("waits"), 1);
}

#[tokio::test]
async fn a_plan_without_settle_workloads_records_no_evicted_workloads() {
    let harness = real_drains(&["one"]).await;
    pods_on_separate_nodes(&harness, 1).await;
    let _controller = harness.ctx.controller().start();
    make(&harness, "plain", json!({ "drain": {} })).await;
    harness.ctx.plan_complete("plain", SOON).await;
    let requests = harness.ctx.controller_requests().await;
    assert_eq!(requests.count("get", "replicasets"), 0);
}
