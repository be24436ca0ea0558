//! A Plan that waits for what it has evicted: the ledger says whose pods that were, and the node keeps its slot until they are
//! there again.

use k8s_openapi::api::apps::v1::ReplicaSet;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use super::plans::{given_back, make, stage, told};
use super::{A_WHILE, Bench};
use crate::scene::{A_WHILE as LONG, active, hash};
use crate::support::wait;
use crate::support::world::cluster::{create, done};

/// A ReplicaSet of so many pods, each on a node of its own among those of the world.
async fn keeps_apart(bench: &Bench, replicas: i32, ready: i32) -> Api<ReplicaSet> {
    let labels = json!({ "app": "web" });
    let apart = json!({ "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [
        { "labelSelector": { "matchLabels": labels }, "topologyKey": "kubernetes.io/hostname" },
    ] } });
    let api = Api::<ReplicaSet>::namespaced(bench.world.client.clone(), bench.world.namespace());
    let set = json!({
        "metadata": { "name": "web", "namespace": bench.world.namespace() },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": {
                    "affinity": apart,
                    "nodeSelector": bench.world.node_labels(),
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{ "name": "main", "image": "example.com/main" }],
                },
            },
        },
    });
    create(&api, set).await;
    has_ready(&api, ready).await;
    api
}

async fn has_ready(api: &Api<ReplicaSet>, ready: i32) {
    wait::object(
        api.clone(),
        "web",
        &format!("has {ready} pods ready"),
        A_WHILE,
        |set: &ReplicaSet| {
            set.status
                .as_ref()
                .and_then(|status| status.ready_replicas)
                .unwrap_or(0)
                == ready
        },
    )
    .await;
}

#[tokio::test]
async fn a_pod_that_fits_only_on_the_drained_node_is_back_before_the_next_node_starts() {
    let bench = stage(&["one", "two"]).await;
    let web = keeps_apart(&bench, 2, 2).await;
    let _controller = bench.world.controller().start();
    let spec = json!({ "drain": {}, "settle": { "workloads": true } });
    make(&bench, "waits", spec).await;
    let plan = bench.world.plan_complete("waits", LONG).await;
    has_ready(&web, 2).await;
    for node in ["one", "two"] {
        let there = bench.world.node(&bench.node(node)).await;
        assert_eq!(done(&there, "waits"), Some(hash(&plan)));
    }
    // Each was read until it was whole: it cannot have been while its pod had no place.
    let requests = bench.world.controller_requests().await;
    assert!(
        requests.count("get", "replicasets") >= 2,
        "{:?}",
        requests.tally()
    );
    assert!(requests.forbidden().is_empty());
    assert_eq!(bench.world.requests().await.most_jobs_at_once("waits"), 1);
}

#[tokio::test]
async fn a_workload_that_stays_broken_is_named_in_the_failure_of_a_node_that_is_given_back() {
    let bench = stage(&["one"]).await;
    // The second has no place.
    let web = keeps_apart(&bench, 2, 1).await;
    let _controller = bench.world.controller().start();
    let spec = json!({ "drain": {}, "settle": { "workloads": true, "timeout": "8s" } });
    make(&bench, "waits", spec).await;
    told(&bench, "waits", "waits for the workload", |node| {
        node.reason.as_deref() == Some("Workloads")
    })
    .await;
    given_back(&bench).await;
    let failed = told(&bench, "waits", "has failed", |node| node.phase == "Failed").await;
    assert_eq!(failed.reason.as_deref(), Some("SettleTimedOut"));
    let text = failed.message.unwrap();
    assert!(
        text.contains("ReplicaSet") && text.contains("/web has 1 of 2 pods ready"),
        "{text}"
    );

    // Somebody sees that one is enough.
    let one = json!({ "spec": { "replicas": 1 } });
    web.patch("web", &PatchParams::default(), &Patch::Merge(one))
        .await
        .unwrap();
    bench
        .world
        .annotate_node(&bench.node("one"), "refit.rs/retry", Some("waits"))
        .await;
    let plan = bench.world.plan_complete("waits", LONG).await;
    assert!(active(&plan, &bench.node("one")).is_none());
}

#[tokio::test]
async fn a_plan_that_does_not_wait_notes_nobody_whom_it_evicts() {
    let bench = stage(&["one"]).await;
    keeps_apart(&bench, 1, 1).await;
    let _controller = bench.world.controller().start();
    make(&bench, "plain", json!({ "drain": {} })).await;
    bench.world.plan_complete("plain", LONG).await;
    let requests = bench.world.controller_requests().await;
    assert_eq!(requests.count("get", "replicasets"), 0);
}
