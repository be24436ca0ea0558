//! Channels in a roll-out: when a channel is queried, how a Plan uses the response, and what survives a restart.

mod policy;

use jiff::{SignedDuration, Timestamp};

use super::scenario::{Scenario, Setup};
use crate::api::names::{ANNOTATION_APPROVE, ANNOTATION_POLL_NOW};
use crate::api::plan::SecretRef;
use crate::api::{ChannelStatus, Plan, PlanSpec, VersionPolicySpec};
use crate::rehearse::Kind;
use crate::rehearse::json::json;
use crate::rollout::PodStage;
use crate::rollout::tests::build::plan_with;
use crate::version::{Offer, Release};

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
    let mut story = Scenario::empty();
    story.add_nodes(&["a", "b"]);
    story.offer(URL, version);
    story.apply(following("p", URL));
    story.settle();
    story
}

fn version(story: &Scenario) -> &str {
    story.status("p").latest_version.as_deref().unwrap_or_default()
}

fn channel(story: &Scenario) -> ChannelStatus {
    story.status("p").channel.clone().unwrap_or_default()
}

fn break_channel(story: &Scenario, why: &str) {
    let offers = &mut story.channels.lock().unwrap().offers;
    offers.insert(URL.to_owned(), Err(why.to_owned()));
}

#[test]
fn a_channel_gives_the_version_and_tells_once() {
    let mut story = at("v1.30.1-k3s1");
    assert_eq!(
        story.condition("p", "LatestResolved"),
        ("True".to_owned(), "Channel".to_owned(), String::new())
    );
    assert_eq!(version(&story), "v1.30.1-k3s1");
    assert_eq!(
        (channel(&story).url.as_deref(), channel(&story).last_error),
        (Some(URL), None)
    );
    assert!(
        channel(&story)
            .last_polled
            .unwrap()
            .starts_with("2026-01-01T09:00:00")
    );
    assert_eq!(
        story.events_of("Resolved"),
        ["Resolved latest version from Spec.Channel: v1.30.1-k3s1"]
    );
    story.roll_out();
    story.assert_over();
}

#[test]
fn a_version_wins_over_a_channel_which_is_not_asked() {
    let story = Scenario::with(&["a"], plan_with("p", |spec| spec.channel = Some(URL.to_owned())));
    assert_eq!(story.condition("p", "LatestResolved").1, "Version");
    assert!(story.polls() == 0 && story.status("p").channel.is_none());
}

#[test]
fn a_channel_is_asked_once_for_all_its_plans_and_another_one_at_once() {
    let mut story = at("v1");
    story.apply(following("q", URL));
    story.settle();
    assert_eq!(
        (story.status("q").latest_version.as_deref(), story.polls()),
        (Some("v1"), 1)
    );
    story.offer(URL, "v2");
    story.pass_secs(A_POLL);
    assert_eq!(
        (version(&story), story.status("q").latest_version.as_deref()),
        ("v2", Some("v2"))
    );
    assert_eq!(story.polls(), 2);
    story.offer("https://example.com/next", "v3");
    story.edit("p", |spec| {
        spec.channel = Some("https://example.com/next".to_owned());
    });
    story.settle();
    assert_eq!(version(&story), "v3");
    story.edit("p", |spec| spec.version = Some("v0".to_owned()));
    story.settle();
    assert_eq!(version(&story), "v0", "a pinned version may go back");
}

#[test]
fn a_channel_is_asked_again_after_the_interval_and_some_jitter_under_any_leader() {
    let mut story = at("v1");
    story.pass_secs(5 * 60);
    story.restart();
    assert_eq!(story.polls(), 1, "another controller goes on with the schedule");
    story.pass_secs(75 * 60);
    let polls = story.channels.lock().unwrap().polls.clone();
    let mut pauses: Vec<_> = polls
        .windows(2)
        .map(|two| two[1].duration_since(two[0]))
        .collect();
    let interval = SignedDuration::from_mins(15);
    assert!(
        pauses
            .iter()
            .all(|pause| *pause >= interval && *pause < interval * 11 / 10 + SignedDuration::from_secs(1)),
        "{pauses:?}"
    );
    assert!((4..=5).contains(&pauses.len()), "{pauses:?}");
    let next: Timestamp = channel(&story).next_poll.unwrap().parse().unwrap();
    let last = *polls.last().unwrap();
    assert!(
        next > story.now() && next.duration_since(last) < interval * 11 / 10 + SignedDuration::from_secs(1)
    );
    pauses.dedup();
    assert!(pauses.len() >= 4, "no two alike: {pauses:?}");
}

