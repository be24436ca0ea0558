//! Version policies in a roll-out: ranges, ages, approvals, skipped minor versions, digests.

use super::*;

fn guarded(change: impl FnOnce(&mut VersionPolicySpec)) -> Plan {
    let mut plan = following("p", URL);
    change(plan.spec.version_policy.get_or_insert_default());
    plan
}

/// A finished roll-out on two nodes.
fn done_at(version: &str, change: impl FnOnce(&mut VersionPolicySpec)) -> Scenario {
    let mut scenario = Scenario::new(&Setup {
        held: false,
        ..Setup::default()
    });
    scenario.add_nodes(&["a", "b"]);
    scenario.offer(URL, version);
    scenario.apply(guarded(|_| {}));
    scenario.rest();
    scenario.assert_over();
    edit(&mut scenario, change);
    scenario
}

fn edit(scenario: &mut Scenario, change: impl FnOnce(&mut VersionPolicySpec)) {
    scenario.edit_and_settle("p", |spec| change(spec.version_policy.get_or_insert_default()));
}

fn annotate(scenario: &mut Scenario, key: &str, value: Option<&str>) {
    scenario.annotate(Kind::Plan, "p", key, value);
    scenario.settle();
}

fn up_to_date(scenario: &Scenario) -> (String, String) {
    let [status, reason, _] = scenario.condition("p", "UpToDate");
    (status, reason)
}

fn words(status: &str, reason: &str) -> (String, String) {
    (status.to_owned(), reason.to_owned())
}

#[test]
fn a_version_out_of_range_waits_and_says_so() {
    let mut scenario = done_at("v1.33.2", |policy| policy.range = Some("1.33.x".to_owned()));
    assert_eq!(up_to_date(&scenario), words("True", "Latest"));
    scenario.offer(URL, "v1.34.0+k3s1");
    scenario.pass_secs(A_POLL);
    assert_eq!(version(&scenario), "v1.33.2");
    assert_eq!(channel(&scenario).candidate.as_deref(), Some("v1.34.0+k3s1"));
    assert_eq!(up_to_date(&scenario), words("False", "OutOfRange"));
    assert_eq!(channel(&scenario).last_error, None, "that is no error");
    let message = "v1.34.0+k3s1 is not taken: it is not in spec.versionPolicy.range, 1.33.x; a range that has it lets it through";
    assert_eq!(channel(&scenario).message.as_deref(), Some(message));
    scenario.pass_secs(A_POLL);
    assert_eq!(
        scenario.events_of("VersionHeld"),
        [format!("{message}; the Plan stays at v1.33.2")],
        "once"
    );
    scenario.add_nodes(&["c"]);
    scenario.pass_secs(10);
    assert!(
        scenario.is_done("c", "p"),
        "a node that comes meanwhile gets what the others have"
    );
    edit(&mut scenario, |policy| policy.range = Some(">=1.33".to_owned()));
    assert_eq!(
        version(&scenario),
        "v1.34.0-k3s1",
        "nobody has to be asked for that"
    );
    assert_eq!(
        (channel(&scenario).candidate, up_to_date(&scenario)),
        (None, words("True", "Latest"))
    );
}

#[test]
fn a_channel_of_another_distribution_changes_no_plan() {
    for downgrades in [None, Some(true)] {
        let mut scenario = done_at("v1.33.2+k3s1", |policy| policy.allow_downgrade = downgrades);
        for other in ["v1.34.0+rke2r1", "v1.32.0+rke2r1"] {
            scenario.offer(URL, other);
            scenario.pass_secs(A_POLL);
            let why = channel(&scenario).last_error.unwrap_or_default();
            assert!(
                why.contains("is a version of rke2") && why.contains("is one of k3s"),
                "{why}"
            );
            assert_eq!(version(&scenario), "v1.33.2-k3s1", "{other}");
            assert_eq!(scenario.complete("p")[0], "True", "{other}");
        }
        assert_eq!(scenario.invariants.upgrades, 2, "{downgrades:?}");
    }
}

