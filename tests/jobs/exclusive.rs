//! At most one disruptive Plan on a node: whoever cordons, drains or is exclusive waits for the other, and that is decided
//! before there is a Job (S19, W18).

use serde_json::{Value, json};

use crate::scene::{Scene, both, steer};

/// Waits until one of the two Plans works on the node, and returns it and the other.
async fn who_is_first<'a>(scene: &Scene, plans: [&'a str; 2]) -> (&'a str, &'a str) {
    let [one, other] = plans;
    tokio::select! {
        _ = scene.upgrading(one, "one") => (one, other),
        _ = scene.upgrading(other, "one") => (other, one),
    }
}

async fn take_turns(specs: [Value; 2]) {
    let scene = Scene::held(["one"]).await;
    let controller = scene.world.controller().start();
    let plans = ["alpha", "beta"];
    for (name, spec) in plans.into_iter().zip(specs) {
        scene.plan(name, json!({ "spec": spec })).await;
    }
    // The one that has the node is not what the next controller remembers, but what it sees.
    let (first, second) = who_is_first(&scene, plans).await;
    controller.kill();
    let _controller = controller.start_again();

    let waits = scene.held_up(second, "one", "NodeBusy").await;
    assert_eq!(
        waits.message.unwrap(),
        format!("Plan {first} is at work on the node")
    );
    assert_eq!(waits.phase, "Waiting");
    assert!(
        scene.world.jobs_of(second).await.is_empty(),
        "it is decided before there is a Job"
    );
    let said = scene.world.plans().get(second).await.unwrap();
    let complete = crate::support::world::cluster::find_condition(&said, "Complete").unwrap();
    assert_eq!(complete.reason.as_deref(), Some("NodeBusy"));
    assert_eq!(
        complete.message.as_deref(),
        Some(&*format!(
            "Node {}: Plan {first} is at work on the node",
            scene.node("one")
        ))
    );

    scene.release("one").await;
    scene.complete(first).await;
    scene.complete(second).await;
    let requests = scene.world.requests().await;
    assert_eq!(requests.most_open_jobs(|_| true), 1);
    let made: Vec<_> = scene.made().await.into_iter().map(|job| job.plan).collect();
    assert_eq!(made, [first, second]);
    assert_eq!(scene.runs("one", "upgrade").await, 2);
}

#[tokio::test]
async fn two_exclusive_plans_take_turns() {
    take_turns([json!({ "exclusive": true }), json!({ "exclusive": true })]).await;
}

#[tokio::test]
async fn a_drain_and_a_cordon_take_turns() {
    take_turns([json!({ "drain": {} }), json!({ "cordon": true })]).await;
}

#[tokio::test]
async fn an_exclusive_plan_and_a_drain_take_turns() {
    take_turns([json!({ "exclusive": true }), json!({ "drain": {} })]).await;
}

#[tokio::test]
async fn a_plan_that_disturbs_nobody_waits_for_nobody() {
    let scene = Scene::new(["one"]).await;
    let _controller = scene.world.controller().start();
    let endless = steer(&[("upgrade.run-delay", "never")]);
    scene
        .plan(
            "exclusive",
            both(endless.clone(), json!({ "spec": { "exclusive": true } })),
        )
        .await;
    scene.upgrading("exclusive", "one").await;
    scene.plan("plain", json!({})).await;
    scene.complete("plain").await;
    assert_eq!(scene.made_for().await, ["one", "one"]);
}

#[tokio::test]
async fn a_busy_node_does_not_hold_up_the_next() {
    let scene = Scene::new(["one", "two"]).await;
    let _controller = scene.world.controller().start();
    let one = json!({ "spec": { "cordon": true, "nodeSelector": { "matchLabels": { "kubernetes.io/hostname": scene.node("one") } } } });
    scene
        .plan("first", both(steer(&[("upgrade.run-delay", "never")]), one))
        .await;
    scene.upgrading("first", "one").await;
    scene.plan("second", json!({ "spec": { "cordon": true } })).await;
    scene
        .world
        .node_until(
            &scene.node("two"),
            "is done for second",
            crate::scene::A_WHILE,
            |node| crate::support::world::cluster::done(node, "second").is_some(),
        )
        .await;
    scene.held_up("second", "one", "NodeBusy").await;
}
