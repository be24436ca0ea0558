//! `spec.waves`: part of the nodes, then a look, then the next part.

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::scenario::Scenario;
use refit_api::approval::WaveApproval;
use refit_api::{FailurePolicy, FailureSpec, NodePhase, OrderSpec, Plan, WaveSpec, names};
use refit_fixtures::plan_with;
use refit_rehearse::Kind;
use refit_rehearse::json::json;

const NODES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

fn canary(soak: Option<&str>) -> WaveSpec {
    WaveSpec {
        name: Some("canary".to_owned()),
        selector: Some(LabelSelector {
            match_labels: Some([("canary".to_owned(), "true".to_owned())].into()),
            ..LabelSelector::default()
        }),
        soak: soak.map(str::to_owned),
        ..WaveSpec::default()
    }
}

fn up_to(nodes: IntOrString) -> WaveSpec {
    WaveSpec {
        nodes: Some(nodes),
        ..WaveSpec::default()
    }
}

fn in_waves(waves: Vec<WaveSpec>) -> Plan {
    plan_with("p", |spec| {
        spec.concurrency = Some(10);
        spec.waves = Some(waves);
    })
}

/// Six nodes, of which `c` and `d` are canaries.
fn with_waves(waves: Vec<WaveSpec>) -> Scenario {
    let mut scenario = Scenario::of_nodes(&NODES);
    for name in ["c", "d"] {
        scenario.label(name, "canary", Some("true"));
    }
    scenario.apply_and_settle(in_waves(waves));
    scenario
}

/// Name and phase of the wave, and when its soak ends.
fn wave(scenario: &Scenario) -> (String, String, Option<String>) {
    let wave = scenario.status("p").wave.clone().unwrap();
    (wave.name, wave.phase.to_string(), wave.until)
}

fn is_at(scenario: &Scenario, name: &str, phase: &str) -> bool {
    let (at, of, _) = wave(scenario);
    (at.as_str(), of.as_str()) == (name, phase)
}

fn succeed_all(scenario: &mut Scenario) {
    for node in scenario.slots("p") {
        scenario.succeed(&node);
    }
}

#[test]
fn canaries_are_upgraded_and_stay_ready_before_the_others_start() {
    let mut scenario = with_waves(vec![canary(Some("30m"))]);
    assert_eq!(scenario.slots("p"), ["c", "d"]);
    assert!(is_at(&scenario, "canary", "Progressing"));
    assert_eq!(scenario.phase("p", "a")[1], "WaveInProgress");
    scenario.succeed("c");
    assert_eq!(scenario.slots("p"), ["d"]);
    scenario.succeed("d");
    let (_, phase, until) = wave(&scenario);
    assert_eq!(phase, "Soaking");
    let until = until.unwrap();
    let text = format!("spec.waves: no node starts while wave canary soaks, until {until}");
    assert_eq!(scenario.complete("p"), ["False", "WaveSoaking", text.as_str()]);
    assert_eq!(scenario.events_of("WaveSoaking"), [text]);
    assert_eq!(scenario.phase("p", "a")[1], "WaveSoaking");
    scenario.pass_secs(29 * 60);
    assert!(scenario.slots("p").is_empty());
    scenario.pass_secs(60 + 5);
    assert_eq!(scenario.slots("p"), ["a", "b", "e", "f"]);
    assert!(is_at(&scenario, "wave-2", "Progressing"));
    scenario.finish();
}

#[test]
fn a_node_under_way_gets_the_next_version_with_its_wave() {
    let mut scenario = with_waves(vec![canary(Some("30m"))]);
    succeed_all(&mut scenario);
    scenario.pass_secs(30 * 60 + 5);
    assert_eq!(scenario.slots("p"), ["a", "b", "e", "f"]);
    scenario.edit_and_settle("p", |spec| spec.version = Some("v2".to_owned()));
    for name in ["a", "b", "e", "f"] {
        scenario.succeed(name);
    }
    scenario.settle();
    assert_eq!(scenario.slots("p"), ["c", "d"]);
    assert_eq!(scenario.phase("p", "a")[1], "WaveInProgress");
}