#[test]
fn a_plan_whose_version_has_left_the_range_begins_with_no_node() {
    let mut scenario = done_at("v1.33.2", |policy| policy.range = Some(">=1.34".to_owned()));
    scenario.add_nodes(&["c"]);
    scenario.settle();
    assert_eq!(scenario.complete("p")[1], "VersionOutOfRange");
    assert!(scenario.jobs_for("c").is_empty());
    scenario.offer(URL, "v1.34.0");
    scenario.pass_secs(A_POLL);
    scenario.rest();
    scenario.assert_over();
}

#[test]
fn a_version_is_as_old_as_it_is_for_every_observer() {
    let mut scenario = done_at("v1.33.2", |policy| policy.minimum_age = Some("2h".to_owned()));
    scenario.offer(URL, "v1.33.3+k3s1");
    scenario.pass_secs(A_POLL);
    let stored = channel(&scenario);
    assert_eq!(stored.candidate.as_deref(), Some("v1.33.3+k3s1"));
    assert_eq!(up_to_date(&scenario), words("False", "TooYoung"));
    let since: Timestamp = stored.since.clone().unwrap().parse().unwrap();
    let due: Timestamp = stored.due.unwrap().parse().unwrap();
    assert_eq!(due, since + SignedDuration::from_hours(2));
    scenario.break_channel(URL, "down");
    scenario.pass_secs(A_POLL);
    scenario.restart();
    assert_eq!(
        (channel(&scenario).since, version(&scenario)),
        (stored.since, "v1.33.2"),
        "nobody forgets it"
    );
    scenario.offer(URL, "v1.33.3+k3s1");
    let left = u64::try_from(due.duration_since(scenario.now()).as_secs()).unwrap();
    scenario.pass_secs(left - 2);
    assert_eq!(version(&scenario), "v1.33.2");
    scenario.pass_secs(6);
    assert_eq!(
        (version(&scenario), up_to_date(&scenario)),
        ("v1.33.3-k3s1", words("True", "Latest"))
    );
    assert_eq!(scenario.events_of("VersionHeld").len(), 1);

    let mut scenario = done_at("v1.33.2", |policy| policy.minimum_age = Some("2h".to_owned()));
    scenario.offer(URL, "v1.33.3");
    scenario.pass_secs(A_POLL);
    let since = channel(&scenario).since;
    scenario.offer(URL, "v1.33.4");
    scenario.pass_secs(A_POLL);
    assert_ne!(channel(&scenario).since, since, "the channel has taken it back");
}

#[test]
fn the_first_version_of_all_waits_too() {
    let mut scenario = Scenario::of_nodes(&["a"]);
    scenario.offer(URL, "v1.33.3");
    scenario.apply_and_settle(guarded(|policy| policy.minimum_age = Some("1h".to_owned())));
    let [status, reason, message] = scenario.condition("p", "LatestResolved");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "Held"));
    assert!(
        message.starts_with("v1.33.3 is taken at 2026-01-01T10:00:"),
        "{message}"
    );
    assert_eq!((version(&scenario), scenario.invariants.jobs.len()), ("", 0));
    assert_eq!(scenario.events_of("ResolveFailed"), [""; 0]);
    scenario.restart();
    assert_eq!(scenario.condition("p", "LatestResolved")[2], message);
    scenario.pass_secs(60 * 60);
    assert_eq!(version(&scenario), "v1.33.3");
    scenario.finish();
}

