//! At most one disruptive Plan on a node: whoever cordons, drains or is exclusive waits for the other, and that is decided
//! before there is a Job (S19, W18).

use serde_json::{Value, json};

use crate::harness::Harness;
use crate::scenario::Backend;

scenarios! {
    in_process {
        disruptive_plans_take_turns_on_a_node,
    }
}

/// Waits until one of the two Plans works on the node, and returns it and the other.
async fn who_is_first<'a>(harness: &Harness, plans: [&'a str; 2]) -> (&'a str, &'a str) {
    let [one, other] = plans;
    tokio::select! {
        _ = harness.upgrading(one, "one") => (one, other),
        _ = harness.upgrading(other, "one") => (other, one),
    }
}

async fn take_turns(on: Backend, specs: [Value; 2]) {
    let harness = on.held(["one"]).await;
    let controller = harness.ctx.controller().start();
    let plans = ["alpha", "beta"];
    for (name, spec) in plans.into_iter().zip(specs) {
        harness.plan_with(name, spec).await;
    }
    // The one that has the node is not what the next controller remembers, but what it sees.
    let (first, second) = who_is_first(&harness, plans).await;
    controller.kill();
    let _controller = controller.start_again();

    let waits = harness.held_up(second, "one", "NodeBusy").await;
    assert_eq!(waits.message.unwrap(), format!("Plan {first} works on the node"));
    assert_eq!(waits.phase, "Waiting");
    assert!(
        harness.ctx.jobs_of(second).await.is_empty(),
        "it is decided before there is a Job"
    );
    let said = harness.ctx.plans().get(second).await.unwrap();
    let complete = crate::testenv::context::cluster::find_condition(&said, "Complete").unwrap();
    assert_eq!(complete.reason.as_deref(), Some("NodeBusy"));
    assert_eq!(
        complete.message.as_deref(),
        Some(&*format!(
            "Node {}: Plan {first} works on the node",
            harness.node("one")
        ))
    );

    harness.release("one").await;
    harness.complete(first).await;
    harness.complete(second).await;
    let requests = harness.ctx.requests().await;
    assert_eq!(requests.most_open_jobs(|_| true), 1);
    let made: Vec<_> = harness.made().await.into_iter().map(|job| job.plan).collect();
    assert_eq!(made, [first, second]);
    assert_eq!(harness.runs("one", "upgrade").await, 2);
}

async fn disruptive_plans_take_turns_on_a_node(on: Backend) {
    for specs in [
        [json!({ "exclusive": true }), json!({ "exclusive": true })],
        [json!({ "drain": {} }), json!({ "cordon": true })],
        [json!({ "exclusive": true }), json!({ "drain": {} })],
    ] {
        take_turns(on, specs).await;
    }
}
