//! What a node must show before it is done, and payloads that reboot it by themselves.

use std::time::{Duration, Instant};

use serde_json::json;

use super::PLAN;
use crate::scene::{Scene, is_cordoned};
use crate::support::wait;

#[tokio::test]
async fn a_node_is_done_when_it_has_been_ready_for_long_enough() {
    let scene = Scene::new(["one"]).await;
    let _controller = scene.world.controller().start();
    let spec = json!({ "spec": { "cordon": true, "settle": { "minReady": "4s" } } });
    scene.plan(PLAN, spec).await;
    scene.held_up(PLAN, "one", "MinReady").await;
    let begun = Instant::now();
    assert!(is_cordoned(&scene.world.node(&scene.node("one")).await));
    // A break begins the time anew.
    let node = scene.node("one");
    wait::always("the node is not given back", Duration::from_secs(2), async || {
        if is_cordoned(&scene.world.node(&node).await) {
            Ok(())
        } else {
            Err("it is".to_owned())
        }
    })
    .await;
    scene.kubelet.set_not_ready(&scene.node("one")).await;
    scene.held_up(PLAN, "one", "NodeNotReady").await;
    scene.kubelet.set_ready(&scene.node("one")).await;
    scene.is_done_after("one", 1, 0).await;
    assert!(begun.elapsed() >= Duration::from_secs(6), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_kubelet_of_another_version_is_waited_for_and_then_a_failure() {
    let scene = Scene::new(["stays", "follows"]).await;
    let _controller = scene.world.controller().start();
    let spec = json!({ "spec": {
        "concurrency": 2, "cordon": true, "version": "v9.9.9+k3s1",
        "settle": { "kubeletVersion": true, "timeout": "8s" },
    } });
    scene.plan(PLAN, spec).await;
    scene.held_up(PLAN, "follows", "KubeletVersion").await;
    scene
        .kubelet
        .set_kubelet_version(&scene.node("follows"), "v9.9.9+k3s1")
        .await;
    let message = scene.has_failed("stays", "SettleTimedOut").await;
    assert!(message.contains("v9.9.9-k3s1"), "{message}");
    let plan = scene.world.plans().get(PLAN).await.unwrap();
    let hash = crate::scene::hash(&plan);
    assert!(!is_cordoned(&scene.done(PLAN, "follows", &hash).await));
}

#[tokio::test]
async fn a_payload_that_reboots_its_node_once_is_done_after_its_second_run() {
    let scene = Scene::with(["one"], |set| set.steer("upgrade.reboot", "once")).await;
    let _controller = scene.world.controller().start();
    scene.plan(PLAN, json!({ "spec": { "cordon": true } })).await;
    scene.is_done_after("one", 2, 1).await;
}

#[tokio::test]
async fn a_payload_that_always_reboots_its_node_is_stopped_after_two_boots() {
    let scene = Scene::with(["one"], |set| set.steer("upgrade.reboot", "always")).await;
    let _controller = scene.world.controller().start();
    scene.plan(PLAN, json!({ "spec": { "cordon": true } })).await;
    let message = scene.has_failed("one", "RebootLoop").await;
    assert!(message.contains("rebooted 2 times"), "{message}");
    scene.all_recorded(PLAN).await;
    // The third run is stopped as soon as it can be.
    let boots = scene.reboots("one").await;
    assert!((2..=3).contains(&boots), "{boots} reboots");
    let told = scene.told("JobFailed").await;
    assert!(told.len() == 1 && told[0].contains("RebootLoop"), "{told:?}");
}
