//! Channels in a roll-out: when a channel is queried, how a Plan uses the response, and what survives a restart.

mod policy;

use jiff::{SignedDuration, Timestamp};

use super::scenario::{Scenario, Setup};
use refit_api::SecretRef;
use refit_api::names::{ANNOTATION_APPROVE, ANNOTATION_POLL_NOW};
use refit_api::{ChannelStatus, Plan, PlanSpec, VersionPolicySpec};
use refit_facts::PodStage;
use refit_fixtures::plan_with;
use refit_rehearse::Kind;
use refit_rehearse::json::json;

const URL: &str = "https://example.com/stable";
/// Slightly more than the poll interval with its jitter.
const A_POLL: u64 = 17 * 60;

fn following(name: &str, url: &str) -> Plan {
    plan_with(name, |spec| {
        spec.version = None;
        spec.channel = Some(url.to_owned());
    })
}

fn at(version: &str) -> Scenario {
    let mut scenario = Scenario::of_nodes(&["a", "b"]);
    scenario.offer(URL, version);
    scenario.apply_and_settle(following("p", URL));
    scenario
}

fn version(scenario: &Scenario) -> &str {
    scenario.status("p").latest_version.as_deref().unwrap_or_default()
}

fn channel(scenario: &Scenario) -> ChannelStatus {
    scenario.status("p").channel.clone().unwrap_or_default()
}

#[test]
fn a_channel_gives_the_version_and_tells_once() {
    let mut scenario = at("v1.30.1-k3s1");
    assert_eq!(scenario.condition("p", "LatestResolved"), ["True", "Channel", ""]);
    assert_eq!(version(&scenario), "v1.30.1-k3s1");
    assert_eq!(
        (channel(&scenario).url.as_deref(), channel(&scenario).last_error),
        (Some(URL), None)
    );
    assert!(
        channel(&scenario)
            .last_polled
            .unwrap()
            .starts_with("2026-01-01T09:00:00")
    );
    assert_eq!(
        scenario.events_of("Resolved"),
        ["Resolved latest version from Spec.Channel: v1.30.1-k3s1"]
    );
    scenario.finish();
}

#[test]
fn a_version_wins_over_a_channel_which_is_not_asked() {
    let scenario = Scenario::with(&["a"], plan_with("p", |spec| spec.channel = Some(URL.to_owned())));
    assert_eq!(scenario.condition("p", "LatestResolved")[1], "Version");
    assert!(scenario.polls() == 0 && scenario.status("p").channel.is_none());
}

#[test]
fn a_channel_is_asked_once_for_all_its_plans_and_another_one_at_once() {
    let mut scenario = at("v1");
    scenario.apply_and_settle(following("q", URL));
    assert_eq!(
        (scenario.status("q").latest_version.as_deref(), scenario.polls()),
        (Some("v1"), 1)
    );
    scenario.offer(URL, "v2");
    scenario.pass_secs(A_POLL);
    assert_eq!(
        (version(&scenario), scenario.status("q").latest_version.as_deref()),
        ("v2", Some("v2"))
    );
    assert_eq!(scenario.polls(), 2);
    scenario.offer("https://example.com/next", "v3");
    scenario.edit_and_settle("p", |spec| {
        spec.channel = Some("https://example.com/next".to_owned());
    });
    assert_eq!(version(&scenario), "v3");
    scenario.edit_and_settle("p", |spec| spec.version = Some("v0".to_owned()));
    assert_eq!(version(&scenario), "v0", "a pinned version may go back");
}

#[test]
fn a_channel_is_asked_again_after_the_interval_and_some_jitter_under_any_leader() {
    // Intervals up to a minute and invalid ones mean the default (S3).
    for (setting, seconds) in [
        (None, 900),
        (Some("61s"), 61),
        (Some("1m"), 900),
        (Some("often"), 900),
    ] {
        let mut scenario = Scenario::new(&Setup {
            polling_interval: setting,
            ..Setup::default()
        });
        scenario.add_nodes(&["a", "b"]);
        scenario.offer(URL, "v1");
        scenario.apply_and_settle(following("p", URL));
        scenario.pass_secs(seconds / 3);
        scenario.restart();
        assert_eq!(
            scenario.polls(),
            1,
            "{setting:?}: another controller goes on with the schedule"
        );
        scenario.pass_secs(5 * seconds);
        let polls = scenario.channels.lock().unwrap().polls.clone();
        let mut pauses: Vec<_> = polls
            .windows(2)
            .map(|two| two[1].duration_since(two[0]))
            .collect();
        let interval = SignedDuration::from_secs(seconds.cast_signed());
        let longest = interval * 11 / 10 + SignedDuration::from_secs(1);
        assert!(
            pauses.iter().all(|pause| (interval..longest).contains(pause)),
            "{setting:?}: {pauses:?}"
        );
        assert!((4..=5).contains(&pauses.len()), "{setting:?}: {pauses:?}");
        let next: Timestamp = channel(&scenario).next_poll.unwrap().parse().unwrap();
        let last = *polls.last().unwrap();
        assert!(
            next > scenario.now() && next.duration_since(last) < longest,
            "{setting:?}"
        );
        pauses.dedup();
        assert!(pauses.len() >= 4, "{setting:?}: no two alike: {pauses:?}");
    }
}

