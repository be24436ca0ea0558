//! Inputs that would stop everybody if they were believed, and an API server that loses what it knew.

use std::time::Duration;

use jiff::SignedDuration;

use super::scenario::{NAMESPACE, Scenario, Setup};
use crate::fault::Rule;
use refit_api::{Plan, RebootSpec, RebootWhen, SettleSpec};
use refit_facts::PodStage;
use refit_fixtures::{plan, plan_with};
use refit_rehearse::Kind;
use refit_rehearse::json::json;

const LATE: &str = "9999-12-31T23:59:59Z";

/// The condition Ready of a node, with a time that Go accepts.
fn set_late(scenario: &mut Scenario, node: &str) {
    let condition = json!({
        "type": "Ready", "status": "True", "reason": "Odd", "message": "odd", "lastTransitionTime": LATE,
    });
    let patch = json!({ "status": { "conditions": [condition] } });
    scenario
        .cluster
        .patch_status(Kind::Node, "", node, &patch)
        .unwrap();
}

fn node_events(scenario: &Scenario, reason: &str) -> Vec<String> {
    scenario.cluster.with(|state| {
        let events = state.all(Kind::Event).filter(|event| event["reason"] == *reason);
        let line = |event: &refit_rehearse::json::Value| {
            let text = |value: &refit_rehearse::json::Value| value.as_str().unwrap_or_default().to_owned();
            format!(
                "{}: {}",
                text(&event["involvedObject"]["name"]),
                text(&event["message"])
            )
        };
        events.map(line).collect()
    })
}

#[test]
fn a_time_that_cannot_be_read_stops_no_object_and_names_its_node_also_after_a_restart() {
    let mut scenario = Scenario::of_nodes(&["a", "b"]);
    set_late(&mut scenario, "a");
    scenario.apply_and_settle(plan("p"));
    assert_eq!(scenario.slots("p").len(), 1);
    scenario.restart();
    set_late(&mut scenario, "a");
    scenario.pass_secs(60);
    let events = node_events(&scenario, "ObjectUnreadable");
    assert_eq!(events.len(), 1, "{events:?}");
    assert!(
        events[0].starts_with("a: lastTransitionTime of condition Ready is ignored"),
        "{events:?}"
    );
    scenario.finish();
    assert_eq!(scenario.invariants.upgrades, 2);
}

#[test]
fn events_that_cannot_be_written_hold_up_neither_a_status_nor_a_start() {
    let events = || Rule::on("create", "events");
    for rule in [events().answer(500), events().answer(429), events().hang()] {
        let mut scenario = Scenario::empty();
        scenario.fault_always(rule.clone());
        scenario.add_nodes(&["a"]);
        scenario.apply(plan("p"));
        scenario.comes_to("a", PodStage::Upgrade);
        scenario.succeed("a");
        scenario.pass_secs(60);
        assert!(scenario.is_done("a", "p"), "{rule:?}");
        assert_eq!(scenario.events(), Vec::<String>::new());
        scenario.mend();
        scenario.pass_secs(120);
        assert_eq!(
            scenario.events_of("JobComplete").len(),
            1,
            "{rule:?}: {:?}",
            scenario.events()
        );
        assert_eq!(scenario.events_of("Validated").len(), 1, "{rule:?}");
        scenario.finish();
    }
}

#[test]
fn a_status_that_cannot_be_stored_is_reported_by_an_event() {
    for code in [413, 422] {
        let mut scenario = Scenario::empty();
        scenario.fault_always(Rule::on("patch", "plans/status").named("p").answer(code));
        scenario.add_nodes(&["a"]);
        scenario.apply(plan("p"));
        scenario.pass_secs(120);
        assert_eq!(scenario.jobs_for("a").len(), 0);
        let events = scenario.events_of("StatusRefused");
        assert_eq!(events.len(), 1, "{code}: {events:?}");
        assert!(
            events[0].starts_with("the status cannot be stored, so no node starts: "),
            "{events:?}"
        );
        scenario.mend();
        scenario.pass_secs(60);
        scenario.finish();
    }
}

#[test]
fn a_permission_that_is_back_before_the_next_status_gives_no_refused_status() {
    let mut scenario = Scenario::with(&["a", "b"], plan("p"));
    scenario.fault(Rule::on("patch", "plans/status").answer(403));
    scenario.finish();
    assert_eq!(scenario.events_of("StatusRefused"), Vec::<&str>::new());
}

