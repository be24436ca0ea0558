//! Version policies in a roll-out: ranges, ages, approvals, skipped minor versions, digests.

use super::*;

fn guarded(change: impl FnOnce(&mut VersionPolicySpec)) -> Plan {
    let mut plan = following("p", URL);
    change(plan.spec.version_policy.get_or_insert_default());
    plan
}

/// A finished roll-out on two nodes.
fn done_at(version: &str, change: impl FnOnce(&mut VersionPolicySpec)) -> Scenario {
    let mut story = Scenario::new(&Setup {
        held: false,
        ..Setup::default()
    });
    story.add_nodes(&["a", "b"]);
    story.offer(URL, version);
    story.apply(guarded(|_| {}));
    story.rest();
    story.assert_over();
    edit(&mut story, change);
    story
}

fn edit(story: &mut Scenario, change: impl FnOnce(&mut VersionPolicySpec)) {
    story.edit("p", |spec| change(spec.version_policy.get_or_insert_default()));
    story.settle();
}

fn annotate(story: &mut Scenario, key: &str, value: Option<&str>) {
    story.annotate(Kind::Plan, "p", key, value);
    story.settle();
}

fn up_to_date(story: &Scenario) -> (String, String) {
    let (status, reason, _) = story.condition("p", "UpToDate");
    (status, reason)
}

fn words(status: &str, reason: &str) -> (String, String) {
    (status.to_owned(), reason.to_owned())
}

#[test]
fn a_version_out_of_range_waits_and_says_so() {
    let mut story = done_at("v1.33.2", |policy| policy.range = Some("1.33.x".to_owned()));
    assert_eq!(up_to_date(&story), words("True", "Latest"));
    story.offer(URL, "v1.34.0+k3s1");
    story.pass_secs(A_POLL);
    assert_eq!(version(&story), "v1.33.2");
    assert_eq!(channel(&story).candidate.as_deref(), Some("v1.34.0+k3s1"));
    assert_eq!(up_to_date(&story), words("False", "OutOfRange"));
    assert_eq!(channel(&story).last_error, None, "that is no error");
    let message = "v1.34.0+k3s1 is not taken: it is not in spec.versionPolicy.range, 1.33.x; a range that has it lets it through";
    assert_eq!(channel(&story).message.as_deref(), Some(message));
    story.pass_secs(A_POLL);
    assert_eq!(
        story.events_of("VersionHeld"),
        [format!("{message}; the Plan stays at v1.33.2")],
        "once"
    );
    story.add_nodes(&["c"]);
    story.pass_secs(10);
    assert!(
        story.is_done("c", "p"),
        "a node that comes meanwhile gets what the others have"
    );
    edit(&mut story, |policy| policy.range = Some(">=1.33".to_owned()));
    assert_eq!(version(&story), "v1.34.0-k3s1", "nobody has to be asked for that");
    assert_eq!(
        (channel(&story).candidate, up_to_date(&story)),
        (None, words("True", "Latest"))
    );
}

#[test]
fn a_plan_whose_version_has_left_the_range_begins_with_no_node() {
    let mut story = done_at("v1.33.2", |policy| policy.range = Some(">=1.34".to_owned()));
    story.add_nodes(&["c"]);
    story.settle();
    assert_eq!(story.complete("p").1, "VersionOutOfRange");
    assert!(story.jobs_for("c").is_empty());
    story.offer(URL, "v1.34.0");
    story.pass_secs(A_POLL);
    story.rest();
    story.assert_over();
}