#[test]
fn a_node_of_the_wave_that_is_not_ready_begins_the_soak_again() {
    let mut scenario = with_waves(vec![canary(Some("30m"))]);
    succeed_all(&mut scenario);
    scenario.pass_secs(20 * 60);
    scenario.ready("c", false);
    scenario.settle();
    assert!(is_at(&scenario, "canary", "Progressing"));
    let message = scenario.entry("p", "a").message.unwrap();
    assert_eq!(
        message,
        "spec.waves: wave canary comes first, and is not over; c is upgraded and not Ready"
    );
    // The controller does not remember it.
    scenario.restart();
    scenario.pass_secs(20 * 60);
    scenario.ready("c", true);
    scenario.settle();
    assert!(is_at(&scenario, "canary", "Soaking"));
    scenario.pass_secs(29 * 60);
    assert!(scenario.slots("p").is_empty());
    scenario.pass_secs(70);
    assert_eq!(scenario.slots("p").len(), 4);
    // A moment is enough.
    let mut scenario = with_waves(vec![canary(Some("30m"))]);
    succeed_all(&mut scenario);
    scenario.pass_secs(20 * 60);
    scenario.ready("c", false);
    scenario.ready("c", true);
    scenario.pass_secs(20 * 60);
    assert!(scenario.slots("p").is_empty());
    scenario.pass_secs(11 * 60);
    assert_eq!(scenario.slots("p").len(), 4);
    scenario.finish();
}

#[test]
fn a_restart_neither_shortens_a_soak_nor_begins_it_again() {
    let mut scenario = with_waves(vec![canary(Some("30m"))]);
    succeed_all(&mut scenario);
    let until = wave(&scenario).2;
    for _ in 0..2 {
        scenario.pass_secs(9 * 60);
        scenario.restart();
        scenario.settle();
        assert_eq!(wave(&scenario).2, until);
        assert!(scenario.slots("p").is_empty());
    }
    scenario.pass_secs(10 * 60);
    assert!(scenario.slots("p").is_empty());
    scenario.pass_secs(3 * 60);
    assert_eq!(scenario.slots("p").len(), 4);
    scenario.finish();
}

#[test]
fn a_clock_that_is_set_does_not_shorten_a_soak() {
    for step in [SignedDuration::from_hours(2), SignedDuration::from_hours(-2)] {
        let mut scenario = with_waves(vec![canary(Some("30m"))]);
        succeed_all(&mut scenario);
        scenario.pass_secs(10 * 60);
        scenario.set_clock(step);
        scenario.label("a", "any", Some("change"));
        scenario.pass_secs(18 * 60);
        assert!(scenario.slots("p").is_empty(), "{step}");
        scenario.pass_secs(33 * 60);
        assert_eq!(scenario.slots("p").len(), 4, "{step}");
    }
}

#[test]
fn a_lost_status_soaks_again() {
    let mut scenario = with_waves(vec![canary(Some("30m"))]);
    succeed_all(&mut scenario);
    scenario.pass_secs(31 * 60);
    assert_eq!(scenario.slots("p").len(), 4);
    let first = scenario.slots("p").remove(0);
    scenario.succeed(&first);
    scenario.stop();
    scenario
        .cluster
        .patch_status(
            Kind::Plan,
            super::scenario::NAMESPACE,
            "p",
            json!({ "status": { "wave": null } }),
        )
        .unwrap();
    scenario.start();
    scenario.settle();
    assert_eq!(scenario.slots("p").len(), 3, "nodes in progress keep their slots");
    succeed_all(&mut scenario);
    scenario.add_nodes(&["late"]);
    scenario.settle();
    assert!(scenario.slots("p").is_empty());
    assert!(is_at(&scenario, "canary", "Soaking"));
    scenario.pass_secs(31 * 60);
    assert_eq!(scenario.slots("p"), ["late"]);
    scenario.finish();
}

#[test]
fn a_number_of_nodes_and_a_share_include_those_of_earlier_waves() {
    let mut scenario = with_waves(vec![
        canary(None),
        up_to(IntOrString::Int(3)),
        up_to(IntOrString::String("84%".to_owned())),
    ]);
    for (name, slots) in [("canary", 2), ("wave-2", 1), ("wave-3", 2), ("wave-4", 1)] {
        assert!(is_at(&scenario, name, "Progressing"));
        assert_eq!(scenario.slots("p").len(), slots, "{name}");
        succeed_all(&mut scenario);
    }
    scenario.assert_over();
}

