//! Right node, right Job, right label: where names collide, lie, or belong to another object later.

use kube::ResourceExt as _;
use serde_json::json;

use crate::harness::Harness;
use crate::scenario::Backend;

scenarios! {
    both {
        a_node_name_of_253_characters_is_too_long_for_a_label_and_for_nothing_else,
        a_plan_name_of_63_characters_leaves_no_room_for_the_node_and_still_each_gets_its_job,
    }
}

/// Fails unless every pod of the Plan ran on the node that its label is about.
async fn pods_ran_where_they_belong(harness: &Harness, plan: &str) {
    for pod in harness
        .ctx
        .pods_with(&format!("upgrade.cattle.io/plan={plan}"))
        .await
    {
        assert_eq!(
            pod.spec.as_ref().unwrap().node_name.as_deref(),
            Some(&*pod.annotations()["refit.rs/node"]),
            "{}",
            pod.name_any()
        );
    }
}

async fn a_node_name_of_253_characters_is_too_long_for_a_label_and_for_nothing_else(on: Backend) {
    // 253 with the id of the context and a dash in front.
    let label = "n".repeat(63);
    let name = |id: &str| {
        format!(
            "{label}.{label}.{label}.{}",
            "m".repeat(253 - id.len() - 1 - 3 * 64)
        )
    };
    let ctx = on.context().await;
    let long = name(&ctx.id);
    let harness = Harness::on(ctx, [&long], |set| {
        set.each(|_, node| node.hostname = Some("long".to_owned()))
    })
    .await;
    assert_eq!(harness.node(&long).len(), 253);
    let _controller = harness.ctx.controller().start();
    harness.plan_with("long", json!({ "cordon": true })).await;
    let plan_hash = harness.complete("long").await;
    harness.made_once_each([(&long, &plan_hash)]).await;
    pods_ran_where_they_belong(&harness, "long").await;
    let job = harness.job("long", &long).await;
    assert_eq!(job.labels()["upgrade.cattle.io/node"].len(), 63);
    assert_eq!(job.annotations()["refit.rs/node"], harness.node(&long));
    assert!(!crate::harness::is_cordoned(&harness.get(&long).await));
    harness.expect_complete_events([&long]).await;
}

async fn a_plan_name_of_63_characters_leaves_no_room_for_the_node_and_still_each_gets_its_job(on: Backend) {
    let harness = on.harness(["one", "two", "three"]).await;
    let _controller = harness.ctx.controller().start();
    let name = "p".repeat(63);
    harness.plan_with(&name, json!({ "concurrency": 3 })).await;
    let plan_hash = harness.complete(&name).await;
    harness
        .made_once_each(["one", "two", "three"].map(|node| (node, &*plan_hash)))
        .await;
    pods_ran_where_they_belong(&harness, &name).await;
}
