//! Events, with system-upgrade-controller's reasons and texts (S63): which are written, and that none is written twice.
//! Each test compares the whole set.

use k8s_openapi::api::core::v1::Event;
use refit::api::Plan;
use serde_json::json;

use crate::scenario::Backend;
use crate::testenv::context::TestContext;
use crate::testenv::events::line;
use crate::testenv::faults::Rule;
use crate::testenv::plan::{plan, says, status};
use crate::testenv::wait::{self, SOON};

scenarios! {
    in_process {
        a_roll_out_writes_each_of_its_events_once,
        a_failed_job_has_one_event,
    }
    real {
        a_plan_that_is_edited_during_a_status_write_has_its_events_once,
        the_start_of_the_controller_is_an_event_on_its_node,
    }
}

/// How a Plan begins that is valid and has its version.
fn begins(version: &str) -> [String; 2] {
    [
        "Normal Validated: Plan is valid".to_owned(),
        format!("Normal Resolved: Resolved latest version from Spec.Version: {version}"),
    ]
}

fn synced(version: &str, nodes: &str, hash: &str) -> String {
    format!("Normal SyncJob: Jobs synced for version {version} on Nodes {nodes}. Hash: {hash}")
}

fn complete(version: &str, hash: &str) -> String {
    format!("Normal Complete: Jobs complete for version {version}. Hash: {hash}")
}

fn job_complete(node: &str) -> String {
    format!("Normal JobComplete: Job completed on Node {node}")
}

async fn a_roll_out_writes_each_of_its_events_once(on: Backend) {
    let ctx = on.context().await;
    let nodes = ctx.manual_kubelet(["a", "b"]).await;
    let (a, b) = (nodes.name("a"), nodes.name("b"));
    let controller = ctx.start_and_warm_up().await;
    let spec = "{concurrency: 2, nodeSelector: {}, version: v1, upgrade: {image: i}}";
    ctx.plan(&plan("two", spec)).await;
    let both = |plan: &Plan| status(plan).applying.is_some_and(|nodes| nodes.len() == 2);
    ctx.plan_until("two", "applies both", SOON, both).await;
    nodes.succeed("two", &a).await;
    ctx.plan_until("two", "applies one", SOON, |plan| !both(plan))
        .await;
    nodes.succeed("two", &b).await;
    let hash = status(&ctx.plan_complete("two", SOON).await).latest_hash.unwrap();
    let mut expected = begins("v1").to_vec();
    expected.extend([
        synced("v1", &format!("{a},{b}"), &hash),
        synced("v1", &b, &hash),
        job_complete(&a),
        job_complete(&b),
        complete("v1", &hash),
    ]);
    ctx.expect_events("two", SOON, &expected).await;

    // Neither a controller that starts nor an edit that changes nothing about it tells anything again.
    controller.kill();
    let controller = controller.start_again();
    ctx.wait_until_working(&controller).await;
    ctx.edit_plan(
        "two",
        json!({ "spec": { "concurrency": 1 }, "metadata": { "labels": { "a": "b" } } }),
    )
    .await;
    ctx.plan_complete("two", SOON).await;
    ctx.expect_events("two", SOON, &expected).await;

    // Another version is another roll-out with events of its own.
    ctx.edit_plan("two", json!({ "spec": { "version": "v2" } })).await;
    let (first, second) = (applying(&ctx, "two", None).await, &mut Vec::new());
    nodes.succeed("two", &first).await;
    second.push(applying(&ctx, "two", Some(&first)).await);
    nodes.succeed("two", &second[0]).await;
    let hash = status(&ctx.plan_complete("two", SOON).await).latest_hash.unwrap();
    expected.extend([
        "Normal Resolved: Resolved latest version from Spec.Version: v2".to_owned(),
        synced("v2", &first, &hash),
        synced("v2", &second[0], &hash),
        complete("v2", &hash),
    ]);
    let events = wait::until(
        "all events are there",
        async || ctx.event_lines("two").await,
        |events| events.len() == expected.len() + 2,
    )
    .await;
    // The words of JobComplete do not name the version: two nodes have it twice.
    expected.extend([job_complete(&a), job_complete(&b)]);
    expected.sort();
    assert_eq!(events, expected);
}

/// The one node that applies, another than `before`.
async fn applying(ctx: &TestContext, name: &str, before: Option<&String>) -> String {
    let other = |plan: &Plan| {
        let nodes = status(plan).applying.unwrap_or_default();
        nodes.len() == 1 && nodes.first() != before
    };
    let plan = ctx.plan_until(name, "applies the next node", SOON, other).await;
    status(&plan).applying.unwrap().remove(0)
}

