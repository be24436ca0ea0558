//! Versions and channels that hold a roll-out: out of reach, not approved, withdrawn.

use super::super::scenario::Scenario;
use super::names;
use refit_api::VersionPolicySpec;
use refit_fixtures::plan_with;
use refit_rehearse::Kind;

const URL: &str = "https://example.com/stable";

#[test]
fn a_channel_that_cannot_be_reached() {
    let mut scenario = Scenario::of_nodes(&["a"]);
    scenario.break_channel(URL, "connection refused");
    scenario.apply_and_settle(plan_with("p", |spec| {
        (spec.version, spec.channel) = (None, Some(URL.to_owned()));
    }));
    names(
        &mut scenario,
        &["connection refused"],
        &[
            &format!("channel {URL}"),
            "refit resolve https://example.com/stable",
        ],
    );
}

#[test]
fn a_version_that_waits_for_approval() {
    let mut scenario = Scenario::of_nodes(&["a"]);
    scenario.offer(URL, "v1.30.1-k3s1");
    let policy = VersionPolicySpec {
        propose: Some(true),
        ..VersionPolicySpec::default()
    };
    scenario.apply_and_settle(plan_with("p", |spec| {
        (spec.version, spec.channel, spec.version_policy) = (None, Some(URL.to_owned()), Some(policy));
    }));
    names(
        &mut scenario,
        &["v1.30.1-k3s1", "refit approve -n system-upgrade p"],
        &[],
    );
    scenario.annotate(Kind::Plan, "p", names::ANNOTATION_APPROVE, Some("v1.30.1-k3s1"));
    scenario.roll_out();
    scenario.offer(URL, "v1.31.0-k3s1");
    scenario.annotate(Kind::Plan, "p", names::ANNOTATION_POLL_NOW, Some("1"));
    scenario.settle();
    names(
        &mut scenario,
        &["v1.31.0-k3s1", "refit approve -n system-upgrade p"],
        &["a newer version is held back: NotApproved"],
    );
}

#[test]
fn a_channel_that_has_withdrawn_the_version() {
    let mut scenario = Scenario::of_nodes(&["a", "b"]);
    scenario.offer(URL, "v1.31.0-k3s1");
    scenario.apply_and_settle(plan_with("p", |spec| {
        (spec.version, spec.channel) = (None, Some(URL.to_owned()));
    }));
    let first = scenario.slots("p")[0].clone();
    scenario.offer(URL, "v1.30.0-k3s1");
    scenario.annotate(Kind::Plan, "p", names::ANNOTATION_POLL_NOW, Some("1"));
    scenario.settle();
    scenario.succeed(&first);
    names(
        &mut scenario,
        &["ChannelWithdrawn", "v1.30.0-k3s1"],
        &["v1.31.0-k3s1"],
    );
}
