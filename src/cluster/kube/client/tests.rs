//! The rules of the clients, over transports in memory, in paused time.

mod sockets;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use http_body_util::BodyExt as _;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchParams};
use tokio::sync::watch;
use tokio::time::sleep;

use super::*;
use crate::clock::Clock;
use crate::kube::{Failure, LeaderState, Renewal, brief, failure};

const NOT_FOUND: &str = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","message":"jobs.batch \"a\" not found","code":404}"#;

/// Requests that a transport in memory received: method, path and body.
type Sent = Arc<Mutex<Vec<String>>>;

/// A client over a transport that takes `delay` to connect, then reads the body, and answers with `status`.
fn handle(
    leadership: Option<Leadership>,
    delay: Duration,
    status: u16,
    body: &'static str,
) -> (Client, Sent, Arc<RequestCounts>) {
    let (sent, requests) = (Sent::default(), Arc::<RequestCounts>::default());
    let transport = {
        let sent = Arc::clone(&sent);
        tower::service_fn(move |request: Request<GuardedBody>| {
            let sent = Arc::clone(&sent);
            async move {
                sleep(delay).await;
                let (parts, sending) = request.into_parts();
                let bytes = sending.collect().await?.to_bytes();
                let text = String::from_utf8(bytes.to_vec()).unwrap();
                sent.lock()
                    .unwrap()
                    .push(format!("{} {} {text}", parts.method, parts.uri));
                let answer = Body::from(body.as_bytes().to_vec());
                Ok::<_, BoxError>(Response::builder().status(status).body(answer)?)
            }
        })
    };
    let client = over_transport(transport, leadership, Arc::clone(&requests));
    (client, sent, requests)
}

/// A leadership that lapses after 30 s in paused time, the renew deadline, because it is never renewed.
fn lapsing_in_paused_time() -> Leadership {
    let clock = Clock::following_tokio("2026-01-02T03:04:05Z".parse().unwrap());
    let renewal = Renewal {
        at: tokio::time::Instant::now(),
        running: clock.running(),
        deadline: Duration::from_secs(30),
    };
    let (state, leader) = watch::channel(LeaderState::Leading(renewal));
    let leadership = Leadership::elected(leader, clock);
    // Kept until the leadership is over.
    let held = leadership.clone();
    tokio::spawn(async move {
        held.lost().await;
        drop(state);
    });
    leadership
}

fn counted(requests: &RequestCounts) -> Vec<String> {
    let snapshot = requests.snapshot();
    snapshot
        .iter()
        .map(|((call, outcome), n)| format!("{} {} {outcome} {n}", call.verb, call.resource))
        .collect()
}

