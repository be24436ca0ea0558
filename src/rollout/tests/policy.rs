//! `spec.versionPolicy` in a roll-out: what is taken when, what waits, and that nobody forgets it.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use super::build::plan_with;
use super::toy::Toy;
use crate::api::names::{ANNOTATION_APPROVE, ANNOTATION_POLL_NOW};
use crate::api::plan::SecretRef;
use crate::api::{ChannelStatus, Plan, PlanSpec, VersionPolicySpec};
use crate::channel::{Offer, Release};
use crate::rollout::{Blocker, Step};

const URL: &str = "https://example.com/stable";
/// A little more than the interval of polls and its jitter.
const A_POLL: i64 = 17 * 60;

fn guarded(change: impl FnOnce(&mut VersionPolicySpec)) -> Plan {
    let mut policy = VersionPolicySpec::default();
    change(&mut policy);
    plan_with("p", |spec| {
        spec.version = None;
        spec.channel = Some(URL.to_owned());
        spec.version_policy = Some(policy);
    })
}

fn says(toy: &mut Toy, version: &str) {
    toy.channels.insert(URL.to_owned(), Ok(version.to_owned()));
}

/// A roll-out on two nodes that is through.
fn done_at(version: &str, change: impl FnOnce(&mut VersionPolicySpec)) -> Toy {
    let mut toy = Toy::new();
    toy.add_nodes(&["a", "b"]);
    says(&mut toy, version);
    toy.apply(guarded(|_| {}));
    toy.settle();
    toy.rolls_out();
    toy.later(1);
    edit(&mut toy, change);
    toy
}

fn edit(toy: &mut Toy, change: impl FnOnce(&mut VersionPolicySpec)) {
    toy.edit("p", |spec| change(spec.version_policy.get_or_insert_default()));
    toy.settle();
}

fn annotate(toy: &mut Toy, key: &str, value: Option<&str>) {
    toy.change_plan("p", |plan| {
        let annotations = plan.object.metadata.annotations.get_or_insert_default();
        match value {
            Some(value) => annotations.insert(key.to_owned(), value.to_owned()),
            None => annotations.remove(key),
        };
    });
    toy.settle();
}

fn version(toy: &Toy) -> &str {
    toy.status("p").latest_version.as_deref().unwrap_or_default()
}

fn channel(toy: &Toy) -> ChannelStatus {
    toy.status("p").channel.clone().unwrap_or_default()
}

fn candidate(toy: &Toy) -> Option<String> {
    channel(toy).candidate
}

fn up_to_date(toy: &Toy) -> (String, String) {
    let (status, reason, _) = toy.says("p", "UpToDate");
    (status, reason)
}

fn words(status: &str, reason: &str) -> (String, String) {
    (status.to_owned(), reason.to_owned())
}

#[test]
fn what_is_out_of_range_waits_and_says_so() {
    let mut toy = done_at("v1.33.2", |policy| policy.range = Some("1.33.x".to_owned()));
    assert_eq!(up_to_date(&toy), words("True", "Latest"));
    says(&mut toy, "v1.34.0+k3s1");
    toy.later(A_POLL);
    assert_eq!(version(&toy), "v1.33.2");
    assert_eq!(candidate(&toy).as_deref(), Some("v1.34.0+k3s1"));
    assert_eq!(up_to_date(&toy), words("False", "OutOfRange"));
    assert_eq!(channel(&toy).last_error, None, "that is no error");
    let message = "v1.34.0+k3s1 is not taken: it is not in spec.versionPolicy.range, 1.33.x; a range that has it lets it through";
    assert_eq!(channel(&toy).message.as_deref(), Some(message));
    assert_eq!(
        toy.told_of("VersionHeld"),
        [format!("{message}; the Plan stays at v1.33.2")]
    );
    toy.later(A_POLL);
    assert_eq!(toy.told_of("VersionHeld").len(), 1, "once");
    // A node that comes meanwhile gets what the others have.
    toy.add_nodes(&["c"]);
    toy.settle();
    toy.rolls_out();
    assert!(toy.is_done("c", "p"));
    edit(&mut toy, |policy| policy.range = Some(">=1.33".to_owned()));
    assert_eq!(version(&toy), "v1.34.0-k3s1", "nobody has to be asked for that");
    assert_eq!(
        (candidate(&toy), up_to_date(&toy)),
        (None, words("True", "Latest"))
    );
}

