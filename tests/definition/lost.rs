//! Another definition takes the place of ours: our fields are pruned from what is read, and any write would make that last.

use futures::future::join_all;
use jiff::Timestamp;
use kube::ResourceExt as _;
use refit_api::{Plan, crd};
use serde_json::Value;

use super::{foreign, put, serve};
use crate::testenv::audit::Requests;
use crate::testenv::context::{TestContext, done};
use crate::testenv::plan::{plan, says, status};
use crate::testenv::wait::{self, SOON};

const SUSPENDED: &str = "False/Suspended/spec.suspend is true";
const NOTE: &str = "refit.rs/fields";

/// A Plan as the API server gives it now.
async fn raw(ctx: &TestContext, name: &str) -> Value {
    let plan = ctx.kubectl(&["get", "plan", name, "-o", "json"]).await;
    serde_json::from_str(&plan).unwrap()
}

/// Whether the controller has noted which of our fields the Plan has.
fn noted(plan: &Plan) -> bool {
    plan.annotations().contains_key(NOTE)
}

/// Waits until events have said of a Plan, so many times, that the definition lacks fields. That an API server is slow
/// to serve a definition that has them is another text.
async fn expect_outdated_event(ctx: &TestContext, name: &str, times: usize) {
    let missing = crd::in_words(&crd::missing_fields(&foreign()));
    let text = format!("Warning SchemaOutdated: the served CustomResourceDefinition lacks {missing}");
    wait::until(
        &format!("{name} is reported {times} times"),
        async || ctx.event_lines(name).await,
        |lines| lines.iter().filter(|lines| **lines == text).count() == times,
    )
    .await;
}

/// What the controller asked to have written to Plans and Jobs from then on, Events aside.
fn written_from(requests: &Requests, from: Timestamp) -> Vec<String> {
    let ours = |resource: &str| matches!(resource, "plans" | "plans/status" | "jobs");
    let by_controller = requests.by("system:serviceaccount:");
    let writes = by_controller
        .writes()
        .filter(|it| ours(&it.resource) && it.received >= from);
    writes
        .map(|it| format!("{} {} {} {}", it.at, it.verb, it.resource, it.name))
        .collect()
}

/// Puts another definition in the place of ours, and returns once the controller knows.
async fn replaced(ctx: &TestContext, name: &str, times: usize) {
    serve(ctx, &foreign()).await;
    expect_outdated_event(ctx, name, times).await;
}

#[tokio::test]
async fn while_our_fields_are_pruned_nothing_is_written_and_nothing_begins() {
    let ctx = TestContext::alone().await;
    let nodes = ctx.manual_kubelet(["a", "b"]).await;
    let (a, b) = (nodes.name("a"), nodes.name("b"));
    ctx.label_node(&b, "plan.upgrade.cattle.io/running", Some("disabled"))
        .await;
    let mut controller = ctx.start_and_warm_up().await;
    let spec = |more: &str| {
        format!("{{version: v1, concurrency: 1, nodeSelector: {{}}, {more} upgrade: {{image: i}}}}")
    };
    ctx.plan(&plan("suspended", &spec("suspend: true,"))).await;
    let suspended = |plan: &Plan| says(plan, "Complete") == SUSPENDED;
    ctx.plan_until("suspended", "is suspended", SOON, suspended).await;
    ctx.plan(&plan("running", &spec("maxConcurrent: 1,"))).await;
    let runs = |plan: &Plan| status(plan).applying == Some(vec![a.clone()]);
    ctx.plan_until("running", "runs", SOON, runs).await;
    let before = ctx.plan_until("suspended", "is noted", SOON, noted).await;
    ctx.plan_until("running", "is noted", SOON, noted).await;

    replaced(&ctx, "suspended", 1).await;
    expect_outdated_event(&ctx, "running", 1).await;
    // A write may be on its way that was decided before. A later Plan has been looked at when it is answered.
    ctx.plan(&plan("later", "{version: v1, upgrade: {image: i}}"))
        .await;
    expect_outdated_event(&ctx, "later", 1).await;
    let from = ctx.now();
    controller.logs("SchemaOutdated", SOON).await;
    assert!(
        raw(&ctx, "suspended").await["spec"].get("suspend").is_none(),
        "it is pruned from what is read"
    );

    // All that would be a reason to write or to begin.
    let more = ctx.manual_kubelet(["c"]).await;
    ctx.label_node(&b, "plan.upgrade.cattle.io/running", None).await;
    nodes.succeed("running", &a).await;
    ctx.plan(&plan("new", &spec(""))).await;
    expect_outdated_event(&ctx, "new", 1).await;
    // A controller that starts meanwhile has never seen our fields.
    controller.kill();
    controller = ctx.controller().arg("--manage-crd=false").start();
    controller.leading().await;
    ctx.plan(&plan("newer", &spec(""))).await;
    expect_outdated_event(&ctx, "newer", 1).await;
    let requests = ctx.requests().await;
    assert_eq!(written_from(&requests, from), Vec::<String>::new());
    assert!(requests.forbidden().is_empty(), "{:#?}", requests.forbidden());
    for name in ["suspended", "running", "new"] {
        expect_outdated_event(&ctx, name, 1).await;
    }

    // Ours is back, and so is what was pruned.
    serve(&ctx, &crd::plans()).await;
    let all = |plan: &Plan| suspended(plan) && status(plan).nodes.is_some_and(|nodes| nodes.waiting == 3);
    let after = ctx
        .plan_until("suspended", "is suspended, with one node more", SOON, all)
        .await;
    assert_eq!(after.spec, before.spec);
    assert_eq!(after.metadata.annotations, before.metadata.annotations);
    let hash = status(&ctx.plans().get("running").await.unwrap()).latest_hash;
    ctx.node_until(&a, "is done", SOON, |node| done(node, "running") == hash)
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
        ctx.plan_complete(name, SOON).await;
    }
    let suspended_now = ctx.plans().get("suspended").await.unwrap();
    assert_eq!(says(&suspended_now, "Complete"), SUSPENDED);
    assert_eq!(ctx.requests().await.most_jobs_at_once("suspended"), 0);
    assert!(controller.is_running());
}

#[tokio::test]
async fn suspended_plans_stay_suspended_however_often_the_definition_changes() {
    let ctx = TestContext::alone().await;
    let _nodes = ctx.manual_kubelet(["a"]).await;
    let controller = ctx.start_and_warm_up().await;
    let spec = "{version: v1, concurrency: 1, suspend: true, nodeSelector: {}, upgrade: {image: i}}";
    ctx.plan(&plan("suspended", spec)).await;
    ctx.plan_until("suspended", "is noted", SOON, noted).await;
    let mut more = Vec::new();
    for (turn, name) in (1..).zip(["n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8"]) {
        replaced(&ctx, "suspended", turn).await;
        // Something is to be written as soon as it may be.
        more.push(ctx.manual_kubelet([name]).await);
        put(&ctx, &crd::plans()).await;
        let counted = i64::try_from(turn).unwrap() + 1;
        let all = |plan: &Plan| status(plan).nodes.is_some_and(|nodes| nodes.selected == counted);
        let plan = ctx
            .plan_until("suspended", "counts one node more", SOON, all)
            .await;
        assert_eq!(plan.spec.suspend, Some(true), "turn {turn}");
        assert_eq!(says(&plan, "Complete"), SUSPENDED, "turn {turn}");
    }
    assert_eq!(ctx.requests().await.jobs_created(), []);
    assert!(controller.is_running());
}