#[test]
fn a_version_is_as_old_as_it_is_for_every_observer() {
    let mut story = done_at("v1.33.2", |policy| policy.minimum_age = Some("2h".to_owned()));
    story.offer(URL, "v1.33.3+k3s1");
    story.pass_secs(A_POLL);
    let stored = channel(&story);
    assert_eq!(stored.candidate.as_deref(), Some("v1.33.3+k3s1"));
    assert_eq!(up_to_date(&story), words("False", "TooYoung"));
    let since: Timestamp = stored.since.clone().unwrap().parse().unwrap();
    let due: Timestamp = stored.due.unwrap().parse().unwrap();
    assert_eq!(due, since + SignedDuration::from_hours(2));
    break_channel(&story, "down");
    story.pass_secs(A_POLL);
    story.restart();
    assert_eq!(
        (channel(&story).since, version(&story)),
        (stored.since, "v1.33.2"),
        "nobody forgets it"
    );
    story.offer(URL, "v1.33.3+k3s1");
    let left = u64::try_from(due.duration_since(story.now()).as_secs()).unwrap();
    story.pass_secs(left - 2);
    assert_eq!(version(&story), "v1.33.2");
    story.pass_secs(6);
    assert_eq!(
        (version(&story), up_to_date(&story)),
        ("v1.33.3-k3s1", words("True", "Latest"))
    );
    assert_eq!(story.events_of("VersionHeld").len(), 1);

    let mut story = done_at("v1.33.2", |policy| policy.minimum_age = Some("2h".to_owned()));
    story.offer(URL, "v1.33.3");
    story.pass_secs(A_POLL);
    let since = channel(&story).since;
    story.offer(URL, "v1.33.4");
    story.pass_secs(A_POLL);
    assert_ne!(channel(&story).since, since, "the channel has taken it back");
}

#[test]
fn the_first_version_of_all_waits_too() {
    let mut story = Scenario::empty();
    story.add_nodes(&["a"]);
    story.offer(URL, "v1.33.3");
    story.apply(guarded(|policy| policy.minimum_age = Some("1h".to_owned())));
    story.settle();
    let (status, reason, message) = story.condition("p", "LatestResolved");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "Held"));
    assert!(
        message.starts_with("v1.33.3 is taken at 2026-01-01T10:00:"),
        "{message}"
    );
    assert_eq!((version(&story), story.invariants.jobs.len()), ("", 0));
    assert_eq!(story.events_of("ResolveFailed"), [""; 0]);
    story.restart();
    assert_eq!(story.condition("p", "LatestResolved").2, message);
    story.pass_secs(60 * 60);
    assert_eq!(version(&story), "v1.33.3");
    story.roll_out();
    story.assert_over();
}

#[test]
fn a_proposed_version_waits_for_its_approval() {
    let mut story = done_at("v1.33.2", |policy| policy.propose = Some(true));
    story.offer(URL, "v1.34.0+k3s1");
    story.pass_secs(A_POLL);
    assert_eq!(
        (version(&story), up_to_date(&story)),
        ("v1.33.2", words("False", "NotApproved"))
    );
    let text = "v1.34.0+k3s1 is proposed: the annotation refit.rs/approve: v1.34.0+k3s1 on the Plan lets it through; the Plan \
                stays at v1.33.2";
    assert_eq!(story.events_of("VersionProposed"), [text]);
    annotate(&mut story, ANNOTATION_APPROVE, Some("v1.33.9"));
    assert_eq!(version(&story), "v1.33.2", "that is another version");
    annotate(&mut story, ANNOTATION_APPROVE, Some("v1.34.0+k3s1"));
    assert_eq!(version(&story), "v1.34.0-k3s1");
    story.rest();
    story.assert_over();
    annotate(&mut story, ANNOTATION_APPROVE, None);
    story.offer(URL, "v1.35.0+k3s1");
    story.pass_secs(A_POLL);
    assert_eq!(
        version(&story),
        "v1.34.0-k3s1",
        "what is taken stays, and the next one needs its own"
    );
}

#[test]
fn a_channel_may_be_asked_now_and_once() {
    let mut story = done_at("v1.33.2", |_| {});
    let polls = story.polls();
    story.offer(URL, "v1.33.3");
    annotate(&mut story, ANNOTATION_POLL_NOW, Some("one"));
    assert_eq!((story.polls(), version(&story)), (polls + 1, "v1.33.3"));
    assert_eq!(channel(&story).polled_for.as_deref(), Some("one"));
    story.restart();
    annotate(&mut story, "example.com/else", Some("x"));
    assert_eq!(story.polls(), polls + 1, "once, whoever comes after");
    annotate(&mut story, ANNOTATION_POLL_NOW, None);
    assert_eq!(story.polls(), polls + 1);
    break_channel(&story, "down");
    annotate(&mut story, ANNOTATION_POLL_NOW, Some("two"));
    assert_eq!(
        (story.polls(), channel(&story).polled_for.as_deref()),
        (polls + 2, Some("two")),
        "also if it was no good"
    );
}

