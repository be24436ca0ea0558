//! Channels as a running controller asks them: when, how often, for whom, and what a Plan says of the answer.

mod github;
mod listed;
mod oci;
pub(crate) mod registry;
mod secrets;
pub(crate) mod seen;

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, Patch, PatchParams};
use refit::api::Plan;
use serde_json::json;

use crate::support::channel::{Answer, ChannelServer};
use crate::support::history::History;
use crate::support::pki::Authority;
use crate::support::plan::{plan, says, status};
use crate::support::wait::{self, SOON};
use crate::support::world::World;

const POLLING_INTERVAL: &str = "SYSTEM_UPGRADE_PLAN_POLLING_INTERVAL";
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

#[expect(clippy::disallowed_methods, reason = "put into status as the time of a poll")]
fn ago(span: SignedDuration) -> String {
    (Timestamp::now() - span).to_string()
}

/// Makes a Plan believe that its channel was asked then. Only a controller that starts afterwards reads it.
async fn polled(world: &World, name: &str, at: &str) {
    let patch = json!({ "status": { "channel": { "lastPolled": at } } });
    world
        .plans()
        .patch_status(name, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap_or_else(|error| panic!("cannot patch the status of Plan {name}: {error}"));
}

async fn at_version(world: &World, name: &str, wanted: &str) -> Plan {
    world
        .plan_until(name, &format!("is at {wanted}"), SOON, |plan| {
            version(plan) == wanted
        })
        .await
}

#[tokio::test]
async fn what_is_no_version_is_told_until_the_channel_recovers() {
    let world = World::new().await;
    let channel = ChannelServer::start().await;
    let plain = |code| Answer::Plain(code, "text/plain", String::new());
    let query = "the redirect's Location has a query: that is a login page or a search, not a version";
    let page = "the answer is an HTML page, not a version";
    let html = || "<!DOCTYPE html><html>Please log in</html>".to_owned();
    let back = "the redirect leads back to the channel, not to a version";
    let no_tag = r#""v1 beta" cannot be an image tag and a label value: it has other characters than letters, digits, '.', '_' and '-'"#;
    let long = "v1.".to_owned() + &"0".repeat(61);
    let too_long =
        format!("{long:?} cannot be an image tag and a label value: it has more than 63 characters");
    let too_long = too_long.replacen(&format!("{long:?}"), &format!("\"{}…\"", &long[..63]), 1);
    let cases = [
        (
            "not-found",
            plain(404),
            "unexpected response: HTTP/1.1 404 Not Found",
        ),
        (
            "unavailable",
            plain(503),
            "unexpected response: HTTP/1.1 503 Service Unavailable",
        ),
        (
            "unchanged",
            plain(304),
            "unexpected response: HTTP/1.1 304 Not Modified",
        ),
        ("no-location", plain(302), "the redirect (302) has no Location"),
        (
            "login",
            Answer::Redirect(302, "/login?next=%2Fstable".to_owned()),
            query,
        ),
        (
            "release-with-query",
            Answer::Redirect(302, "/v1.2.3?token=x".to_owned()),
            query,
        ),
        (
            "portal",
            Answer::Plain(200, "text/html; charset=utf-8", html()),
            page,
        ),
        ("page-in-disguise", Answer::Plain(200, "text/plain", html()), page),
        ("loop", Answer::Redirect(302, channel.url("/loop")), back),
        (
            "to-https",
            Answer::Redirect(301, "https://127.0.0.1/to-https".to_owned()),
            back,
        ),
        ("a-space", Answer::Redirect(302, "/v1%20beta".to_owned()), no_tag),
        ("too-long", Answer::Redirect(302, format!("/{long}")), &too_long),
        (
            "nowhere",
            Answer::Redirect(302, "/".to_owned()),
            "the answer does not end in a version",
        ),
        ("broken", Answer::Break, "the channel cannot be asked: "),
    ];
    for (name, answer, _) in &cases {
        channel.answers(&format!("/{name}"), answer.clone());
    }
    let _controller = world.at_work().await;
    for (name, ..) in &cases {
        world
            .plan(&follower(name, &channel.url(&format!("/{name}"))))
            .await;
    }
    for (name, _, why) in &cases {
        let plan = world.plan_condition(name, "LatestResolved", "False", SOON).await;
        let said = says(&plan, "LatestResolved");
        assert!(said.starts_with(&format!("False/Error/{why}")), "{name}: {said}");
        assert!(why.ends_with(": ") || said.ends_with(why), "{name}: {said}");
        let error = last_error(&plan);
        assert_eq!(said, format!("False/Error/{error}"), "{name}");
        assert_eq!(says(&plan, "Complete"), NOT_READY, "{name}");
        assert_eq!(says(&plan, "Validated"), "True/PlanIsValid/", "{name}");
        assert_eq!(
            (status(&plan).latest_version, status(&plan).latest_hash),
            (None, None),
            "{name}"
        );
        let expected = [
            "Normal Validated: Plan is valid".to_owned(),
            format!("Warning ResolveFailed: Failed to resolve latest version from Spec.Channel: {error}"),
        ];
        world.told_exactly(name, SOON, &expected).await;
    }
    for (name, ..) in &cases {
        channel.redirects(&format!("/{name}"), "https://example.com/v1.2.3+k3s1");
    }
    for (name, ..) in &cases {
        let plan = world.plan_complete(name, SOON).await;
        assert_eq!(version(&plan), "v1.2.3-k3s1", "{name}");
        assert_eq!(says(&plan, "LatestResolved"), "True/Channel/", "{name}");
        assert_eq!(last_error(&plan), "", "{name}");
    }
}

#[tokio::test]
async fn a_channel_that_cannot_be_asked_is_told_and_its_password_is_not() {
    let world = World::new().await;
    let controller = world.at_work().await;
    let cases = [
        (
            "no-url",
            "not a url",
            "the channel is not a URL such as https://update.k3s.io/v1-release/channels/stable",
        ),
        (
            "ftp",
            "ftp://user:hunter2@127.0.0.1/stable",
            "the channel's URL has the scheme \"ftp\"; only http, https, github and oci are asked",
        ),
        (
            "refused",
            "http://user:hunter2@127.0.0.1:1/stable",
            "the channel cannot be asked: ",
        ),
    ];
    for (name, url, _) in &cases {
        world.plan(&follower(name, url)).await;
    }
    for (name, _, why) in &cases {
        let plan = world.plan_condition(name, "LatestResolved", "False", SOON).await;
        let said = says(&plan, "LatestResolved");
        assert!(said.starts_with(&format!("False/Error/{why}")), "{name}: {said}");
        assert!(!said.contains("hunter2"), "{said}");
        assert!(
            world
                .told(name)
                .await
                .iter()
                .all(|told| !told.contains("hunter2"))
        );
    }
    assert!(!controller.log().contains("hunter2"), "{}", controller.log());
}

#[tokio::test]
async fn all_redirects_with_a_location_are_answers() {
    let world = World::new().await;
    let channel = ChannelServer::start().await;
    let _controller = world.at_work().await;
    for code in [301, 302, 303, 307, 308] {
        channel.answers(
            &format!("/{code}"),
            Answer::Redirect(code, "../releases/v1.2.3+k3s1/".to_owned()),
        );
        world
            .plan(&follower(
                &format!("code-{code}"),
                &channel.url(&format!("/{code}")),
            ))
            .await;
    }
    for code in [301, 302, 303, 307, 308] {
        at_version(&world, &format!("code-{code}"), "v1.2.3-k3s1").await;
    }
    // A plain answer means the last element of the channel's own URL (S46).
    channel.answers(
        "/local/v9",
        Answer::Plain(200, "text/plain", "whatever".to_owned()),
    );
    world
        .plan(&follower("plain", &channel.url("/local/v9?z=1")))
        .await;
    at_version(&world, "plain", "v9").await;
}

#[tokio::test]
async fn channels_that_hang_hold_up_nobody_else_and_end_with_their_time() {
    let world = World::new().await;
    let channel = ChannelServer::start().await;
    // More than requests to the API server may be under way.
    let hanging: Vec<_> = (1..=20).map(|number| format!("hang-{number}")).collect();
    for name in &hanging {
        channel.answers(&format!("/{name}"), Answer::Hang);
    }
    channel.redirects("/stable", "/v1");
    let _controller = world.at_work().await;
    let history = History::of(&world, "hang-1").await;
    for name in &hanging {
        world
            .plan(&follower(name, &channel.url(&format!("/{name}"))))
            .await;
    }
    wait::eventually("the channels are being asked", SOON, async || {
        let asked = |name: &&String| !channel.asked(&format!("/{name}")).is_empty();
        match hanging.iter().filter(asked).count() {
            all if all == hanging.len() => Ok(()),
            some => Err(format!("only {some}")),
        }
    })
    .await;
    world.plan(&follower("answered", &channel.url("/stable"))).await;
    world
        .plan(&plan("versioned", "{version: v1, upgrade: {image: i}}"))
        .await;
    at_version(&world, "answered", "v1").await;
    world.plan_complete("versioned", SOON).await;
    let hangs = world.plans().get("hang-1").await.unwrap();
    assert_eq!(says(&hangs, "LatestResolved"), "", "nothing is known of it yet");
    assert_eq!(
        (says(&hangs, "Validated"), says(&hangs, "Complete")),
        ("True/PlanIsValid/".to_owned(), NOT_READY.to_owned())
    );

    let plan = world
        .plan_condition("hang-1", "LatestResolved", "False", Duration::from_secs(60))
        .await;
    assert_eq!(says(&plan, "LatestResolved"), "False/Error/no answer within 30s");
    assert_eq!(history.said("Complete"), [NOT_READY]);
    assert_eq!(channel.asked("/hang-1").len(), 1);
}

#[tokio::test]
async fn one_poll_is_for_all_plans_of_a_channel_and_says_who_asks() {
    let world = World::new().await;
    let channel = ChannelServer::start().await;
    channel.redirects("/stable", "/v1.2.3+k3s1");
    let controller = world.at_work().await;
    let names: Vec<_> = (0..5).map(|number| format!("follower-{number}")).collect();
    for name in &names {
        world.plan(&follower(name, &channel.url("/stable"))).await;
    }
    for name in &names {
        at_version(&world, name, "v1.2.3-k3s1").await;
    }
    // Neither edits nor further Plans are a reason to ask again.
    world
        .edit_plan("follower-0", json!({ "spec": { "concurrency": 3 } }))
        .await;
    world.plan(&follower("late", &channel.url("/stable"))).await;
    at_version(&world, "late", "v1.2.3-k3s1").await;
    let asked = channel.asked("/stable");
    assert_eq!(asked.len(), 1);
    let kube_system = Api::<Namespace>::all(world.client.clone())
        .get("kube-system")
        .await
        .unwrap();
    let uid = kube_system.metadata.uid.unwrap();
    let header = |number: usize, name: &str| {
        channel.asked("/stable")[number]
            .headers
            .get(name)
            .map(|value| value.to_str().unwrap().to_owned())
    };
    assert_eq!(header(0, "x-suc-cluster-id"), Some(uid.clone()));
    assert_eq!(header(0, "x-suc-latest-version"), None, "there is none yet");
    assert_eq!(
        header(0, "user-agent").as_deref(),
        Some(concat!("refit/", env!("CARGO_PKG_VERSION")))
    );

    // A controller that starts knows from status when the channel was asked.
    controller.kill();
    let controller = controller.start_again();
    world.works(&controller).await;
    assert_eq!(channel.asked("/stable").len(), 1, "the interval is not over");

    // When it is over, one poll is enough, and its answer is everybody's.
    controller.kill();
    channel.redirects("/stable", "/v1.2.4+k3s1");
    for name in names.iter().map(String::as_str).chain(["late"]) {
        polled(&world, name, &ago(SignedDuration::from_hours(1))).await;
    }
    let controller = controller.start_again();
    for name in &names {
        let plan = at_version(&world, name, "v1.2.4-k3s1").await;
        assert_eq!(says(&plan, "LatestResolved"), "True/Channel/");
    }
    world.works(&controller).await;
    assert_eq!(channel.asked("/stable").len(), 2);
    assert_eq!(header(1, "x-suc-cluster-id"), Some(uid));
    assert_eq!(
        header(1, "x-suc-latest-version").as_deref(),
        Some("v1.2.3-k3s1"),
        "as it is in status"
    );
    let resolved = "Normal Resolved: Resolved latest version from Spec.Channel: v1.2.4-k3s1".to_owned();
    assert_eq!(
        world
            .told("follower-4")
            .await
            .iter()
            .filter(|told| **told == resolved)
            .count(),
        1
    );
}

#[tokio::test]
async fn a_channel_is_asked_again_when_its_interval_is_over_though_nothing_happens() {
    let world = World::new().await;
    let channel = ChannelServer::start().await;
    channel.redirects("/stable", "/v1");
    let controller = world.controller().env(POLLING_INTERVAL, "61s").start();
    world.works(&controller).await;
    world.plan(&follower("timed", &channel.url("/stable"))).await;
    at_version(&world, "timed", "v1").await;
    controller.kill();

    // A tenth of the interval, at most, is added so that not all clusters ask at once.
    polled(&world, "timed", &ago(SignedDuration::from_secs(59))).await;
    channel.redirects("/stable", "/v2");
    let controller = controller.start_again();
    world.works(&controller).await;
    assert_eq!(channel.asked("/stable").len(), 1, "it is not over yet");
    at_version(&world, "timed", "v2").await;
    assert_eq!(channel.asked("/stable").len(), 2);
    controller.kill();

    // Up to a minute counts as nothing said, and so does what is no duration: fifteen minutes it is (S3).
    for interval in ["1m", "60s", "often"] {
        polled(&world, "timed", &ago(SignedDuration::from_mins(14))).await;
        let controller = world.controller().env(POLLING_INTERVAL, interval).start();
        world.works(&controller).await;
        assert_eq!(channel.asked("/stable").len(), 2, "{interval}");
        controller.kill();
    }
}

#[tokio::test]
async fn a_plan_stays_where_it_is_while_its_channel_is_down() {
    let world = World::new().await;
    let nodes = world.puppets(["one"]).await;
    let node = nodes.name("one");
    let channel = ChannelServer::start().await;
    channel.redirects("/stable", "/v1.2.3");
    let controller = world.at_work().await;
    let spec = format!(
        "{{concurrency: 1, nodeSelector: {{}}, channel: {:?}, upgrade: {{image: i}}}}",
        channel.url("/stable")
    );
    world.plan(&plan("steady", &spec)).await;
    nodes.succeed("steady", &node).await;
    let before = world.plan_complete("steady", SOON).await;
    let overdue = async || {
        controller.kill();
        polled(&world, "steady", &ago(SignedDuration::from_hours(1))).await;
        let controller = controller.start_again();
        world.works(&controller).await;
        controller
    };
    channel.fails("/stable", 503);
    let controller = overdue().await;
    let why = "unexpected response: HTTP/1.1 503 Service Unavailable";
    let down = world
        .plan_until("steady", "says that its channel is down", SOON, |plan| {
            last_error(plan) == why
        })
        .await;
    assert_eq!(version(&down), "v1.2.3");
    assert_eq!(status(&down).latest_hash, status(&before).latest_hash);
    assert_eq!(says(&down, "LatestResolved"), "True/Channel/");
    assert_eq!(says(&down, "Complete"), "True/Complete/");
    let failed = format!("Warning ResolveFailed: Failed to resolve latest version from Spec.Channel: {why}");
    let told = world.told("steady").await;
    assert_eq!(
        told.iter().filter(|told| **told == failed).count(),
        1,
        "{told:#?}"
    );

    // A word in place of a version is none either, and nor is an older version a release (S46 aside).
    let history = History::of(&world, "steady").await;
    channel.redirects("/stable", "/maintenance");
    let word =
        r#""maintenance" is no semantic version, and "v1.2.3" is: the channel does not give what it gave"#;
    world
        .plan_until("steady", "refuses a word", SOON, |plan| last_error(plan) == word)
        .await;
    controller.kill();
    polled(&world, "steady", &ago(SignedDuration::from_hours(1))).await;
    channel.redirects("/stable", "/v1.2.2");
    let controller = controller.start_again();
    world.works(&controller).await;
    let withdrawn = |plan: &Plan| last_error(plan).contains("v1.2.2");
    world
        .plan_until(
            "steady",
            "is told that its version was withdrawn",
            SOON,
            withdrawn,
        )
        .await;
    assert!(history.states().iter().all(|plan| version(plan) == "v1.2.3"));
    assert_eq!(history.said("LatestResolved"), ["True/Channel/"]);
    assert_eq!(history.said("Complete"), ["True/Complete/"]);
    assert_eq!(world.jobs_of("steady").await.len(), 1);

    controller.kill();
    polled(&world, "steady", &ago(SignedDuration::from_hours(1))).await;
    channel.redirects("/stable", "/v1.2.4");
    let _controller = controller.start_again();
    let after = at_version(&world, "steady", "v1.2.4").await;
    assert_eq!(last_error(&after), "");
    nodes.succeed("steady", &node).await;
    world.plan_complete("steady", SOON).await;
}

#[tokio::test]
async fn a_channel_is_asked_through_the_proxy_of_the_environment() {
    let world = World::new().await;
    // A proxy for plain HTTP is a server that is asked for whole URLs.
    let proxy = ChannelServer::start().await;
    proxy.redirects("/stable", "/v1-by-proxy");
    let direct = ChannelServer::start().await;
    direct.redirects("/stable", "/v1-directly");
    let controller = world
        .controller()
        .env("HTTP_PROXY", &proxy.url(""))
        .env("NO_PROXY", "127.0.0.1,.internal")
        .start();
    world.works(&controller).await;
    world
        .plan(&follower("by-proxy", "http://releases.example.com/stable"))
        .await;
    world.plan(&follower("directly", &direct.url("/stable"))).await;
    at_version(&world, "by-proxy", "v1-by-proxy").await;
    at_version(&world, "directly", "v1-directly").await;
    assert_eq!(proxy.asked("/stable").len(), 1);
    assert_eq!(proxy.asked("/stable")[0].headers["host"], "releases.example.com");
    assert_eq!(direct.asked("/stable").len(), 1);
}

#[tokio::test]
async fn a_channel_over_tls_is_believed_by_who_was_given_its_authority() {
    let world = World::new().await;
    let authority = Authority::new("a-company").unwrap();
    let ca = world.dir().join("company.pem");
    std::fs::write(&ca, authority.pem()).unwrap();
    let channel = ChannelServer::start_tls(&authority).await;
    channel.redirects("/stable", "/v1");
    let controller = world.at_work().await;
    world.plan(&follower("private", &channel.url("/stable"))).await;
    let plan = world
        .plan_condition("private", "LatestResolved", "False", SOON)
        .await;
    let said = says(&plan, "LatestResolved");
    assert!(
        said.starts_with("False/Error/the channel cannot be asked: ") && said.contains("certificate"),
        "{said}"
    );
    assert_eq!(channel.asked("/stable").len(), 0);

    controller.kill();
    let controller = world
        .controller()
        .arg("--ca-file")
        .arg(ca.to_str().unwrap())
        .start();
    world.works(&controller).await;
    let plan = at_version(&world, "private", "v1").await;
    assert_eq!(last_error(&plan), "");
}