#[test]
fn a_proposed_version_waits_for_its_approval() {
    let mut scenario = done_at("v1.33.2", |policy| policy.propose = Some(true));
    scenario.offer(URL, "v1.34.0+k3s1");
    scenario.pass_secs(A_POLL);
    assert_eq!(
        (version(&scenario), up_to_date(&scenario)),
        ("v1.33.2", words("False", "NotApproved"))
    );
    let text = "v1.34.0+k3s1 is proposed: the annotation refit.rs/approve: v1.34.0+k3s1 on the Plan lets it through; the Plan \
                stays at v1.33.2";
    assert_eq!(scenario.events_of("VersionProposed"), [text]);
    annotate(&mut scenario, ANNOTATION_APPROVE, Some("v1.33.9"));
    assert_eq!(version(&scenario), "v1.33.2", "that is another version");
    annotate(&mut scenario, ANNOTATION_APPROVE, Some("v1.34.0+k3s1"));
    assert_eq!(version(&scenario), "v1.34.0-k3s1");
    scenario.rest();
    scenario.assert_over();
    annotate(&mut scenario, ANNOTATION_APPROVE, None);
    scenario.offer(URL, "v1.35.0+k3s1");
    scenario.pass_secs(A_POLL);
    assert_eq!(
        version(&scenario),
        "v1.34.0-k3s1",
        "what is taken stays, and the next one needs its own"
    );
}

#[test]
fn a_channel_may_be_asked_now_and_once() {
    let mut scenario = done_at("v1.33.2", |_| {});
    let polls = scenario.polls();
    scenario.offer(URL, "v1.33.3");
    annotate(&mut scenario, ANNOTATION_POLL_NOW, Some("one"));
    assert_eq!((scenario.polls(), version(&scenario)), (polls + 1, "v1.33.3"));
    assert_eq!(channel(&scenario).polled_for.as_deref(), Some("one"));
    scenario.restart();
    annotate(&mut scenario, "example.com/else", Some("x"));
    assert_eq!(scenario.polls(), polls + 1, "once, whoever comes after");
    annotate(&mut scenario, ANNOTATION_POLL_NOW, None);
    assert_eq!(scenario.polls(), polls + 1);
    scenario.break_channel(URL, "down");
    annotate(&mut scenario, ANNOTATION_POLL_NOW, Some("two"));
    assert_eq!(
        (scenario.polls(), channel(&scenario).polled_for.as_deref()),
        (polls + 2, Some("two")),
        "also if it was no good"
    );
}

#[test]
fn one_url_with_two_secrets_is_two_channels() {
    let mut scenario = Scenario::empty();
    scenario.offer(URL, "v1");
    for (name, secret) in [
        ("p", Some("one")),
        ("q", Some("one")),
        ("r", Some("two")),
        ("s", None),
    ] {
        if let Some(secret) = secret
            && scenario
                .cluster
                .get(Kind::Secret, "system-upgrade", secret)
                .is_none()
        {
            let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": secret, "namespace": "system-upgrade" }, "data": { "token": "eA==" } });
            scenario.cluster.put(secret).unwrap();
        }
        let mut plan = following(name, URL);
        plan.spec.channel_secret_ref = secret.map(|name| SecretRef {
            name: name.to_owned(),
        });
        scenario.apply(plan);
    }
    scenario.settle();
    assert_eq!(scenario.polls(), 3);
    assert_eq!(channel(&scenario).secrets.as_deref(), Some("one"));
    scenario.restart();
    assert_eq!(scenario.polls(), 3, "another controller knows them apart");
    scenario.edit_and_settle("q", |spec| spec.channel_secret_ref = None);
    assert_eq!(scenario.polls(), 4, "a Plan without an answer gets one now");
}

