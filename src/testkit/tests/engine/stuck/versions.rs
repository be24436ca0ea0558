//! Versions and channels that hold a roll-out: out of reach, not approved, withdrawn.

use super::super::scenario::Scenario;
use super::{explained, names};
use refit_api::VersionPolicySpec;
use refit_fixtures::plan_with;
use refit_rehearse::Kind;
use refit_rehearse::json::json;

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

#[test]
fn a_done_node_is_explained_with_what_its_kubelet_says() {
    let mut scenario = Scenario::empty();
    let kubelet = |version: &str| json!({ "status": { "nodeInfo": { "kubeletVersion": version } } });
    scenario.add_node("a", &kubelet("v1.36.0+k3s1"));
    scenario.apply_and_settle(plan_with("p", |spec| {
        spec.version = Some("v1.36.1+k3s1".to_owned());
        spec.upgrade.get_or_insert_default().image = "rancher/k3s-upgrade".to_owned();
    }));
    scenario.succeed("a");
    let differs = "its kubelet has v1.36.0+k3s1, and the Plan's version is v1.36.1-k3s1";
    let is_explained = |scenario: &mut Scenario, verdict: &str| {
        let explained = explained(scenario, "a");
        assert!(explained.starts_with(verdict), "{explained}");
    };
    let plan = "under Plan system-upgrade/p";
    is_explained(&mut scenario, &format!("Node a is done {plan}; {differs}\n"));
    scenario.pass_secs(61);
    is_explained(
        &mut scenario,
        &format!("Node a counts as done {plan}, and {differs}: VersionDiffers"),
    );
    let status = scenario
        .cluster
        .patch_status(Kind::Node, "", "a", kubelet("v1.36.1+k3s1"));
    status.unwrap();
    scenario.settle();
    is_explained(&mut scenario, &format!("Node a is done {plan} at v1.36.1-k3s1"));
}
