//! `refit start --despite`: nodes start in spite of windows, blackouts, soaks and checks, in one roll-out.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::scenario::{NAMESPACE, Scenario, Setup};
use super::sweep::{KILLS, sweep};
use refit_api::exemption::{Exemption, StartLimit};
use refit_api::{BlackoutSpec, DrainSpec, PlanSpec, WaveSpec, WindowSpec, limits, names};
use refit_fixtures::{plan_with, repetitions};
use refit_rehearse::Kind;
use refit_rehearse::json::json;

use StartLimit::{Blackout, Checks, Soak, Window};

/// Scenarios begin on a Thursday at nine.
fn closed(spec: &mut PlanSpec) {
    spec.job_active_deadline_secs = Some(1700);
    spec.windows = Some(vec![WindowSpec {
        cron: Some("0 22 * * *".to_owned()),
        duration: Some("2h".to_owned()),
        ..WindowSpec::default()
    }]);
}

fn blackout(spec: &mut PlanSpec) {
    spec.blackouts = Some(vec![BlackoutSpec {
        start: Some("2026-01-01T00:00:00Z".to_owned()),
        end: Some("2026-01-09T00:00:00Z".to_owned()),
        ..BlackoutSpec::default()
    }]);
}

impl Scenario {
    fn exempt(&mut self, limits: &[StartLimit], nodes: &[&str]) {
        let hash = self.hash("p");
        let nodes = nodes.iter().map(|&node| node.to_owned()).collect();
        let exemption = Exemption::new(limits.iter().copied().collect(), nodes, &hash);
        self.despite(&format!(
            "{exemption} by alice at 2026-01-01T09:00:00Z: a disk fails"
        ));
    }

    fn despite(&mut self, value: &str) {
        self.annotate(Kind::Plan, "p", names::ANNOTATION_DESPITE, Some(value));
        self.settle();
    }
}

#[test]
fn one_node_starts_although_the_window_is_closed_and_the_others_wait() {
    let mut scenario = Scenario::with(&["a", "b", "c"], plan_with("p", closed));
    assert!(scenario.slots("p").is_empty());
    assert_eq!(scenario.status("p").despite, None);
    scenario.exempt(&[Window], &["b"]);
    assert_eq!(scenario.slots("p"), ["b"]);
    assert_eq!(scenario.phase("p", "a")[1], "WindowClosed");
    let said = "Nodes start for version v1 in spite of limits: window for b, by alice at 2026-01-01T09:00:00Z: a disk fails";
    assert_eq!(scenario.events_of("StartedDespite"), [said]);
    scenario.restart();
    scenario.settle();
    scenario.succeed("b");
    assert!(scenario.slots("p").is_empty());
    let status = scenario.status("p").clone();
    assert_eq!(
        status.next_window.as_deref(),
        Some("2026-01-01T22:00:00Z"),
        "the others wait for the window"
    );
    let history = status.history.unwrap()[0].despite.clone().unwrap();
    assert_eq!(
        history,
        ["window for b, by alice at 2026-01-01T09:00:00Z: a disk fails"]
    );
    assert_eq!(scenario.events_of("StartedDespite").len(), 1);
    scenario.edit("p", |spec| spec.windows = None);
    scenario.finish();
}

#[test]
fn all_nodes_start_and_the_exemption_ends_with_the_roll_out() {
    let spec = |spec: &mut PlanSpec| {
        closed(spec);
        blackout(spec);
        spec.concurrency = Some(2);
    };
    let mut scenario = Scenario::with(&["a", "b"], plan_with("p", spec));
    scenario.exempt(&[Window], &[]);
    assert!(scenario.slots("p").is_empty());
    assert_eq!(scenario.phase("p", "a")[1], "Blackout");
    scenario.exempt(&[Window, Blackout], &[]);
    assert_eq!(scenario.slots("p"), ["a", "b"]);
    scenario.succeed("a");
    scenario.succeed("b");
    assert!(scenario.status("p").despite.as_ref().unwrap()[0].ended.is_some());
    // At the same hash, and under another controller.
    scenario.restart();
    scenario.add_nodes(&["late"]);
    scenario.settle();
    assert!(scenario.slots("p").is_empty());
    assert_eq!(scenario.phase("p", "late")[1], "Blackout");
    scenario.exempt(&[Window, Blackout], &["late"]);
    assert_eq!(scenario.slots("p"), ["late"]);
    scenario.succeed("late");
    scenario.finish();
}