#[test]
fn a_plan_whose_version_has_left_the_range_begins_with_no_node() {
    let mut toy = done_at("v1.33.2", |policy| policy.range = Some(">=1.34".to_owned()));
    toy.add_nodes(&["c"]);
    toy.settle();
    let blocker = Blocker::VersionOutOfRange {
        version: "v1.33.2".to_owned(),
        range: ">=1.34".to_owned(),
    };
    assert_eq!(toy.blocker("p", "c"), Some(blocker));
    assert_eq!(toy.complete("p").1, "VersionOutOfRange");
    says(&mut toy, "v1.34.0");
    toy.later(A_POLL);
    toy.rolls_out();
    assert!(["a", "b", "c"].iter().all(|node| toy.is_done(node, "p")));
}

#[test]
fn a_version_is_first_seen_once_whoever_looks() {
    let mut toy = done_at("v1.33.2", |policy| policy.minimum_age = Some("24h".to_owned()));
    says(&mut toy, "v1.33.3+k3s1");
    toy.later(A_POLL);
    let told = channel(&toy);
    assert_eq!(told.candidate.as_deref(), Some("v1.33.3+k3s1"));
    assert_eq!(up_to_date(&toy), words("False", "TooYoung"));
    let since: Timestamp = told.since.unwrap().parse().unwrap();
    let due: Timestamp = told.due.unwrap().parse().unwrap();
    assert_eq!(due, since + SignedDuration::from_hours(24));
    for _ in 0..5 {
        toy.passes(SignedDuration::from_hours(4));
        toy.wakes_up(); // another one takes over
        toy.settle();
        toy.later(1);
        assert_eq!(
            channel(&toy).since,
            Some(super::super::conditions::seconds(since))
        );
        assert_eq!(version(&toy), "v1.33.2");
    }
    assert_eq!(toy.told_of("VersionHeld").len(), 1);
    // Just then, and without a poll.
    let polls = toy.polls.len();
    toy.now = due.checked_sub(SignedDuration::from_secs(1)).unwrap();
    toy.settle();
    assert_eq!(version(&toy), "v1.33.2");
    while toy.now < due {
        toy.now = toy.decision().wake.unwrap().min(due);
        toy.settle();
    }
    assert_eq!(version(&toy), "v1.33.3-k3s1");
    assert!(toy.polls.len() - polls <= 20, "no more than time asks for");
    assert_eq!(up_to_date(&toy), words("True", "Latest"));
}

#[test]
fn a_version_that_comes_again_is_as_old_as_it_is() {
    let mut toy = done_at("v1.33.2", |policy| policy.minimum_age = Some("2h".to_owned()));
    says(&mut toy, "v1.33.3");
    toy.later(A_POLL);
    let since = channel(&toy).since;
    toy.channels.insert(URL.to_owned(), Err("down".to_owned()));
    toy.later(A_POLL);
    assert_eq!(
        (channel(&toy).last_error.as_deref(), channel(&toy).since),
        (Some("down"), since.clone())
    );
    toy.wakes_up();
    toy.settle();
    assert_eq!(
        channel(&toy).since,
        since,
        "nor does another controller forget it"
    );
    says(&mut toy, "v1.33.4");
    toy.later(A_POLL);
    assert_ne!(channel(&toy).since, since, "the channel has taken it back");
    assert_eq!(version(&toy), "v1.33.2");
    toy.later(2 * 60 * 60);
    assert_eq!(version(&toy), "v1.33.4");
}

#[test]
fn the_first_version_of_all_waits_too() {
    let mut toy = Toy::new();
    toy.add_nodes(&["a"]);
    says(&mut toy, "v1.33.3");
    toy.apply(guarded(|policy| policy.minimum_age = Some("1h".to_owned())));
    toy.settle();
    let (status, reason, message) = toy.says("p", "LatestResolved");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "Held"));
    assert!(
        message.starts_with("v1.33.3 is taken at 2026-01-01T10:00:00Z"),
        "{message}"
    );
    assert_eq!((version(&toy), toy.jobs.len()), ("", 0));
    assert_eq!(toy.told_of("ResolveFailed"), [""; 0]);
    toy.wakes_up();
    toy.settle();
    assert_eq!(toy.says("p", "LatestResolved").2, message);
    toy.later(60 * 60);
    assert_eq!(version(&toy), "v1.33.3");
    toy.rolls_out();
    assert!(toy.is_done("a", "p"));
}

