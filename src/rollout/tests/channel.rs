//! Channels: when they are asked, and what a Plan makes of the answer (S16, S46–S48 and their deviations).

use jiff::{SignedDuration, Timestamp};

use super::build::plan_with;
use super::toy::Toy;
use crate::api::Plan;
use crate::rollout::Blocker;

const URL: &str = "https://example.com/stable";

fn following(name: &str, url: &str) -> Plan {
    plan_with(name, |spec| {
        spec.version = None;
        spec.channel = Some(url.to_owned());
    })
}

fn at(version: &str) -> Toy {
    let mut toy = Toy::new();
    toy.add_nodes(&["a", "b"]);
    toy.channels.insert(URL.to_owned(), Ok(version.to_owned()));
    toy.apply(following("p", URL));
    toy.settle();
    toy
}

fn version(toy: &Toy) -> &str {
    toy.status("p").latest_version.as_deref().unwrap_or_default()
}

#[test]
fn a_channel_gives_the_version() {
    let mut toy = at("v1.30.1-k3s1");
    assert_eq!(
        toy.says("p", "LatestResolved"),
        ("True".to_owned(), "Channel".to_owned(), String::new())
    );
    assert_eq!(version(&toy), "v1.30.1-k3s1");
    let channel = toy.status("p").channel.clone().unwrap();
    assert_eq!((channel.url.as_deref(), channel.last_error), (Some(URL), None));
    assert_eq!(channel.last_polled.as_deref(), Some("2026-01-01T09:00:00Z"));
    assert_eq!(
        toy.told_of("Resolved"),
        ["Resolved latest version from Spec.Channel: v1.30.1-k3s1"]
    );
    toy.rolls_out();
    assert!(toy.is_done("a", "p") && toy.is_done("b", "p"));
}

#[test]
fn a_version_wins_over_a_channel_which_is_not_asked() {
    let toy = Toy::with(&["a"], plan_with("p", |spec| spec.channel = Some(URL.to_owned())));
    assert_eq!(toy.says("p", "LatestResolved").1, "Version");
    assert!(toy.polls.is_empty() && toy.status("p").channel.is_none());
}

#[test]
fn a_channel_is_asked_once_for_all_its_plans() {
    let mut toy = at("v1");
    toy.apply(following("q", URL));
    toy.settle();
    let first = toy.status("q").latest_version.clone();
    assert_eq!(first.as_deref(), Some("v1"));
    assert_eq!(toy.polls.len(), 1);
    toy.channels.insert(URL.to_owned(), Ok("v2".to_owned()));
    toy.later(15 * 60 + 90);
    assert_eq!(toy.polls.len(), 2);
    assert_eq!(version(&toy), "v2");
    assert_eq!(toy.status("q").latest_version.as_deref(), Some("v2"));
}

#[test]
fn a_channel_is_asked_again_after_the_interval_and_some_jitter() {
    let mut toy = at("v1");
    toy.later(1); // what was mere progress is written
    let mut pauses = Vec::new();
    for _ in 0..5 {
        let (polls, from) = (toy.polls.len(), toy.polls[toy.polls.len() - 1].0);
        let due = toy.decision().wake.unwrap();
        toy.now = due.checked_sub(SignedDuration::from_millis(1)).unwrap();
        toy.settle();
        assert_eq!(toy.polls.len(), polls);
        toy.now = due;
        toy.settle();
        assert_eq!(toy.polls.len(), polls + 1);
        toy.later(1);
        pauses.push(due.duration_since(from));
    }
    let interval = SignedDuration::from_mins(15);
    assert!(
        pauses
            .iter()
            .all(|p| *p >= interval && *p < interval + interval / 10),
        "{pauses:?}"
    );
    pauses.dedup();
    assert_eq!(pauses.len(), 5, "no two alike: {pauses:?}");
}

#[test]
fn another_controller_goes_on_with_the_schedule() {
    let mut toy = at("v1");
    toy.later(1);
    let due = toy.decision().wake;
    toy.passes(SignedDuration::from_mins(5));
    toy.wakes_up();
    toy.settle();
    assert_eq!(toy.polls.len(), 1);
    assert_eq!(toy.decision().wake, due);
}

#[test]
fn a_channel_that_fails_is_asked_sooner_and_sooner_no_more() {
    let mut toy = Toy::new();
    toy.apply(following("p", URL));
    toy.settle();
    for pause in [5, 10, 20, 40, 80, 120, 120] {
        let due = toy.decision().wake.unwrap();
        assert_eq!(due.duration_since(toy.now), SignedDuration::from_secs(pause));
        toy.later(pause);
    }
    assert_eq!(toy.polls.len(), 8);
}