#[test]
fn a_new_version_ends_it_and_what_is_no_exemption_is_said() {
    let mut scenario = Scenario::with(&["a", "b"], plan_with("p", closed));
    scenario.exempt(&[Window], &[]);
    for _ in 0..2 {
        let node = scenario.slots("p").remove(0);
        scenario.succeed(&node);
    }
    scenario.edit_and_settle("p", |spec| spec.version = Some("v2".to_owned()));
    assert!(scenario.slots("p").is_empty());
    let status = scenario.status("p").clone();
    assert_eq!((status.despite, status.nodes.unwrap().waiting), (None, 2));
    let hash = scenario.hash("p");
    scenario.despite(&format!(
        "window+quorum@{hash} by eve, window by eve, budget@{hash}"
    ));
    assert!(scenario.slots("p").is_empty());
    let said = scenario.events_of("DespiteInvalid");
    assert_eq!(said.len(), 3, "{said:?}");
    assert_eq!(
        said[0],
        "refit.rs/despite is ignored: \"window+quorum\": \"quorum\" is none of window, soak, checks, blackout; nodes never \
         start in spite of quorum, locks, budgets or approvals (by eve)"
    );
    scenario.restart();
    scenario.settle();
    assert_eq!(scenario.events_of("DespiteInvalid").len(), 3);
}

#[test]
fn suspend_abort_freeze_and_limits_of_numbers_still_count() {
    let spec = |spec: &mut PlanSpec| {
        closed(spec);
        spec.concurrency = Some(10);
        spec.max_unavailable = Some(IntOrString::Int(1));
    };
    let mut scenario = Scenario::with(&["a", "b", "c"], plan_with("p", spec));
    scenario.edit_and_settle("p", |spec| spec.suspend = Some(true));
    scenario.exempt(&[Window, Soak, Checks, Blackout], &["b", "c"]);
    assert!(scenario.slots("p").is_empty());
    scenario.edit_and_settle("p", |spec| spec.suspend = None);
    assert_eq!(scenario.slots("p"), ["b"], "maxUnavailable counts");
    assert_eq!(scenario.phase("p", "c")[1], "NoSlot");
    assert_eq!(scenario.phase("p", "a")[1], "WindowClosed");
    scenario
        .cluster
        .put(json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": limits::NAME, "namespace": NAMESPACE },
            "data": { limits::FREEZE: "audit" },
        }))
        .unwrap();
    scenario.settle();
    scenario.succeed("b");
    assert!(scenario.slots("p").is_empty());
    assert_eq!(scenario.phase("p", "c")[1], "Frozen");
    let patch = json!({ "data": { limits::FREEZE: null } });
    scenario
        .cluster
        .patch(Kind::ConfigMap, NAMESPACE, limits::NAME, &patch)
        .unwrap();
    scenario.settle();
    assert_eq!(scenario.slots("p"), ["c"]);
    scenario.succeed("c");
    scenario.edit("p", |spec| spec.windows = None);
    scenario.finish();
}

fn waves(spec: &mut PlanSpec) {
    let first = WaveSpec {
        name: Some("canary".to_owned()),
        nodes: Some(IntOrString::Int(1)),
        soak: Some("30m".to_owned()),
        approval: Some(true),
        ..WaveSpec::default()
    };
    let second = WaveSpec {
        name: Some("more".to_owned()),
        nodes: Some(IntOrString::Int(3)),
        soak: Some("30m".to_owned()),
        ..WaveSpec::default()
    };
    spec.concurrency = Some(10);
    spec.waves = Some(vec![first, second]);
}

/// The nodes in their order, those with a slot first.
fn in_order(scenario: &Scenario) -> Vec<String> {
    let active = scenario.status("p").active.iter().flatten();
    active.map(|entry| entry.name.clone()).collect()
}

fn sorted(nodes: &[String]) -> Vec<String> {
    let mut nodes = nodes.to_vec();
    nodes.sort();
    nodes
}

#[test]
fn without_its_soak_a_wave_still_waits_for_its_approval() {
    let mut scenario = Scenario::with(&["a", "b", "c", "d", "e"], plan_with("p", waves));
    let nodes = in_order(&scenario);
    scenario.succeed(&nodes[0]);
    assert_eq!(scenario.phase("p", &nodes[1])[1], "WaveSoaking");
    scenario.exempt(&[Soak], &[]);
    assert!(scenario.slots("p").is_empty());
    assert_eq!(scenario.phase("p", &nodes[1])[1], "WaveNotApproved");
    let approval = format!("canary@{}", scenario.hash("p"));
    scenario.annotate(Kind::Plan, "p", names::ANNOTATION_APPROVE, Some(&approval));
    scenario.settle();
    assert_eq!(scenario.slots("p"), sorted(&nodes[1..3]));
    scenario.succeed(&nodes[1]);
    scenario.succeed(&nodes[2]);
    assert_eq!(scenario.slots("p"), sorted(&nodes[3..]));
    scenario.finish();
}