#[test]
fn what_is_proposed_waits_for_its_approval() {
    let mut toy = done_at("v1.33.2", |policy| policy.propose = Some(true));
    says(&mut toy, "v1.34.0+k3s1");
    toy.later(A_POLL);
    assert_eq!(version(&toy), "v1.33.2");
    assert_eq!(candidate(&toy).as_deref(), Some("v1.34.0+k3s1"));
    assert_eq!(up_to_date(&toy), words("False", "NotApproved"));
    let text = "v1.34.0+k3s1 is proposed: the annotation refit.rs/approve: v1.34.0+k3s1 on the Plan lets it through; the Plan \
                stays at v1.33.2";
    assert_eq!(toy.told_of("VersionProposed"), [text]);
    annotate(&mut toy, ANNOTATION_APPROVE, Some("v1.33.9"));
    assert_eq!(version(&toy), "v1.33.2", "that is another version");
    annotate(&mut toy, ANNOTATION_APPROVE, Some("v1.34.0+k3s1"));
    assert_eq!(version(&toy), "v1.34.0-k3s1");
    toy.rolls_out();
    assert!(toy.is_done("a", "p") && toy.is_done("b", "p"));
    annotate(&mut toy, ANNOTATION_APPROVE, None);
    assert_eq!(version(&toy), "v1.34.0-k3s1", "what is taken stays");
    says(&mut toy, "v1.35.0+k3s1");
    toy.later(A_POLL);
    assert_eq!(version(&toy), "v1.34.0-k3s1", "the next one needs its own");
}

#[test]
fn a_channel_may_be_asked_now_and_once() {
    let mut toy = done_at("v1.33.2", |_| {});
    let polls = toy.polls.len();
    says(&mut toy, "v1.33.3");
    annotate(&mut toy, ANNOTATION_POLL_NOW, Some("one"));
    assert_eq!(toy.polls.len(), polls + 1);
    assert_eq!(version(&toy), "v1.33.3");
    assert_eq!(channel(&toy).polled_for.as_deref(), Some("one"));
    toy.later(60);
    toy.wakes_up();
    toy.settle();
    annotate(&mut toy, "example.com/else", Some("x"));
    assert_eq!(toy.polls.len(), polls + 1, "once, whoever comes after");
    annotate(&mut toy, ANNOTATION_POLL_NOW, Some("two"));
    assert_eq!(toy.polls.len(), polls + 2);
    annotate(&mut toy, ANNOTATION_POLL_NOW, None);
    assert_eq!(toy.polls.len(), polls + 2);
    toy.channels.clear();
    annotate(&mut toy, ANNOTATION_POLL_NOW, Some("three"));
    assert_eq!(toy.polls.len(), polls + 3);
    assert_eq!(
        channel(&toy).polled_for.as_deref(),
        Some("three"),
        "also if it was no good"
    );
}

#[test]
fn status_says_when_the_channel_is_asked_next() {
    let mut toy = done_at("v1.33.2", |_| {});
    let next: Timestamp = channel(&toy).next_poll.unwrap().parse().unwrap();
    let polls = toy.polls.len();
    toy.now = next.checked_sub(SignedDuration::from_secs(1)).unwrap();
    toy.settle();
    assert_eq!(toy.polls.len(), polls);
    toy.now = next.checked_add(SignedDuration::from_secs(1)).unwrap();
    toy.settle();
    assert_eq!(toy.polls.len(), polls + 1);
}

#[test]
fn one_url_with_two_secrets_is_two_channels() {
    let mut toy = Toy::new();
    says(&mut toy, "v1");
    let secret = |name: &str, secret: Option<&str>| {
        plan_with(name, |spec| {
            spec.version = None;
            spec.channel = Some(URL.to_owned());
            spec.channel_secret_ref = secret.map(|name| SecretRef {
                name: name.to_owned(),
            });
        })
    };
    toy.apply(secret("p", Some("one")));
    toy.apply(secret("q", Some("one")));
    toy.apply(secret("r", Some("two")));
    toy.apply(secret("s", None));
    toy.settle();
    assert_eq!(toy.polls.len(), 3);
    assert_eq!(channel(&toy).secrets.as_deref(), Some("one"));
    toy.wakes_up();
    toy.settle();
    assert_eq!(toy.polls.len(), 3, "another controller knows them apart");
    toy.edit("q", |spec| spec.channel_secret_ref = None);
    toy.settle();
    assert_eq!(toy.polls.len(), 4, "a Plan that was told nothing is told now");
    toy.edit("p", |spec| {
        spec.channel_secret_ref = Some(SecretRef {
            name: "three".to_owned(),
        });
    });
    toy.settle();
    assert_eq!(toy.polls.len(), 5);
    toy.edit("q", |spec| {
        spec.channel_secret_ref = Some(SecretRef {
            name: "three".to_owned(),
        });
    });
    toy.settle();
    assert_eq!(toy.polls.len(), 5, "that one has just been asked");
}

