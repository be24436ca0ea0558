//! Plans that nodes request: a node reboots when it says so, once for each request.

use super::scenario::{Scenario, Setup};
use super::sweep::{EFFECTS, sweep};
use crate::fault::Rule;
use refit_api::{DrainSpec, Plan, RebootRequest, RebootSpec, Trigger, names};
use refit_fixtures::plan_with;
use refit_rehearse::Kind;

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
    let mut scenario = Scenario::with(&["a", "b"], on_request());
    scenario.rest();
    scenario
}

/// What `refit agent` writes in the present boot of the node.
fn request_of(scenario: &Scenario, node: &str) -> RebootRequest {
    RebootRequest {
        boot_id: Some(scenario.node(node).boot_id.to_string()),
        reasons: vec!["/run/reboot-required".to_owned()],
        ..RebootRequest::default()
    }
}

fn ask(scenario: &mut Scenario, node: &str) {
    let request = request_of(scenario, node).to_text();
    scenario.annotate(Kind::Node, node, names::ANNOTATION_REBOOT_NEEDED, Some(&request));
}

fn boots(scenario: &Scenario, node: &str) -> usize {
    scenario.invariants.nodes[node].left_boots()
}

#[track_caller]
fn assert_idle(scenario: &Scenario) {
    scenario.assert_over();
    assert_eq!(scenario.complete("p")[1], "Complete");
    let counts = scenario.status("p").nodes.unwrap();
    assert_eq!((counts.selected, counts.done, counts.waiting), (2, 2, 0));
    assert_eq!(
        [scenario.done_label("a", "p"), scenario.done_label("b", "p")],
        [None, None]
    );
}

#[test]
fn a_plan_on_request_is_complete_while_no_node_needs_a_reboot() {
    let scenario = begin();
    assert_idle(&scenario);
    assert_eq!(scenario.condition("p", "LatestResolved")[1], "Trigger");
    assert_eq!(scenario.status("p").latest_version.as_deref(), Some("on-request"));
    assert!(scenario.invariants.jobs.is_empty());
}

#[test]
fn a_node_reboots_once_for_each_of_its_requests_without_an_edit_of_the_plan() {
    let mut scenario = begin();
    for month in 1..=3 {
        ask(&mut scenario, "a");
        scenario.settle();
        assert_eq!(scenario.slots("p"), ["a"]);
        assert_eq!(scenario.status("p").progress.as_deref(), Some("1/2"));
        assert!(scenario.is_cordoned("a"));
        scenario.rest();
        assert_eq!((boots(&scenario, "a"), boots(&scenario, "b")), (month, 0));
        assert_idle(&scenario);
    }
    assert_eq!(
        (scenario.invariants.reboots, scenario.invariants.upgrades),
        (3, 0)
    );
    assert_eq!(scenario.events_of("JobComplete").len(), 3);
}

#[test]
fn a_node_in_progress_counts_as_such_until_it_has_settled_in_its_new_boot() {
    let mut scenario = begin();
    ask(&mut scenario, "a");
    while boots(&scenario, "a") == 0 {
        scenario.pass_secs(1);
    }
    ask(&mut scenario, "b");
    scenario.settle();
    assert_eq!(scenario.phase("p", "a")[0], "Settling");
    assert_eq!(scenario.slots("p"), ["a"], "the Plan has one slot");
    assert_eq!(scenario.status("p").progress.as_deref(), Some("0/2"));
    assert!(scenario.is_cordoned("a"));
    scenario.rest();
    assert_idle(&scenario);
    assert_eq!((boots(&scenario, "a"), boots(&scenario, "b")), (1, 1));
}

/// Status that still names the Job of the last request would make the next one look like a Job that was lost.
#[test]
fn a_request_that_comes_before_status_has_released_the_node_is_met() {
    let mut scenario = begin();
    ask(&mut scenario, "a");
    while boots(&scenario, "a") == 0 {
        scenario.pass_secs(1);
    }
    scenario
        .fault_injector
        .add(Rule::on("patch", "plans/status").answer(500));
    scenario.pass_secs(60);
    assert_eq!(scenario.slots("p"), ["a"]);
    ask(&mut scenario, "a");
    scenario.pass_secs(60);
    scenario.stop();
    scenario.fault_injector.clear_rules();
    scenario.start();
    scenario.rest();
    assert_idle(&scenario);
    assert_eq!(boots(&scenario, "a"), 2);
}

#[test]
fn a_request_from_another_boot_is_void() {
    let mut scenario = begin();
    ask(&mut scenario, "a");
    scenario.stop();
    scenario.reboot("a");
    scenario.start();
    scenario.rest();
    assert_idle(&scenario);
    assert_eq!((boots(&scenario, "a"), scenario.invariants.reboots), (1, 0));
    assert!(scenario.jobs_for("a").is_empty());
}

