//! `settle`: workloads against what was ready before a real drain, with the component that grants what it needs, and what
//! else needs it.

use std::path::Path;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams};
use serde_json::json;

use super::DrainHarness;
use super::plans::{make, real_drains};
use crate::harness::ledger;
use crate::testenv::context::cluster::create;
use crate::testenv::manifest;
use crate::testenv::wait::{self, SOON};

/// Applies the component, for the accounts of this test, with `get` of one more kind.
async fn grant(harness: &DrainHarness, group: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/overlays/read-workloads/rbac.yaml");
    let own = harness.ctx.namespace();
    let text = std::fs::read_to_string(path)
        .unwrap()
        .replace(
            "name: system-upgrade-controller-",
            &format!("name: {own}-controller-"),
        )
        .replace("namespace: system-upgrade\n", &format!("namespace: {own}\n"));
    let mut objects = manifest::parse(&text).unwrap();
    for object in &mut objects {
        if object["kind"] == "ClusterRole"
            && object["metadata"]["name"] == format!("{own}-controller-workloads")
        {
            let rule = json!({ "apiGroups": [group], "resources": ["sets"], "verbs": ["get"] });
            object["rules"].as_array_mut().unwrap().push(rule);
        }
        manifest::apply(&harness.ctx.client, object).await.unwrap();
    }
    harness.ctx.in_force(&objects).await;
}

/// A kind with a scale, in a group of this test.
async fn define(harness: &DrainHarness, group: &str) -> Api<DynamicObject> {
    let definition = json!({
        "metadata": { "name": format!("sets.{group}") },
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": { "kind": "CloneSet", "listKind": "CloneSetList", "plural": "sets", "singular": "cloneset" },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": { "status": {}, "scale": {
                    "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas" } },
                "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
            }],
        },
    });
    let api = Api::<CustomResourceDefinition>::all(harness.ctx.client.clone());
    create(&api, definition).await;
    let is_served = |it: &CustomResourceDefinition| {
        let mut conditions = it.status.iter().flat_map(|it| it.conditions.iter().flatten());
        conditions.any(|it| it.type_ == "Established" && it.status == "True")
    };
    wait::object(api, &format!("sets.{group}"), "is established", SOON, is_served).await;
    let kind = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, "v1", "CloneSet"), "sets");
    Api::namespaced_with(harness.ctx.client.clone(), harness.ctx.namespace(), &kind)
}

#[tokio::test]
async fn workloads_that_were_broken_before_a_drain_do_not_hold_the_node_whatever_their_kind() {
    let harness = real_drains(&["one", "two"]).await;
    let own = harness.ctx.namespace().to_owned();
    let group = format!("{own}.example.com");
    let sets = define(&harness, &group).await;
    grant(&harness, &group).await;
    // One of its three pods fits on no node.
    let labels = json!({ "app": "web" });
    let apart = json!({ "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [
        { "labelSelector": { "matchLabels": labels }, "topologyKey": "kubernetes.io/hostname" },
    ] } });
    let deployments = Api::<Deployment>::namespaced(harness.ctx.client.clone(), &own);
    let deployment = json!({
        "metadata": { "name": "web", "namespace": own },
        "spec": { "replicas": 3, "selector": { "matchLabels": labels }, "template": {
            "metadata": { "labels": labels },
            "spec": { "affinity": apart, "nodeSelector": harness.ctx.node_labels(), "terminationGracePeriodSeconds": 1,
                "containers": [{ "name": "main", "image": "example.com/main" }] },
        } },
    });
    create(&deployments, deployment).await;
    let two_are_ready = |it: &Deployment| it.status.as_ref().and_then(|it| it.ready_replicas) == Some(2);
    wait::object(deployments, "web", "has two ready pods", SOON, two_are_ready).await;
    // A custom controller, of which one pod of two is ready, now and later.
    let set = json!({
        "apiVersion": format!("{group}/v1"), "kind": "CloneSet",
        "metadata": { "name": "cache", "namespace": own }, "spec": { "replicas": 2 },
    });
    let set = wait::eventually("the kind is served", SOON, async || {
        let set = serde_json::from_value(set.clone()).unwrap();
        let made = sets.create(&Default::default(), &set).await;
        made.map_err(|error| error.to_string())
    })
    .await;
    let patch = Patch::Merge(json!({ "status": { "readyReplicas": 1 } }));
    sets.patch_status("cache", &PatchParams::default(), &patch)
        .await
        .unwrap();
    let owner = json!([{ "apiVersion": format!("{group}/v1"), "kind": "CloneSet", "name": "cache", "uid": set.uid(), "controller": true }]);
    let pod = json!({
        "metadata": { "name": "cache-1", "namespace": own, "ownerReferences": owner },
        "spec": { "nodeName": harness.node("one"), "terminationGracePeriodSeconds": 1,
            "containers": [{ "name": "main", "image": "example.com/main" }] },
    });
    create(&harness.ctx.pods(), pod).await;
    harness.phase("cache-1", "Running").await;

    for node in ["one", "two"] {
        harness.behave(node, &[("upgrade.run-delay", "never")]).await;
    }
    let _controller = harness.ctx.controller().start();
    make(
        &harness,
        "waits",
        json!({ "drain": {}, "concurrency": 2, "settle": { "workloads": true, "daemonSets": { "namespace": own } } }),
    )
    .await;
    // The ledger has what was ready before the evictions.
    let node = harness.node("one");
    let is_drained =
        |node: &Node| ledger(node).is_some_and(|ledger| ledger.holders.iter().any(|holder| holder.completed));
    let node = harness
        .ctx
        .node_until(&node, "is drained", SOON, is_drained)
        .await;
    let evicted = ledger(&node).unwrap().holders[0].evicted.clone();
    let clone = format!("CloneSet.v1.{group}/{own}/cache=1");
    assert!(evicted.contains(&clone), "{evicted:?}");
    let of_web = evicted
        .iter()
        .find(|it| it.starts_with(&format!("ReplicaSet/{own}/web-")));
    assert!(
        of_web.is_some_and(|it| it.ends_with("=2") || it.ends_with("=1")),
        "{evicted:?}"
    );
    for node in ["one", "two"] {
        harness.behave(node, &[("upgrade.run-delay", "0s")]).await;
    }
    harness.ctx.plan_complete("waits", SOON).await;
    let requests = harness.ctx.controller_requests().await;
    assert!(requests.forbidden().is_empty(), "{:#?}", requests.forbidden());
    assert!(requests.count("get", "deployments") > 0 && requests.count("get", "sets") > 0);
    let requests = harness.drainer_requests().await;
    assert!(requests.forbidden().is_empty(), "{:#?}", requests.forbidden());
    let definitions = Api::<CustomResourceDefinition>::all(harness.ctx.client.clone());
    let _ = definitions
        .delete(&format!("sets.{group}"), &DeleteParams::default())
        .await;
}
