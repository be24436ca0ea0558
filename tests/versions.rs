//! The version of a Plan on a running controller: channels that fail or withdraw versions, guards, approvals, digests.

mod registry;
mod signatures;

use std::collections::BTreeSet;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Secret;
use refit_api::{ChannelStatus, Plan};
use serde_json::json;

use crate::channels::registry::{Registry, RegistryAuth, State, index_digest};
use crate::channels::{has_one_event, restarted};
use crate::testenv::channel::{Answer, ChannelServer};
use crate::testenv::context::TestContext;
use crate::testenv::context::cluster::create;
use crate::testenv::history::History;
use crate::testenv::plan::{plan, says, status};
use crate::testenv::wait::SOON;
use registry::registry_state;

fn version(plan: &Plan) -> String {
    status(plan).latest_version.unwrap_or_default()
}

fn channel(plan: &Plan) -> ChannelStatus {
    status(plan).channel.unwrap_or_default()
}

/// Waits until the Plan has started its first nodes. Returns the Plan and the first of them.
async fn begun(ctx: &TestContext, name: &str) -> (Plan, String) {
    let is_applying = |plan: &Plan| status(plan).applying.is_some();
    let plan = ctx.plan_until(name, "has begun", SOON, is_applying).await;
    let first = status(&plan).applying.unwrap().remove(0);
    (plan, first)
}

/// A server whose channel `/stable` gives v1.33.2+k3s1.
async fn stable() -> (ChannelServer, String) {
    let server = ChannelServer::start().await;
    server.redirects("/stable", "/v1.33.2+k3s1");
    let url = server.url("/stable");
    (server, url)
}

fn with_policy(url: &str, policy: &str) -> String {
    format!(
        "{{concurrency: 1, nodeSelector: {{}}, channel: {url:?}, versionPolicy: {policy}, upgrade: {{image: example.com/i}}}}"
    )
}

/// Triggers a poll of the channel, and waits for its result.
async fn poll_now(ctx: &TestContext, name: &str, value: &str) -> Plan {
    let patch = json!({ "metadata": { "annotations": { "refit.rs/poll-now": value } } });
    ctx.edit_plan(name, patch).await;
    ctx.plan_until(name, &format!("was asked for {value}"), SOON, |plan| {
        channel(plan).polled_for.as_deref() == Some(value)
    })
    .await
}

fn version_of(job: &Job) -> String {
    let labels = job.metadata.labels.clone().unwrap_or_default();
    labels["upgrade.cattle.io/version"].clone()
}

fn image_of(job: &Job) -> String {
    let pod = job
        .spec
        .as_ref()
        .and_then(|spec| spec.template.spec.as_ref())
        .unwrap();
    pod.containers[0].image.clone().unwrap()
}

/// Number of runs of each version.
async fn runs(ctx: &TestContext, name: &str) -> Vec<String> {
    let mut versions: Vec<_> = ctx.jobs_of(name).await.iter().map(version_of).collect();
    versions.sort();
    versions
}

#[tokio::test]
async fn a_channel_of_another_distribution_changes_no_plan() {
    let ctx = TestContext::new().await;
    let nodes = ctx.manual_kubelet(["a"]).await;
    let (server, url) = stable().await;
    let _controller = ctx.start_and_warm_up().await;
    ctx.plan(&plan("server", &with_policy(&url, "{allowDowngrade: true}")))
        .await;
    begun(&ctx, "server").await;
    nodes.succeed("server", &nodes.name("a")).await;
    ctx.plan_complete("server", SOON).await;
    for (value, other) in [("newer", "/v1.34.0+rke2r1"), ("older", "/v1.32.0+rke2r1")] {
        server.redirects("/stable", other);
        let plan = poll_now(&ctx, "server", value).await;
        let why = channel(&plan).last_error.unwrap_or_default();
        assert!(
            why.contains("is a version of rke2") && why.contains("is one of k3s"),
            "{why}"
        );
        assert_eq!(version(&plan), "v1.33.2-k3s1", "{value}");
        assert!(says(&plan, "Complete").starts_with("True/"), "{value}");
    }
    assert_eq!(runs(&ctx, "server").await, ["v1.33.2-k3s1"]);
}

