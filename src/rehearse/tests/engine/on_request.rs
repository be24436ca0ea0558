//! Plans that nodes request: a node reboots when it says so, once for each request.

use super::scenario::{Scenario, Setup};
use crate::api::{DrainSpec, Plan, RebootRequest, RebootSpec, Trigger, names};
use crate::rehearse::Kind;
use crate::rehearse::fault::{Effect, Moment, Rule};
use crate::rollout::tests::build::plan_with;

const FLATCAR: &str = "flatcar-linux-update.v1.flatcar-linux.net/reboot-needed";

/// A Plan that drains and reboots the nodes that need it, and has nothing else.
fn on_request() -> Plan {
    plan_with("p", |spec| {
        spec.trigger = Some(Trigger::RebootNeeded);
        spec.reboot = Some(RebootSpec {
            timeout: Some("5m".to_owned()),
            ..RebootSpec::default()
        });
        spec.cordon = None;
        spec.drain = Some(DrainSpec::default());
        (spec.version, spec.upgrade) = (None, None);
    })
}

fn begin() -> Scenario {
    let mut story = Scenario::with(&["a", "b"], on_request());
    story.rest();
    story
}

/// What `refit agent` writes in the present boot of the node.
fn request_of(story: &Scenario, node: &str) -> RebootRequest {
    RebootRequest {
        boot_id: Some(story.node(node).boot_id.to_string()),
        reasons: vec!["/run/reboot-required".to_owned()],
        ..RebootRequest::default()
    }
}

fn ask(story: &mut Scenario, node: &str) {
    let request = request_of(story, node).to_text();
    story.annotate(Kind::Node, node, names::ANNOTATION_REBOOT_NEEDED, Some(&request));
}

fn boots(story: &Scenario, node: &str) -> usize {
    story.invariants.nodes[node].left_boots()
}

#[track_caller]
fn assert_idle(story: &Scenario) {
    story.assert_over();
    assert_eq!(story.complete("p").1, "Complete");
    let counts = story.status("p").nodes.unwrap();
    assert_eq!((counts.selected, counts.done, counts.waiting), (2, 2, 0));
    assert_eq!(
        [story.done_label("a", "p"), story.done_label("b", "p")],
        [None, None]
    );
}

#[test]
fn a_plan_on_request_is_complete_while_no_node_needs_a_reboot() {
    let story = begin();
    assert_idle(&story);
    assert_eq!(story.condition("p", "LatestResolved").1, "Trigger");
    assert_eq!(story.status("p").latest_version.as_deref(), Some("on-request"));
    assert!(story.invariants.jobs.is_empty());
}

#[test]
fn a_node_reboots_once_for_each_of_its_requests_without_an_edit_of_the_plan() {
    let mut story = begin();
    for month in 1..=3 {
        ask(&mut story, "a");
        story.settle();
        assert_eq!(story.slots("p"), ["a"]);
        assert_eq!(story.status("p").progress.as_deref(), Some("1/2"));
        assert!(story.is_cordoned("a"));
        story.rest();
        assert_eq!((boots(&story, "a"), boots(&story, "b")), (month, 0));
        assert_idle(&story);
    }
    assert_eq!((story.invariants.reboots, story.invariants.upgrades), (3, 0));
    assert_eq!(story.events_of("JobComplete").len(), 3);
}

#[test]
fn a_node_in_progress_counts_as_such_until_it_has_settled_in_its_new_boot() {
    let mut story = begin();
    ask(&mut story, "a");
    while boots(&story, "a") == 0 {
        story.pass_secs(1);
    }
    ask(&mut story, "b");
    story.settle();
    assert_eq!(story.phase("p", "a").0, "Settling");
    assert_eq!(story.slots("p"), ["a"], "the Plan has one slot");
    assert_eq!(story.status("p").progress.as_deref(), Some("0/2"));
    assert!(story.is_cordoned("a"));
    story.rest();
    assert_idle(&story);
    assert_eq!((boots(&story, "a"), boots(&story, "b")), (1, 1));
}

#[test]
fn a_request_from_another_boot_is_void() {
    let mut story = begin();
    ask(&mut story, "a");
    story.stop();
    story.reboot("a");
    story.start();
    story.rest();
    assert_idle(&story);
    assert_eq!((boots(&story, "a"), story.invariants.reboots), (1, 0));
    assert!(story.jobs_for("a").is_empty());
}

