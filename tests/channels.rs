//! Channels polled by a running controller: when, how often, for which Plans, and what status says about the response.

mod load;
#[allow(dead_code, reason = "tests/main.rs uses the rest")]
pub(crate) mod received;
#[allow(dead_code, reason = "tests/main.rs uses the rest")]
pub(crate) mod registry;
mod secrets;

use refit_api::Plan;
use serde_json::json;

use crate::testenv::channel::{Answer, ChannelServer};
use crate::testenv::context::TestContext;
use crate::testenv::controller::Controller;
use crate::testenv::pki::Authority;
use crate::testenv::plan::{plan, says, status};
use crate::testenv::wait::{self, SOON};

const NOT_READY: &str = "False/NotReady/plan is not valid and resolved";

/// A Plan for no node that follows a channel.
fn follower(name: &str, url: &str) -> String {
    plan(name, &format!("{{channel: {url:?}, upgrade: {{image: i}}}}"))
}

fn version(plan: &Plan) -> String {
    status(plan).latest_version.unwrap_or_default()
}

fn last_error(plan: &Plan) -> String {
    status(plan)
        .channel
        .and_then(|channel| channel.last_error)
        .unwrap_or_default()
}

/// Kills the controller and starts it again.
pub(crate) async fn restarted(ctx: &TestContext, controller: &Controller) -> Controller {
    controller.kill();
    let controller = controller.start_again();
    ctx.wait_until_working(&controller).await;
    controller
}

async fn at_version(ctx: &TestContext, name: &str, wanted: &str) -> Plan {
    ctx.plan_until(name, &format!("is at {wanted}"), SOON, |plan| {
        version(plan) == wanted
    })
    .await
}

#[tokio::test]
async fn a_plan_follows_a_channel_of_each_kind() {
    let ctx = TestContext::new().await;
    let server = ChannelServer::start().await;
    let host = server.url("").trim_start_matches("http://").to_owned();
    let json = |body: serde_json::Value| Answer::Plain(200, "application/json", body.to_string());
    server.redirects("/stable", "/v1.2.3");
    server.answers(
        "/channels",
        json(json!({ "data": [{ "id": "stable", "latest": "v1.2.4" }] })),
    );
    let release = json!([{ "tag_name": "v1.2.5", "draft": false, "prerelease": false }]);
    server.answers("/api/v3/repos/team/k3s/releases", json(release));
    server.answers(
        "/v2/team/k3s/tags/list",
        json(json!({ "name": "team/k3s", "tags": ["v1.2.6"] })),
    );
    let _controller = ctx.start_and_warm_up().await;
    // `tests/channels/*` and `src/channel/tests` have what else these servers may answer.
    for (name, url, expected) in [
        ("redirect", server.url("/stable"), "v1.2.3"),
        ("list", server.url("/channels#stable"), "v1.2.4"),
        ("github", format!("github://{host}/team/k3s"), "v1.2.5"),
        ("oci", format!("oci://{host}/team/k3s"), "v1.2.6"),
    ] {
        ctx.plan(&follower(name, &url)).await;
        let plan = at_version(&ctx, name, expected).await;
        assert_eq!(says(&plan, "LatestResolved"), "True/Channel/", "{name}");
        assert_eq!(last_error(&plan), "", "{name}");
    }
}

#[tokio::test]
async fn hanging_channels_delay_no_other_channel() {
    let ctx = TestContext::new().await;
    let channel = ChannelServer::start().await;
    // More hanging channels than concurrent requests to the API server.
    let hanging: Vec<_> = (1..=20).map(|number| format!("hang-{number}")).collect();
    for name in &hanging {
        channel.answers(&format!("/{name}"), Answer::Hang);
    }
    channel.redirects("/stable", "/v1");
    let _controller = ctx.start_and_warm_up().await;
    for name in &hanging {
        ctx.plan(&follower(name, &channel.url(&format!("/{name}")))).await;
    }
    wait::eventually("the channels are being asked", SOON, async || {
        let asked = |name: &&String| !channel.asked(&format!("/{name}")).is_empty();
        match hanging.iter().filter(asked).count() {
            all if all == hanging.len() => Ok(()),
            some => Err(format!("only {some}")),
        }
    })
    .await;
    ctx.plan(&follower("answered", &channel.url("/stable"))).await;
    ctx.plan(&plan("versioned", "{version: v1, upgrade: {image: i}}"))
        .await;
    at_version(&ctx, "answered", "v1").await;
    ctx.plan_complete("versioned", SOON).await;
    let hangs = ctx.plans().get("hang-1").await.unwrap();
    assert_eq!(says(&hangs, "LatestResolved"), "", "nothing is known of it yet");
    assert_eq!(
        (says(&hangs, "Validated"), says(&hangs, "Complete")),
        ("True/PlanIsValid/".to_owned(), NOT_READY.to_owned())
    );
}

#[tokio::test]
async fn a_channel_is_queried_through_the_proxy_of_the_environment() {
    let ctx = TestContext::new().await;
    // A proxy for plain HTTP receives requests for whole URLs.
    let proxy = ChannelServer::start().await;
    proxy.redirects("/stable", "/v1-by-proxy");
    let direct = ChannelServer::start().await;
    direct.redirects("/stable", "/v1-directly");
    let controller = ctx
        .controller()
        .env("HTTP_PROXY", &proxy.url(""))
        .env("NO_PROXY", "127.0.0.1,.internal")
        .start();
    ctx.wait_until_working(&controller).await;
    ctx.plan(&follower("by-proxy", "http://releases.example.com/stable"))
        .await;
    ctx.plan(&follower("directly", &direct.url("/stable"))).await;
    at_version(&ctx, "by-proxy", "v1-by-proxy").await;
    at_version(&ctx, "directly", "v1-directly").await;
    assert_eq!(proxy.asked("/stable").len(), 1);
    assert_eq!(proxy.asked("/stable")[0].headers["host"], "releases.example.com");
    assert_eq!(direct.asked("/stable").len(), 1);
}

#[tokio::test]
async fn a_channel_over_tls_is_trusted_with_its_certificate_authority() {
    let ctx = TestContext::new().await;
    let authority = Authority::new("a-company").unwrap();
    let ca = ctx.dir().join("company.pem");
    std::fs::write(&ca, authority.pem()).unwrap();
    let channel = ChannelServer::start_tls(&authority).await;
    channel.redirects("/stable", "/v1");
    let controller = ctx.start_and_warm_up().await;
    ctx.plan(&follower("private", &channel.url("/stable"))).await;
    let plan = ctx
        .plan_condition("private", "LatestResolved", "False", SOON)
        .await;
    let said = says(&plan, "LatestResolved");
    assert!(
        said.starts_with("False/Error/the request to the channel failed: ") && said.contains("certificate"),
        "{said}"
    );
    assert_eq!(channel.asked("/stable").len(), 0);

    controller.kill();
    let controller = ctx
        .controller()
        .arg("--ca-file")
        .arg(ca.to_str().unwrap())
        .start();
    ctx.wait_until_working(&controller).await;
    let plan = at_version(&ctx, "private", "v1").await;
    assert_eq!(last_error(&plan), "");
}