fn job(name: &str) -> Job {
    serde_json::from_value(serde_json::json!({"metadata": {"name": name}})).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_process_that_does_not_lead_reads_and_does_not_write() {
    let leadership = lapsing_in_paused_time();
    let (client, sent, requests) = handle(Some(leadership.clone()), Duration::ZERO, 404, NOT_FOUND);
    let jobs = Api::<Job>::namespaced(client, "a");
    assert!(jobs.create(&PostParams::default(), &job("a")).await.is_err());
    leadership.lost().await;
    sent.lock().unwrap().clear();

    let (params, patch, all) = (
        PatchParams::default(),
        Patch::Merge(serde_json::json!({})),
        ListParams::default(),
    );
    let errors = [
        jobs.create(&PostParams::default(), &job("a")).await.unwrap_err(),
        jobs.patch("a", &params, &patch).await.unwrap_err(),
        jobs.patch_status("a", &params, &patch).await.unwrap_err(),
        jobs.delete("a", &DeleteParams::background()).await.unwrap_err(),
        jobs.delete_collection(&DeleteParams::default(), &all)
            .await
            .unwrap_err(),
    ];
    for error in errors {
        assert_eq!(brief(&error), "this process does not lead, so it does not write");
        assert_eq!(failure(&error), Failure::NotSent);
    }
    assert!(jobs.get_opt("a").await.unwrap().is_none());
    assert_eq!(*sent.lock().unwrap(), ["GET /apis/batch/v1/namespaces/a/jobs/a "]);
    assert_eq!(
        counted(&requests),
        [
            "create jobs 404 1",
            "create jobs not_leader 1",
            "delete jobs not_leader 1",
            "deletecollection jobs not_leader 1",
            "get jobs 404 1",
            "patch jobs not_leader 1",
            "patch jobs/status not_leader 1",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_connection_outlasts_the_leadership_is_not_sent() {
    let leadership = lapsing_in_paused_time();
    let (client, sent, requests) = handle(Some(leadership.clone()), Duration::from_secs(8), 404, NOT_FOUND);
    sleep(Duration::from_secs(25)).await;
    assert!(leadership.is_leader());
    let error = Api::<Job>::namespaced(client, "a")
        .create(&PostParams::default(), &job("a"))
        .await
        .unwrap_err();
    assert_eq!(failure(&error), Failure::NotSent);
    assert!(sent.lock().unwrap().is_empty());
    assert_eq!(counted(&requests), ["create jobs not_leader 1"]);
}

#[tokio::test(start_paused = true)]
async fn the_unguarded_handle_writes_without_leading() {
    let (client, sent, _) = handle(None, Duration::ZERO, 404, NOT_FOUND);
    let _ = Api::<Job>::namespaced(client, "a")
        .delete("a", &DeleteParams::background())
        .await;
    assert_eq!(sent.lock().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_gets_no_answer_ends_after_ten_seconds() {
    let (client, _, requests) = handle(None, Duration::from_secs(3600), 404, NOT_FOUND);
    let jobs = Api::<Job>::namespaced(client, "a");
    let start = tokio::time::Instant::now();
    for error in [
        jobs.get("a").await.unwrap_err(),
        jobs.create(&PostParams::default(), &job("a")).await.unwrap_err(),
    ] {
        assert_eq!(brief(&error), "the API server did not answer within 10s");
        assert_eq!(failure(&error), Failure::Unknown);
    }
    assert!(jobs.watch(&WatchParams::default(), "0").await.is_err());
    assert_eq!(start.elapsed(), Duration::from_secs(30));
    let timeouts = [
        "create jobs timeout 1",
        "get jobs timeout 1",
        "watch jobs timeout 1",
    ];
    assert_eq!(counted(&requests), timeouts);
}

#[tokio::test(start_paused = true)]
async fn the_limit_is_for_the_whole_answer_and_not_for_a_watch() {
    // Headers at once, then a line every six seconds.
    let transport = tower::service_fn(|_: Request<GuardedBody>| async {
        let lines = futures::stream::unfold(0, |n| async move {
            sleep(Duration::from_secs(6)).await;
            let line = "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"1\"}}}\n";
            let frame = http_body::Frame::data(bytes::Bytes::from(line));
            (n < 5).then(|| (Ok::<_, BoxError>(frame), n + 1))
        });
        Ok::<_, BoxError>(Response::new(http_body_util::StreamBody::new(Box::pin(lines))))
    });
    let client = over_transport(transport, None, Arc::default());
    let jobs = Api::<Job>::namespaced(client, "a");
    let start = tokio::time::Instant::now();
    let error = jobs.list(&ListParams::default()).await.unwrap_err();
    assert_eq!(brief(&error), "the API server did not answer within 10s");
    assert_eq!(start.elapsed(), Duration::from_secs(10));

    let events = jobs.watch(&WatchParams::default(), "0").await.unwrap();
    assert_eq!(futures::StreamExt::count(events).await, 5);
}

#[tokio::test(start_paused = true)]
async fn a_read_that_is_refused_for_load_is_retried_and_a_write_is_not() {
    let busy =
        r#"{"kind":"Status","status":"Failure","reason":"TooManyRequests","message":"slow down","code":429}"#;
    let (client, sent, _) = handle(None, Duration::ZERO, 429, busy);
    let jobs = Api::<Job>::namespaced(client, "a");
    assert!(jobs.list(&ListParams::default()).await.is_err());
    assert_eq!(sent.lock().unwrap().len(), 7);
    sent.lock().unwrap().clear();
    assert!(jobs.watch(&WatchParams::default(), "0").await.is_err());
    let error = jobs.create(&PostParams::default(), &job("a")).await.unwrap_err();
    assert_eq!(
        (brief(&error).as_str(), failure(&error)),
        ("slow down", Failure::Refused)
    );
    assert_eq!(sent.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn the_response_of_a_failing_server_leaves_the_outcome_of_a_write_open() {
    for (status, expected) in [
        (400, Failure::Refused),
        (403, Failure::Refused),
        (408, Failure::Unknown),
        (409, Failure::Refused),
        (422, Failure::Refused),
        (500, Failure::Unknown),
        (503, Failure::Unknown),
        (504, Failure::Unknown),
    ] {
        let (client, ..) = handle(None, Duration::ZERO, status, "bad gateway");
        let result = Api::<Job>::namespaced(client, "a")
            .create(&PostParams::default(), &job("a"))
            .await;
        assert_eq!(failure(&result.unwrap_err()), expected, "{status}");
    }
}

// The tests below use real sockets, and so real time.

#[tokio::test]
async fn a_secret_that_cannot_be_read_does_not_show_in_the_error() {
    let secret = r#"{"metadata":{"name":"x"},"data":{"password":3}}"#;
    let (client, ..) = handle(None, Duration::ZERO, 200, secret);
    let error = Api::<Secret>::namespaced(client, "a").get("x").await.unwrap_err();
    assert!(!brief(&error).contains("password"), "{}", brief(&error));
}

#[tokio::test(start_paused = true)]
async fn a_retry_after_of_an_hour_is_waited_for_half_a_minute() {
    for after in ["3600", "18446744073709551615", "soon"] {
        let calls = Arc::new(AtomicU32::new(0));
        let transport = {
            let calls = Arc::clone(&calls);
            tower::service_fn(move |_: Request<GuardedBody>| {
                let first = calls.fetch_add(1, Ordering::Relaxed) == 0;
                let answer = if first {
                    Response::builder()
                        .status(429)
                        .header("Retry-After", after)
                        .body(Body::empty())
                } else {
                    let list = r#"{"kind":"JobList","apiVersion":"batch/v1","metadata":{},"items":[]}"#;
                    Response::builder()
                        .status(200)
                        .body(Body::from(list.as_bytes().to_vec()))
                };
                async move { Ok::<_, BoxError>(answer?) }
            })
        };
        let client = over_transport(transport, None, Arc::default());
        let start = tokio::time::Instant::now();
        let jobs = Api::<Job>::namespaced(client, "a")
            .list(&ListParams::default())
            .await;
        assert!(jobs.is_ok(), "{after}: {jobs:?}");
        let took = start.elapsed();
        assert!(
            took <= Duration::from_secs(MAX_RETRY_AFTER + 1),
            "{after}: {took:?}"
        );
    }
}