#[test]
fn of_several_releases_the_newest_in_range_is_taken_and_the_next_one_when_it_is_old_enough() {
    let mut scenario = Scenario::of_nodes(&["a"]);
    let releases = [
        ("v1.34.0+k3s1", Some("2025-12-01T00:00:00Z")),
        ("v1.33.2+k3s1", Some("2025-12-01T00:00:00Z")),
        ("v1.33.3+k3s1", Some("2026-01-01T08:00:00Z")),
        ("v1.32.9+k3s1", Some("2025-12-31T00:00:00Z")),
    ];
    scenario.offer_list(URL, &releases);
    scenario.apply_and_settle(guarded(|policy| {
        policy.range = Some("~1.33".to_owned());
        policy.minimum_age = Some("2h".to_owned());
    }));
    assert_eq!(version(&scenario), "v1.33.2-k3s1");
    assert_eq!(channel(&scenario).candidate.as_deref(), Some("v1.33.3+k3s1"));
    assert_eq!(channel(&scenario).due.as_deref(), Some("2026-01-01T10:00:00Z"));
    assert_eq!(channel(&scenario).seen, None, "the feed dates it");
    scenario.pass_secs(60 * 60);
    assert_eq!(version(&scenario), "v1.33.3-k3s1");
    scenario.offer_list(URL, &releases[..2]);
    scenario.pass_secs(A_POLL);
    assert_eq!(
        version(&scenario),
        "v1.33.3-k3s1",
        "taken back, and nothing newer in its place"
    );
}

#[test]
fn a_release_that_is_taken_back_holds_those_that_have_not_begun() {
    let mut scenario = Scenario::of_nodes(&["a", "b"]);
    scenario.offer_list(URL, &[("v1.33.3", None), ("v1.33.2", None)]);
    scenario.apply_and_settle(guarded(|_| {}));
    let first = scenario.slots("p")[0].clone();
    scenario.offer_list(URL, &[("v1.33.2", None)]);
    annotate(&mut scenario, ANNOTATION_POLL_NOW, Some("1"));
    scenario.succeed(&first);
    assert!(scenario.is_done(&first, "p") && scenario.slots("p").is_empty());
    assert_eq!(scenario.complete("p")[1], "ChannelWithdrawn");
    assert_eq!(channel(&scenario).withdrawn.as_deref(), Some("v1.33.2"));
}