#[test]
fn a_request_of_an_update_operator_counts_once_until_it_is_withdrawn() {
    let mut story = begin();
    for month in 1..=2 {
        story.annotate(Kind::Node, "a", FLATCAR, Some("true"));
        story.rest();
        assert_eq!(boots(&story, "a"), month);
        story.restart();
        story.rest();
        assert_eq!(boots(&story, "a"), month, "its agent has not withdrawn it yet");
        assert!(story.done_label("a", "p").is_some());
        assert_eq!(story.complete("p").1, "Complete");
        story.annotate(Kind::Node, "a", FLATCAR, Some("false"));
        story.rest();
        assert_idle(&story);
    }
}

#[test]
fn a_request_that_is_withdrawn_before_the_reboot_leaves_the_node_as_it_was() {
    let mut story = begin();
    story.steer("a", "start-delay", Some("60s"));
    ask(&mut story, "a");
    story.settle();
    assert_eq!(story.slots("p"), ["a"]);
    story.annotate(Kind::Node, "a", names::ANNOTATION_REBOOT_NEEDED, None);
    story.pass_secs(90); // a pod that is bound cannot be replaced, so its drain begins and is cancelled
    story.rest();
    assert_idle(&story);
    assert_eq!(boots(&story, "a"), 0);
    assert!(!story.is_cordoned("a"));
}

#[test]
fn a_reboot_that_does_not_help_is_not_repeated() {
    let mut story = begin();
    let mut request = request_of(&story, "a");
    request.survived = 1;
    story.annotate(
        Kind::Node,
        "a",
        names::ANNOTATION_REBOOT_NEEDED,
        Some(&request.to_text()),
    );
    ask(&mut story, "b");
    story.rest();
    assert_eq!(
        (boots(&story, "a"), boots(&story, "b")),
        (0, 1),
        "other nodes continue"
    );
    let complete = story.complete("p");
    assert_eq!(complete.1, "RebootIneffective");
    assert!(
        complete.2.contains("Node a") && complete.2.contains("/run/reboot-required"),
        "{complete:?}"
    );
    story.annotate(Kind::Node, "a", names::ANNOTATION_REBOOT_NEEDED, None);
    story.rest();
    assert_idle(&story);
}

#[test]
fn a_node_that_comes_back_and_is_not_ready_has_failed_until_someone_has_looked_at_it() {
    let mut story = begin();
    story.steer("a", "comes-back", Some("not-ready"));
    ask(&mut story, "a");
    story.pass_secs(700);
    assert_eq!(
        story.phase("p", "a"),
        ("Failed".to_owned(), "NotReadyAfterReboot".to_owned())
    );
    assert_eq!(story.complete("p").1, "JobFailed");
    assert!(story.is_cordoned("a"));
    story.steer("a", "comes-back", None);
    story.ready("a", true);
    story.rest();
    assert_eq!(story.phase("p", "a").0, "Failed");
    story.retry("a", "p");
    story.rest();
    assert_idle(&story);
    assert_eq!(boots(&story, "a"), 1, "its request is void");
}

#[test]
fn a_node_that_did_not_reboot_is_released_when_it_has_rebooted_after_all() {
    let mut story = begin();
    story.steer("a", "comes-back", Some("as-if-nothing"));
    ask(&mut story, "a");
    story.pass_secs(400);
    assert_eq!(
        story.phase("p", "a"),
        ("Failed".to_owned(), "NeverRebooted".to_owned())
    );
    story.reboot("a");
    story.rest();
    assert_idle(&story);
    assert!(!story.is_cordoned("a"));
}

/// More writes than the reboot of two nodes has.
const MOST: u64 = 70;

#[test]
fn two_requests_meet_any_fault_at_any_write() {
    let effects = [
        Effect::Kill(Moment::Before),
        Effect::Kill(Moment::After),
        Effect::Hang(Moment::After),
        Effect::Overtake,
    ];
    for effect in effects {
        let writes = (0..MOST).find(|write| {
            let mut story = Scenario::without_controller(&Setup::default());
            story.add_nodes(&["a", "b"]);
            story.apply(on_request());
            story.pass_secs(1);
            story.annotate(Kind::Node, "b", FLATCAR, Some("true"));
            ask(&mut story, "a");
            story.start();
            let rule = Rule::write_or_event().nth(write + 1).effect(effect);
            story.fault_injector.add(rule);
            story.rest();
            story.annotate(Kind::Node, "b", FLATCAR, Some("false"));
            story.rest();
            let was_met = story.fault_injector.clear_rules();
            assert_idle(&story);
            assert_eq!(
                (boots(&story, "a"), boots(&story, "b"), story.invariants.reboots),
                (1, 1, 2),
                "{effect:?} at write {write}"
            );
            !was_met
        });
        assert!(
            (8..MOST).contains(&writes.unwrap()),
            "{effect:?}: {writes:?} writes"
        );
    }
}