fn feed(toy: &mut Toy, releases: &[(&str, Option<&str>)]) {
    let releases = releases.iter().map(|(version, published)| Release {
        version: (*version).to_owned(),
        published: published.map(|at| at.parse().unwrap()),
    });
    let offer = Offer {
        releases: releases.collect(),
        partial: None,
    };
    toy.feeds.insert(URL.to_owned(), offer);
}

#[test]
fn of_several_releases_the_newest_in_range_is_taken_and_the_next_one_when_it_is_old_enough() {
    let mut toy = Toy::new();
    toy.add_nodes(&["a"]);
    let releases = [
        ("v1.34.0+k3s1", Some("2025-12-01T00:00:00Z")),
        ("v1.33.2+k3s1", Some("2025-12-01T00:00:00Z")),
        ("v1.33.3+k3s1", Some("2026-01-01T08:00:00Z")),
        ("v1.32.9+k3s1", Some("2025-12-31T00:00:00Z")),
    ];
    feed(&mut toy, &releases);
    toy.apply(guarded(|policy| {
        policy.range = Some("~1.33".to_owned());
        policy.minimum_age = Some("2h".to_owned());
    }));
    toy.settle();
    assert_eq!(version(&toy), "v1.33.2-k3s1");
    assert_eq!(candidate(&toy).as_deref(), Some("v1.33.3+k3s1"));
    assert_eq!(channel(&toy).due.as_deref(), Some("2026-01-01T10:00:00Z"));
    assert_eq!(channel(&toy).seen, None, "the feed dates it");
    toy.later(60 * 60);
    assert_eq!(version(&toy), "v1.33.3-k3s1");
    // Taken back, and nothing newer in its place.
    feed(&mut toy, &releases[..2]);
    toy.later(A_POLL);
    toy.add_nodes(&["b"]);
    toy.settle();
    assert_eq!(version(&toy), "v1.33.3-k3s1");
}

#[test]
fn a_release_that_is_taken_back_holds_those_that_have_not_begun() {
    let mut toy = Toy::new();
    toy.add_nodes(&["a", "b"]);
    feed(&mut toy, &[("v1.33.3", None), ("v1.33.2", None)]);
    toy.apply(guarded(|_| {}));
    toy.settle();
    let first = toy.slots("p")[0].clone();
    feed(&mut toy, &[("v1.33.2", None)]);
    annotate(&mut toy, ANNOTATION_POLL_NOW, Some("1"));
    toy.succeeds(&first);
    assert!(toy.is_done(&first, "p") && toy.slots("p").is_empty());
    assert_eq!(toy.complete("p").1, "ChannelWithdrawn");
    assert_eq!(channel(&toy).withdrawn.as_deref(), Some("v1.33.2"));
}

#[test]
fn a_channel_that_was_behind_when_it_was_last_understood_holds_all_nodes_whoever_asks() {
    let mut toy = Toy::new();
    toy.add_nodes(&["a", "b"]);
    says(&mut toy, "v1.33.2");
    toy.apply(guarded(|_| {}));
    toy.settle();
    let first = toy.slots("p")[0].clone();
    says(&mut toy, "v1.26.9");
    toy.later(A_POLL);
    toy.channels.insert(
        URL.to_owned(),
        Err("the answer is an HTML page, not a version".to_owned()),
    );
    toy.later(A_POLL);
    toy.succeeds(&first);
    assert!(toy.is_done(&first, "p") && toy.slots("p").is_empty());
    for _ in 0..3 {
        toy.wakes_up();
        toy.later(5);
        assert!(
            toy.slots("p").is_empty(),
            "the HTML page is no reason to believe it again"
        );
        assert_eq!(toy.complete("p").1, "ChannelWithdrawn");
    }
    assert_eq!(version(&toy), "v1.33.2");
    says(&mut toy, "v1.33.3");
    toy.later(A_POLL);
    assert_eq!(version(&toy), "v1.33.3");
    assert_eq!(channel(&toy).withdrawn, None);
    toy.rolls_out();
    assert!(toy.is_done("a", "p") && toy.is_done("b", "p"));
}