#[tokio::test]
async fn a_channel_that_goes_back_to_an_older_version_downgrades_no_node() {
    let ctx = TestContext::new().await;
    let nodes = ctx.manual_kubelet(["a", "b", "c"]).await;
    let (server, url) = stable().await;
    let controller = ctx.start_and_warm_up().await;
    let history = History::of(&ctx, "server").await;
    ctx.plan(&plan("server", &with_policy(&url, "{}"))).await;
    let (_, first) = begun(&ctx, "server").await;

    // The channel goes back to an older version while a node is in progress.
    server.redirects("/stable", "/v1.26.9+k3s1");
    let back = poll_now(&ctx, "server", "back").await;
    assert_eq!(channel(&back).withdrawn.as_deref(), Some("v1.26.9-k3s1"));
    let behind = "spec.channel gives v1.26.9-k3s1, which is older than v1.33.2-k3s1";
    assert_eq!(channel(&back).last_error.as_deref(), Some(behind));
    nodes.succeed("server", &first).await;
    let held = ctx
        .plan_until("server", "holds the others", SOON, |plan| {
            says(plan, "Complete") == format!("False/ChannelWithdrawn/{behind}")
        })
        .await;
    assert_eq!(status(&held).progress.as_deref(), Some("1/3"));

    // Then its response is invalid.
    let html = "the answer is an HTML page, not a version";
    let word = "\"login\" is not a semantic version, and \"v1.33.2-k3s1\" is: the channel gives another kind of version than before";
    let down = "unexpected response: HTTP/1.1 500 Internal Server Error";
    let page = Answer::Plain(200, "text/html", "<html>hello</html>".to_owned());
    let answers = [
        ("html", page, html),
        ("login", Answer::Redirect(302, "/login".to_owned()), word),
        ("down", Answer::Plain(500, "text/plain", String::new()), down),
    ];
    for (value, answer, why) in answers {
        server.answers("/stable", answer);
        let plan = poll_now(&ctx, "server", value).await;
        assert_eq!(channel(&plan).last_error.as_deref(), Some(why), "{value}");
        assert_eq!(version(&plan), "v1.33.2-k3s1", "{value}");
        assert_eq!(status(&plan).applying, None, "{value}: no node starts");
        assert!(
            says(&plan, "Complete").starts_with("False/ChannelWithdrawn/"),
            "{value}"
        );
    }
    // A restarted controller does not trust it either.
    let _controller = restarted(&ctx, &controller).await;
    let plan = poll_now(&ctx, "server", "again").await;
    assert!(says(&plan, "Complete").starts_with("False/ChannelWithdrawn/"));
    assert_eq!(runs(&ctx, "server").await, ["v1.33.2-k3s1"]);

    // Then it recovers.
    server.redirects("/stable", "/v1.33.3+k3s1");
    let well = poll_now(&ctx, "server", "well").await;
    assert_eq!(
        (channel(&well).last_error, channel(&well).withdrawn),
        (None, None)
    );
    let mut left: BTreeSet<_> = ["a", "b", "c"].map(|node| nodes.name(node)).into();
    while !left.is_empty() {
        let plan = ctx
            .plan_until("server", "begins with the next node", SOON, |plan| {
                let applying = status(plan).applying.unwrap_or_default();
                applying.first().is_some_and(|node| left.contains(node))
            })
            .await;
        let node = status(&plan).applying.unwrap()[0].clone();
        nodes.succeed("server", &node).await;
        left.remove(&node);
    }
    let done = ctx.plan_complete("server", SOON).await;
    assert_eq!(version(&done), "v1.33.3-k3s1");
    let mut versions: Vec<_> = history.states().iter().map(version).collect();
    versions.dedup();
    versions.retain(|version| !version.is_empty());
    assert_eq!(
        versions,
        ["v1.33.2-k3s1", "v1.33.3-k3s1"],
        "it was never anywhere else"
    );
    let events = ctx.event_lines("server").await;
    for why in [behind, html, word, down] {
        let event =
            format!("Warning ResolveFailed: Failed to resolve latest version from Spec.Channel: {why}");
        has_one_event(&ctx, "server", &event).await;
    }
    let held = format!("Warning ChannelWithdrawn: {behind}");
    assert!(events.contains(&held), "{events:#?}");
    let resolved = "Normal Resolved: Resolved latest version from Spec.Channel: v1.33.3-k3s1".to_owned();
    assert!(events.contains(&resolved), "{events:#?}");
    let older = "Warning VersionHeld: v1.26.9+k3s1 is not taken: it is older than v1.33.2-k3s1; \
                 spec.versionPolicy.allowDowngrade lets it through; the Plan stays at v1.33.2-k3s1";
    assert!(events.iter().any(|event| event == older), "{events:#?}");
    assert_eq!(says(&done, "UpToDate"), "True/Latest/");
}

#[tokio::test]
async fn of_many_releases_the_newest_in_range_is_taken_and_runs_by_its_digest() {
    let ctx = TestContext::new().await;
    let nodes = ctx.manual_kubelet(["a", "b"]).await;
    let registry = Registry::start(State {
        auth: RegistryAuth::Token,
        ..registry_state()
    })
    .await;
    let _controller = ctx.start_and_warm_up().await;
    let secret = json!({
        "metadata": { "name": "puller" },
        "type": "kubernetes.io/dockerconfigjson",
        "stringData": { ".dockerconfigjson": registry.docker_config() },
    });
    create::<Secret>(&ctx.secrets(), secret).await;
    let image = format!("{}/team/k3s", registry.host());
    let spec = format!(
        "{{concurrency: 1, nodeSelector: {{}}, channel: {:?}, imagePullSecrets: [{{name: puller}}], upgrade: {{image: {image:?}}}, \
         versionPolicy: {{range: 1.33.x, pinDigest: true}}}}",
        registry.channel()
    );
    ctx.plan(&plan("pinned", &spec)).await;
    let (begun, first) = begun(&ctx, "pinned").await;
    assert_eq!(version(&begun), "v1.33.4-k3s1");
    let pinned = status(&begun).pinned.unwrap();
    assert_eq!(Some(&pinned.hash), status(&begun).latest_hash.as_ref());
    assert_eq!(pinned.images[0].image, format!("{image}:v1.33.4-k3s1"));
    assert_eq!(pinned.images[0].digest, index_digest());
    // The order of the nodes depends on their names.
    let other = ["a", "b"].map(|node| nodes.name(node));
    let other = other.into_iter().find(|name| *name != first).unwrap();
    nodes.succeed("pinned", &first).await;
    // From now on the registry refuses requests.
    registry.set(|state| state.auth = RegistryAuth::Header("x-nobody", "knows"));
    nodes.succeed("pinned", &other).await;
    let done = ctx.plan_complete("pinned", SOON).await;
    assert_eq!(says(&done, "UpToDate"), "True/Latest/");
    let jobs = ctx.jobs_of("pinned").await;
    let images: BTreeSet<_> = jobs.iter().map(image_of).collect();
    let by_digest = format!("{image}:v1.33.4-k3s1@{}", index_digest());
    assert_eq!((jobs.len(), images), (2, [by_digest].into()));
}
