//! Choices from the offer of a channel, as tables.

mod distributions;

use super::*;

const NOW: &str = "2026-11-21T12:00:00Z";

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn policy(change: impl FnOnce(&mut Policy)) -> Policy {
    let mut policy = Policy {
        is_given: true,
        ..Policy::default()
    };
    change(&mut policy);
    policy
}

fn range(text: &str) -> Policy {
    policy(|policy| policy.range = Some(text.parse().unwrap()))
}

fn aged(hours: i64) -> Policy {
    policy(|policy| policy.minimum_age = SignedDuration::from_hours(hours))
}

fn offer(versions: &[&str]) -> Offer {
    listed(versions.iter().map(|version| (*version, None)))
}

fn dated(versions: &[(&str, &str)]) -> Offer {
    listed(
        versions
            .iter()
            .map(|(version, published)| (*version, Some(at(published)))),
    )
}

fn listed<'v>(versions: impl Iterator<Item = (&'v str, Option<Timestamp>)>) -> Offer {
    let release = |(version, published): (&str, _)| Release {
        version: version.to_owned(),
        published,
    };
    Offer {
        releases: versions.map(release).collect(),
        partial: None,
    }
}

/// A choice and its inputs.
struct Case {
    policy: Policy,
    offer: Offer,
    current: Option<&'static str>,
    oldest: Option<&'static str>,
    oldest_follower: Option<&'static str>,
    seen: BTreeMap<String, Timestamp>,
    approved: Option<&'static str>,
    withdrawn: Option<&'static str>,
    installed: Option<&'static str>,
}

impl Case {
    fn new(policy: Policy, current: Option<&'static str>, offer: Offer) -> Self {
        Self {
            policy,
            offer,
            current,
            oldest: None,
            oldest_follower: None,
            seen: BTreeMap::new(),
            approved: None,
            withdrawn: None,
            installed: None,
        }
    }

    fn choose(&self) -> Choice {
        let inputs = PolicyInputs {
            current: self.current,
            oldest: self.oldest.map(|version| (version, "node w")),
            oldest_follower: self
                .oldest_follower
                .map(|version| (version, "node w of Plan agents")),
            seen: &self.seen,
            approved: self.approved,
            withdrawn: self.withdrawn,
            installed: self.installed,
            polled: at(NOW),
            now: at(NOW),
        };
        choose(&self.policy, &Offered::from(&self.offer), &inputs)
    }
}

/// The name of the reason in status, which is another crate's.
fn name(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::Incomparable(_) | Refusal::Accident(Refused::OtherDistribution { .. }) => "NotComparable",
        Refusal::Accident(_) => "NoVersion",
        Refusal::Prerelease => "Prerelease",
        Refusal::Variant => "Variant",
        Refusal::OutOfRange => "OutOfRange",
        Refusal::Older => "Older",
        Refusal::TooYoung { .. } => "TooYoung",
        Refusal::NotApproved => "NotApproved",
        Refusal::MinorSkip { .. } => "MinorSkip",
    }
}

fn reason(choice: &Choice) -> &str {
    choice.held.as_ref().map_or("", |held| name(&held.refusal))
}

