//! A channel whose response ends the controller, and Plans that need no poll.

use super::scenario::Scenario;
use crate::api::names::{ANNOTATION_DIGEST, ANNOTATION_POLL_NOW};
use crate::api::{ChannelStatus, Plan};
use crate::rehearse::Kind;
use crate::rehearse::json::json;
use crate::rollout::tests::build::plan_with;

const URL: &str = "https://example.com/stable";
/// Slightly more than the poll interval with its jitter.
const A_POLL: u64 = 17 * 60;

fn following(name: &str) -> Plan {
    plan_with(name, |spec| {
        spec.version = None;
        spec.channel = Some(URL.to_owned());
    })
}

fn channel(story: &Scenario, plan: &str) -> ChannelStatus {
    story.status(plan).channel.clone().unwrap_or_default()
}

/// Leaves a status as a controller does that ends during a poll.
fn was_asked(story: &Scenario, plan: &str) {
    let channel = json!({ "url": URL, "asked": story.now().to_string() });
    let status = json!({ "status": { "channel": channel } });
    story
        .cluster
        .patch_status(Kind::Plan, "system-upgrade", plan, status)
        .unwrap();
}

fn version<'a>(story: &'a Scenario, plan: &str) -> Option<&'a str> {
    story.status(plan).latest_version.as_deref()
}

#[test]
fn a_channel_that_was_asked_when_the_controller_ended_is_not_asked_again_at_once() {
    let mut story = Scenario::empty();
    story.add_nodes(&["a"]);
    story.offer(URL, "v1");
    story.apply(following("p"));
    story.settle();
    assert_eq!((story.polls(), channel(&story, "p").asked), (1, None));
    let last = channel(&story, "p").last_polled;
    story.offer(URL, "v2");
    story.stop();
    story.pass_secs(A_POLL);
    was_asked(&story, "p");
    story.pass_secs(3);
    story.start();
    story.pass_secs(100);
    assert_eq!((story.polls(), version(&story, "p")), (1, Some("v1")));
    assert_eq!(channel(&story, "p").last_polled, last, "it survives");
    story.pass_secs(30);
    assert_eq!((story.polls(), version(&story, "p")), (2, Some("v2")));
    assert_eq!(channel(&story, "p").asked, None);
}

#[test]
fn a_first_poll_that_ended_the_controller_leaves_the_other_plans_alone() {
    let mut story = Scenario::empty();
    story.add_nodes(&["a", "b"]);
    story.offer(URL, "v1");
    story.stop();
    story.apply(following("p"));
    story.apply(plan_with("other", |_| {}));
    was_asked(&story, "p");
    story.pass_secs(3);
    story.start();
    story.settle();
    assert_eq!((story.polls(), version(&story, "p")), (0, None));
    assert_eq!(story.slots("other").len(), 1, "the others go on");
    // Who wants it at once gets it at once.
    story.annotate(Kind::Plan, "p", ANNOTATION_POLL_NOW, Some("1"));
    story.settle();
    assert_eq!((story.polls(), version(&story, "p")), (1, Some("v1")));
}

#[test]
fn a_suspended_plan_does_not_poll_and_does_so_once_it_continues() {
    let mut story = Scenario::empty();
    story.add_nodes(&["a"]);
    story.offer(URL, "v1");
    let mut plan = following("p");
    plan.spec.suspend = Some(true);
    story.apply(plan);
    story.pass_secs(2 * A_POLL);
    assert_eq!((story.polls(), version(&story, "p")), (0, None));
    story.annotate(Kind::Plan, "p", ANNOTATION_POLL_NOW, Some("1"));
    story.settle();
    assert_eq!(
        (story.polls(), version(&story, "p")),
        (1, Some("v1")),
        "who asks for it gets it"
    );
    story.pass_secs(2 * A_POLL);
    assert_eq!((story.polls(), channel(&story, "p").next_poll), (1, None));
    story.edit("p", |spec| spec.suspend = None);
    story.settle();
    assert_eq!(story.polls(), 2);
}

#[test]
fn a_suspended_plan_learns_what_is_polled_for_another_one() {
    let mut story = Scenario::empty();
    story.add_nodes(&["a"]);
    story.offer(URL, "v1");
    let mut plan = following("a");
    plan.spec.suspend = Some(true);
    story.apply(plan);
    story.apply(following("p"));
    story.settle();
    assert_eq!((story.polls(), version(&story, "a")), (1, Some("v1")));
}

#[test]
fn an_annotation_with_too_many_fields_makes_its_plan_invalid_and_no_other() {
    let mut story = Scenario::empty();
    story.add_nodes(&["a"]);
    let mut plan = plan_with("p", |_| {});
    let fields = ",".repeat(240_000);
    plan.metadata.annotations = Some([(ANNOTATION_DIGEST.to_owned(), fields)].into());
    story.apply(plan);
    story.apply(plan_with("q", |_| {}));
    story.settle();
    let (status, _, message) = story.condition("p", "Validated");
    assert_eq!(status, "False");
    assert!(
        message.contains("upgrade.cattle.io/digest") && message.contains("240000 bytes"),
        "{message}"
    );
    assert!(story.slots("p").is_empty());
    assert_eq!(story.slots("q").len(), 1);
}

#[test]
fn a_plan_that_names_too_many_secrets_is_invalid_and_no_other() {
    let mut story = Scenario::empty();
    story.add_nodes(&["a"]);
    let named = |count: usize| {
        let secret =
            |number| serde_json::json!({ "name": format!("s-{number}"), "path": format!("/s/{number}") });
        let secrets: Vec<_> = (0..count).map(secret).collect();
        serde_json::from_value(serde_json::json!(secrets)).unwrap()
    };
    story.apply(plan_with("p", |spec| spec.secrets = Some(named(101))));
    story.apply(plan_with("r", |spec| spec.secrets = Some(named(100))));
    story.apply(plan_with("q", |_| {}));
    story.settle();
    let (status, _, message) = story.condition("p", "Validated");
    assert_eq!(status, "False");
    assert!(message.contains("spec.secrets names 101 secrets"), "{message}");
    assert_eq!(story.slots("q").len(), 1);
    // These do not exist, which is another matter.
    let (.., message) = story.condition("r", "Validated");
    assert!(!message.contains("at most"), "{message}");
}