#[test]
fn a_node_that_is_too_far_behind_waits_and_the_others_do_not_wait_for_it() {
    let mut toy = Toy::new();
    for (name, kubelet) in [
        ("a", "v1.33.1+k3s1"),
        ("b", "v1.31.9+k3s1"),
        ("c", "v1.32.0"),
        ("d", ""),
        ("e", "v1.34.1"),
    ] {
        toy.add_node(name, |node| node.kubelet = kubelet.into());
    }
    says(&mut toy, "v1.33.2+k3s1");
    toy.apply(guarded(|policy| policy.max_minor_skip = Some(1)));
    toy.settle();
    for _ in 0..3 {
        let node = toy.slots("p")[0].clone();
        toy.succeeds(&node);
    }
    assert!(toy.slots("p").is_empty());
    let done: BTreeSet<_> = ["a", "b", "c", "d", "e"]
        .into_iter()
        .filter(|node| toy.is_done(node, "p"))
        .collect();
    assert_eq!(done, ["a", "c", "e"].into());
    let far = toy.blocker("p", "b").unwrap();
    assert_eq!(far.reason(), "MinorSkip");
    assert_eq!(
        far.to_string(),
        "v1.33.2-k3s1 is 2 minor versions from the node's kubelet, v1.31.9+k3s1, and spec.versionPolicy.maxMinorSkip is 1; a \
         version in between, or a higher limit, lets it through"
    );
    let unknown = toy.blocker("p", "d").unwrap().to_string();
    assert!(
        unknown.starts_with("v1.33.2-k3s1 cannot be compared with the node's kubelet"),
        "{unknown}"
    );
    assert_eq!(toy.complete("p").1, "MinorSkip");
    assert!(
        toy.complete("p")
            .2
            .starts_with("Node b: v1.33.2-k3s1 is 2 minor versions")
    );
    edit(&mut toy, |policy| policy.max_minor_skip = Some(2));
    assert_eq!(toy.slots("p"), ["b"]);
}

#[test]
fn a_plan_with_a_version_holds_nodes_that_are_too_far_behind_too() {
    let mut toy = Toy::new();
    toy.add_node("a", |node| node.kubelet = "v1.30.0".into());
    toy.apply(plan_with("p", |spec| {
        spec.version = Some("v1.33.2".to_owned());
        spec.version_policy = Some(VersionPolicySpec {
            max_minor_skip: Some(0),
            ..VersionPolicySpec::default()
        });
    }));
    toy.settle();
    assert_eq!(toy.blocker("p", "a").unwrap().reason(), "MinorSkip");
    let types: Vec<_> = toy
        .status("p")
        .conditions
        .iter()
        .map(|c| c.type_.as_str())
        .collect();
    assert_eq!(
        types,
        ["Complete", "Validated", "LatestResolved"],
        "there is no channel"
    );
}

fn pinned(spec: &mut PlanSpec) {
    spec.version_policy = Some(VersionPolicySpec {
        pin_digest: Some(true),
        ..VersionPolicySpec::default()
    });
}

fn image_of(toy: &Toy, node: &str) -> String {
    let jobs = toy.jobs_for(node);
    let live = jobs.iter().find(|job| !job.facts.recorded).unwrap();
    live.image.clone()
}

#[test]
fn jobs_run_by_the_digest_that_the_tag_stood_for_once() {
    let mut toy = Toy::new();
    toy.add_nodes(&["a", "b"]);
    toy.apply(plan_with("p", pinned));
    toy.settle();
    let first = toy.slots("p")[0].clone();
    let image = image_of(&toy, &first);
    assert_eq!(image, format!("example.com/upgrade:v1@sha256:{:064x}", 1));
    toy.succeeds(&first);
    toy.wakes_up();
    toy.settle();
    let second = toy.slots("p")[0].clone();
    assert_eq!(image_of(&toy, &second), image, "the tag may have moved");
    assert_eq!(toy.digests_asked.len(), 1);
    let status = toy.status("p").pinned.clone().unwrap();
    assert_eq!(Some(&status.hash), toy.status("p").latest_hash.as_ref());
    assert_eq!(status.images[0].image, "example.com/upgrade:v1");
    toy.rolls_out();
    // Another version has another one.
    toy.edit("p", |spec| spec.version = Some("v2".to_owned()));
    toy.settle();
    let node = toy.slots("p")[0].clone();
    let image = image_of(&toy, &node);
    assert_eq!(image, format!("example.com/upgrade:v2@sha256:{:064x}", 2));
}

