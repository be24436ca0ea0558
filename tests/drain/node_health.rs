//! `settle`: conditions, taints and pods of DaemonSets on a real control plane, and workloads against what was ready before
//! a real drain, with the component that grants what it needs.

use std::path::Path;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams};
use serde_json::{Value, json};

use super::DrainHarness;
use super::plans::{make, real_drains, wait_for_progress};
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

/// Writes part of the status of the node `one`.
async fn patch_status(harness: &DrainHarness, status: Value) {
    let nodes = Api::<Node>::all(harness.ctx.client.clone());
    let patch = Patch::Strategic(json!({ "status": status }));
    nodes
        .patch_status(&harness.node("one"), &PatchParams::default(), &patch)
        .await
        .unwrap();
}

/// Makes a pod Ready or not, as its kubelet would say.
async fn be_ready(pods: &Api<Pod>, name: &str, ready: bool) {
    let status = if ready { "True" } else { "False" };
    let patch = json!({ "status": { "conditions": [{ "type": "Ready", "status": status }] } });
    pods.patch_status(name, &PatchParams::default(), &Patch::Strategic(patch))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_node_waits_for_its_condition_its_taint_and_its_daemon_set_and_says_so() {
    let harness = real_drains(&["one"]).await;
    grant(&harness, "example.com").await;
    let labels = json!({ "app": "agent" });
    let set = json!({
        "metadata": { "name": "agent", "namespace": harness.ctx.namespace() },
        "spec": { "selector": { "matchLabels": labels }, "template": {
            "metadata": { "labels": labels },
            "spec": { "nodeSelector": harness.ctx.node_labels(), "tolerations": [{ "operator": "Exists" }],
                "containers": [{ "name": "main", "image": "example.com/main" }] },
        } },
    });
    create(
        &Api::<DaemonSet>::namespaced(harness.ctx.client.clone(), harness.ctx.namespace()),
        set,
    )
    .await;
    let pod = wait::eventually("the DaemonSet has a pod", SOON, async || {
        let pods = harness.ctx.pods_with("app=agent").await;
        pods.first()
            .map(Pod::name_any)
            .ok_or_else(|| "it has none".to_owned())
    })
    .await;
    harness.phase(&pod, "Running").await;
    be_ready(&harness.ctx.pods(), &pod, false).await;
    let taint = json!({ "key": "example.com/agent-not-ready", "effect": "PreferNoSchedule" });
    harness
        .ctx
        .edit_node(&harness.node("one"), json!({ "spec": { "taints": [taint] } }))
        .await;
    let deadlock = |status: &str| json!({ "conditions": [{ "type": "KernelDeadlock", "status": status, "reason": "Test" }] });
    patch_status(&harness, deadlock("True")).await;

    let _controller = harness.ctx.controller().start();
    let settle = json!({
        "conditions": [{ "type": "KernelDeadlock", "status": "False" }],
        "taintsGone": ["example.com/agent-not-ready"],
        "daemonSets": { "namespace": harness.ctx.namespace() },
    });
    make(&harness, "well", json!({ "cordon": true, "settle": settle })).await;
    let waits = async |reason: &'static str| {
        let what = format!("waits for {reason}");
        let entry = wait_for_progress(&harness, "well", &what, |node| {
            node.reason.as_deref() == Some(reason)
                && node.message.as_deref() != Some("the pods of DaemonSets on the node are being listed")
        });
        entry.await
    };
    let entry = waits("NodeCondition").await;
    assert_eq!(
        entry.message.as_deref(),
        Some("condition KernelDeadlock is True, and must be False (Test)")
    );
    assert_eq!(entry.about[0].name, harness.node("one"));
    assert!(harness.is_cordoned("one").await, "released when it is proven");
    patch_status(&harness, deadlock("False")).await;
    let entry = waits("TaintStays").await;
    let text = "the node still has the taint example.com/agent-not-ready:PreferNoSchedule";
    assert_eq!(entry.message.as_deref(), Some(text));
    let node = harness.get("one").await;
    let taints = node.spec.unwrap_or_default().taints.unwrap_or_default();
    let left: Vec<_> = taints
        .into_iter()
        .filter(|it| it.key != "example.com/agent-not-ready")
        .collect();
    harness
        .ctx
        .edit_node(&harness.node("one"), json!({ "spec": { "taints": left } }))
        .await;
    let entry = waits("DaemonSetPods").await;
    let path = format!("{}/{pod}", harness.ctx.namespace());
    let text = format!("pod {path} of DaemonSet agent is not Ready");
    assert_eq!(entry.message.as_deref(), Some(text.as_str()));
    assert_eq!(
        (entry.about[0].kind.as_str(), entry.about[0].name.as_str()),
        ("Pod", pod.as_str())
    );
    be_ready(&harness.ctx.pods(), &pod, true).await;
    harness.ctx.plan_complete("well", SOON).await;
    assert!(harness.ctx.controller_requests().await.forbidden().is_empty());
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
        json!({ "drain": {}, "concurrency": 2, "settle": { "workloads": true } }),
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