/// Policy, current version and offer, then the version taken, or what holds the offer back and whether the channel has
/// withdrawn the current version. A policy is none, one without guards, one that allows downgrades, or a range.
const CHOICES: &str = "
none | - | v1.31.4+k3s1 | v1.31.4-k3s1
none | v1.31.4-k3s1 | v1.31.4+k3s1 | v1.31.4-k3s1
none | v1.31.4-k3s1 | v1.31.5+k3s1 | v1.31.5-k3s1
none | v1.31.4-k3s1 | v1.31.4+rke2r1 | NotComparable
none | v1.31.4-k3s1 | v1.30.4+k3s1 | Older, withdrawn
none | v1.31.4-k3s1 | v1.30.4+rke2r1 | NotComparable
none | v1.31.4-k3s1 | login | NoVersion
none | v1.31.4-k3s1 | 1.32 | NoVersion
none | v1.31.4-k3s1 | a b | NoVersion
none | - | latest | latest
none | focal | jammy | jammy
none | 22.04 | 24.04 | 24.04
none | 22.04 | 20.04 | Older, withdrawn
none | 1.31.4 | v1.31.4 | v1.31.4
none | 1.2.3-alpine | 1.2.3-bookworm | NotComparable
none | 1.31.4 | 2026.8.1 | NotComparable
empty | - | v1.31.4+k3s1 | v1.31.4-k3s1
empty | v1.31.4-k3s1 | v1.31.4+rke2r1 | NotComparable
empty | v1.31.4-k3s1 | v1.32.4+rke2r1 | NotComparable
empty | 1.31.4 | 2026.08.1 | NoVersion
empty | 1.31.4 | 2026.8.1 | NotComparable
empty | 2026.08.1 | 1.31.4 | NotComparable
none | 22.04 | v1.34.2+k3s1 | NotComparable
none | 20260801 | v1.34.2+k3s1 | NotComparable
downgrade | 22.04 | v1.34.2+k3s1 | NotComparable
downgrade | 3.20 | v1.34.2+rke2r1 | NotComparable
downgrade | 2026-08-01 | v1.34.2+rke2r1 | NotComparable
downgrade | 2026.08.1 | 1.31.4 | 1.31.4
empty | focal | jammy | NotComparable
empty | focal | 22.04 | 22.04
downgrade | focal | jammy | jammy
downgrade | v1.31.4-k3s1 | v1.30.4+k3s1 | v1.30.4-k3s1
downgrade | v1.31.4-k3s1 | v1.31.4+rke2r1 | NotComparable
downgrade | v1.31.4-k3s1 | login | NoVersion
<1.32 | v1.31.4-k3s1 | v1.31.5+k3s1 | v1.31.5-k3s1
<1.32 | v1.31.4-k3s1 | v1.32.0+k3s1 | OutOfRange
<=1.32 | v1.31.4-k3s1 | v1.32.0-rc1+k3s1 | Prerelease
<1.32 | - | v1.32.0+k3s1 | OutOfRange
>=1.31 | v1.31.4-k3s1 | v1.30.4+k3s1 | OutOfRange, withdrawn
<1.32 | - | latest | NotComparable
";

#[test]
fn of_one_version_a_policy_says_whether_it_is_taken() {
    for case in CHOICES.lines().filter(|line| !line.is_empty()) {
        let cells: Vec<_> = case.split(" | ").collect();
        let [policy_name, current, offered, result] = cells[..] else {
            panic!("{case}")
        };
        let policy = match policy_name {
            "none" => Policy::default(),
            "empty" => policy(|_| {}),
            "downgrade" => policy(|policy| policy.allow_downgrade = true),
            text => range(text),
        };
        let current = (current != "-").then_some(current);
        let choice = Case::new(policy, current, offer(&[offered])).choose();
        let (why, is_back) = match result.strip_suffix(", withdrawn") {
            Some(why) => (why, true),
            None => (result, false),
        };
        match &choice.take {
            Some(version) => assert_eq!((version.as_str(), reason(&choice)), (result, ""), "{case}"),
            None => assert_eq!(reason(&choice), why, "{case}"),
        }
        assert_eq!(choice.withdrawn, is_back.then(|| munge(offered)), "{case}");
        let is_faulty = is_back || matches!(why, "NoVersion" | "NotComparable");
        assert_eq!(choice.fault.is_some(), is_faulty, "{case}");
        assert_eq!((choice.due, choice.seen), (None, Vec::new()), "{case}");
    }
}

#[test]
fn of_many_versions_the_newest_that_passes_is_taken() {
    let many = [
        "v1.30.9+k3s1",
        "v1.31.9+k3s1",
        "v1.31.10+k3s1",
        "v1.31.10+k3s2",
        "v1.32.0+k3s1",
        "v1.33.0-rc1+k3s1",
        "v1.31.10-k3s2-amd64",
        "v1.99.0-k3s2-arm64",
        "latest",
        "v1.31",
        "20240101",
    ];
    let back = policy(|policy| {
        policy.range = Some("1.31.x".parse().unwrap());
        policy.allow_downgrade = true;
    });
    let (none, k3s) = (Policy::default(), Some("v1.31.9-k3s1"));
    let table = [
        (none.clone(), k3s, Some("v1.32.0-k3s1")),
        (none.clone(), Some("v1.32.0-k3s1"), Some("v1.32.0-k3s1")),
        (range("<1.32"), k3s, Some("v1.31.10-k3s2")),
        (range("1.31.x"), Some("v1.32.0-k3s1"), Some("v1.32.0-k3s1")),
        (range("1.30.x"), Some("v1.30.9-k3s1"), Some("v1.30.9-k3s1")),
        (range(">=1.33.0-rc1"), k3s, Some("v1.33.0-rc1-k3s1")),
        (range(">=1.40 <1.41"), k3s, None),
        (none, Some("v1.31.9-k3s2-amd64"), Some("v1.31.10-k3s2-amd64")),
        (back, Some("v1.32.0-k3s1"), Some("v1.31.10-k3s2")),
    ];
    for (policy, current, take) in table {
        let case = format!("{policy:?} {current:?}");
        let again = policy.clone();
        let choice = Case::new(policy, current, offer(&many)).choose();
        // Whether or not the choice is the current version, the Plan keeps it.
        assert_eq!(choice.take.as_deref().or(current), take.or(current), "{case}");
        assert_eq!(choice.withdrawn, None, "{case}");
        let mut turned = many;
        turned.reverse();
        let again = Case::new(again, current, offer(&turned)).choose();
        assert_eq!(again, choice, "in whatever order they come");
    }
}