#[test]
fn one_url_with_two_secrets_is_two_channels() {
    let mut story = Scenario::empty();
    story.offer(URL, "v1");
    for (name, secret) in [
        ("p", Some("one")),
        ("q", Some("one")),
        ("r", Some("two")),
        ("s", None),
    ] {
        if let Some(secret) = secret
            && story
                .cluster
                .get(Kind::Secret, "system-upgrade", secret)
                .is_none()
        {
            let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": secret, "namespace": "system-upgrade" }, "data": { "token": "eA==" } });
            story.cluster.put(secret).unwrap();
        }
        let mut plan = following(name, URL);
        plan.spec.channel_secret_ref = secret.map(|name| SecretRef {
            name: name.to_owned(),
        });
        story.apply(plan);
    }
    story.settle();
    assert_eq!(story.polls(), 3);
    assert_eq!(channel(&story).secrets.as_deref(), Some("one"));
    story.restart();
    assert_eq!(story.polls(), 3, "another controller knows them apart");
    story.edit("q", |spec| spec.channel_secret_ref = None);
    story.settle();
    assert_eq!(story.polls(), 4, "a Plan without an answer gets one now");
}

fn feed(story: &Scenario, releases: &[(&str, Option<&str>)]) {
    let releases = releases.iter().map(|(version, published)| Release {
        version: (*version).to_owned(),
        published: published.map(|at| at.parse().unwrap()),
    });
    let offer = Offer {
        releases: releases.collect(),
        partial: None,
    };
    story
        .channels
        .lock()
        .unwrap()
        .offers
        .insert(URL.to_owned(), Ok(offer));
}

#[test]
fn of_several_releases_the_newest_in_range_is_taken_and_the_next_one_when_it_is_old_enough() {
    let mut story = Scenario::empty();
    story.add_nodes(&["a"]);
    let releases = [
        ("v1.34.0+k3s1", Some("2025-12-01T00:00:00Z")),
        ("v1.33.2+k3s1", Some("2025-12-01T00:00:00Z")),
        ("v1.33.3+k3s1", Some("2026-01-01T08:00:00Z")),
        ("v1.32.9+k3s1", Some("2025-12-31T00:00:00Z")),
    ];
    feed(&story, &releases);
    story.apply(guarded(|policy| {
        policy.range = Some("~1.33".to_owned());
        policy.minimum_age = Some("2h".to_owned());
    }));
    story.settle();
    assert_eq!(version(&story), "v1.33.2-k3s1");
    assert_eq!(channel(&story).candidate.as_deref(), Some("v1.33.3+k3s1"));
    assert_eq!(channel(&story).due.as_deref(), Some("2026-01-01T10:00:00Z"));
    assert_eq!(channel(&story).seen, None, "the feed dates it");
    story.pass_secs(60 * 60);
    assert_eq!(version(&story), "v1.33.3-k3s1");
    feed(&story, &releases[..2]);
    story.pass_secs(A_POLL);
    assert_eq!(
        version(&story),
        "v1.33.3-k3s1",
        "taken back, and nothing newer in its place"
    );
}

#[test]
fn a_release_that_is_taken_back_holds_those_that_have_not_begun() {
    let mut story = Scenario::empty();
    story.add_nodes(&["a", "b"]);
    feed(&story, &[("v1.33.3", None), ("v1.33.2", None)]);
    story.apply(guarded(|_| {}));
    story.settle();
    let first = story.slots("p")[0].clone();
    feed(&story, &[("v1.33.2", None)]);
    annotate(&mut story, ANNOTATION_POLL_NOW, Some("1"));
    story.succeed(&first);
    assert!(story.is_done(&first, "p") && story.slots("p").is_empty());
    assert_eq!(story.complete("p").1, "ChannelWithdrawn");
    assert_eq!(channel(&story).withdrawn.as_deref(), Some("v1.33.2"));
}

