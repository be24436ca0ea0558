//! A channel whose response ends the controller, and Plans that need no poll.

use super::scenario::Scenario;
use refit_api::names::{ANNOTATION_DIGEST, ANNOTATION_POLL_NOW};
use refit_api::{ChannelStatus, Plan};
use refit_fixtures::plan_with;
use refit_rehearse::Kind;
use refit_rehearse::json::json;

const URL: &str = "https://example.com/stable";
/// Slightly more than the poll interval with its jitter.
const A_POLL: u64 = 17 * 60;

fn following(name: &str) -> Plan {
    plan_with(name, |spec| {
        spec.version = None;
        spec.channel = Some(URL.to_owned());
    })
}

fn channel(scenario: &Scenario, plan: &str) -> ChannelStatus {
    scenario.status(plan).channel.clone().unwrap_or_default()
}

/// Leaves a status as a controller does that ends during a poll.
fn was_asked(scenario: &Scenario, plan: &str) {
    let channel = json!({ "url": URL, "asked": scenario.now().to_string() });
    let status = json!({ "status": { "channel": channel } });
    scenario
        .cluster
        .patch_status(Kind::Plan, "system-upgrade", plan, status)
        .unwrap();
}

fn version<'a>(scenario: &'a Scenario, plan: &str) -> Option<&'a str> {
    scenario.status(plan).latest_version.as_deref()
}

#[test]
fn a_channel_that_was_asked_when_the_controller_ended_is_not_asked_again_at_once() {
    let mut scenario = Scenario::of_nodes(&["a"]);
    scenario.offer(URL, "v1");
    scenario.apply_and_settle(following("p"));
    assert_eq!((scenario.polls(), channel(&scenario, "p").asked), (1, None));
    let last = channel(&scenario, "p").last_polled;
    scenario.offer(URL, "v2");
    scenario.stop();
    scenario.pass_secs(A_POLL);
    was_asked(&scenario, "p");
    scenario.pass_secs(3);
    scenario.start();
    scenario.pass_secs(100);
    assert_eq!((scenario.polls(), version(&scenario, "p")), (1, Some("v1")));
    assert_eq!(channel(&scenario, "p").last_polled, last, "it survives");
    scenario.pass_secs(30);
    assert_eq!((scenario.polls(), version(&scenario, "p")), (2, Some("v2")));
    assert_eq!(channel(&scenario, "p").asked, None);
}

#[test]
fn a_first_poll_that_ended_the_controller_leaves_the_other_plans_alone() {
    let mut scenario = Scenario::of_nodes(&["a", "b"]);
    scenario.offer(URL, "v1");
    scenario.stop();
    scenario.apply(following("p"));
    scenario.apply(plan_with("other", |_| {}));
    was_asked(&scenario, "p");
    scenario.pass_secs(3);
    scenario.start();
    scenario.settle();
    assert_eq!((scenario.polls(), version(&scenario, "p")), (0, None));
    assert_eq!(scenario.slots("other").len(), 1, "the others go on");
    // Who wants it at once gets it at once.
    scenario.annotate(Kind::Plan, "p", ANNOTATION_POLL_NOW, Some("1"));
    scenario.settle();
    assert_eq!((scenario.polls(), version(&scenario, "p")), (1, Some("v1")));
}

#[test]
fn a_suspended_plan_does_not_poll_and_does_so_once_it_continues() {
    let mut scenario = Scenario::of_nodes(&["a"]);
    scenario.offer(URL, "v1");
    let mut plan = following("p");
    plan.spec.suspend = Some(true);
    scenario.apply(plan);
    scenario.pass_secs(2 * A_POLL);
    assert_eq!((scenario.polls(), version(&scenario, "p")), (0, None));
    assert_eq!(scenario.phase("p", "a")[1], "Suspended");
    scenario.annotate(Kind::Plan, "p", ANNOTATION_POLL_NOW, Some("1"));
    scenario.settle();
    assert_eq!(
        (scenario.polls(), version(&scenario, "p")),
        (1, Some("v1")),
        "who asks for it gets it"
    );
    scenario.pass_secs(2 * A_POLL);
    assert_eq!((scenario.polls(), channel(&scenario, "p").next_poll), (1, None));
    scenario.edit_and_settle("p", |spec| spec.suspend = None);
    assert_eq!(scenario.polls(), 2);
}

#[test]
fn a_suspended_plan_learns_what_is_polled_for_another_one() {
    let mut scenario = Scenario::of_nodes(&["a"]);
    scenario.offer(URL, "v1");
    let mut plan = following("a");
    plan.spec.suspend = Some(true);
    scenario.apply(plan);
    scenario.apply_and_settle(following("p"));
    assert_eq!((scenario.polls(), version(&scenario, "a")), (1, Some("v1")));
}

#[test]
fn an_annotation_with_too_many_fields_makes_its_plan_invalid_and_no_other() {
    let mut scenario = Scenario::of_nodes(&["a"]);
    let mut plan = plan_with("p", |_| {});
    let fields = ",".repeat(240_000);
    plan.metadata.annotations = Some([(ANNOTATION_DIGEST.to_owned(), fields)].into());
    scenario.apply(plan);
    scenario.apply_and_settle(plan_with("q", |_| {}));
    let [status, _, message] = scenario.condition("p", "Validated");
    assert_eq!(status, "False");
    assert!(
        message.contains("upgrade.cattle.io/digest") && message.contains("240000 bytes"),
        "{message}"
    );
    assert!(scenario.slots("p").is_empty());
    assert_eq!(scenario.slots("q").len(), 1);
}

#[test]
fn a_plan_that_names_too_many_secrets_is_invalid_and_no_other() {
    let mut scenario = Scenario::of_nodes(&["a"]);
    let named = |count: usize| {
        let secret =
            |number| serde_json::json!({ "name": format!("s-{number}"), "path": format!("/s/{number}") });
        let secrets: Vec<_> = (0..count).map(secret).collect();
        serde_json::from_value(serde_json::json!(secrets)).unwrap()
    };
    scenario.apply(plan_with("p", |spec| spec.secrets = Some(named(101))));
    scenario.apply(plan_with("r", |spec| spec.secrets = Some(named(100))));
    scenario.apply_and_settle(plan_with("q", |_| {}));
    let [status, _, message] = scenario.condition("p", "Validated");
    assert_eq!(status, "False");
    assert!(message.contains("spec.secrets names 101 secrets"), "{message}");
    assert_eq!(scenario.slots("q").len(), 1);
    // These do not exist, which is another matter.
    let [.., message] = scenario.condition("r", "Validated");
    assert!(!message.contains("at most"), "{message}");
}
