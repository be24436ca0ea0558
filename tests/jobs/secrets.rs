//! Secrets of a Plan: their content is part of the hash, unless it is said not to be (S17, S42).

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams};
use refit::job::digest::{plan_hash, secret_hash};
use serde_json::json;

use crate::scene::{A_WHILE, Scene, hash};
use crate::support::world::cluster::create;

async fn make(scene: &Scene, name: &str) {
    let secret = json!({ "metadata": { "name": name }, "stringData": { "config": "first" } });
    create(&scene.world.secrets(), secret).await;
}

async fn change(scene: &Scene, name: &str) -> Secret {
    let change = Patch::Merge(json!({ "stringData": { "config": "second" } }));
    scene
        .world
        .secrets()
        .patch(name, &PatchParams::default(), &change)
        .await
        .unwrap()
}

#[tokio::test]
async fn a_changed_secret_runs_the_plan_again_and_an_ignored_one_does_not() {
    let scene = Scene::new(["one", "two"]).await;
    make(&scene, "watched").await;
    make(&scene, "ignored").await;
    let _controller = scene.world.controller().start();
    let secrets = json!([
        { "name": "ignored", "path": "", "ignoreUpdates": true },
        { "name": "watched", "path": "" },
        { "name": "missing", "path": "", "ignoreUpdates": true },
    ]);
    scene
        .plan(
            "secretive",
            json!({ "spec": { "secrets": secrets, "concurrency": 2 } }),
        )
        .await;
    let first = scene.complete("secretive").await;

    change(&scene, "ignored").await;
    let watched = change(&scene, "watched").await;
    let plan = scene
        .world
        .plan_until("secretive", "has another hash", A_WHILE, |plan| {
            hash(plan) != first
        })
        .await;
    assert_eq!(
        hash(&plan),
        plan_hash(&plan, "v1", [&secret_hash(&watched)]),
        "of the one that is watched alone"
    );
    let second = scene.complete("secretive").await;
    assert_eq!(second, hash(&plan));

    scene
        .made_once_each([
            ("one", &first),
            ("two", &first),
            ("one", &second),
            ("two", &second),
        ])
        .await;
    for node in ["one", "two"] {
        scene.done("secretive", node, &second).await;
        assert_eq!(scene.runs(node, "upgrade").await, 2);
    }
    // The content is read only of what takes part: once at first, once when it changed.
    let requests = scene.world.controller_requests().await;
    let read: Vec<_> = requests
        .0
        .iter()
        .filter(|it| it.resource == "secrets" && it.verb == "get")
        .collect();
    assert!(read.iter().all(|request| request.name == "watched"), "{read:#?}");
    assert_eq!(read.len(), 2);
    assert_eq!(scene.told("Complete").await.len(), 2);
}
