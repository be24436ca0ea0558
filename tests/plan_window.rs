//! `spec.window` and `spec.notBefore` on a running controller: it waits, reports for what, and starts then.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use refit::api::Plan;
use serde_json::{Value, json};

use crate::scenario::Backend;
use crate::testenv::context::TestContext;
use crate::testenv::history::History;
use crate::testenv::manual_kubelet::ManualKubelet;
use crate::testenv::plan::{says, status};
use crate::testenv::wait::{self, SOON};

scenarios! {
    in_process {
        a_plan_waits_until_its_window_opens_and_then_begins,
        a_plan_begins_at_not_before_and_not_earlier,
    }
}

const WAITING: &str = "False/Waiting/current time is not within configured window";

async fn a_plan_begins_at_not_before_and_not_earlier(on: Backend) {
    let ctx = on.context().await;
    let nodes = ctx.manual_kubelet(["one"]).await;
    let _controller = ctx.start_and_warm_up().await;
    let history = History::of(&ctx, "later").await;
    let later = |after: SignedDuration| Timestamp::from_second((ctx.now() + after).as_second()).unwrap();
    let plan = |from: Timestamp| {
        let spec = json!({
            "concurrency": 1, "version": "v1", "nodeSelector": {}, "upgrade": { "image": "x" },
            "notBefore": from.to_string(),
        });
        json!({
            "apiVersion": "upgrade.cattle.io/v1", "kind": "Plan", "metadata": { "name": "later" }, "spec": spec,
        })
    };
    let from = later(SignedDuration::from_hours(1));
    ctx.try_apply(plan(from)).await.unwrap();
    let waiting = format!("False/NotBefore/no node starts before spec.notBefore, {from}");
    history
        .until("it waits", SOON, |plan| says(plan, "Complete") == waiting)
        .await;

    let from = later(SignedDuration::from_secs(5));
    ctx.try_apply(plan(from)).await.unwrap();
    let node = nodes.name("one");
    // No event on the cluster wakes the controller.
    history
        .until("it has begun", SOON, |plan| status(plan).applying.is_some())
        .await;
    nodes.succeed("later", &node).await;
    ctx.plan_complete("later", SOON).await;
    let jobs = ctx.requests().await.jobs_created();
    let jobs: Vec<_> = jobs.iter().filter(|job| job.plan == "later").collect();
    assert!(matches!(jobs[..], [job] if job.at >= from), "{jobs:?}, {from}");
}

/// A daily window of an hour, which opens after `after`. `from` is its first second.
struct Window {
    spec: Value,
    from: Timestamp,
}

fn window(ctx: &TestContext, after: SignedDuration) -> Window {
    let from = Timestamp::from_second((ctx.now() + after).as_second()).unwrap();
    let clock = |at: Timestamp| at.strftime("%H:%M:%S").to_string();
    let days = ["su", "mo", "tu", "we", "th", "fr", "sa"];
    let until = from + SignedDuration::from_hours(1);
    let spec = json!({ "days": days, "startTime": clock(from), "endTime": clock(until), "timeZone": "UTC" });
    Window { spec, from }
}

fn plan(name: &str, window: &Window) -> Value {
    json!({
        "apiVersion": "upgrade.cattle.io/v1", "kind": "Plan", "metadata": { "name": name },
        "spec": {
            "concurrency": 1, "version": "v1", "nodeSelector": {}, "upgrade": { "image": "x" }, "window": window.spec,
        },
    })
}

async fn a_plan_waits_until_its_window_opens_and_then_begins(on: Backend) {
    let ctx = on.context().await;
    let nodes = ctx.manual_kubelet(["one"]).await;
    let _controller = ctx.start_and_warm_up().await;
    let mut round = 0;
    // It looks once a minute without a reason.
    let limit = Duration::from_secs(10);
    wait::measures_below("its begin after the window has opened", limit, async || {
        round += 1;
        begins_after_its_window_has_opened(&ctx, &nodes, round).await
    })
    .await;
}

/// How long after the window has opened a Plan begins; without limit if it was not seen to wait before.
async fn begins_after_its_window_has_opened(
    ctx: &TestContext,
    nodes: &ManualKubelet,
    round: u32,
) -> Duration {
    let (name, node) = (format!("window-{round}"), nodes.name("one"));
    let history = History::of(ctx, &name).await;
    // Late enough to be seen closed, and later where the machine was too slow for that.
    let opens = window(ctx, SignedDuration::from_secs(5 << round));
    ctx.try_apply(plan(&name, &opens)).await.unwrap();
    let answered = |plan: &Plan| says(plan, "Complete") == WAITING || status(plan).applying.is_some();
    let answered = history.until("it waits or begins", SOON, answered).await;
    let waiting = answered.last().unwrap();
    if status(waiting).applying.is_some() {
        nodes.succeed(&name, &node).await;
        ctx.plan_complete(&name, SOON).await;
        return Duration::MAX;
    }
    assert_eq!(
        status(waiting).next_window.unwrap().parse::<Timestamp>().unwrap(),
        opens.from
    );
    assert_eq!(status(waiting).applying, None);
    assert_eq!(says(waiting, "Validated"), "True/PlanIsValid/");
    assert_eq!(says(waiting, "LatestResolved"), "True/Version/");
    let entry = &status(waiting).active.unwrap()[0];
    assert_eq!(
        (entry.name.as_str(), entry.reason.as_deref()),
        (node.as_str(), Some("WindowClosed"))
    );

    // No event on the cluster wakes the controller.
    history
        .until("it has begun", SOON, |plan| status(plan).applying.is_some())
        .await;
    let requests = ctx.requests().await;
    let began = requests.0.iter().find(|it| {
        it.resource == "plans/status" && it.name == name && it.sent["status"]["applying"].is_array()
    });
    let began = began.unwrap().at;
    assert!(
        began >= opens.from,
        "it began at {began}, and the window opens at {}",
        opens.from
    );
    nodes.succeed(&name, &node).await;
    let complete = ctx.plan_complete(&name, SOON).await;
    let created = ctx.requests().await.jobs_created();
    assert_eq!(created.iter().filter(|job| job.plan == name).count(), 1);
    assert_eq!(status(&complete).next_window, None);
    assert_eq!(
        history.said("Complete"),
        [WAITING, "False/SyncJob/", "True/Complete/"]
    );
    let hash = status(&complete).latest_hash.unwrap();
    let expected = [
        "Normal Validated: Plan is valid".to_owned(),
        "Normal Resolved: Resolved latest version from Spec.Version: v1".to_owned(),
        format!("Normal Waiting: Waiting for start of Spec.Window to sync Jobs for version v1. Hash: {hash}"),
        format!("Normal SyncJob: Jobs synced for version v1 on Nodes {node}. Hash: {hash}"),
        format!("Normal JobComplete: Job completed on Node {node}"),
        format!("Normal Complete: Jobs complete for version v1. Hash: {hash}"),
    ];
    ctx.expect_events(&name, SOON, &expected).await;
    began.duration_since(opens.from).unsigned_abs()
}