#[test]
fn what_a_channel_answers_instead_of_a_version_is_in_status_and_told_once() {
    let mut toy = Toy::new();
    toy.add_nodes(&["a"]);
    toy.apply(following("p", URL));
    toy.settle();
    let why = "unexpected response: HTTP/1.1 404 Not Found";
    assert_eq!(
        toy.says("p", "LatestResolved"),
        ("False".to_owned(), "Error".to_owned(), why.to_owned())
    );
    assert_eq!(
        toy.status("p").channel.as_ref().unwrap().last_error.as_deref(),
        Some(why)
    );
    assert_eq!(toy.complete("p").1, "NotReady");
    toy.later(5);
    toy.later(10);
    let text = format!("Failed to resolve latest version from Spec.Channel: {why}");
    assert_eq!(toy.told_of("ResolveFailed"), [text.clone(), text][..1]);
    toy.channels.insert(URL.to_owned(), Ok("v1".to_owned()));
    toy.later(20);
    assert_eq!(toy.says("p", "LatestResolved").0, "True");
    assert_eq!(toy.status("p").channel.as_ref().unwrap().last_error, None);
    assert_eq!(toy.jobs.len(), 1);
}

#[test]
fn a_plan_goes_on_with_the_version_that_it_has_when_its_channel_fails() {
    let mut toy = at("v1");
    toy.channels.clear();
    toy.later(20 * 60);
    assert_eq!(toy.says("p", "LatestResolved").0, "True");
    let channel = toy.status("p").channel.clone().unwrap();
    assert!(channel.last_error.unwrap().contains("404"));
    assert_eq!(toy.told_of("ResolveFailed").len(), 1);
    toy.rolls_out();
    assert!(toy.is_done("a", "p") && toy.is_done("b", "p"));
}

#[test]
fn after_an_error_another_controller_asks_before_it_believes() {
    let mut toy = at("v1");
    toy.channels.clear();
    toy.later(20 * 60);
    toy.wakes_up();
    toy.settle();
    assert_eq!(toy.complete("p").1, "SyncJob", "what was said stands until then");
    toy.later(5);
    assert_eq!(toy.says("p", "LatestResolved").0, "True");
    assert_eq!(toy.told_of("ResolveFailed").len(), 1);
}

#[test]
fn an_older_release_moves_nobody_back_and_starts_nobody() {
    let mut toy = at("v1.30.2-k3s1");
    let first = toy.slots("p")[0].clone();
    toy.succeeds(&first);
    let second = toy.slots("p")[0].clone();
    toy.comes_to(&second, crate::rollout::Stage::Starting);
    toy.add_nodes(&["c"]);
    toy.channels.insert(URL.to_owned(), Ok("v1.30.1-k3s1".to_owned()));
    toy.later(20 * 60);
    assert_eq!(version(&toy), "v1.30.2-k3s1");
    toy.succeeds(&second);
    assert!(toy.is_done(&second, "p"), "what is under way is finished");
    assert!(toy.slots("p").is_empty());
    let withdrawn = Blocker::ChannelWithdrawn {
        offered: "v1.30.1-k3s1".to_owned(),
        current: "v1.30.2-k3s1".to_owned(),
    };
    assert_eq!(toy.blocker("p", "c"), Some(withdrawn));
    let text = "spec.channel gives v1.30.1-k3s1, which is older than v1.30.2-k3s1";
    assert_eq!(toy.complete("p").2, text);
    assert_eq!(
        toy.status("p").channel.as_ref().unwrap().last_error.as_deref(),
        Some(text)
    );
    toy.wakes_up();
    toy.later(5);
    assert!(toy.slots("p").is_empty(), "nor does another controller");
    toy.channels.insert(URL.to_owned(), Ok("v1.30.3-k3s1".to_owned()));
    toy.later(20 * 60);
    assert_eq!(version(&toy), "v1.30.3-k3s1");
    assert_eq!(toy.slots("p").len(), 1);
}

#[test]
fn a_pinned_version_may_go_back() {
    let mut toy = at("v1.30.2");
    toy.edit("p", |spec| spec.version = Some("v1.29.0".to_owned()));
    toy.settle();
    assert_eq!(version(&toy), "v1.29.0");
}

#[test]
fn a_login_page_in_place_of_a_release_is_not_believed() {
    let mut toy = at("v1.30.2");
    toy.channels.insert(URL.to_owned(), Ok("login".to_owned()));
    toy.later(20 * 60);
    assert_eq!(version(&toy), "v1.30.2");
    let error = toy.status("p").channel.clone().unwrap().last_error.unwrap();
    assert!(error.contains("\"login\" is no semantic version"), "{error}");
    assert_eq!(toy.slots("p").len(), 1, "the roll-out goes on");
}

#[test]
fn an_answer_from_the_future_is_not_waited_for() {
    let mut toy = at("v1");
    toy.now = "2025-12-31T09:00:00Z".parse::<Timestamp>().unwrap();
    toy.settle();
    assert_eq!(toy.polls.len(), 2);
}

#[test]
fn another_channel_is_asked_at_once() {
    let mut toy = at("v1");
    toy.channels
        .insert("https://example.com/next".to_owned(), Ok("v2".to_owned()));
    toy.edit("p", |spec| {
        spec.channel = Some("https://example.com/next".to_owned());
    });
    toy.settle();
    assert_eq!(version(&toy), "v2");
    assert_eq!(toy.world.channels.len(), 1, "the other one is forgotten");
}
