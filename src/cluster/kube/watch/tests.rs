//! Lists and watches over a server in memory, in paused time.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use http::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::BoxError;

use super::*;
use refit_facts::PlanFacts;
use refit_facts::objects::SlimNode;

/// Responses in the order of the requests, and the requests: `list` or `watch`, and the query.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<(VecDeque<String>, Vec<String>)>>);

impl Server {
    /// A server that gives these answers, and then does not answer any more.
    fn with(answers: impl IntoIterator<Item = String>) -> Self {
        let server = Self::default();
        server.0.lock().unwrap().0.extend(answers);
        server
    }

    fn requests(&self) -> Vec<String> {
        self.0.lock().unwrap().1.clone()
    }

    fn watch<K: Watched>(&self) -> Watch<K> {
        let server = self.clone();
        let transport = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let query = request.uri().query().unwrap_or_default();
                let watches = query.contains("watch=true");
                let since = query
                    .split('&')
                    .find_map(|it| it.strip_prefix("resourceVersion="));
                let name = if watches {
                    format!("watch {}", since.unwrap_or_default())
                } else {
                    let is_more = query.contains("continue=");
                    let page = query.split('&').find_map(|it| it.strip_prefix("limit="));
                    let page = page.filter(|page| *page != "100").map(|page| format!(" {page}"));
                    let name = if is_more { "more" } else { "list" };
                    format!("{name}{}", page.unwrap_or_default())
                };
                let answer = {
                    let mut state = server.0.lock().unwrap();
                    state.1.push(name);
                    state.0.pop_front()
                };
                match answer {
                    Some(answer) => Ok::<_, BoxError>(Response::new(Body::from(answer.into_bytes()))),
                    None => std::future::pending().await,
                }
            }
        });
        let selection = Selection {
            path: "/api/v1/nodes".to_owned(),
            page: 100,
            ..Selection::default()
        };
        Watch::new(Client::new(transport, "default"), selection)
    }
}

fn node(name: &str, version: u64) -> Value {
    json!({ "metadata": { "name": name, "uid": format!("uid-{name}"), "resourceVersion": version.to_string() } })
}

fn odd(name: &str, version: u64) -> Value {
    let mut node = node(name, version);
    node["spec"] = json!({ "unschedulable": "perhaps" });
    node
}

fn list(version: u64, items: &[Value]) -> String {
    json!({ "metadata": { "resourceVersion": version.to_string() }, "items": items }).to_string()
}

fn lines(events: &[(&str, Value)]) -> String {
    let line = |(type_, object): &(&str, Value)| format!("{}\n", json!({ "type": type_, "object": object }));
    events.iter().map(line).collect()
}

fn bookmark(version: u64) -> (&'static str, Value) {
    (
        "BOOKMARK",
        json!({ "metadata": { "resourceVersion": version.to_string() } }),
    )
}

/// The next events, as texts.
async fn events<K: Watched + kube::Resource>(watch: &mut Watch<K>, count: usize) -> Vec<String> {
    let mut events = Vec::new();
    while events.len() < count {
        events.push(match watch.next().await {
            WatchEvent::Watching => continue,
            WatchEvent::Change(Change::ListStarted) => "start".to_owned(),
            WatchEvent::Change(Change::ListFinished(_)) => "end".to_owned(),
            WatchEvent::Change(Change::Object(object)) => object.meta().name.clone().unwrap_or_default(),
            WatchEvent::Change(Change::Deleted { name, uid }) => format!("deleted {name} {uid}"),
            WatchEvent::Change(Change::Unreadable(it)) => {
                format!("unreadable {} {}", it.name, it.resource_version)
            }
            WatchEvent::Change(Change::Unknown) => "unknown".to_owned(),
            WatchEvent::VersionsReset => "reset".to_owned(),
            WatchEvent::Failed(error) => format!("failed {error}"),
        });
    }
    events
}