#[test]
fn a_request_of_an_update_operator_counts_once_until_it_is_withdrawn() {
    let mut scenario = begin();
    for month in 1..=2 {
        scenario.annotate(Kind::Node, "a", FLATCAR, Some("true"));
        scenario.rest();
        assert_eq!(boots(&scenario, "a"), month);
        scenario.restart();
        scenario.rest();
        assert_eq!(boots(&scenario, "a"), month, "its agent has not withdrawn it yet");
        assert!(scenario.done_label("a", "p").is_some());
        assert_eq!(scenario.complete("p")[1], "Complete");
        scenario.annotate(Kind::Node, "a", FLATCAR, Some("false"));
        scenario.rest();
        assert_idle(&scenario);
    }
}

#[test]
fn a_request_that_is_withdrawn_before_the_reboot_leaves_the_node_as_it_was() {
    let mut scenario = begin();
    scenario.steer("a", "start-delay", Some("60s"));
    ask(&mut scenario, "a");
    scenario.settle();
    assert_eq!(scenario.slots("p"), ["a"]);
    scenario.annotate(Kind::Node, "a", names::ANNOTATION_REBOOT_NEEDED, None);
    scenario.pass_secs(90); // a pod that is bound cannot be replaced, so its drain begins and is cancelled
    scenario.rest();
    assert_idle(&scenario);
    assert_eq!(boots(&scenario, "a"), 0);
    assert!(!scenario.is_cordoned("a"));
}

#[test]
fn a_reboot_that_does_not_help_is_not_repeated() {
    let mut scenario = begin();
    let mut request = request_of(&scenario, "a");
    request.survived = 1;
    scenario.annotate(
        Kind::Node,
        "a",
        names::ANNOTATION_REBOOT_NEEDED,
        Some(&request.to_text()),
    );
    ask(&mut scenario, "b");
    scenario.rest();
    assert_eq!(
        (boots(&scenario, "a"), boots(&scenario, "b")),
        (0, 1),
        "other nodes continue"
    );
    let complete = scenario.complete("p");
    assert_eq!(complete[1], "RebootIneffective");
    assert!(
        complete[2].contains("Node a") && complete[2].contains("/run/reboot-required"),
        "{complete:?}"
    );
    scenario.annotate(Kind::Node, "a", names::ANNOTATION_REBOOT_NEEDED, None);
    scenario.rest();
    assert_idle(&scenario);
}

#[test]
fn a_node_that_comes_back_and_is_not_ready_has_failed_until_someone_has_looked_at_it() {
    let mut scenario = begin();
    scenario.steer("a", "comes-back", Some("not-ready"));
    ask(&mut scenario, "a");
    scenario.pass_secs(700);
    assert_eq!(scenario.phase("p", "a"), ["Failed", "NotReadyAfterReboot"]);
    assert_eq!(scenario.complete("p")[1], "JobFailed");
    assert!(scenario.is_cordoned("a"));
    scenario.steer("a", "comes-back", None);
    scenario.ready("a", true);
    scenario.rest();
    assert_eq!(scenario.phase("p", "a")[0], "Failed");
    scenario.retry("a", "p");
    scenario.rest();
    assert_idle(&scenario);
    assert_eq!(boots(&scenario, "a"), 1, "its request is void");
}

#[test]
fn a_node_that_did_not_reboot_is_released_when_it_has_rebooted_after_all() {
    let mut scenario = begin();
    scenario.steer("a", "comes-back", Some("as-if-nothing"));
    ask(&mut scenario, "a");
    scenario.pass_secs(400);
    assert_eq!(scenario.phase("p", "a"), ["Failed", "NeverRebooted"]);
    scenario.reboot("a");
    scenario.rest();
    assert_idle(&scenario);
    assert!(!scenario.is_cordoned("a"));
}

/// More writes than the reboot of two nodes has.
const MOST: u64 = 70;

#[test]
fn two_requests_meet_any_fault_at_any_write() {
    let begin = || {
        let mut scenario = Scenario::without_controller(&Setup::default());
        scenario.add_nodes(&["a", "b"]);
        scenario.apply(on_request());
        scenario.pass_secs(1);
        scenario.annotate(Kind::Node, "b", FLATCAR, Some("true"));
        ask(&mut scenario, "a");
        scenario.start();
        scenario
    };
    let run = |scenario: &mut Scenario, _: &str| {
        scenario.rest();
        scenario.annotate(Kind::Node, "b", FLATCAR, Some("false"));
        scenario.rest();
    };
    sweep(8..MOST, &EFFECTS, begin, run, |scenario, at| {
        assert_idle(scenario);
        assert_eq!(boots(scenario, "a"), 1, "{at}");
        assert_eq!(boots(scenario, "b"), 1, "{at}");
        assert_eq!(scenario.invariants.reboots, 2, "{at}");
    });
}
