//! `spec.window` on a running controller: it waits, reports when the window opens, and starts then.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::scenario::Backend;
use crate::testenv::context::TestContext;
use crate::testenv::history::History;
use crate::testenv::plan::{says, status};
use crate::testenv::wait::SOON;

scenarios! {
    both {
        a_plan_waits_until_its_window_opens_and_then_begins,
    }
}

const WAITING: &str = "False/Waiting/current time is not within configured window";

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
    let node = nodes.name("one");
    let _controller = ctx.start_and_warm_up().await;
    let history = History::of(&ctx, "window").await;
    // Late enough to be seen closed, early enough to wait for.
    let opens = window(&ctx, SignedDuration::from_secs(10));
    ctx.try_apply(plan("window", &opens)).await.unwrap();
    let waiting = history
        .until("it waits", SOON, |plan| says(plan, "Complete") == WAITING)
        .await;
    let waiting = waiting.last().unwrap();
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
    let began = requests
        .0
        .iter()
        .find(|it| it.resource == "plans/status" && it.sent["status"]["applying"].is_array());
    let began = began.unwrap().at;
    assert!(
        began >= opens.from,
        "it began at {began}, and the window opens at {}",
        opens.from
    );
    // It looks once a minute without a reason.
    let late = began.duration_since(opens.from);
    assert!(
        late < SignedDuration::from_secs(10),
        "it began {late:#} after the window had opened:\n{:#?}",
        requests.timeline()
    );
    nodes.succeed("window", &node).await;
    let complete = ctx.plan_complete("window", SOON).await;
    assert_eq!(ctx.requests().await.jobs_created().len(), 1);
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
    ctx.expect_events("window", SOON, &expected).await;
}