#[test]
fn a_channel_that_fails_is_polled_less_often_and_reported_once() {
    let mut scenario = Scenario::of_nodes(&["a"]);
    scenario.apply(following("p", URL));
    scenario.pass_secs(400);
    let polls = scenario.channels.lock().unwrap().polls.clone();
    let pauses: Vec<_> = polls
        .windows(2)
        .map(|two| two[1].duration_since(two[0]).as_secs())
        .collect();
    assert_eq!(pauses, [5, 10, 20, 40, 80, 120, 120]);
    let why = "unexpected response: HTTP/1.1 404 Not Found";
    assert_eq!(scenario.condition("p", "LatestResolved"), ["False", "Error", why]);
    assert_eq!(channel(&scenario).last_error.as_deref(), Some(why));
    assert_eq!(scenario.complete("p")[1], "NotReady");
    assert_eq!(
        scenario.events_of("ResolveFailed"),
        [format!(
            "Failed to resolve latest version from Spec.Channel: {why}"
        )]
    );
    scenario.offer(URL, "v1");
    scenario.pass_secs(125);
    assert_eq!(scenario.condition("p", "LatestResolved")[0], "True");
    assert_eq!(channel(&scenario).last_error, None);
    assert_eq!(scenario.jobs_for("a").len(), 1);
}

#[test]
fn a_plan_continues_with_the_version_that_it_has_when_its_channel_fails_under_any_leader() {
    let mut scenario = at("v1");
    scenario.channels.lock().unwrap().offers.clear();
    scenario.pass_secs(20 * 60);
    assert_eq!(scenario.condition("p", "LatestResolved")[0], "True");
    assert!(channel(&scenario).last_error.unwrap().contains("404"));
    scenario.restart();
    assert_eq!(
        scenario.complete("p")[1],
        "SyncJob",
        "what was said stands until it has asked"
    );
    scenario.pass_secs(10);
    assert_eq!(scenario.condition("p", "LatestResolved")[0], "True");
    assert_eq!(scenario.events_of("ResolveFailed").len(), 1);
    scenario.finish();
}

#[test]
fn an_older_release_moves_no_plan_back_and_starts_no_node() {
    let mut scenario = at("v1.30.2-k3s1");
    let first = scenario.slots("p")[0].clone();
    scenario.comes_to(&first, PodStage::Upgrade);
    scenario.offer(URL, "v1.30.1-k3s1");
    scenario.pass_secs(A_POLL);
    assert_eq!(version(&scenario), "v1.30.2-k3s1");
    scenario.succeed(&first);
    assert!(scenario.is_done(&first, "p"), "what is under way is finished");
    let text = "spec.channel gives v1.30.1-k3s1, which is older than v1.30.2-k3s1";
    assert_eq!(scenario.complete("p"), ["False", "ChannelWithdrawn", text]);
    assert_eq!(channel(&scenario).last_error.as_deref(), Some(text));
    // An HTML page does not end the channel's failure.
    scenario.break_channel(URL, "the answer is an HTML page, not a version");
    scenario.pass_secs(A_POLL);
    for _ in 0..2 {
        scenario.restart();
        scenario.pass_secs(10);
        assert!(scenario.slots("p").is_empty());
        assert_eq!(scenario.complete("p")[1], "ChannelWithdrawn");
    }
    scenario.offer(URL, "v1.30.3-k3s1");
    scenario.pass_secs(A_POLL);
    assert_eq!(version(&scenario), "v1.30.3-k3s1");
    scenario.finish();
}

#[test]
fn a_login_page_in_place_of_a_release_is_not_believed() {
    let mut scenario = at("v1.30.2");
    scenario.offer(URL, "login");
    scenario.pass_secs(A_POLL);
    assert_eq!(version(&scenario), "v1.30.2");
    let error = channel(&scenario).last_error.unwrap();
    assert!(error.contains("\"login\" is not a semantic version"), "{error}");
    assert_eq!(scenario.slots("p").len(), 1, "the roll-out goes on");
}
