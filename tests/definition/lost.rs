//! Another definition takes the place of ours: our fields are pruned from what is read, and any write would make that last.

use futures::future::join_all;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams};
use refit::api::{Plan, crd};
use serde_json::{Value, json};

use super::{definitions, foreign, serve};
use crate::support::audit::Requests;
use crate::support::plan::{plan, says, status};
use crate::support::wait::{self, SOON};
use crate::support::world::{World, done};

const SUSPENDED: &str = "False/Suspended/spec.suspend is true";
const NOTE: &str = "refit.rs/fields";

/// A Plan as the API server gives it now.
async fn raw(world: &World, name: &str) -> Value {
    let plan = world.kubectl(&["get", "plan", name, "-o", "json"]).await;
    serde_json::from_str(&plan).unwrap()
}

/// Waits until it is told of a Plan, so many times, that the definition lacks fields.
async fn told_outdated(world: &World, name: &str, times: usize) {
    wait::eventually(&format!("{name} is told {times} times"), SOON, async || {
        let told = world.told(name).await;
        let of_it = told
            .iter()
            .filter(|told| told.starts_with("Warning SchemaOutdated: "))
            .collect::<Vec<_>>();
        if of_it.len() == times {
            Ok(())
        } else {
            Err(format!("{told:#?}"))
        }
    })
    .await;
}

/// What the controller wrote to Plans and Jobs from the n-th request of this world on, Events aside.
fn written_from(requests: &Requests, from: usize) -> Vec<String> {
    let ours = |resource: &str| matches!(resource, "plans" | "plans/status" | "jobs");
    let since = Requests(requests.0[from..].to_vec()).by("system:serviceaccount:");
    let writes = since.writes().filter(|it| ours(&it.resource));
    writes
        .map(|it| format!("{} {} {} {}", it.at, it.verb, it.resource, it.name))
        .collect()
}

/// Puts another definition in the place of ours, and returns once the controller knows. What it writes from the returned
/// number of requests on, it writes although it knows.
async fn replaced(world: &World, name: &str, times: usize) -> usize {
    serve(world, &foreign()).await;
    told_outdated(world, name, times).await;
    world.requests().await.0.len()
}

#[tokio::test]
async fn while_our_fields_are_pruned_nothing_is_written_and_nothing_begins() {
    let world = World::alone().await;
    let nodes = world.puppets(["a", "b"]).await;
    let (a, b) = (nodes.name("a"), nodes.name("b"));
    world
        .label_node(&b, "plan.upgrade.cattle.io/running", Some("disabled"))
        .await;
    let mut controller = world.at_work().await;
    let spec = |more: &str| {
        format!("{{version: v1, concurrency: 1, nodeSelector: {{}}, {more} upgrade: {{image: i}}}}")
    };
    world.plan(&plan("suspended", &spec("suspend: true,"))).await;
    let suspended = |plan: &Plan| says(plan, "Complete") == SUSPENDED;
    world
        .plan_until("suspended", "is suspended", SOON, suspended)
        .await;
    world.plan(&plan("running", &spec("maxConcurrent: 1,"))).await;
    let runs = |plan: &Plan| status(plan).applying == Some(vec![a.clone()]);
    world.plan_until("running", "runs", SOON, runs).await;
    let noted = |plan: &Plan| {
        plan.metadata
            .annotations
            .as_ref()
            .is_some_and(|notes| notes.contains_key(NOTE))
    };
    let before = world.plan_until("suspended", "is noted", SOON, noted).await;
    world.plan_until("running", "is noted", SOON, noted).await;

    let from = replaced(&world, "suspended", 1).await;
    told_outdated(&world, "running", 1).await;
    controller.logs("SchemaOutdated", SOON).await;
    assert!(
        raw(&world, "suspended").await["spec"].get("suspend").is_none(),
        "it is pruned from what is read"
    );

    // All that would be a reason to write or to begin.
    let more = world.puppets(["c"]).await;
    world.label_node(&b, "plan.upgrade.cattle.io/running", None).await;
    nodes.succeed("running", &a).await;
    world.plan(&plan("new", &spec(""))).await;
    told_outdated(&world, "new", 1).await;
    // A controller that starts meanwhile has never seen our fields.
    controller.kill();
    controller = world.controller().arg("--manage-crd=false").start();
    controller.leading().await;
    world.plan(&plan("newer", &spec(""))).await;
    told_outdated(&world, "newer", 1).await;
    let requests = world.requests().await;
    assert_eq!(written_from(&requests, from), Vec::<String>::new());
    assert!(requests.forbidden().is_empty(), "{:#?}", requests.forbidden());
    for name in ["suspended", "running", "new"] {
        told_outdated(&world, name, 1).await;
    }

    // Ours is back, and so is what was pruned.
    serve(&world, &crd::plans()).await;
    let all = |plan: &Plan| suspended(plan) && status(plan).nodes.is_some_and(|nodes| nodes.waiting == 3);
    let after = world
        .plan_until("suspended", "is suspended, with one node more", SOON, all)
        .await;
    assert_eq!(after.spec, before.spec);
    assert_eq!(after.metadata.annotations, before.metadata.annotations);
    let hash = status(&world.plans().get("running").await.unwrap()).latest_hash;
    world
        .node_until(&a, "is done", SOON, |node| done(node, "running") == hash)
        .await;
    let c = more.name("c");
    let rest = [
        ("new", &nodes, &a),
        ("new", &nodes, &b),
        ("new", &more, &c),
        ("newer", &nodes, &a),
        ("newer", &nodes, &b),
        ("newer", &more, &c),
        ("running", &nodes, &b),
        ("running", &more, &c),
    ];
    join_all(rest.map(|(plan, nodes, node)| nodes.succeed(plan, node))).await;
    for name in ["new", "newer", "running"] {
        world.plan_complete(name, SOON).await;
    }
    let suspended_now = world.plans().get("suspended").await.unwrap();
    assert_eq!(says(&suspended_now, "Complete"), SUSPENDED);
    assert_eq!(world.requests().await.most_jobs_at_once("suspended"), 0);
    assert!(controller.is_running());
}