#[tokio::test(start_paused = true)]
async fn objects_that_cannot_be_read_are_skipped_in_lists_and_watches() {
    let changes = lines(&[
        ("MODIFIED", odd("a", 11)),
        ("ADDED", node("d", 12)),
        ("DELETED", odd("a", 13)),
        ("NOVELTY", node("e", 14)),
        bookmark(15),
    ]);
    let server = Server::with([
        list(10, &[node("a", 1), odd("b", 2), node("c", 3), json!(7)]),
        changes,
    ]);
    let mut watch = server.watch::<SlimNode>();
    let listed = ["start", "a", "unreadable b 2", "c", "unreadable  ", "end"];
    assert_eq!(events(&mut watch, 6).await, listed);
    let watched = ["unreadable a 11", "d", "deleted a uid-a"];
    assert_eq!(events(&mut watch, 3).await, watched);
    assert!(
        tokio::time::timeout(Duration::from_secs(1), watch.next())
            .await
            .is_err()
    );
    assert_eq!(server.requests(), ["list", "watch 10", "watch 15"]);
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_cannot_be_read_keeps_its_status_and_says_why() {
    let deep = format!("{}{}", "[".repeat(1_000), "]".repeat(1_000));
    let plan = format!(
        r#"{{"metadata":{{"name":"p","uid":"u","resourceVersion":"3"}},"spec":{{"version":"v1","a":{deep}}},"status":{{"latestVersion":"v0"}}}}"#
    );
    let page = format!(r#"{{"metadata":{{"resourceVersion":"3"}},"items":[{plan}]}}"#);
    let mut watch = Server::with([page]).watch::<PlanFacts>();
    watch.next().await;
    let WatchEvent::Change(Change::Object(facts)) = watch.next().await else {
        panic!("no Plan");
    };
    assert_eq!((&*facts.name, &*facts.uid), ("p", "u"));
    assert!(
        facts
            .malformed
            .as_ref()
            .unwrap()
            .starts_with("spec cannot be read: recursion limit")
    );
    assert_eq!(facts.status().latest_version.as_deref(), Some("v0"));
}

#[tokio::test(start_paused = true)]
async fn a_version_that_the_server_has_forgotten_needs_another_list() {
    let gone =
        json!({ "kind": "Status", "code": 410, "message": "too old resource version", "reason": "Expired" });
    let server = Server::with([
        list(10, &[]),
        lines(&[("ERROR", gone)]),
        list(12, &[node("a", 11)]),
    ]);
    let mut watch = server.watch::<SlimNode>();
    let seen = events(&mut watch, 6).await;
    assert_eq!(
        seen,
        [
            "start",
            "end",
            "failed too old resource version",
            "start",
            "a",
            "end"
        ]
    );
    assert_eq!(server.requests(), ["list", "watch 10", "list"]);
}

#[tokio::test(start_paused = true)]
async fn a_line_that_is_no_event_needs_another_list_and_a_cut_one_does_not() {
    let cut = r#"{"type":"ADDED","object":{"metadata":{"na"#.to_owned();
    let garbage = "no JSON\n".to_owned();
    let odd_error = lines(&[("ERROR", json!("what?"))]);
    let server = Server::with([list(10, &[]), cut, odd_error, garbage, list(12, &[])]);
    let mut watch = server.watch::<SlimNode>();
    let seen = events(&mut watch, 6).await;
    assert!(seen[2].starts_with("failed \"what?\""), "{seen:?}");
    assert!(
        seen[3].starts_with("failed a line is not a watch event"),
        "{seen:?}"
    );
    assert_eq!(seen[4..], ["start", "end"]);
    assert_eq!(
        server.requests(),
        ["list", "watch 10", "watch 10", "watch 10", "list"]
    );
}

#[tokio::test(start_paused = true)]
async fn the_type_of_a_change_may_follow_its_object() {
    let line = format!("{{\"object\":{},\"type\":\"ADDED\"}}\n", node("a", 11));
    let mut watch = Server::with([list(10, &[]), line]).watch::<SlimNode>();
    assert_eq!(events(&mut watch, 3).await, ["start", "end", "a"]);
}

#[tokio::test(start_paused = true)]
async fn versions_that_go_back_are_noticed() {
    let by_list = Server::with([
        list(10, &[]),
        lines(&[bookmark(20)]),
        "no JSON\n".to_owned(),
        list(9, &[node("a", 3)]),
    ]);
    let seen = events(&mut by_list.watch::<SlimNode>(), 5).await;
    assert_eq!(seen[3..], ["start", "reset"]);

    let by_bookmark = Server::with([list(10, &[]), lines(&[bookmark(20), bookmark(7)])]);
    assert_eq!(
        events(&mut by_bookmark.watch::<SlimNode>(), 3).await,
        ["start", "end", "reset"]
    );

    let by_change = Server::with([list(10, &[]), lines(&[("MODIFIED", node("a", 7))])]);
    assert_eq!(
        events(&mut by_change.watch::<SlimNode>(), 3).await,
        ["start", "end", "reset"]
    );
}

/// A watch from a version that the server has not reached yet shows nothing, not even a bookmark.
#[tokio::test(start_paused = true)]
async fn a_watch_that_stays_silent_is_followed_by_a_list() {
    struct Silent;
    impl futures::io::AsyncRead for Silent {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
            _: &mut [u8],
        ) -> std::task::Poll<io::Result<usize>> {
            std::task::Poll::Pending
        }
    }
    let server = Server::with([list(9, &[])]);
    let mut watch = server.watch::<SlimNode>();
    watch.latest = 20;
    watch.state = State::Watching {
        version: "20".to_owned(),
        lines: Box::pin(futures::io::BufReader::new(Silent)),
        since: Instant::now(),
        silent: true,
    };
    let start = Instant::now();
    assert_eq!(events(&mut watch, 2).await, ["start", "reset"]);
    assert!(start.elapsed() >= Duration::from_secs(290) && start.elapsed() < Duration::from_secs(300));
}

fn part(version: u64, items: &[Value], next: &str) -> String {
    json!({ "metadata": { "resourceVersion": version.to_string(), "continue": next }, "items": items })
        .to_string()
}

/// A Node of a tenth of a megabyte.
fn huge(name: &str) -> Value {
    let mut node = node(name, 3);
    node["metadata"]["annotations"] = json!({ "example.com/large": "a".repeat(100_000) });
    node
}

#[tokio::test(start_paused = true)]
async fn a_page_of_huge_objects_is_read_in_parts_and_none_is_missing() {
    let huge: Vec<_> = (0..20).map(|number| huge(&format!("h{number}"))).collect();
    let server = Server::with([
        part(10, &[node("a", 1)], "x"),
        list(10, &huge),
        part(10, &huge[..10], "y"),
        list(10, &huge[10..]),
        lines(&[("ADDED", node("z", 11))]),
    ]);
    let mut watch = server.watch::<SlimNode>();
    watch.max = 1_100_000;
    let found = events(&mut watch, 24).await;
    let names = ["start", "a", "h0"];
    assert_eq!(
        (&found[..3], &found[22..]),
        (
            &names.map(str::to_owned)[..],
            &["end", "z"].map(str::to_owned)[..]
        )
    );
    assert_eq!(server.requests()[..4], ["list", "more", "more 50", "more 50"]);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_fits_into_etcd_is_read_even_if_each_of_its_characters_takes_six_bytes() {
    let [listed, changed] = [3, 11].map(|version| {
        let mut long = node("a", version);
        long["metadata"]["annotations"] = json!({ "example.com/large": "a".repeat(6 * (3 << 19)) });
        long
    });
    let server = Server::with([list(10, &[listed]), lines(&[("MODIFIED", changed)])]);
    let mut watch = server.watch::<SlimNode>();
    assert_eq!(events(&mut watch, 4).await, ["start", "a", "end", "a"]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_longer_than_any_object_is_not_read_to_its_end() {
    let mut answers = vec![list(10, &[json!("a".repeat(10_000))]); 8];
    answers.push(list(11, &[node("a", 1)]));
    answers.push(lines(&[
        ("ADDED", json!("a".repeat(10_000))),
        ("ADDED", node("z", 12)),
    ]));
    let server = Server::with(answers);
    let mut watch = server.watch::<SlimNode>();
    watch.max = 10_000;
    let too_long = "failed the response is longer than any object";
    // Pages of 100, 50, 25, 12, 6, 3, and 1, of which the last fails; then another list begins with such a page.
    assert_eq!(events(&mut watch, 2).await, ["start", too_long]);
    assert_eq!(events(&mut watch, 2).await, ["start", too_long]);
    assert_eq!(events(&mut watch, 4).await, ["start", "a", "end", too_long]);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_repeats_its_page_fails_and_begins_anew() {
    let server = Server::with([
        part(10, &[node("a", 1)], "x"),
        part(10, &[node("b", 2)], "x"),
        list(10, &[node("c", 3)]),
    ]);
    let mut watch = server.watch::<SlimNode>();
    let endless = "failed the list repeats its page, so it would never end";
    assert_eq!(
        events(&mut watch, 6).await,
        ["start", "a", endless, "start", "c", "end"]
    );
}

#[tokio::test(start_paused = true)]
async fn odd_lines_of_a_watch_cost_nothing_but_themselves() {
    let odd = [
        ("BOOKMARK", json!({ "metadata": {} })),
        ("BOOKMARK", json!({})),
        (
            "ADDED",
            json!({ "metadata": { "name": 7, "resourceVersion": "11", "labels": [], "ownerReferences": {} } }),
        ),
        (
            "MODIFIED",
            json!({ "metadata": { "name": "b", "resourceVersion": "12" }, "spec": null, "status": [] }),
        ),
        ("", node("c", 13)),
        ("MODIFIED", node("d", 14)),
    ];
    let twice = "{\"type\":\"ADDED\",\"type\":\"MODIFIED\",\"object\":{\"metadata\":{\"name\":\"e\",\"resourceVersion\":\"15\"}}}\n";
    let server = Server::with([
        list(10, &[]),
        format!("{}{twice}", lines(&odd)),
        list(20, &[node("f", 20)]),
    ]);
    let mut watch = server.watch::<SlimNode>();
    let found = events(&mut watch, 5).await;
    assert_eq!(found[..2], ["start", "end"]);
    assert!(found.contains(&"d".to_owned()), "{found:?}");
}
