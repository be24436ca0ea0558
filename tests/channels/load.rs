//! A running controller and channels that answer with more than anyone needs, or whose URLs hold a credential.

use refit_api::Plan;
use serde_json::json;

use super::{at_version, last_error};
use crate::testenv::channel::{Answer, ChannelServer};
use crate::testenv::context::TestContext;
use crate::testenv::plan::{plan, status};
use crate::testenv::wait::SOON;

/// Limit of the memory that the controller takes beside its program, which is unoptimised here. The Pod's limit is 256 MiB.
const MEMORY: u64 = 64 << 20;

/// A list of so many items in JSON.
fn list(before: &str, item: impl Fn(usize) -> String, count: usize, after: &str) -> String {
    let items: Vec<_> = (0..count).map(item).collect();
    format!("{before}{}{after}", items.join(","))
}

fn json_page(body: String) -> Answer {
    Answer::Plain(200, "application/json", body)
}

#[tokio::test]
async fn a_million_tags_and_nine_hundred_thousand_releases_are_refused_within_the_memory_of_a_small_controller()
 {
    let ctx = TestContext::new().await;
    let server = ChannelServer::start().await;
    let host = server.url("").trim_start_matches("http://").to_owned();
    let tags = |name: &str| format!("/v2/team/{name}/tags/list");
    server.redirects("/stable", "/v1.2.3");
    let million = list(
        "{\"tags\":[",
        |number| format!("\"{number:05x}\""),
        1_000_000,
        "]}",
    );
    server.answers(&tags("million"), json_page(million));
    let odd = list("{\"tags\":[", |_| "\"_\"".to_owned(), 1_000_000, "]}");
    server.answers(&tags("odd"), json_page(odd));
    let nested = format!("{{\"tags\":{}", "[".repeat(8_000_000));
    server.answers(&tags("nested"), json_page(nested));
    let long = format!("{{\"tags\":[\"{}\"]}}", "a".repeat(8_000_000));
    server.answers(&tags("long"), json_page(long));
    let releases = list("[", |_| "{\"tag_name\":\"1\"}".to_owned(), 900_000, "]");
    server.answers("/api/v3/repos/team/releases/releases", json_page(releases));
    let channels = list("{\"data\":[", |_| "{\"id\":\"a\"}".to_owned(), 90_000, "]}");
    server.answers("/channels", json_page(channels));
    let cases = [
        (
            "million",
            format!("oci://{host}/team/million"),
            "the repository has more than 20000 tags",
        ),
        (
            "odd",
            format!("oci://{host}/team/odd"),
            "the repository has no tag that could be a version",
        ),
        (
            "nested",
            format!("oci://{host}/team/nested"),
            "the answer is not a list of tags",
        ),
        (
            "long",
            format!("oci://{host}/team/long"),
            "the answer is not a list of tags",
        ),
        (
            "releases",
            format!("github://{host}/team/releases"),
            "a page of the answer has more than 1000 releases",
        ),
        (
            "channels",
            server.url("/channels#stable"),
            "the list has more than 2000 channels",
        ),
    ];

    let controller = ctx.start_and_warm_up().await;
    for (name, url, _) in &cases {
        ctx.plan(&plan(
            name,
            &format!("{{channel: {url:?}, upgrade: {{image: i}}}}"),
        ))
        .await;
    }
    let healthy = plan(
        "healthy",
        &format!("{{channel: {:?}, upgrade: {{image: i}}}}", server.url("/stable")),
    );
    ctx.plan(&healthy).await;
    at_version(&ctx, "healthy", "v1.2.3").await;
    for (name, _, why) in &cases {
        let is_reported = |plan: &Plan| last_error(plan) == *why;
        ctx.plan_until(name, why, SOON, is_reported).await;
    }
    let data = controller.peak_data();
    eprintln!("peak memory: {} MiB beside the program", data >> 20);
    assert!(data <= MEMORY, "{} MiB", data >> 20);
}

#[tokio::test]
async fn a_credential_in_the_url_is_in_no_log_no_status_and_no_event() {
    let ctx = TestContext::new().await;
    let server = ChannelServer::start().await;
    server.redirects("/stable", "/v1.2.3");
    server.fails("/gone", 404);
    let setup = ctx.controller().env("SYSTEM_UPGRADE_CONTROLLER_DEBUG", "true");
    let controller = setup.start();
    for (name, path) in [("good", "/stable"), ("bad", "/gone")] {
        let url = server.url(&format!("{path}?access_token=s3cret-1"));
        let url = url.replace("http://", "http://user:s3cret-2@");
        ctx.plan(&plan(
            name,
            &format!("{{channel: {url:?}, upgrade: {{image: i}}}}"),
        ))
        .await;
    }
    let plan = at_version(&ctx, "good", "v1.2.3").await;
    let url = status(&plan).channel.unwrap().url.unwrap();
    assert!(
        url.contains("REDACTED@") && url.ends_with("/stable?access_token=REDACTED"),
        "{url}"
    );
    let bad = ctx
        .plan_until("bad", "fails", SOON, |plan| !last_error(plan).is_empty())
        .await;
    controller.logs("cannot resolve a channel", SOON).await;
    let statuses = json!([status(&plan), status(&bad)]).to_string();
    for text in [statuses, controller.log()] {
        assert!(!text.contains("s3cret"), "{text}");
    }
}