#[test]
fn a_node_of_the_next_wave_starts_during_a_soak_which_begins_again() {
    let spec = |spec: &mut PlanSpec| {
        waves(spec);
        spec.waves.as_mut().unwrap()[0].approval = None;
    };
    let mut scenario = Scenario::with(&["a", "b", "c", "d", "e"], plan_with("p", spec));
    let nodes = in_order(&scenario);
    let [first, next, one, other] = [0, 1, 3, 4].map(|index| &*nodes[index]);
    scenario.succeed(first);
    scenario.pass_secs(20 * 60);
    scenario.exempt(&[Soak], &[one]);
    assert_eq!(scenario.slots("p"), [one]);
    assert_eq!(scenario.phase("p", next)[1], "WaveInProgress");
    // They start together, or one after the other.
    scenario.exempt(&[Soak], &[one, other]);
    assert_eq!(scenario.slots("p"), [one]);
    scenario.succeed(one);
    assert_eq!(scenario.slots("p"), [other]);
    scenario.succeed(other);
    scenario.pass_secs(20 * 60);
    assert!(scenario.slots("p").is_empty());
    // The soak of the first wave, and that of the next one, which is over at once.
    scenario.pass_secs(11 * 60);
    assert!(scenario.slots("p").is_empty());
    scenario.pass_secs(31 * 60);
    assert_eq!(scenario.slots("p"), sorted(&nodes[1..3]));
    scenario.finish();
}

#[test]
fn a_named_node_keeps_its_place_in_the_order() {
    let mut scenario = Scenario::with(&["a", "b", "c"], plan_with("p", |_| {}));
    let nodes = in_order(&scenario);
    scenario.exempt(&[Window, Soak, Checks, Blackout], &[&nodes[2]]);
    assert_eq!(scenario.phase("p", &nodes[2])[1], "NoSlot");
    scenario.succeed(&nodes[0]);
    assert_eq!(scenario.slots("p"), [&*nodes[1]]);
    scenario.succeed(&nodes[1]);
    assert_eq!(scenario.slots("p"), [&*nodes[2]]);
    scenario.finish();
}

#[test]
fn a_named_node_says_why_it_waits_nevertheless() {
    let mut scenario = Scenario::with(&["a"], plan_with("p", closed));
    scenario.add_nodes(&["b"]);
    scenario.ready("b", false);
    scenario.settle();
    scenario.exempt(&[Window], &["b"]);
    assert!(scenario.slots("p").is_empty());
    assert_eq!(scenario.phase("p", "b")[1], "NodeNotReady");
    assert_eq!(scenario.phase("p", "a")[1], "WindowClosed");
    // Taking it back releases a slot that has no Job yet, and a node that runs finishes.
    scenario.despite("");
    assert_eq!(scenario.phase("p", "b")[1], "WindowClosed");
}

/// More writes than any of these roll-outs has.
const MOST: u64 = 60;

/// Two nodes whose Plan lets none start, a moment after a person has started them anyway.
fn begin() -> Scenario {
    let mut scenario = Scenario::without_controller(&Setup {
        held: false,
        ..Setup::default()
    });
    scenario.add_nodes(&["a", "b"]);
    let spec = |spec: &mut PlanSpec| {
        closed(spec);
        waves(spec);
        spec.waves.as_mut().unwrap()[0].approval = None;
        spec.drain = Some(DrainSpec::default());
    };
    scenario.apply(plan_with("p", spec));
    scenario.start();
    scenario.settle();
    assert!(scenario.slots("p").is_empty());
    let hash = scenario.hash("p");
    let exemption = Exemption::new([Window, Soak].into(), BTreeSet::new(), &hash);
    let value = format!("{exemption} by alice");
    scenario.annotate(Kind::Plan, "p", names::ANNOTATION_DESPITE, Some(&value));
    scenario
}

#[test]
fn a_start_in_spite_of_limits_meets_any_fault_at_any_write() {
    let check = |scenario: &mut Scenario, at: &str| {
        scenario.assert_over();
        assert!(
            scenario.now() < "2026-01-01T21:00:00Z".parse().unwrap(),
            "{at}: before the window"
        );
        assert_eq!(scenario.invariants.upgrades, 2, "{at}");
        let status = scenario.status("p");
        assert!(status.despite.as_ref().unwrap()[0].ended.is_some());
        let history = status.history.as_ref().unwrap()[0].despite.as_ref();
        assert_eq!(history.unwrap(), &["window, soak, by alice"], "{at}");
        assert_eq!(scenario.events_of("StartedDespite").len(), 1, "{at}: sent once");
    };
    sweep(8..MOST, &KILLS, begin, |scenario, _| scenario.rest(), check);
}

#[test]
fn a_start_that_is_taken_back_at_any_moment_leaves_the_rest_to_the_window() {
    for write in repetitions::writes(MOST, 0) {
        let mut scenario = begin();
        let came = scenario.after_writes(write);
        scenario.annotate(Kind::Plan, "p", names::ANNOTATION_DESPITE, None);
        scenario.pass_secs(14 * 3600);
        scenario.rest();
        scenario.assert_over();
        assert_eq!(scenario.invariants.upgrades, 2, "after write {write}");
        if !came {
            return;
        }
    }
    panic!("it has no end");
}