async fn a_failed_job_has_one_event(on: Backend) {
    let ctx = on.context().await;
    let nodes = ctx.manual_kubelet(["one"]).await;
    let node = nodes.name("one");
    let controller = ctx
        .controller()
        .env("SYSTEM_UPGRADE_JOB_BACKOFF_LIMIT", "0")
        .start();
    ctx.wait_until_working(&controller).await;
    ctx.plan(&plan(
        "fails",
        "{concurrency: 1, nodeSelector: {}, version: v1, upgrade: {image: i}}",
    ))
    .await;
    nodes.end("fails", &node, 1).await;
    let failed = ctx
        .plan_until("fails", "has failed", SOON, |plan| {
            says(plan, "Complete").contains("JobFailed")
        })
        .await;
    let hash = status(&failed).latest_hash.unwrap();
    let job = ctx.jobs_of("fails").await.remove(0).metadata.name.unwrap();
    let why =
        "BackoffLimitExceeded: Job has reached the specified backoff limit: container upgrade exited with 1";
    let text = format!("Job {}/{job} failed on Node {node}: {why}", ctx.namespace());
    assert_eq!(says(&failed, "Complete"), format!("False/JobFailed/{text}"));
    let mut expected = begins("v1").to_vec();
    expected.extend([synced("v1", &node, &hash), format!("Warning JobFailed: {text}")]);
    ctx.expect_events("fails", SOON, &expected).await;

    controller.kill();
    let controller = controller.start_again();
    ctx.wait_until_working(&controller).await;
    ctx.expect_events("fails", SOON, &expected).await;
}

async fn a_plan_that_is_edited_during_a_status_write_has_its_events_once() {
    let ctx = TestContext::new().await;
    let faults = ctx.faults(3).await;
    let controller = ctx.controller().through(&faults).start();
    ctx.wait_until_working(&controller).await;
    // The status is written in a version of the Plan that is not the latest any more.
    faults.add(
        Rule::on("patch", "plans/status")
            .named("edited")
            .times(2)
            .answer(409),
    );
    ctx.plan(&plan("edited", "{version: v1, upgrade: {image: i}}"))
        .await;
    ctx.edit_plan("edited", json!({ "metadata": { "labels": { "a": "b" } } }))
        .await;
    let hash = status(&ctx.plan_complete("edited", SOON).await)
        .latest_hash
        .unwrap();
    assert_eq!(faults.faults(), 2);
    let mut expected = begins("v1").to_vec();
    expected.push(complete("v1", &hash));
    ctx.expect_events("edited", SOON, &expected).await;
}

async fn the_start_of_the_controller_is_an_event_on_its_node() {
    let ctx = TestContext::new().await;
    let controller = ctx.start_and_warm_up().await;
    let lines = async |count: usize| {
        wait::until(
            "the starts are there",
            async || ctx.controller_events().await,
            |events| events.len() == count,
        )
        .await
    };
    let program = concat!("refit ", env!("CARGO_PKG_VERSION"));
    let identity = format!("{}/system-upgrade-controller", ctx.namespace());
    let starting = format!("Normal Starting: {program} starting leader election for {identity}");
    let started = format!("Normal Started: {program} running as {identity}");
    let events = lines(2).await;
    let mut texts: Vec<_> = events.iter().map(line).collect();
    texts.sort();
    assert_eq!(texts, [started.clone(), starting.clone()]);
    for event in &events {
        is_about_the_node(event);
    }

    // Each start has its event; without leader election there is no event about one.
    assert!(controller.terminate().await.success());
    let again = ctx
        .controller()
        .env("SYSTEM_UPGRADE_CONTROLLER_LEADER_ELECT", "false")
        .start();
    let mut texts: Vec<_> = lines(3).await.iter().map(line).collect();
    texts.sort();
    assert_eq!(texts, [started.clone(), started, starting]);
    assert!(again.terminate().await.success());
    assert!(ctx.controller_requests().await.forbidden().is_empty());
}

/// As system-upgrade-controller, and the kubelet, refer to a Node: its name is its UID.
fn is_about_the_node(event: &Event) {
    let about = &event.involved_object;
    assert_eq!(about.kind.as_deref(), Some("Node"));
    assert_eq!(about.name.as_deref(), Some("test-machine"));
    assert_eq!(about.uid.as_deref(), Some("test-machine"));
    assert_eq!(event.metadata.namespace.as_deref(), Some("default"));
    let source = event.source.as_ref().unwrap();
    assert_eq!(source.component.as_deref(), Some("system-upgrade-controller"));
    assert_eq!(source.host.as_deref(), Some("test-machine"));
}