#[test]
fn of_many_without_a_version_to_compare_with_two_kinds_are_no_choice() {
    let two = offer(&["v1.31.4+k3s1", "v1.31.4+rke2r1"]);
    let choice = Case::new(Policy::default(), None, two).choose();
    assert_eq!(choice.take, None);
    assert_eq!(reason(&choice), "NotComparable");
    assert!(choice.fault.is_some(), "{choice:?}");
    let choice = Case::new(Policy::default(), None, offer(&["1.31.4", "20240101"])).choose();
    assert_eq!((choice.take.as_deref(), reason(&choice)), (None, "NotComparable"));
    let choice = Case::new(range(">=1.31"), None, offer(&["1.31.4", "20240101"])).choose();
    assert_eq!(choice.take.as_deref(), Some("1.31.4"));
}

#[test]
fn a_release_that_is_removed_from_a_list_is_withdrawn_if_only_older_ones_are_left() {
    let of = |versions: &[&str]| Case::new(Policy::default(), Some("v1.31.5"), offer(versions)).choose();
    let choice = of(&["v1.31.4", "v1.31.3", "v1.30.0"]);
    assert_eq!(choice.withdrawn.as_deref(), Some("v1.31.4"));
    assert_eq!(
        choice.fault.as_deref(),
        Some("spec.channel gives v1.31.4, which is older than v1.31.5")
    );
    assert_eq!(of(&["v1.31.5", "v1.31.4"]).withdrawn, None);
    let newer = of(&["v1.31.6", "v1.31.4"]);
    assert_eq!((newer.take.as_deref(), newer.withdrawn), (Some("v1.31.6"), None));
    // The list may have been truncated.
    let mut case = Case::new(Policy::default(), Some("v1.31.5"), offer(&["v1.31.4", "v1.31.3"]));
    case.offer.partial = Some("the first page only".to_owned());
    assert_eq!(case.choose().withdrawn, None);
}

#[test]
fn a_version_is_taken_when_it_is_old_enough() {
    let mut case = Case::new(aged(24), Some("v1.31.4"), offer(&["v1.31.5"]));
    let choice = case.choose();
    assert_eq!((choice.take.as_deref(), reason(&choice)), (None, "TooYoung"));
    assert_eq!(choice.due, Some(at("2026-11-22T12:00:00Z")));
    assert_eq!(choice.seen, [("v1.31.5".to_owned(), at(NOW))]);
    assert_eq!((choice.withdrawn, choice.fault), (None, None));
    assert_eq!(
        choice.held.unwrap().message,
        "v1.31.5 is taken at 2026-11-22T12:00:00Z: it was first seen at 2026-11-21T12:00:00Z, and \
         spec.versionPolicy.minimumAge is 24h0m0s; a shorter one lets it through sooner"
    );
    case.seen.insert("v1.31.5".to_owned(), at("2026-11-20T12:00:01Z"));
    assert_eq!(case.choose().due, Some(at("2026-11-21T12:00:01Z")));
    case.seen.insert("v1.31.5".to_owned(), at("2026-11-20T12:00:00Z"));
    assert_eq!(case.choose().take.as_deref(), Some("v1.31.5"));
    // First seen before the clock was set back.
    case.seen.insert("v1.31.5".to_owned(), at("2027-11-20T12:00:00Z"));
    assert_eq!(case.choose().due, Some(at("2026-11-22T12:00:00Z")));
}

#[test]
fn the_date_of_a_feed_counts_and_one_from_the_future_does_not() {
    let offer = dated(&[
        ("v1.31.5", "2026-11-19T12:00:00Z"),
        ("v1.31.6", "2026-11-21T06:00:00Z"),
        ("v1.31.7", "2030-01-01T00:00:00Z"),
    ]);
    let choice = Case::new(aged(24), Some("v1.31.4"), offer).choose();
    assert_eq!(choice.take.as_deref(), Some("v1.31.5"));
    assert_eq!(choice.due, Some(at("2026-11-22T06:00:00Z")));
    let held = choice.held.unwrap();
    assert_eq!((held.version.as_str(), held.since), ("v1.31.7", at(NOW)));
    assert_eq!(
        choice.seen,
        [("v1.31.7".to_owned(), at(NOW))],
        "the others need not be remembered"
    );
}