#[test]
fn no_job_is_made_before_stored_status_has_the_digest() {
    let mut toy = Toy::new();
    toy.add_nodes(&["a", "b"]);
    toy.apply(plan_with("p", |spec| {
        pinned(spec);
        spec.concurrency = Some(2);
    }));
    toy.rounds_until(|toy| toy.digests_asked.len() == 1);
    assert_eq!(toy.jobs.len(), 0);
    // Whoever was told dies with it.
    toy.wakes_up();
    toy.settle();
    assert_eq!(toy.digests_asked.len(), 2);
    let (a, b) = (image_of(&toy, "a"), image_of(&toy, "b"));
    assert_eq!(a, b);
    assert!(a.ends_with(&toy.status("p").pinned.as_ref().unwrap().images[0].digest));
}

#[test]
fn a_registry_that_says_no_digest_starts_nobody_and_is_told() {
    let mut toy = Toy::new();
    toy.add_nodes(&["a"]);
    toy.refuses_digests = Some("unauthorized".to_owned());
    toy.apply(plan_with("p", pinned));
    toy.settle();
    toy.later(1);
    assert!(toy.slots("p").is_empty() && toy.jobs.is_empty());
    let (_, reason, message) = toy.complete("p");
    assert_eq!(reason, "DigestUnknown");
    assert_eq!(
        message,
        "the digest of example.com/upgrade:v1 cannot be had: unauthorized"
    );
    assert_eq!(toy.told_of("DigestUnknown"), [message]);
    toy.refuses_digests = None;
    toy.later(60);
    toy.rolls_out();
    assert!(toy.is_done("a", "p"));
}

#[test]
fn an_image_with_a_digest_of_its_own_is_asked_of_nobody() {
    let mut toy = Toy::new();
    toy.add_nodes(&["a"]);
    let image = format!("example.com/upgrade@sha256:{:064x}", 7);
    let own = image.clone();
    toy.apply(plan_with("p", |spec| {
        pinned(spec);
        spec.upgrade.image = own;
    }));
    toy.settle();
    assert_eq!(image_of(&toy, "a"), image);
    assert!(toy.digests_asked.is_empty());
}

#[test]
fn a_plan_that_is_done_asks_for_no_digest() {
    let mut toy = Toy::new();
    toy.apply(plan_with("p", pinned));
    toy.settle();
    assert!(toy.digests_asked.is_empty());
}

#[test]
fn a_policy_that_cannot_be_read_takes_nothing() {
    let mut toy = done_at("v1.33.2", |policy| policy.range = Some("newest".to_owned()));
    says(&mut toy, "v1.33.3");
    toy.later(A_POLL);
    assert_eq!(version(&toy), "v1.33.2");
    let (status, _, message) = toy.says("p", "Validated");
    assert_eq!(status, "False");
    assert!(
        message.starts_with("spec.versionPolicy.range is invalid, \"newest\" is no range of versions"),
        "{message}"
    );
    edit(&mut toy, |policy| policy.range = None);
    assert_eq!(version(&toy), "v1.33.3");
}

#[test]
fn a_plan_without_a_policy_has_no_condition_of_ours() {
    let mut toy = Toy::new();
    toy.add_nodes(&["a"]);
    says(&mut toy, "v1.33.2");
    toy.apply(plan_with("p", |spec| {
        spec.version = None;
        spec.channel = Some(URL.to_owned());
    }));
    toy.settle();
    says(&mut toy, "v1.30.0");
    toy.later(A_POLL);
    let types: Vec<_> = toy
        .status("p")
        .conditions
        .iter()
        .map(|c| c.type_.as_str())
        .collect();
    assert_eq!(types, ["Complete", "Validated", "LatestResolved"]);
}

#[test]
fn decided_again_a_held_plan_asks_for_nothing() {
    let mut toy = done_at("v1.33.2", |policy| {
        policy.minimum_age = Some("24h".to_owned());
        policy.propose = Some(true);
    });
    says(&mut toy, "v1.33.3");
    toy.later(A_POLL);
    toy.later(2);
    assert_eq!(toy.steps(), []);
    assert!(!toy.sent().iter().any(|flight| toy.writes_status(*flight)));
    toy.passes(SignedDuration::from_secs(30));
    assert!(
        !toy.steps()
            .iter()
            .any(|step| matches!(step, Step::WriteStatus { .. })),
        "time alone is no news"
    );
}