#[tokio::test]
async fn a_plan_that_lost_our_fields_for_good_is_held_until_it_is_applied_again() {
    let world = World::alone().await;
    let nodes = world.puppets(["a"]).await;
    let a = nodes.name("a");
    let controller = world.at_work().await;
    let spec = "{version: v1, concurrency: 1, suspend: true, nodeSelector: {}, upgrade: {image: i}}";
    for name in ["lost", "again", "accepted"] {
        world.plan(&plan(name, spec)).await;
        let noted = |plan: &Plan| {
            plan.metadata
                .annotations
                .as_ref()
                .is_some_and(|notes| notes.contains_key(NOTE))
        };
        world.plan_until(name, "is noted", SOON, noted).await;
    }
    replaced(&world, "lost", 1).await;
    // What system-upgrade-controller does at each turn: it writes a status.
    for name in ["lost", "again", "accepted"] {
        let patch = Patch::Merge(json!({ "status": { "latestVersion": "v0" } }));
        world
            .plans()
            .patch_status(name, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }
    serve(&world, &crd::plans()).await;
    let pruned = |plan: &Plan| says(plan, "Complete").starts_with("False/SpecPruned/");
    for name in ["lost", "again", "accepted"] {
        let plan = world
            .plan_until(name, "says that it was pruned", SOON, pruned)
            .await;
        assert_eq!(plan.spec.suspend, None, "it is gone for good");
        assert!(
            world
                .told(name)
                .await
                .iter()
                .any(|told| told.starts_with("Warning SpecPruned: "))
        );
    }
    // Applied again as it was, and as it is.
    world
        .edit_plan("again", json!({ "spec": { "suspend": true } }))
        .await;
    world
        .plan_until("again", "is suspended", SOON, |plan| {
            says(plan, "Complete") == SUSPENDED
        })
        .await;
    world
        .edit_plan("accepted", json!({ "spec": { "suspend": false } }))
        .await;
    nodes.succeed("accepted", &a).await;
    world.plan_complete("accepted", SOON).await;
    let lost = world.plans().get("lost").await.unwrap();
    assert!(pruned(&lost), "{}", says(&lost, "Complete"));
    assert_eq!(
        world.jobs_of("lost").await.len() + world.jobs_of("again").await.len(),
        0
    );
    assert!(controller.is_running());
}

#[tokio::test]
async fn suspended_plans_stay_suspended_however_often_the_definition_changes() {
    let world = World::alone().await;
    let _nodes = world.puppets(["a"]).await;
    let controller = world.at_work().await;
    let spec = "{version: v1, concurrency: 1, suspend: true, nodeSelector: {}, upgrade: {image: i}}";
    world.plan(&plan("suspended", spec)).await;
    let noted = |plan: &Plan| {
        plan.metadata
            .annotations
            .as_ref()
            .is_some_and(|notes| notes.contains_key(NOTE))
    };
    world.plan_until("suspended", "is noted", SOON, noted).await;
    let mut more = Vec::new();
    for (turn, name) in (1..).zip(["n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8"]) {
        replaced(&world, "suspended", turn).await;
        // Something is to be written as soon as it may be.
        more.push(world.puppets([name]).await);
        served_at_once(&world, &crd::plans()).await;
        let counted = i64::try_from(turn).unwrap() + 1;
        let all = |plan: &Plan| status(plan).nodes.is_some_and(|nodes| nodes.selected == counted);
        let plan = world
            .plan_until("suspended", "counts one node more", SOON, all)
            .await;
        assert_eq!(plan.spec.suspend, Some(true), "turn {turn}");
        assert_eq!(says(&plan, "Complete"), SUSPENDED, "turn {turn}");
    }
    assert_eq!(world.requests().await.jobs_created(), []);
    assert!(controller.is_running());
}

/// As [`serve`], without waiting for the API server: it takes a moment until it serves what it has accepted.
#[expect(
    clippy::disallowed_methods,
    reason = "it is to be replaced as others replace it"
)]
async fn served_at_once(world: &World, definition: &CustomResourceDefinition) {
    let mut definition = definition.clone();
    let live = definitions(world).get(crd::NAME).await.unwrap();
    definition.metadata.resource_version = live.metadata.resource_version;
    definitions(world)
        .replace(crd::NAME, &kube::api::PostParams::default(), &definition)
        .await
        .unwrap();
}