#[test]
fn versions_that_come_faster_than_they_age_are_taken_in_their_turn() {
    let mut case = Case::new(aged(24), Some("v1.31.4"), offer(&["v1.31.5", "v1.31.6"]));
    case.seen.insert("v1.31.5".to_owned(), at("2026-11-20T12:00:00Z"));
    let choice = case.choose();
    assert_eq!(choice.take.as_deref(), Some("v1.31.5"));
    assert_eq!(choice.held.unwrap().version, "v1.31.6");
    let versions: Vec<_> = (0..30).map(|patch| format!("v1.32.{patch}")).collect();
    let versions: Vec<_> = versions.iter().map(String::as_str).collect();
    let choice = Case::new(aged(24), Some("v1.31.4"), offer(&versions)).choose();
    assert_eq!(choice.seen.len(), 10);
    assert_eq!(choice.seen[0].0, "v1.32.29", "the newest ones");
}

#[test]
fn a_proposed_version_is_taken_when_it_is_approved() {
    let propose = || policy(|policy| policy.propose = true);
    let mut case = Case::new(propose(), Some("v1.31.4-k3s1"), offer(&["v1.31.5+k3s1"]));
    let choice = case.choose();
    assert_eq!((choice.take.as_deref(), reason(&choice)), (None, "NotApproved"));
    assert_eq!(
        choice.held.unwrap().message,
        "v1.31.5+k3s1 is proposed: the annotation refit.rs/approve: v1.31.5+k3s1 on the Plan lets it through"
    );
    case.approved = Some("v1.31.4+k3s1");
    assert_eq!(case.choose().take, None, "another version");
    for approved in [
        "v1.31.5+k3s1",
        "v1.31.5-k3s1",
        " v1.31.5+k3s1 ",
        "canary@21c75c607087, v1.31.5+k3s1",
    ] {
        case.approved = Some(approved);
        assert_eq!(case.choose().take.as_deref(), Some("v1.31.5-k3s1"), "{approved}");
    }
    case.policy.minimum_age = SignedDuration::from_hours(1);
    assert_eq!(reason(&case.choose()), "TooYoung", "each guard holds by itself");
    let mut first = Case::new(propose(), None, offer(&["v1.31.5+k3s1"]));
    assert_eq!(
        first.choose().take,
        None,
        "nor is the first version taken by itself"
    );
    first.approved = Some("v1.31.5+k3s1");
    assert_eq!(first.choose().take.as_deref(), Some("v1.31.5-k3s1"));
}

#[test]
fn a_refusal_says_what_was_offered_why_and_what_lets_it_through() {
    let held = |policy: Policy, current, offered| {
        let choice = Case::new(policy, Some(current), offer(&[offered])).choose();
        choice.held.unwrap().message
    };
    assert_eq!(
        held(range("~1.31"), "v1.31.4-k3s1", "v1.32.0+k3s1"),
        "v1.32.0+k3s1 is not taken: it is not in spec.versionPolicy.range, ~1.31; a range that has it lets it through"
    );
    assert_eq!(
        held(range("~1.31"), "v1.31.4-k3s1", "v1.31.5-rc1+k3s1"),
        "v1.31.5-rc1+k3s1 is not taken: it is a prerelease; a spec.versionPolicy.range that names one of the same release \
         lets it through"
    );
    assert_eq!(
        held(policy(|_| {}), "v1.31.4-k3s1", "v1.30.0+k3s1"),
        "v1.30.0+k3s1 is not taken: it is older than v1.31.4-k3s1; spec.versionPolicy.allowDowngrade lets it through"
    );
    assert_eq!(
        held(policy(|_| {}), "v1.31.4-k3s1", "v1.32.0+rke2r1"),
        "what spec.channel offers is not taken: \"v1.32.0-rke2r1\" is a version of rke2, and \"v1.31.4-k3s1\" is one of k3s: a Plan \
         keeps its distribution; correct its channel, or change its version by hand"
    );
    assert_eq!(
        held(policy(|_| {}), "v1.31.4-k3s1", "login"),
        "what spec.channel offers is not taken: \"login\" is not a semantic version, and \"v1.31.4-k3s1\" is: the channel gives another kind of version than before"
    );
}