#[test]
fn an_approval_counts_for_its_wave_and_for_no_other_version() {
    let approved = |nodes| WaveSpec {
        approval: Some(true),
        ..up_to(IntOrString::Int(nodes))
    };
    let mut scenario = with_waves(vec![approved(1), approved(2)]);
    succeed_all(&mut scenario);
    assert!(is_at(&scenario, "wave-1", "AwaitingApproval"));
    let hash = scenario.hash("p");
    let approval = WaveApproval::new("wave-1", &hash).to_string();
    let text = format!(
        "spec.waves: wave wave-1 is over and waits for approval; set the annotation refit.rs/approve: {approval} on the Plan to \
         continue"
    );
    assert_eq!(scenario.events_of("WaveNotApproved"), [text]);
    for useless in [
        "wave-1",
        "v1",
        &WaveApproval::new("wave-2", &hash).to_string(),
        "wave-1@0000000000",
    ] {
        scenario.annotate(Kind::Plan, "p", names::ANNOTATION_APPROVE, Some(useless));
        scenario.restart();
        scenario.settle();
        assert!(scenario.slots("p").is_empty(), "{useless}");
    }
    scenario.annotate(Kind::Plan, "p", names::ANNOTATION_APPROVE, Some(&approval));
    scenario.settle();
    assert!(is_at(&scenario, "wave-2", "Progressing"));
    succeed_all(&mut scenario);
    assert!(
        is_at(&scenario, "wave-2", "AwaitingApproval"),
        "each wave needs its own"
    );
    let both = format!("{approval}, {}", WaveApproval::new("wave-2", &hash));
    scenario.annotate(Kind::Plan, "p", names::ANNOTATION_APPROVE, Some(&both));
    scenario.settle();
    assert_eq!(scenario.slots("p").len(), 4);
    succeed_all(&mut scenario);
    scenario.assert_over();
    scenario.edit_and_settle("p", |spec| spec.version = Some("v2".to_owned()));
    assert!(
        is_at(&scenario, "wave-1", "Progressing"),
        "the next version begins with the first wave"
    );
    succeed_all(&mut scenario);
    assert!(is_at(&scenario, "wave-1", "AwaitingApproval"));
    assert!(scenario.slots("p").is_empty());
}

#[test]
fn a_failed_node_holds_its_wave() {
    let mut scenario = with_waves(vec![canary(None)]);
    scenario.succeed("c");
    scenario.fail("d");
    scenario.pass_secs(3600);
    assert_eq!(scenario.slots("p"), ["d"]);
    let message = scenario.entry("p", "a").message.unwrap();
    assert_eq!(
        message,
        "spec.waves: wave canary comes first, and is not over; d failed"
    );
    scenario.retry("d", "p");
    scenario.settle();
    scenario.succeed("d");
    assert_eq!(scenario.slots("p").len(), 4);
    scenario.finish();
}

#[test]
fn a_node_that_joins_belongs_to_the_last_wave_that_has_begun() {
    let mut scenario = with_waves(vec![canary(Some("30m")), up_to(IntOrString::Int(3))]);
    succeed_all(&mut scenario);
    scenario.add_node("late", &json!({ "metadata": { "labels": { "canary": "true" } } }));
    scenario.settle();
    assert!(scenario.slots("p").is_empty(), "no node starts during a soak");
    scenario.pass_secs(31 * 60);
    assert_eq!(scenario.slots("p"), ["late"], "the wave takes one node more");
    scenario.succeed("late");
    assert_eq!(scenario.slots("p").len(), 4);
    succeed_all(&mut scenario);
    scenario.assert_over();
    scenario.add_node(
        "later",
        &json!({ "metadata": { "labels": { "canary": "true" } } }),
    );
    scenario.settle();
    assert_eq!(scenario.slots("p"), ["later"], "the last wave has begun");
    scenario.finish();
}

#[test]
fn a_canary_that_is_not_ready_holds_its_wave_and_a_number_passes_it_over() {
    let mut held = Scenario::empty();
    held.add_nodes(&NODES);
    held.label("c", "canary", Some("true"));
    held.ready("c", false);
    held.apply(in_waves(vec![canary(None)]));
    held.settle();
    assert!(held.slots("p").is_empty());
    assert_eq!(held.phase("p", "c")[1], "NodeNotReady");
    assert_eq!(held.phase("p", "a")[1], "WaveInProgress");
    held.edit("p", |spec| spec.waves = Some(vec![up_to(IntOrString::Int(5))]));
    held.settle();
    assert_eq!(held.slots("p").len(), 5);
    held.ready("c", true);
    held.roll_out();
    held.assert_over();
}

fn with_policy(policy: FailurePolicy, waves: Vec<WaveSpec>) -> Scenario {
    let mut scenario = with_waves(waves);
    scenario.edit_and_settle("p", |spec| {
        spec.failure = Some(FailureSpec {
            policy: Some(policy),
            budget: (policy == FailurePolicy::Stop).then_some(IntOrString::Int(2)),
            ..FailureSpec::default()
        });
    });
    scenario
}