#[test]
fn a_node_that_is_too_far_behind_waits_and_the_others_do_not_wait_for_it() {
    let mut scenario = Scenario::new(&Setup {
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
        scenario.add_node(
            name,
            &json!({ "status": { "nodeInfo": { "kubeletVersion": kubelet } } }),
        );
    }
    scenario.offer(URL, "v1.33.2+k3s1");
    scenario.apply(guarded(|policy| policy.max_minor_skip = Some(1)));
    scenario.rest();
    let done: Vec<_> = ["a", "b", "c", "d", "e"]
        .into_iter()
        .filter(|node| scenario.is_done(node, "p"))
        .collect();
    assert_eq!(done, ["a", "c", "e"]);
    assert_eq!(
        scenario.complete("p")[2].split("; ").next().unwrap(),
        "Node b: v1.33.2-k3s1 is 2 minor versions from the node's kubelet, v1.31.9+k3s1, and spec.versionPolicy.maxMinorSkip is 1"
    );
    let unknown = scenario.entry("p", "d");
    assert_eq!(unknown.reason.as_deref(), Some("MinorSkip"));
    assert!(
        unknown
            .message
            .unwrap()
            .starts_with("v1.33.2-k3s1 cannot be compared with the node's kubelet")
    );
    // Also after `version` replaces the channel.
    scenario.edit_and_settle("p", |spec| {
        (spec.version, spec.channel) = (spec.channel.take().map(|_| "v1.33.2+k3s1".to_owned()), None);
    });
    assert_eq!(scenario.entry("p", "b").reason.as_deref(), Some("MinorSkip"));
    edit(&mut scenario, |policy| policy.max_minor_skip = Some(2));
    scenario.rest();
    assert!(scenario.is_done("b", "p"));
}

/// F20: a feed with two minor versions ahead of the nodes.
#[test]
fn of_a_feed_each_minor_version_is_completed_before_the_next() {
    let mut scenario = Scenario::empty();
    let kubelet = |version: &str| json!({ "status": { "nodeInfo": { "kubeletVersion": version } } });
    for name in ["a", "b"] {
        scenario.add_node(name, &kubelet("v1.34.1+k3s1"));
    }
    let releases = ["v1.34.9+k3s1", "v1.35.3+k3s1", "v1.36.3+k3s1"];
    scenario.offer_list(URL, &releases.map(|version| (version, None)));
    scenario.apply_and_settle(guarded(|policy| policy.max_minor_skip = Some(1)));
    for next in ["v1.35.3-k3s1", "v1.36.3-k3s1"] {
        for node in ["first", "second"] {
            assert_eq!(version(&scenario), next, "{node}");
            let up_to_date = up_to_date(&scenario);
            if next.starts_with("v1.36") {
                assert_eq!(up_to_date, words("True", "Latest"));
            } else {
                assert_eq!(up_to_date, words("False", "MinorSkip"), "{node}");
                assert_eq!(channel(&scenario).candidate.as_deref(), Some("v1.36.3+k3s1"));
            }
            let at_work = scenario.slots("p")[0].clone();
            scenario
                .cluster
                .patch_status(Kind::Node, "", &at_work, kubelet(&next.replacen('-', "+", 1)))
                .unwrap();
            scenario.succeed(&at_work);
            scenario.settle();
        }
    }
    scenario.rest();
    scenario.assert_over();
    assert_eq!(scenario.status("p").progress.as_deref(), Some("2/2"));
    assert_eq!(scenario.invariants.upgrades, 4);
}

fn pinned(spec: &mut PlanSpec) {
    spec.version_policy.get_or_insert_default().pin_digest = Some(true);
}

fn image_of(scenario: &Scenario, node: &str) -> String {
    let job = scenario.live_job(node).name;
    let job = scenario.cluster.get(Kind::Job, "system-upgrade", &job).unwrap();
    let image = &job["spec"]["template"]["spec"]["containers"][0]["image"];
    image.as_str().unwrap().to_owned()
}

#[test]
fn jobs_run_by_the_digest_that_stored_status_has() {
    let mut scenario = Scenario::with(&["a", "b"], plan_with("p", pinned));
    let first = scenario.slots("p")[0].clone();
    let image = image_of(&scenario, &first);
    assert!(image.starts_with("example.com/upgrade:v1@sha256:"), "{image}");
    let pins = scenario.status("p").pinned.clone().unwrap();
    assert_eq!(Some(&pins.hash), scenario.status("p").latest_hash.as_ref());
    assert!(image.ends_with(&pins.images[0].digest));
    scenario.succeed(&first);
    scenario.restart();
    let second = scenario.slots("p")[0].clone();
    assert_eq!(image_of(&scenario, &second), image);
    scenario.roll_out();
    scenario.edit_and_settle("p", |spec| spec.version = Some("v2".to_owned()));
    let node = scenario.slots("p")[0].clone();
    assert!(
        image_of(&scenario, &node).starts_with("example.com/upgrade:v2@sha256:"),
        "another version has another one"
    );
}

#[test]
fn a_policy_that_cannot_be_read_takes_nothing() {
    let mut scenario = done_at("v1.33.2", |policy| policy.range = Some("newest".to_owned()));
    scenario.offer(URL, "v1.33.3");
    scenario.pass_secs(A_POLL);
    assert_eq!(version(&scenario), "v1.33.2");
    let [status, _, message] = scenario.condition("p", "Validated");
    assert_eq!(status, "False");
    assert!(
        message.starts_with("spec.versionPolicy.range is invalid, \"newest\" is not a version range"),
        "{message}"
    );
    edit(&mut scenario, |policy| policy.range = None);
    assert_eq!(version(&scenario), "v1.33.3");
}

#[test]
fn a_plan_without_a_policy_has_no_condition_of_refits() {
    let mut scenario = at("v1.33.2");
    scenario.offer(URL, "v1.30.0");
    scenario.pass_secs(A_POLL);
    let types: Vec<_> = scenario
        .status("p")
        .conditions
        .iter()
        .map(|one| one.type_.as_str())
        .collect();
    assert_eq!(types, ["Complete", "Validated", "LatestResolved"]);
}
