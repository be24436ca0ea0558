//! Which node comes when, and what `status.applying` says of those under way (S50).

use kube::ResourceExt as _;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::scene::{A_WHILE, Scene, applying, hash};

#[tokio::test]
async fn nodes_come_in_the_order_of_a_digest_that_differs_from_plan_to_plan() {
    let nodes = ["a", "b", "c", "d", "e", "f"];
    let scene = Scene::new(nodes).await;
    let _controller = scene.world.controller().start();
    let mut orders = Vec::new();
    for name in ["first", "second"] {
        let plan = scene.plan(name, json!({})).await;
        let plan_hash = scene.complete(name).await;
        let made = scene.made().await;
        let made: Vec<_> = made
            .into_iter()
            .filter(|job| job.plan == name)
            .map(|job| job.node_uid)
            .collect();

        let mut expected = Vec::new();
        for node in scene.world.my_nodes().await {
            let uid = node.uid().unwrap();
            expected.push((
                hex::encode(Sha256::digest(format!("{uid}{}{plan_hash}", plan.uid().unwrap()))),
                uid,
            ));
        }
        expected.sort();
        let expected: Vec<_> = expected.into_iter().map(|(_, uid)| uid).collect();
        assert_eq!(made, expected);
        orders.push(made);
        assert_eq!(scene.world.requests().await.most_jobs_at_once(name), 1);
    }
    assert_ne!(
        orders[0], orders[1],
        "one in 720 that they are the same by chance: run it again"
    );
}

#[tokio::test]
async fn applying_has_hostnames_in_the_order_of_the_nodes_names() {
    // The hostnames go backwards.
    let scene = Scene::with(["a", "b", "c", "d"], |set| {
        set.steer("run-delay", "never")
            .each(|index, node| node.hostname = Some(format!("host-{}", 9 - index)))
    })
    .await;
    let _controller = scene.world.controller().start();
    scene
        .plan("ordered", json!({ "spec": { "concurrency": 3 } }))
        .await;
    let plan = scene
        .world
        .plan_until("ordered", "applies three", A_WHILE, |plan| {
            applying(plan).len() == 3
        })
        .await;
    let told = applying(&plan);
    let mut backwards = told.clone();
    backwards.sort();
    backwards.reverse();
    assert_eq!(told, backwards);

    // They are those of the nodes that `active` names, which are those that come first.
    let active = plan.status.as_ref().unwrap().active.as_ref().unwrap();
    let started: Vec<_> = active
        .iter()
        .filter(|entry| entry.phase != "Waiting")
        .map(|entry| &entry.name)
        .collect();
    let hostnames: Vec<_> = scene
        .world
        .my_nodes()
        .await
        .into_iter()
        .filter(|node| started.contains(&&node.name_any()))
        .map(|node| node.labels()["kubernetes.io/hostname"].clone())
        .collect();
    assert_eq!(told, hostnames);
    for name in started {
        scene
            .upgrading("ordered", name.strip_prefix(&scene.node("")).unwrap())
            .await;
    }
    let event = format!(
        "Jobs synced for version v1 on Nodes {}. Hash: {}",
        told.join(","),
        hash(&plan)
    );
    scene.told_exactly("SyncJob", [event]).await;
}
