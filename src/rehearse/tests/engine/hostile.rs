//! Inputs that would stop everybody if they were believed, and an API server that loses what it knew.

use std::time::Duration;

use jiff::SignedDuration;

use super::scenario::{NAMESPACE, Scenario, Setup};
use crate::api::{Plan, RebootSpec, RebootWhen, SettleSpec};
use crate::rehearse::Kind;
use crate::rehearse::fault::Rule;
use crate::rehearse::json::json;
use crate::rollout::PodStage;
use crate::rollout::tests::build::{plan, plan_with};

const LATE: &str = "9999-12-31T23:59:59Z";

/// The condition Ready of a node, with a time that Go accepts.
fn set_late(story: &mut Scenario, node: &str) {
    let condition = json!({
        "type": "Ready", "status": "True", "reason": "Odd", "message": "odd", "lastTransitionTime": LATE,
    });
    let patch = json!({ "status": { "conditions": [condition] } });
    story.cluster.patch_status(Kind::Node, "", node, &patch).unwrap();
}

fn node_events(story: &Scenario, reason: &str) -> Vec<String> {
    story.cluster.with(|state| {
        let events = state.all(Kind::Event).filter(|event| event["reason"] == *reason);
        let line = |event: &crate::rehearse::json::Value| {
            let text = |value: &crate::rehearse::json::Value| value.as_str().unwrap_or_default().to_owned();
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
    let mut story = Scenario::empty();
    story.add_nodes(&["a", "b"]);
    set_late(&mut story, "a");
    story.apply(plan("p"));
    story.settle();
    assert_eq!(story.slots("p").len(), 1);
    story.restart();
    set_late(&mut story, "a");
    story.pass_secs(60);
    let events = node_events(&story, "ObjectUnreadable");
    assert_eq!(events.len(), 1, "{events:?}");
    assert!(
        events[0].starts_with("a: lastTransitionTime of condition Ready is ignored"),
        "{events:?}"
    );
    story.roll_out();
    story.assert_over();
    assert_eq!(story.invariants.upgrades, 2);
}

#[test]
fn events_that_cannot_be_written_hold_up_neither_a_status_nor_a_start() {
    let events = || Rule::on("create", "events");
    for rule in [events().answer(500), events().answer(429), events().hang()] {
        let mut story = Scenario::empty();
        story.fault_always(rule.clone());
        story.add_nodes(&["a"]);
        story.apply(plan("p"));
        story.comes_to("a", PodStage::Upgrade);
        story.succeed("a");
        story.pass_secs(60);
        assert!(story.is_done("a", "p"), "{rule:?}");
        assert_eq!(story.events(), Vec::<String>::new());
        story.mend();
        story.pass_secs(120);
        assert_eq!(
            story.events_of("JobComplete").len(),
            1,
            "{rule:?}: {:?}",
            story.events()
        );
        assert_eq!(story.events_of("Validated").len(), 1, "{rule:?}");
        story.roll_out();
        story.assert_over();
    }
}

#[test]
fn a_status_that_cannot_be_stored_is_reported_by_an_event() {
    for code in [413, 422] {
        let mut story = Scenario::empty();
        story.fault_always(Rule::on("patch", "plans/status").named("p").answer(code));
        story.add_nodes(&["a"]);
        story.apply(plan("p"));
        story.pass_secs(120);
        assert_eq!(story.jobs_for("a").len(), 0);
        let events = story.events_of("StatusRefused");
        assert_eq!(events.len(), 1, "{code}: {events:?}");
        assert!(
            events[0].starts_with("the status cannot be stored, so no node starts: "),
            "{events:?}"
        );
        story.mend();
        story.pass_secs(60);
        story.roll_out();
        story.assert_over();
    }
}

#[test]
fn a_permission_that_is_back_before_the_next_status_gives_no_refused_status() {
    let mut story = Scenario::with(&["a", "b"], plan("p"));
    story.fault(Rule::on("patch", "plans/status").answer(403));
    story.roll_out();
    story.assert_over();
    assert_eq!(story.events_of("StatusRefused"), Vec::<&str>::new());
}

/// The simulated API server refuses what a real one refuses.
#[test]
fn an_object_that_etcd_does_not_store_is_refused_and_another_plan_continues() {
    let mut story = Scenario::empty();
    story.add_nodes(&["a"]);
    let mut large = plan("large");
    large.metadata.annotations = Some([("note".to_owned(), "x".repeat(1_572_000))].into());
    large.spec.concurrency = Some(0);
    story.apply(large);
    story.apply(plan("p"));
    story.pass_secs(120);
    let events = story.events_of("StatusRefused");
    assert!(
        events
            .iter()
            .any(|it| it.contains("etcdserver: request is too large")),
        "{:?}",
        story.events()
    );
    assert_eq!(story.slots("p"), ["a"]);
    story.delete(Kind::Plan, "large");
    story.roll_out();
    story.assert_over();
}

#[test]
fn a_status_of_many_slots_is_stored() {
    let mut story = Scenario::empty();
    let names: Vec<String> = (0..100)
        .map(|number| format!("node-{number:04}-{}", "n".repeat(50)))
        .collect();
    for name in &names {
        story.add_node(
            name,
            &json!({ "status": { "nodeInfo": { "bootID": "b".repeat(10_000) } } }),
        );
    }
    story.apply(plan_with("p", |spec| {
        spec.concurrency = Some(100);
        spec.reboot = Some(RebootSpec {
            when: Some(RebootWhen::Always),
            ..RebootSpec::default()
        });
    }));
    story.settle();
    assert_eq!(story.slots("p").len(), 100);
    let size = story.cluster.with(|state| {
        state
            .get(Kind::Plan, NAMESPACE, "p")
            .map(|plan| plan["status"].to_bytes().len())
    });
    assert!(size.is_some_and(|size| size < 100 * 1_024), "{size:?}");
}

#[test]
fn after_a_restore_of_etcd_the_controller_starts_over() {
    let mut story = Scenario::with(&["a"], plan("p"));
    story.roll_out();
    let backup = story.cluster.with(|state| state.store.backup());
    for number in 0..500 {
        story.annotate(Kind::Plan, "p", "example.com/number", Some(&number.to_string()));
    }
    story.settle();
    let before = story.cluster.with(|state| state.store.version());
    story.cluster.with(|state| state.store.restore(backup));
    story.pass_secs(120);
    assert!(story.cluster.with(|state| state.store.version()) < before);
    story.edit("p", |spec| spec.version = Some("v2".to_owned()));
    story.settle();
    assert_eq!(
        story.slots("p"),
        ["a"],
        "the Plan is read in a version that is older than the one known before"
    );
    story.roll_out();
    story.assert_over();
    assert_eq!(story.invariants.upgrades, 2);
}

fn rebooting() -> Plan {
    plan_with("p", |spec| {
        spec.reboot = Some(RebootSpec {
            when: Some(RebootWhen::Always),
            timeout: Some("10m".to_owned()),
            ..RebootSpec::default()
        });
        spec.settle = Some(SettleSpec {
            min_ready: Some("2m".to_owned()),
            ..SettleSpec::default()
        });
    })
}

#[test]
fn a_clock_that_is_set_neither_fails_a_reboot_nor_ends_a_wait() {
    for hours in [1, -1] {
        let step = SignedDuration::from_hours(hours);
        let mut story = Scenario::new(&Setup::default());
        story.add_nodes(&["a"]);
        story.apply(rebooting());
        // The reboot Pod is requested, and its kubelet is slow.
        story.comes_to("a", PodStage::Upgrade);
        story.steer("a", "start-delay", Some("60s"));
        story.succeed("a");
        assert_eq!(story.reboot_pods().len(), 1);
        story.set_clock(step);
        story.pass_secs(30);
        assert_eq!(story.phase("p", "a").0, "Rebooting", "{hours} h");
        story.steer("a", "start-delay", None);
        story.until("it has rebooted and settles", |state| {
            let plan = state.get(Kind::Plan, NAMESPACE, "p");
            plan.is_some_and(|plan| plan["status"]["active"][0]["reason"] == "MinReady")
        });
        // Not ready for two minutes by any clock.
        story.set_clock(step + step);
        story.pass(Duration::from_secs(60));
        assert_eq!(
            story.phase("p", "a"),
            ("Settling".to_owned(), "MinReady".to_owned()),
            "{hours} h"
        );
        story.pass_secs(120);
        assert!(story.is_done("a", "p"), "{hours} h: {:?}", story.complete("p"));
        story.set_clock(SignedDuration::ZERO);
        story.roll_out();
        story.assert_over();
    }
}
