//! What is not ours: Jobs of others, and nodes of another controller.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::scene::{A_WHILE, Scene, hash, is_cordoned, is_recorded, ledger, plan, record};
use crate::support::controller::NAME;
use crate::support::manifest::Manifests;
use crate::support::wait::{self, SOON};
use crate::support::world::World;
use crate::support::world::cluster::create;

/// A Job that looks like one of ours, but for the label that says whose it is.
fn lookalike(name: &str, controller: Option<&str>) -> Value {
    let mut labels = json!({
        "upgrade.cattle.io/plan": "plan",
        "upgrade.cattle.io/node": "one",
        "upgrade.cattle.io/version": "v0",
        "plan.upgrade.cattle.io/plan": "f00d",
    });
    if let Some(controller) = controller {
        labels["upgrade.cattle.io/controller"] = json!(controller);
    }
    let pod = json!({ "restartPolicy": "Never", "containers": [{ "name": "upgrade", "image": "i" }] });
    json!({
        "metadata": { "name": name, "labels": labels },
        "spec": { "suspend": true, "template": { "spec": pod } },
    })
}

/// Found on real nodes: the label by which a pod is spared by drains is the one that pods of Jobs carry.
#[tokio::test]
async fn the_node_of_the_controller_s_own_pod_is_upgraded_like_any_other() {
    for manifests in [Manifests::Shipped, Manifests::Suc] {
        let scene = Scene::on(World::with(manifests).await, ["one"], |set| set).await;
        let pod = json!({
            "metadata": {
                "name": "controller",
                "labels": { "app.kubernetes.io/name": NAME, "upgrade.cattle.io/controller": NAME },
            },
            "spec": { "nodeName": scene.node("one"), "containers": [{ "name": NAME, "image": "i" }] },
        });
        let pods = scene.world.pods();
        let _: Pod = create(&pods, pod).await;
        let runs =
            |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running");
        wait::object(pods.clone(), "controller", "runs", SOON, runs).await;
        let _controller = scene.world.controller().start();
        scene.plan("plan", json!({ "spec": { "cordon": true } })).await;
        let hash = scene.complete("plan").await;
        scene.made_once_each([("one", &hash)]).await;
        assert!(runs(&pods.get("controller").await.unwrap()));
    }
}

#[tokio::test]
async fn jobs_of_another_controller_are_left_alone() {
    let scene = Scene::new(["one"]).await;
    let others = [("of-another", Some("another-controller")), ("of-nobody", None)];
    for (name, controller) in others {
        let _: Job = create(&scene.world.jobs(), lookalike(name, controller)).await;
    }
    let _controller = scene.world.controller().start();
    scene.plan("plan", json!({})).await;
    let plan_hash = scene.complete("plan").await;
    scene.made_once_each([("one", &plan_hash)]).await;

    // The end of the Plan is the end of its own Jobs only.
    scene.job_until("plan", "one", "is recorded", is_recorded).await;
    scene
        .world
        .plans()
        .delete("plan", &DeleteParams::default())
        .await
        .unwrap();
    let own = scene.made().await.remove(0).name;
    wait::gone(scene.world.jobs(), &own, SOON).await;
    let requests = scene.world.controller_requests().await;
    for (other, _) in others {
        scene.world.jobs().get(other).await.unwrap();
        assert!(requests.0.iter().all(|request| request.name != other), "{other}");
    }
}

#[tokio::test]
async fn a_job_of_ours_that_belongs_to_no_plan_goes() {
    let scene = Scene::new(["one"]).await;
    let orphan = lookalike("orphan", Some(NAME));
    let mut nameless = lookalike("nameless", Some(NAME));
    nameless["metadata"]["labels"]
        .as_object_mut()
        .unwrap()
        .remove("upgrade.cattle.io/plan");
    for job in [orphan, nameless] {
        let _: Job = create(&scene.world.jobs(), job).await;
    }
    let _controller = scene.world.controller().start();
    wait::gone(scene.world.jobs(), "orphan", SOON).await;
    wait::gone(scene.world.jobs(), "nameless", SOON).await;
}

#[tokio::test]
async fn two_controllers_in_two_namespaces_leave_each_others_nodes_alone() {
    // Plans of one name, so that the labels and notes which they leave on nodes have the same keys.
    let scene = Scene::with(["north", "south"], |set| {
        set.each(|index, node| {
            let side = ["north", "south"][index].to_owned();
            node.labels.insert("side".to_owned(), side);
        })
    })
    .await;
    let world = scene.world.beside().await;
    let on = |side: &str| {
        let selector = json!({ "matchLabels": { "side": side } });
        json!({ "spec": { "cordon": true, "version": side, "nodeSelector": selector } })
    };
    let _north = scene.world.controller().start();
    let _south = world.controller().start();

    // The north settles for as long as its node is not Ready, with notes on it, while the south goes through its life.
    scene.hold("north").await;
    scene.plan("same", on("north")).await;
    scene.upgrading("same", "north").await;
    scene.kubelet.set_not_ready(&scene.node("north")).await;
    scene.release("north").await;
    scene.phase("same", "north", "Settling").await;
    let north = scene.node("north");
    let has_record = |node: &Node| record(node, "same").is_some();
    let settling = scene
        .world
        .node_until(&north, "has a record", SOON, has_record)
        .await;
    assert!(is_cordoned(&settling));

    world.plan(&plan("same", on("south"))).await;
    let south_hash = hash(&world.plan_complete("same", A_WHILE).await);
    world
        .plans()
        .delete("same", &DeleteParams::default())
        .await
        .unwrap();
    wait::gone(world.plans(), "same", SOON).await;

    // Nothing of the south has touched the north.
    let now = scene.world.node(&north).await;
    assert!(is_cordoned(&now));
    assert_eq!(ledger(&now), ledger(&settling));
    assert_eq!(record(&now, "same"), record(&settling, "same"));
    scene.kubelet.set_ready(&north).await;
    let north_hash = scene.complete("same").await;
    assert_ne!(north_hash, south_hash);
    let node = scene.done("same", "north", &north_hash).await;
    assert!(!is_cordoned(&node) && ledger(&node).is_none());
    scene.done("same", "south", &south_hash).await;
    scene.made_once_each([("north", &north_hash)]).await;
    let of_south = world.controller_requests().await;
    assert_eq!(of_south.jobs_created().len(), 1);
    assert!(of_south.forbidden().is_empty());
    let patched = |requests: &crate::support::audit::Requests, node: &str| {
        let patches = requests
            .0
            .iter()
            .filter(|it| it.resource == "nodes" && it.verb == "patch");
        patches.filter(|request| request.name == scene.node(node)).count()
    };
    assert_eq!(patched(&of_south, "north"), 0);
    assert_eq!(patched(&scene.world.controller_requests().await, "south"), 0);
}