#[test]
fn a_channel_that_fails_is_polled_less_often_and_reported_once() {
    let mut story = Scenario::empty();
    story.add_nodes(&["a"]);
    story.apply(following("p", URL));
    story.pass_secs(400);
    let polls = story.channels.lock().unwrap().polls.clone();
    let pauses: Vec<_> = polls
        .windows(2)
        .map(|two| two[1].duration_since(two[0]).as_secs())
        .collect();
    assert_eq!(pauses, [5, 10, 20, 40, 80, 120, 120]);
    let why = "unexpected response: HTTP/1.1 404 Not Found";
    assert_eq!(
        story.condition("p", "LatestResolved"),
        ("False".to_owned(), "Error".to_owned(), why.to_owned())
    );
    assert_eq!(channel(&story).last_error.as_deref(), Some(why));
    assert_eq!(story.complete("p").1, "NotReady");
    assert_eq!(
        story.events_of("ResolveFailed"),
        [format!(
            "Failed to resolve latest version from Spec.Channel: {why}"
        )]
    );
    story.offer(URL, "v1");
    story.pass_secs(125);
    assert_eq!(story.condition("p", "LatestResolved").0, "True");
    assert_eq!(channel(&story).last_error, None);
    assert_eq!(story.jobs_for("a").len(), 1);
}

#[test]
fn a_plan_continues_with_the_version_that_it_has_when_its_channel_fails_under_any_leader() {
    let mut story = at("v1");
    story.channels.lock().unwrap().offers.clear();
    story.pass_secs(20 * 60);
    assert_eq!(story.condition("p", "LatestResolved").0, "True");
    assert!(channel(&story).last_error.unwrap().contains("404"));
    story.restart();
    assert_eq!(
        story.complete("p").1,
        "SyncJob",
        "what was said stands until it has asked"
    );
    story.pass_secs(10);
    assert_eq!(story.condition("p", "LatestResolved").0, "True");
    assert_eq!(story.events_of("ResolveFailed").len(), 1);
    story.roll_out();
    story.assert_over();
}

#[test]
fn an_older_release_moves_no_plan_back_and_starts_no_node() {
    let mut story = at("v1.30.2-k3s1");
    let first = story.slots("p")[0].clone();
    story.comes_to(&first, PodStage::Upgrade);
    story.offer(URL, "v1.30.1-k3s1");
    story.pass_secs(A_POLL);
    assert_eq!(version(&story), "v1.30.2-k3s1");
    story.succeed(&first);
    assert!(story.is_done(&first, "p"), "what is under way is finished");
    let text = "spec.channel gives v1.30.1-k3s1, which is older than v1.30.2-k3s1";
    assert_eq!(
        story.complete("p"),
        ("False".to_owned(), "ChannelWithdrawn".to_owned(), text.to_owned())
    );
    assert_eq!(channel(&story).last_error.as_deref(), Some(text));
    // An HTML page does not end the channel's failure.
    break_channel(&story, "the answer is an HTML page, not a version");
    story.pass_secs(A_POLL);
    for _ in 0..2 {
        story.restart();
        story.pass_secs(10);
        assert!(story.slots("p").is_empty());
        assert_eq!(story.complete("p").1, "ChannelWithdrawn");
    }
    story.offer(URL, "v1.30.3-k3s1");
    story.pass_secs(A_POLL);
    assert_eq!(version(&story), "v1.30.3-k3s1");
    story.roll_out();
    story.assert_over();
}

#[test]
fn a_login_page_in_place_of_a_release_is_not_believed() {
    let mut story = at("v1.30.2");
    story.offer(URL, "login");
    story.pass_secs(A_POLL);
    assert_eq!(version(&story), "v1.30.2");
    let error = channel(&story).last_error.unwrap();
    assert!(error.contains("\"login\" is not a semantic version"), "{error}");
    assert_eq!(story.slots("p").len(), 1, "the roll-out goes on");
}
