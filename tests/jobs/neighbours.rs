//! What is not ours: nodes of another controller, and the node of our own pod.

use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::json;

use crate::harness::{Harness, hash, is_cordoned, is_free, ledger, plan, record};
use crate::scenario::Backend;
use crate::testenv::context::TestContext;
use crate::testenv::context::cluster::create;
use crate::testenv::controller::NAME;
use crate::testenv::manifest::Manifests;
use crate::testenv::wait::{self, SOON};

scenarios! {
    both {
        two_controllers_in_two_namespaces_leave_each_others_nodes_alone,
    }
    real {
        the_node_of_the_controller_s_own_pod_is_upgraded_like_any_other,
    }
}

/// Found on real nodes: the label by which a pod is spared by drains is the one that pods of Jobs carry.
async fn the_node_of_the_controller_s_own_pod_is_upgraded_like_any_other() {
    for manifests in [Manifests::Shipped, Manifests::Suc] {
        let harness = Harness::on(TestContext::with(manifests).await, ["one"], |set| set).await;
        let pod = json!({
            "metadata": {
                "name": "controller",
                "labels": { "app.kubernetes.io/name": NAME, "upgrade.cattle.io/controller": NAME },
            },
            "spec": { "nodeName": harness.node("one"), "containers": [{ "name": NAME, "image": "i" }] },
        });
        let pods = harness.ctx.pods();
        let _: Pod = create(&pods, pod).await;
        let runs =
            |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running");
        wait::object(pods.clone(), "controller", "runs", SOON, runs).await;
        let _controller = harness.ctx.controller().start();
        harness.plan_with("plan", json!({ "cordon": true })).await;
        let hash = harness.complete("plan").await;
        harness.made_once_each([("one", &hash)]).await;
        assert!(runs(&pods.get("controller").await.unwrap()));
    }
}

async fn two_controllers_in_two_namespaces_leave_each_others_nodes_alone(on: Backend) {
    // Plans of one name, so that the labels and notes which they leave on nodes have the same keys.
    let harness = on
        .harness_with(["north", "south"], |set| {
            set.each(|index, node| {
                let side = ["north", "south"][index].to_owned();
                node.labels.insert("side".to_owned(), side);
            })
        })
        .await;
    let ctx = harness.ctx.beside().await;
    let on = |side: &str| {
        let selector = json!({ "matchLabels": { "side": side } });
        json!({ "spec": { "cordon": true, "version": side, "nodeSelector": selector } })
    };
    let _north = harness.ctx.controller().start();
    let _south = ctx.controller().start();

    // The north settles for as long as its node is not Ready, with notes on it, while the south goes through its life.
    harness.hold("north").await;
    harness.plan("same", on("north")).await;
    harness.upgrading("same", "north").await;
    harness.kubelet.set_not_ready(&harness.node("north")).await;
    harness.release("north").await;
    harness.phase("same", "north", "Settling").await;
    let north = harness.node("north");
    let has_record = |node: &Node| record(node, "same").is_some();
    let settling = harness
        .ctx
        .node_until(&north, "has a record", SOON, has_record)
        .await;
    assert!(is_cordoned(&settling));

    ctx.plan(&plan("same", on("south"))).await;
    let south_hash = hash(&ctx.plan_complete("same", SOON).await);
    ctx.delete_plan("same").await;
    wait::gone(ctx.plans(), "same", SOON).await;

    // Nothing of the south has touched the north.
    let now = harness.ctx.node(&north).await;
    assert!(is_cordoned(&now));
    assert_eq!(ledger(&now), ledger(&settling));
    assert_eq!(record(&now, "same"), record(&settling, "same"));
    harness.kubelet.set_ready(&north).await;
    let north_hash = harness.complete("same").await;
    assert_ne!(north_hash, south_hash);
    let node = harness.done("same", "north", &north_hash).await;
    assert!(is_free(&node));
    harness.done("same", "south", &south_hash).await;
    harness.made_once_each([("north", &north_hash)]).await;
    let of_south = ctx.controller_requests().await;
    assert_eq!(of_south.jobs_created().len(), 1);
    assert!(of_south.forbidden().is_empty());
    let patched = |requests: &crate::testenv::audit::Requests, node: &str| {
        let patches = requests
            .0
            .iter()
            .filter(|it| it.resource == "nodes" && it.verb == "patch");
        patches
            .filter(|request| request.name == harness.node(node))
            .count()
    };
    assert_eq!(patched(&of_south, "north"), 0);
    assert_eq!(patched(&harness.ctx.controller_requests().await, "south"), 0);
}