#[test]
fn an_offer_without_a_version_withdraws_nothing() {
    let mut case = Case::new(Policy::default(), Some("v1.33.2"), offer(&["login"]));
    assert_eq!(case.choose().withdrawn, None);
    case.withdrawn = Some("v1.26.9");
    let choice = case.choose();
    assert_eq!(choice.withdrawn.as_deref(), Some("v1.26.9"));
    assert!(
        choice
            .fault
            .unwrap()
            .starts_with("\"login\" is not a semantic version")
    );
    // A user has set the Plan to an older version in the meantime.
    case.current = Some("v1.26.9");
    assert_eq!(case.choose().withdrawn, None);
    case.current = Some("v1.33.2");
    case.offer = offer(&["v1.33.2"]);
    assert_eq!(case.choose().withdrawn, None, "that is a version");
}

#[test]
fn a_channel_without_a_release_is_reported() {
    let choice = Case::new(Policy::default(), Some("v1.31.4"), offer(&[])).choose();
    assert_eq!(choice.fault.as_deref(), Some("the channel has no release"));
    assert_eq!((choice.take, choice.held, choice.withdrawn), (None, None, None));
}

/// Each version is completed before the next: the oldest node counts, and without nodes the current version.
#[test]
fn of_a_list_the_newest_version_that_skips_no_minor_version_of_the_oldest_node_is_taken() {
    let list = offer(&["v1.34.9", "v1.35.2", "v1.35.3", "v1.36.3"]);
    let limited = policy(|policy| policy.max_minor_skip = Some(1));
    for (current, oldest, take) in [
        (None, Some("v1.34.1+k3s1"), "v1.35.3"),
        (Some("v1.35.3"), Some("v1.34.1"), "v1.35.3"),
        (Some("v1.35.3"), Some("v1.35.3"), "v1.36.3"),
        (Some("v1.34.1"), None, "v1.35.3"),
        (None, None, "v1.36.3"),
        (None, Some("not a version"), "v1.36.3"),
        (Some("v1.34.9"), Some("v1.32.1"), "v1.34.9"),
    ] {
        let case = Case {
            oldest,
            ..Case::new(limited.clone(), current, list.clone())
        };
        let choice = case.choose();
        assert_eq!(choice.take.as_deref(), Some(take), "{current:?} {oldest:?}");
        let held = choice.held.map(|held| (held.version, held.message));
        if (current, oldest) == (Some("v1.35.3"), Some("v1.34.1")) {
            let text = "v1.36.3 is not taken yet: it is 2 minor versions from v1.34.1, the oldest (node w), and spec.versionPolicy.maxMinorSkip is 1; \
                        it can be taken when all nodes, also those of Plans that wait for this one, have a version in between";
            assert_eq!(held, Some(("v1.36.3".to_owned(), text.to_owned())));
        } else if take == "v1.36.3" {
            assert_eq!(held, None);
        }
    }
    // A channel that gives one version has chosen it, and each node decides for itself.
    let alone = Case {
        oldest: Some("v1.34.1"),
        ..Case::new(limited, None, offer(&["v1.36.3"]))
    };
    assert_eq!(alone.choose().take.as_deref(), Some("v1.36.3"));
}

/// A Plan for agents may be a version behind that for servers, which leaves it no further behind.
#[test]
fn nodes_of_plans_that_wait_hold_back_the_next_minor_version_and_no_other_release() {
    let list = offer(&["v1.34.9", "v1.35.2", "v1.35.3", "v1.36.3", "v1.36.4"]);
    let limited = policy(|policy| policy.max_minor_skip = Some(1));
    for (current, oldest, follower, take) in [
        ("v1.35.2", "v1.35.2", "v1.34.1", "v1.35.3"),
        ("v1.35.3", "v1.35.3", "v1.35.3", "v1.36.4"),
        ("v1.36.3", "v1.36.3", "v1.34.1", "v1.36.4"),
        ("v1.35.3", "v1.35.3", "not a version", "v1.36.4"),
        ("v1.35.3", "v1.34.1", "v1.36.3", "v1.35.3"),
        ("v1.35.2", "v1.34.1", "v1.33.9", "v1.35.3"),
    ] {
        let case = Case {
            oldest: Some(oldest),
            oldest_follower: Some(follower),
            ..Case::new(limited.clone(), Some(current), list.clone())
        };
        assert_eq!(case.choose().take.as_deref(), Some(take), "{oldest} {follower}");
    }
}

#[test]
fn the_newest_of_three_thousand_tags_is_found() {
    let tags: Vec<_> = (0..3000)
        .map(|number| format!("v1.{}.{}-k3s1", number / 100, number % 100))
        .collect();
    let tags: Vec<_> = tags.iter().map(String::as_str).collect();
    let choice = Case::new(range("1.28.x"), Some("v1.27.3-k3s1"), offer(&tags)).choose();
    assert_eq!(choice.take.as_deref(), Some("v1.28.99-k3s1"));
}