#[test]
fn under_continue_a_wave_goes_on_without_its_failed_node_and_a_retry_of_it_soaks_again() {
    let mut scenario = with_policy(FailurePolicy::Continue, vec![canary(Some("30m"))]);
    scenario.succeed("c");
    scenario.fail("d");
    assert!(is_at(&scenario, "canary", "Soaking"));
    scenario.pass_secs(20 * 60);
    scenario.retry("d", "p");
    scenario.settle();
    assert!(is_at(&scenario, "canary", "Progressing"));
    assert_eq!(scenario.live_nodes("p"), ["d"]);
    scenario.fail("d");
    assert!(is_at(&scenario, "canary", "Soaking"));
    scenario.pass_secs(29 * 60);
    assert_eq!(scenario.live_nodes("p"), [""; 0]);
    scenario.pass_secs(2 * 60);
    assert_eq!(scenario.live_nodes("p"), ["a", "b", "e", "f"]);
    scenario.roll_out();
    assert_eq!(scenario.phase("p", "d")[0], "Failed");
}

#[test]
fn under_stop_a_wave_goes_on_until_the_budget_is_used_up() {
    let mut scenario = with_policy(
        FailurePolicy::Stop,
        vec![canary(None), up_to(IntOrString::Int(4))],
    );
    scenario.succeed("c");
    scenario.fail("d");
    assert!(is_at(&scenario, "wave-2", "Progressing"));
    let next = scenario.live_nodes("p");
    assert_eq!(
        next.len(),
        2,
        "the failed node counts in the number of the next wave"
    );
    scenario.fail(&next[0]);
    scenario.succeed(&next[1]);
    assert_eq!(scenario.live_nodes("p"), [""; 0]);
    assert_eq!(scenario.complete("p")[1], "JobFailed");
    let waiting = scenario.status("p").active.clone().unwrap();
    let waiting: Vec<_> = waiting
        .iter()
        .filter(|node| node.phase == NodePhase::Waiting)
        .collect();
    assert!(
        waiting
            .iter()
            .all(|node| node.reason.as_deref() == Some("FailureBudget")),
        "{waiting:?}"
    );
    scenario.edit_and_settle("p", |spec| {
        spec.failure.as_mut().unwrap().budget = Some(IntOrString::Int(3));
    });
    assert_eq!(scenario.live_nodes("p").len(), 2);
}

#[test]
fn a_plan_with_an_order_takes_the_zones_of_each_wave_one_after_the_other() {
    let mut scenario = Scenario::empty();
    for (name, zone) in [
        ("a", "1"),
        ("b", "1"),
        ("c", "2"),
        ("d", "1"),
        ("e", "2"),
        ("f", "2"),
    ] {
        scenario.add_node(name, &json!({ "metadata": { "labels": { "zone": zone } } }));
    }
    for name in ["c", "d"] {
        scenario.label(name, "canary", Some("true"));
    }
    let mut plan = in_waves(vec![canary(None)]);
    plan.spec.order = Some(vec![OrderSpec {
        topology_key: Some("zone".to_owned()),
        ..OrderSpec::default()
    }]);
    scenario.apply_and_settle(plan);
    for slots in [&["d"][..], &["c"], &["a", "b"], &["e", "f"]] {
        assert_eq!(scenario.slots("p"), slots);
        succeed_all(&mut scenario);
    }
    scenario.assert_over();
}

#[test]
fn the_history_keeps_who_approved_a_wave() {
    let approved = WaveSpec {
        approval: Some(true),
        ..canary(None)
    };
    let mut scenario = with_waves(vec![approved]);
    succeed_all(&mut scenario);
    let by = "by alice at 2026-01-01T09:00:00Z";
    let approval = format!("{} {by}", WaveApproval::new("canary", &scenario.hash("p")));
    scenario.annotate(Kind::Plan, "p", names::ANNOTATION_APPROVE, Some(&approval));
    scenario.settle();
    assert_eq!(scenario.slots("p").len(), 4);
    scenario.annotate(Kind::Plan, "p", names::ANNOTATION_APPROVE, None);
    scenario.restart();
    succeed_all(&mut scenario);
    scenario.assert_over();
    let history = scenario.status("p").history.clone().unwrap();
    assert_eq!(history[0].approved_waves, Some(vec![format!("canary {by}")]));
}
