//! `spec.checks` on a running controller and a real API server. The server of the checks is a stub that answers as the HTTP
//! API of Prometheus does; no Prometheus runs.

use k8s_openapi::api::core::v1::Secret;
use refit_api::Plan;
use serde_json::{Value, json};

use crate::channels::restarted;
use crate::testenv::channel::{Answer, ChannelServer};
use crate::testenv::context::TestContext;
use crate::testenv::context::cluster::create;
use crate::testenv::plan::{says, status};
use crate::testenv::wait::{self, SOON};

const QUERY: &str = "/prometheus/api/v1/query";
const TOKEN: &str = "s3cret";

/// A response of Prometheus with one sample.
fn sample(value: &str) -> Answer {
    let result = json!([{ "metric": {}, "value": [1_700_000_000.5, value] }]);
    let body = json!({ "status": "success", "data": { "resultType": "vector", "result": result } });
    Answer::Plain(200, "application/json", body.to_string())
}

fn plan(name: &str, checks: &Value) -> Value {
    json!({
        "apiVersion": "upgrade.cattle.io/v1", "kind": "Plan", "metadata": { "name": name },
        "spec": {
            "concurrency": 1, "version": "v1", "nodeSelector": {}, "upgrade": { "image": "x" }, "checks": checks,
        },
    })
}

fn errors(server: &ChannelServer) -> Value {
    json!({
        "name": "errors", "interval": "5s", "secretRef": { "name": "prometheus" },
        "prometheus": { "url": server.url("/prometheus"), "query": "sum(errors) or vector(0)", "max": 5 },
    })
}

async fn held_by(ctx: &TestContext, name: &str, message: &str) -> Plan {
    ctx.plan_until(name, &format!("is held: {message}"), SOON, |plan| {
        let said = says(plan, "Complete");
        said.starts_with("False/CheckFailing/") && said.ends_with(message)
    })
    .await
}

#[tokio::test]
async fn no_node_starts_before_a_query_of_prometheus_passes_whatever_happens_to_the_controller() {
    let ctx = TestContext::new().await;
    let server = ChannelServer::start().await;
    let nodes = ctx.manual_kubelet(["one", "two"]).await;
    server.answers(QUERY, sample("7"));
    let controller = ctx.start_and_warm_up().await;
    ctx.try_apply(plan("p", &json!([errors(&server)]))).await.unwrap();
    held_by(&ctx, "p", ": secretRef: secrets \"prometheus\" not found").await;
    assert!(server.asked(QUERY).is_empty());
    let secret = json!({ "metadata": { "name": "prometheus" }, "stringData": { "token": TOKEN } });
    create::<Secret>(&ctx.secrets(), secret).await;
    held_by(&ctx, "p", ": 7 is more than max, 5").await;
    let asked = server.asked(QUERY);
    assert_eq!(
        asked[0].headers.get("authorization").unwrap(),
        &format!("Bearer {TOKEN}")
    );
    for (answer, message) in [
        (
            Answer::Plain(503, "text/plain", String::new()),
            ": HTTP/1.1 503 Service Unavailable",
        ),
        (
            Answer::Plain(200, "text/html", "<html>log in</html>".to_owned()),
            ": the answer is not one of the HTTP API of Prometheus",
        ),
    ] {
        server.answers(QUERY, answer);
        held_by(&ctx, "p", message).await;
    }
    let controller = restarted(&ctx, &controller).await;
    let before = server.asked(QUERY).len();
    wait::eventually("the next controller has asked", SOON, async || {
        match server.asked(QUERY).len() {
            count if count > before + 1 => Ok(()),
            count => Err(format!("{count} questions")),
        }
    })
    .await;
    let plan = ctx.plans().get("p").await.unwrap();
    assert_eq!(status(&plan).applying, None);
    assert!(ctx.requests().await.jobs_created().is_empty());

    server.answers(QUERY, sample("3"));
    let started = ctx
        .plan_until("p", "has begun", SOON, |plan| status(plan).applying.is_some())
        .await;
    let node = status(&started).applying.unwrap().remove(0);
    // The answer must be good again for the second node.
    server.answers(QUERY, sample("6"));
    nodes.succeed("p", &node).await;
    held_by(&ctx, "p", ": 6 is more than max, 5").await;
    let checks = status(&ctx.plans().get("p").await.unwrap()).checks.unwrap();
    assert_eq!(checks[0].message.as_deref(), Some("6 is more than max, 5"));
    assert_eq!(ctx.requests().await.jobs_created().len(), 1);
    controller.kill();
    server.answers(QUERY, sample("0"));
    let _controller = controller.start_again();
    let started = ctx
        .plan_until("p", "goes on", SOON, |plan| {
            status(plan)
                .applying
                .is_some_and(|applying| applying != [node.clone()])
        })
        .await;
    let node = status(&started).applying.unwrap().remove(0);
    nodes.succeed("p", &node).await;
    ctx.plan_complete("p", SOON).await;
    assert_eq!(ctx.requests().await.jobs_created().len(), 2);
}

#[tokio::test]
async fn checks_that_hang_hold_up_no_other_plan() {
    let ctx = TestContext::new().await;
    let server = ChannelServer::start().await;
    let nodes = ctx.manual_kubelet(["one"]).await;
    let node = nodes.name("one");
    let _controller = ctx.start_and_warm_up().await;
    let hanging = |number: usize| {
        let path = format!("/hang-{number}");
        server.answers(&path, Answer::Hang);
        json!({ "name": format!("hang-{number}"), "timeout": "5s", "http": { "url": server.url(&path) } })
    };
    // As many as are asked at a time.
    let checks: Vec<Value> = (0..16).map(hanging).collect();
    for name in ["a", "b"] {
        ctx.try_apply(plan(name, &json!(checks))).await.unwrap();
    }
    server.answers("/healthz", Answer::Plain(200, "text/plain", "ok".to_owned()));
    let healthy = json!([{ "name": "shop", "http": { "url": server.url("/healthz"), "contains": "ok" } }]);
    ctx.try_apply(plan("c", &healthy)).await.unwrap();
    ctx.plan_until("c", "has begun", SOON, |plan| status(plan).applying.is_some())
        .await;
    nodes.succeed("c", &node).await;
    ctx.plan_complete("c", SOON).await;
    let held = held_by(&ctx, "a", ": no answer within 5s").await;
    assert_eq!(status(&held).applying, None);
}