/// The simulated API server refuses what a real one refuses.
#[test]
fn an_object_that_etcd_does_not_store_is_refused_and_another_plan_continues() {
    let mut scenario = Scenario::of_nodes(&["a"]);
    let mut large = plan("large");
    large.metadata.annotations = Some([("note".to_owned(), "x".repeat(1_572_000))].into());
    large.spec.concurrency = Some(0);
    scenario.apply(large);
    scenario.apply(plan("p"));
    scenario.pass_secs(120);
    let events = scenario.events_of("StatusRefused");
    assert!(
        events
            .iter()
            .any(|it| it.contains("etcdserver: request is too large")),
        "{:?}",
        scenario.events()
    );
    assert_eq!(scenario.slots("p"), ["a"]);
    scenario.delete(Kind::Plan, "large");
    scenario.finish();
}

#[test]
fn a_status_of_many_slots_is_stored() {
    let mut scenario = Scenario::empty();
    let names: Vec<String> = (0..100)
        .map(|number| format!("node-{number:04}-{}", "n".repeat(50)))
        .collect();
    for name in &names {
        scenario.add_node(
            name,
            &json!({ "status": { "nodeInfo": { "bootID": "b".repeat(10_000) } } }),
        );
    }
    scenario.apply_and_settle(plan_with("p", |spec| {
        spec.concurrency = Some(100);
        spec.reboot = Some(RebootSpec {
            when: Some(RebootWhen::Always),
            ..RebootSpec::default()
        });
    }));
    assert_eq!(scenario.slots("p").len(), 100);
    let size = scenario.cluster.with(|state| {
        state
            .get(Kind::Plan, NAMESPACE, "p")
            .map(|plan| plan["status"].to_bytes().len())
    });
    assert!(size.is_some_and(|size| size < 100 * 1_024), "{size:?}");
}

#[test]
fn after_a_restore_of_etcd_the_controller_starts_over() {
    let mut scenario = Scenario::with(&["a"], plan("p"));
    scenario.roll_out();
    let backup = scenario.cluster.with(|state| state.store.backup());
    for number in 0..500 {
        scenario.annotate(Kind::Plan, "p", "example.com/number", Some(&number.to_string()));
    }
    scenario.settle();
    let before = scenario.cluster.with(|state| state.store.version());
    scenario.cluster.with(|state| state.store.restore(backup));
    scenario.pass_secs(120);
    assert!(scenario.cluster.with(|state| state.store.version()) < before);
    scenario.edit_and_settle("p", |spec| spec.version = Some("v2".to_owned()));
    assert_eq!(
        scenario.slots("p"),
        ["a"],
        "the Plan is read in a version that is older than the one known before"
    );
    scenario.finish();
    assert_eq!(scenario.invariants.upgrades, 2);
}

fn rebooting() -> Plan {
    plan_with("p", |spec| {
        spec.reboot = Some(RebootSpec {
            when: Some(RebootWhen::Always),
            timeout: Some("10m".to_owned()),
            ..RebootSpec::default()
        });
        spec.settle = Some(Box::new(SettleSpec {
            min_ready: Some("2m".to_owned()),
            ..SettleSpec::default()
        }));
    })
}

#[test]
fn a_clock_that_is_set_neither_fails_a_reboot_nor_ends_a_wait() {
    for hours in [1, -1] {
        let step = SignedDuration::from_hours(hours);
        let mut scenario = Scenario::new(&Setup::default());
        scenario.add_nodes(&["a"]);
        scenario.apply(rebooting());
        // The reboot Pod is requested, and its kubelet is slow.
        scenario.comes_to("a", PodStage::Upgrade);
        scenario.steer("a", "start-delay", Some("60s"));
        scenario.succeed("a");
        assert_eq!(scenario.reboot_pods().len(), 1);
        scenario.set_clock(step);
        scenario.pass_secs(30);
        assert_eq!(scenario.phase("p", "a")[0], "Rebooting", "{hours} h");
        scenario.steer("a", "start-delay", None);
        scenario.until("it has rebooted and settles", |state| {
            let plan = state.get(Kind::Plan, NAMESPACE, "p");
            plan.is_some_and(|plan| plan["status"]["active"][0]["reason"] == "MinReady")
        });
        // Not ready for two minutes by any clock.
        scenario.set_clock(step + step);
        scenario.pass(Duration::from_secs(60));
        assert_eq!(scenario.phase("p", "a"), ["Settling", "MinReady"], "{hours} h");
        scenario.pass_secs(120);
        assert!(
            scenario.is_done("a", "p"),
            "{hours} h: {:?}",
            scenario.complete("p")
        );
        scenario.set_clock(SignedDuration::ZERO);
        scenario.finish();
    }
}