#[test]
fn a_node_that_is_too_far_behind_waits_and_the_others_do_not_wait_for_it() {
    let mut story = Scenario::new(&Setup {
        held: false,
        ..Setup::default()
    });
    for (name, kubelet) in [
        ("a", "v1.33.1+k3s1"),
        ("b", "v1.31.9+k3s1"),
        ("c", "v1.32.0"),
        ("d", ""),
        ("e", "v1.34.1"),
    ] {
        story.add_node(
            name,
            &json!({ "status": { "nodeInfo": { "kubeletVersion": kubelet } } }),
        );
    }
    story.offer(URL, "v1.33.2+k3s1");
    story.apply(guarded(|policy| policy.max_minor_skip = Some(1)));
    story.rest();
    let done: Vec<_> = ["a", "b", "c", "d", "e"]
        .into_iter()
        .filter(|node| story.is_done(node, "p"))
        .collect();
    assert_eq!(done, ["a", "c", "e"]);
    assert_eq!(
        story.complete("p").2.split("; ").next().unwrap(),
        "Node b: v1.33.2-k3s1 is 2 minor versions from the node's kubelet, v1.31.9+k3s1, and spec.versionPolicy.maxMinorSkip is 1"
    );
    let unknown = story.entry("p", "d");
    assert_eq!(unknown.reason.as_deref(), Some("MinorSkip"));
    assert!(
        unknown
            .message
            .unwrap()
            .starts_with("v1.33.2-k3s1 cannot be compared with the node's kubelet")
    );
    // Also after `version` replaces the channel.
    story.edit("p", |spec| {
        (spec.version, spec.channel) = (spec.channel.take().map(|_| "v1.33.2+k3s1".to_owned()), None);
    });
    story.settle();
    assert_eq!(story.entry("p", "b").reason.as_deref(), Some("MinorSkip"));
    edit(&mut story, |policy| policy.max_minor_skip = Some(2));
    story.rest();
    assert!(story.is_done("b", "p"));
}

fn pinned(spec: &mut PlanSpec) {
    spec.version_policy.get_or_insert_default().pin_digest = Some(true);
}

fn image_of(story: &Scenario, node: &str) -> String {
    let job = story.live_job(node).name;
    let job = story.cluster.get(Kind::Job, "system-upgrade", &job).unwrap();
    let image = &job["spec"]["template"]["spec"]["containers"][0]["image"];
    image.as_str().unwrap().to_owned()
}

#[test]
fn jobs_run_by_the_digest_that_stored_status_has() {
    let mut story = Scenario::empty();
    story.add_nodes(&["a", "b"]);
    story.apply(plan_with("p", pinned));
    story.settle();
    let first = story.slots("p")[0].clone();
    let image = image_of(&story, &first);
    assert!(image.starts_with("example.com/upgrade:v1@sha256:"), "{image}");
    let pins = story.status("p").pinned.clone().unwrap();
    assert_eq!(Some(&pins.hash), story.status("p").latest_hash.as_ref());
    assert!(image.ends_with(&pins.images[0].digest));
    story.succeed(&first);
    story.restart();
    let second = story.slots("p")[0].clone();
    assert_eq!(image_of(&story, &second), image);
    story.roll_out();
    story.edit("p", |spec| spec.version = Some("v2".to_owned()));
    story.settle();
    let node = story.slots("p")[0].clone();
    assert!(
        image_of(&story, &node).starts_with("example.com/upgrade:v2@sha256:"),
        "another version has another one"
    );
}

#[test]
fn a_policy_that_cannot_be_read_takes_nothing() {
    let mut story = done_at("v1.33.2", |policy| policy.range = Some("newest".to_owned()));
    story.offer(URL, "v1.33.3");
    story.pass_secs(A_POLL);
    assert_eq!(version(&story), "v1.33.2");
    let (status, _, message) = story.condition("p", "Validated");
    assert_eq!(status, "False");
    assert!(
        message.starts_with("spec.versionPolicy.range is invalid, \"newest\" is not a version range"),
        "{message}"
    );
    edit(&mut story, |policy| policy.range = None);
    assert_eq!(version(&story), "v1.33.3");
}

#[test]
fn a_plan_without_a_policy_has_no_condition_of_refits() {
    let mut story = at("v1.33.2");
    story.offer(URL, "v1.30.0");
    story.pass_secs(A_POLL);
    let types: Vec<_> = story
        .status("p")
        .conditions
        .iter()
        .map(|one| one.type_.as_str())
        .collect();
    assert_eq!(types, ["Complete", "Validated", "LatestResolved"]);
}
