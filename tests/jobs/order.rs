//! Which node comes when, and what `status.applying` says of those under way (S50).

use kube::ResourceExt as _;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::harness::{applying, hash};
use crate::scenario::Backend;
use crate::testenv::wait::SOON;

scenarios! {
    in_process {
        applying_has_hostnames_in_the_order_of_the_nodes_names,
        nodes_come_in_the_order_of_a_digest_that_differs_from_plan_to_plan,
    }
}

async fn nodes_come_in_the_order_of_a_digest_that_differs_from_plan_to_plan(on: Backend) {
    let nodes = ["a", "b", "c", "d", "e", "f"];
    let harness = on.harness(nodes).await;
    let _controller = harness.ctx.controller().start();
    let mut orders = Vec::new();
    // Two are the same by chance once in 720 times, and three once in half a million.
    for name in ["first", "second", "third"] {
        let plan = harness.plan(name, json!({})).await;
        let plan_hash = harness.complete(name).await;
        let made = harness.made().await;
        let made: Vec<_> = made
            .into_iter()
            .filter(|job| job.plan == name)
            .map(|job| job.node_uid)
            .collect();

        let mut expected = Vec::new();
        for node in harness.ctx.my_nodes().await {
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
        assert_eq!(harness.ctx.requests().await.most_jobs_at_once(name), 1);
        if orders.iter().any(|order| *order != orders[0]) {
            return;
        }
    }
    panic!("{orders:?}");
}

async fn applying_has_hostnames_in_the_order_of_the_nodes_names(on: Backend) {
    // The hostnames go backwards.
    let harness = on
        .harness_with(["a", "b", "c", "d"], |set| {
            set.steer("run-delay", "never")
                .each(|index, node| node.hostname = Some(format!("host-{}", 9 - index)))
        })
        .await;
    let _controller = harness.ctx.controller().start();
    harness.plan_with("ordered", json!({ "concurrency": 3 })).await;
    let plan = harness
        .ctx
        .plan_until("ordered", "applies three", SOON, |plan| applying(plan).len() == 3)
        .await;
    let applying_nodes = applying(&plan);
    let mut backwards = applying_nodes.clone();
    backwards.sort();
    backwards.reverse();
    assert_eq!(applying_nodes, backwards);

    // They are those of the nodes that `active` names, which are those that come first.
    let active = plan.status.as_ref().unwrap().active.as_ref().unwrap();
    let started: Vec<_> = active
        .iter()
        .filter(|entry| entry.phase != "Waiting")
        .map(|entry| &entry.name)
        .collect();
    let hostnames: Vec<_> = harness
        .ctx
        .my_nodes()
        .await
        .into_iter()
        .filter(|node| started.contains(&&node.name_any()))
        .map(|node| node.labels()["kubernetes.io/hostname"].clone())
        .collect();
    assert_eq!(applying_nodes, hostnames);
    for name in started {
        harness
            .upgrading("ordered", name.strip_prefix(&harness.node("")).unwrap())
            .await;
    }
    let event = format!(
        "Jobs synced for version v1 on Nodes {}. Hash: {}",
        applying_nodes.join(","),
        hash(&plan)
    );
    harness.expect_events("SyncJob", [event]).await;
}
