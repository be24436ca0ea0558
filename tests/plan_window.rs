//! `spec.window` on a running controller: it waits, says until when, and begins when the window opens.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use refit::api::Plan;
use serde_json::{Value, json};

use crate::support::history::History;
use crate::support::plan::{says, status};
use crate::support::wait::SOON;
use crate::support::world::World;

const WAITING: &str = "False/Waiting/current time is not within configured window";

#[expect(
    clippy::disallowed_methods,
    reason = "windows are about the time of day that the controller sees"
)]
fn now() -> Timestamp {
    Timestamp::now()
}

/// A window of an hour on every day, from `after` now on. `from` is its first second.
struct Window {
    spec: Value,
    from: Timestamp,
}

fn window(after: SignedDuration) -> Window {
    let from = Timestamp::from_second((now() + after).as_second()).unwrap();
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

#[tokio::test]
async fn a_plan_waits_until_its_window_opens_and_then_begins() {
    let world = World::new().await;
    let nodes = world.puppets(["one"]).await;
    let node = nodes.name("one");
    let _controller = world.at_work().await;
    let history = History::of(&world, "window").await;
    // Far enough to be seen closed, near enough to be waited for.
    let opens = window(SignedDuration::from_secs(6));
    world.try_apply(plan("window", &opens)).await.unwrap();
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

    // Nothing happens on the cluster that could wake the controller.
    history
        .until("it has begun", SOON, |plan| status(plan).applying.is_some())
        .await;
    let requests = world.requests().await;
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
    let late = Duration::try_from(began.duration_since(opens.from)).unwrap();
    assert!(
        late < Duration::from_secs(2),
        "it began {late:?} after the window had opened:\n{:#?}",
        requests.timeline()
    );
    nodes.succeed("window", &node).await;
    let complete = world.plan_complete("window", SOON).await;
    assert_eq!(world.requests().await.jobs_created().len(), 1);
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
    world.told_exactly("window", SOON, &expected).await;
}

#[tokio::test]
async fn the_window_is_asked_before_each_node_and_what_runs_goes_on() {
    let world = World::new().await;
    let nodes = world.puppets(["a", "b"]).await;
    let names = ["a", "b"].map(|name| nodes.name(name));
    let _controller = world.at_work().await;
    let open = window(SignedDuration::from_mins(-10));
    let closed = window(SignedDuration::from_hours(3));
    world.try_apply(plan("each", &open)).await.unwrap();
    let applying = |plan: &Plan| status(plan).applying.unwrap_or_default();
    let first = world
        .plan_until("each", "has begun", SOON, |plan| !applying(plan).is_empty())
        .await;
    let first = applying(&first).pop().unwrap();
    let second = names.iter().find(|node| **node != first).unwrap();

    // The node under way keeps its Job when the window closes.
    world
        .edit_plan("each", json!({ "spec": { "window": closed.spec } }))
        .await;
    let shut = world
        .plan_until("each", "knows", SOON, |plan| {
            status(plan).observed_generation == Some(2)
        })
        .await;
    assert_eq!(says(&shut, "Complete"), "False/SyncJob/");
    let waits = status(&shut)
        .active
        .unwrap()
        .into_iter()
        .find(|entry| entry.name == *second)
        .unwrap();
    assert_eq!(waits.reason.as_deref(), Some("WindowClosed"));
    nodes.succeed("each", &first).await;
    let waiting = world
        .plan_until("each", "waits", SOON, |plan| says(plan, "Complete") == WAITING)
        .await;
    assert_eq!(applying(&waiting), Vec::<String>::new());
    assert_eq!(status(&waiting).progress.as_deref(), Some("1/2"));
    let next = status(&waiting)
        .next_window
        .unwrap()
        .parse::<Timestamp>()
        .unwrap();
    assert_eq!(next, closed.from);
    assert_eq!(world.jobs_of("each").await.len(), 1);

    world
        .edit_plan("each", json!({ "spec": { "window": open.spec } }))
        .await;
    nodes.succeed("each", second).await;
    world.plan_complete("each", SOON).await;
}

#[tokio::test]
async fn a_window_that_never_opens_says_so() {
    let world = World::new().await;
    let _nodes = world.puppets(["one"]).await;
    let _controller = world.at_work().await;
    let mut never = window(SignedDuration::from_hours(1));
    // Days may be absent; then no day is one (S58).
    never.spec.as_object_mut().unwrap().remove("days");
    world.try_apply(plan("never", &never)).await.unwrap();
    let waiting = world.plan_condition("never", "Complete", "False", SOON).await;
    assert_eq!(
        says(&waiting, "Complete"),
        format!("{WAITING}, and will never be")
    );
    assert_eq!(status(&waiting).next_window, None);
    assert_eq!(says(&waiting, "Validated"), "True/PlanIsValid/");
}
