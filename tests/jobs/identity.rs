//! Right node, right Job, right label: where names collide, lie, or belong to another object later.

use kube::ResourceExt as _;
use refit_job::name::job_name;
use serde_json::json;

use crate::harness::Harness;
use crate::scenario::Backend;

scenarios! {
    both {
        a_node_name_of_253_characters_is_too_long_for_a_label_and_for_nothing_else,
        a_plan_name_of_63_characters_leaves_no_room_for_the_node_and_still_each_gets_its_job,
    }
    in_process {
        two_nodes_whose_short_names_are_the_same_get_a_job_each,
        nodes_with_each_others_hostname_are_distinguished,
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

async fn two_nodes_whose_short_names_are_the_same_get_a_job_each(on: Backend) {
    let harness = on.harness(["a.x", "a.y"]).await;
    let _controller = harness.ctx.controller().start();
    harness.plan_with("short", json!({ "concurrency": 2 })).await;
    let plan_hash = harness.complete("short").await;
    harness
        .made_once_each([("a.x", &plan_hash), ("a.y", &plan_hash)])
        .await;
    pods_ran_where_they_belong(&harness, "short").await;
    let made = harness.made().await;
    let common = job_name("short", &harness.node("a.x"), &plan_hash);
    assert_eq!(
        common,
        job_name("short", &harness.node("a.y"), &plan_hash),
        "that is why they collide"
    );
    assert_eq!(made.iter().filter(|job| job.name == common).count(), 1);
    for node in ["a.x", "a.y"] {
        harness.done("short", node, &plan_hash).await;
        assert_eq!(harness.runs(node, "upgrade").await, 1, "{node}");
    }
    harness
        .expect_events(
            "JobComplete",
            ["a.x", "a.y"].map(|node| format!("Job completed on Node {}", harness.node(node))),
        )
        .await;
}

async fn nodes_with_each_others_hostname_are_distinguished(on: Backend) {
    let harness = on
        .harness_with(["one", "two"], |set| {
            let names: Vec<_> = set.nodes.iter().rev().map(|node| node.name.clone()).collect();
            set.each(move |index, node| node.hostname = Some(names[index].clone()))
        })
        .await;
    let _controller = harness.ctx.controller().start();
    harness.plan("swapped", json!({})).await;
    let plan_hash = harness.complete("swapped").await;
    harness
        .made_once_each([("one", &plan_hash), ("two", &plan_hash)])
        .await;
    pods_ran_where_they_belong(&harness, "swapped").await;
    // Each was announced by the other's name, which is its hostname.
    let made = harness.made_for().await;
    let announced: Vec<_> = harness.ctx.controller_requests().await.0;
    let announced: Vec<_> = announced
        .iter()
        .filter(|request| request.resource == "plans/status")
        .filter_map(|request| request.sent["status"]["applying"][0].as_str().map(str::to_owned))
        .fold(Vec::new(), |mut all, name| {
            if all.last() != Some(&name) {
                all.push(name);
            }
            all
        });
    let swapped: Vec<_> = made
        .iter()
        .map(|node| harness.node(if node == "one" { "two" } else { "one" }))
        .collect();
    assert_eq!(announced, swapped);
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
