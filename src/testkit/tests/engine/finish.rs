//! Success: when a node is done, what is written then, and how the node is released.

use std::time::Duration;

use super::scenario::{Scenario, Setup};
use crate::fault::{Moment, Rule};
use refit_api::{DrainSpec, Holder, RebootWhen, names};
use refit_facts::PodStage;
use refit_fixtures::{plan, plan_with, reboot};
use refit_rehearse::Kind;
use refit_rehearse::json::json;

fn delayed() -> refit_api::Plan {
    plan_with("p", |spec| spec.post_complete_delay = Some("90s".to_owned()))
}

/// The upgrade of node `a` is running.
fn cordoned() -> Scenario {
    let mut scenario = Scenario::with(&["a"], plan("p"));
    scenario.comes_to("a", PodStage::Upgrade);
    assert!(scenario.is_cordoned("a"));
    scenario
}

#[test]
fn one_patch_labels_a_node_as_done_and_uncordons_it_before_anything_else() {
    for drains in [false, true] {
        let mut scenario = Scenario::with(
            &["a"],
            plan_with("p", |spec| {
                let pairs = [
                    ("example.com/at", "$(LATEST_VERSION)-x"),
                    ("example.com/x", "static"),
                ];
                spec.post_complete_labels = Some(pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
                spec.drain = drains.then(DrainSpec::default);
            }),
        );
        let hash = scenario.hash("p");
        scenario.comes_to("a", PodStage::Upgrade);
        assert!(scenario.is_cordoned("a") && scenario.node("a").ledger.is_some());
        scenario.edit_and_settle("p", |spec| spec.version = Some("v2".to_owned()));
        // The next node waits only for this patch: the event and the annotation on the Job follow it.
        scenario.fault(Rule::on("patch", "nodes").named("a").kill(Moment::After));
        scenario.stop_at_death();
        scenario.succeed("a");
        assert_eq!(scenario.requests("PATCH /nodes/a"), 1);
        let node = scenario.node("a");
        assert_eq!(scenario.done_label("a", "p"), Some(hash), "it is that of its Job");
        assert_eq!(node.labels.get("example.com/at"), Some("v1-x"));
        assert_eq!(node.labels.get("example.com/x"), Some("static"));
        assert!(!node.unschedulable && node.ledger.is_none() && node.records.is_empty());
        assert!(scenario.events_of("JobComplete").is_empty() && !scenario.job_for("a").recorded);
        scenario.start();
        scenario.finish();
        assert_eq!(scenario.events_of("JobComplete").len(), 2);
    }
}

#[test]
fn a_node_that_is_not_ready_is_not_done_until_it_is_though_its_job_is_gone() {
    let mut scenario = cordoned();
    scenario.ready("a", false);
    scenario.succeed("a");
    scenario.pass_secs(2);
    assert!(!scenario.is_done("a", "p") && scenario.is_cordoned("a"));
    assert_eq!(scenario.phase("p", "a"), ["Settling", "NodeNotReady"]);
    let job = scenario.job_for("a");
    assert!(job.recorded, "its result is in the node's record");
    scenario.delete(Kind::Job, &job.name);
    scenario.pass_secs(24 * 3600);
    assert_eq!(
        scenario.phase("p", "a")[0],
        "Settling",
        "without spec.settle for as long as it takes"
    );
    scenario.ready("a", true);
    scenario.settle();
    scenario.assert_over();
    assert_eq!(scenario.events_of("JobComplete"), ["Job completed on Node a"]);
}

#[test]
fn during_the_delay_the_node_is_schedulable_not_done_and_holds_its_slot() {
    let mut scenario = Scenario::with(&["a", "b"], delayed());
    let first = scenario.slots("p")[0].clone();
    scenario.succeed(&first);
    scenario.pass_secs(2);
    assert!(!scenario.is_cordoned(&first) && scenario.done_label(&first, "p").is_none());
    assert_eq!(scenario.phase("p", &first), ["Settling", "PostCompleteDelay"]);
    let text = scenario.entry("p", &first).message.unwrap();
    assert!(
        text.starts_with("spec.postCompleteDelay ends at 2026-01-01T09:01:"),
        "{text}"
    );
    let message = format!("Job completed on Node {first}, waiting 1m30s PostCompleteDelay");
    assert_eq!(scenario.events_of("JobCompleteWaiting"), [message]);
    scenario.pass_secs(80);
    assert_eq!(scenario.slots("p"), [first.as_str()]);
    assert!(scenario.done_label(&first, "p").is_none() && scenario.events_of("JobComplete").is_empty());
    scenario.cordon(&first, true);
    scenario.pass_secs(10);
    assert!(
        scenario.is_done(&first, "p") && scenario.is_cordoned(&first),
        "that was a person"
    );
    assert_ne!(scenario.slots("p"), [first.as_str()]);
    scenario.roll_out();
    scenario.pass_secs(95);
    scenario.assert_over();
}

#[test]
fn a_plan_that_is_edited_during_the_delay_ends_what_it_began() {
    let mut scenario = Scenario::with(&["a"], delayed());
    let old = scenario.hash("p");
    scenario.succeed("a");
    scenario.pass_secs(2);
    scenario.edit_and_settle("p", |spec| spec.version = Some("v2".to_owned()));
    assert_eq!(scenario.phase("p", "a")[1], "PostCompleteDelay");
    scenario.pass_secs(90);
    assert_eq!(scenario.done_label("a", "p"), Some(old));
    scenario.roll_out();
    scenario.pass_secs(95);
    scenario.assert_over();
    assert_eq!(scenario.invariants.upgrades, 2);
}

#[test]
fn a_job_lost_during_the_delay_is_not_created_again_under_any_leader() {
    let mut scenario = Scenario::with(&["a"], delayed());
    scenario.succeed("a");
    scenario.stop();
    let job = scenario.job_for("a").name;
    scenario.delete(Kind::Job, &job);
    scenario.start();
    scenario.pass_secs(45);
    assert!(scenario.invariants.jobs.is_empty());
    scenario.pass_secs(50);
    scenario.assert_over();
    assert_eq!(scenario.events_of("JobComplete").len(), 1);
    assert_eq!(scenario.invariants.upgrades, 1);
}

#[test]
fn a_windows_node_goes_back_to_what_it_was_before_kubectl_cordoned_it() {
    for cordoned in [false, true] {
        let mut scenario = Scenario::empty();
        scenario.add_node(
            "win",
            &json!({ "metadata": { "labels": { "kubernetes.io/os": "windows" } } }),
        );
        scenario.cordon("win", cordoned);
        scenario.apply(delayed());
        scenario.comes_to("win", PodStage::Upgrade);
        // kubectl in the pod cordons the node.
        scenario.kubectl_cordons("win");
        scenario.succeed("win");
        assert_eq!(scenario.is_cordoned("win"), cordoned);
        scenario.cordon("win", true);
        scenario.pass_secs(95);
        assert!(
            scenario.is_done("win", "p") && scenario.is_cordoned("win"),
            "released once"
        );
    }
}

#[test]
fn a_windows_node_that_is_not_ready_is_released_when_its_plan_is_deleted() {
    let mut scenario = Scenario::empty();
    scenario.add_node(
        "win",
        &json!({ "metadata": { "labels": { "kubernetes.io/os": "windows" } } }),
    );
    scenario.apply(plan("p"));
    scenario.comes_to("win", PodStage::Upgrade);
    scenario.kubectl_cordons("win");
    scenario.ready("win", false);
    scenario.succeed("win");
    assert!(scenario.is_cordoned("win"));
    scenario.delete(Kind::Plan, "p");
    scenario.settle();
    assert!(!scenario.is_cordoned("win") && scenario.node("win").records.is_empty());
}

#[test]
fn a_node_disabled_in_mid_upgrade_keeps_that_label_and_is_released() {
    for labels in [false, true] {
        let mut scenario = Scenario::with(
            &["a"],
            plan_with("p", |spec| {
                spec.post_complete_labels = labels.then(|| [("x".to_owned(), "y".to_owned())].into());
            }),
        );
        scenario.comes_to("a", PodStage::Upgrade);
        scenario.set_done_label("a", "p", Some("disabled"));
        scenario.succeed("a");
        assert_eq!(scenario.done_label("a", "p").as_deref(), Some("disabled"));
        assert!(!scenario.is_cordoned("a") && scenario.job_for("a").recorded);
        assert_eq!(scenario.events_of("JobComplete").len(), 1);
    }
}

#[test]
fn a_refused_patch_of_a_node_is_reported_in_status() {
    let mut scenario = cordoned();
    scenario.fault_always(Rule::on("patch", "nodes").named("a").answer(422));
    scenario.succeed("a");
    assert_eq!(scenario.phase("p", "a")[1], "NodeRefused");
    assert_eq!(
        scenario.complete("p")[2],
        "Node a: the node cannot be patched: injected fault 422"
    );
    scenario.mend();
    scenario.pass_secs(60);
    scenario.assert_over();
}

#[test]
fn a_controller_that_lost_the_answer_to_the_label_does_not_make_the_job_again() {
    let mut scenario = cordoned();
    scenario.fault_injector.hold_watch("nodes", true);
    scenario.fault(Rule::on("patch", "nodes").named("a").late(Duration::from_secs(8)));
    scenario.succeed_unseen("a");
    scenario.pass_secs(1);
    let job = scenario.job_for("a").name;
    scenario.delete(Kind::Job, &job);
    scenario.pass_secs(5);
    assert_eq!(
        scenario.requests("POST /jobs"),
        1,
        "the label is stored, which the watch has not delivered"
    );
    scenario.fault_injector.hold_watch("nodes", false);
    scenario.rest();
    scenario.assert_over();
}

// -- released

#[test]
fn a_node_that_a_user_had_cordoned_stays_cordoned() {
    for spec in [
        plan("p"),
        plan_with("p", |spec| spec.cordon = None),
        plan_with("p", |spec| spec.drain = Some(DrainSpec::default())),
        plan_with("p", |spec| {
            spec.reboot = Some(reboot(RebootWhen::Always));
        }),
    ] {
        let cordons = spec.spec.cordon == Some(true);
        let mut scenario = Scenario::of_nodes(&["a"]);
        scenario.cordon("a", true);
        scenario.apply(spec);
        scenario.comes_to("a", PodStage::Upgrade);
        let before = scenario.node("a").ledger.as_ref().map(|ledger| ledger.before);
        assert_eq!(before, cordons.then_some(true), "what it was is in its ledger");
        scenario.finish();
        assert!(scenario.is_cordoned("a"));
    }
}

#[test]
fn a_node_is_kept_cordoned_when_a_user_requests_it_however_late() {
    for late in [false, true] {
        let mut scenario = cordoned();
        if late {
            // The patch that releases the node is delayed, so it carries an outdated version.
            scenario.fault(
                Rule::on("patch", "nodes")
                    .named("a")
                    .delay(Duration::from_secs(2)),
            );
            scenario.succeed_unseen("a");
            scenario.pass_secs(1);
        }
        scenario.annotate(Kind::Node, "a", names::ANNOTATION_KEEP_CORDONED, Some("true"));
        if !late {
            scenario.succeed("a");
        }
        scenario.settle();
        assert!(
            scenario.is_done("a", "p") && scenario.is_cordoned("a"),
            "late: {late}"
        );
        assert_eq!(scenario.node("a").ledger, None);
    }
}

#[test]
fn a_user_who_uncordons_ends_the_ledger() {
    let mut scenario = cordoned();
    scenario.cordon("a", false);
    scenario.settle();
    assert_eq!(scenario.node("a").ledger, None);
    scenario.cordon("a", true); // by a user, for another reason
    scenario.finish();
    assert!(scenario.is_cordoned("a"));
}

#[test]
fn a_node_is_released_when_its_plan_and_its_pod_are_gone_whether_a_controller_was_there_or_not() {
    for (away, made_again, held) in [
        (false, false, false),
        (true, false, false),
        (false, true, false),
        (false, false, true),
    ] {
        let mut scenario = cordoned();
        scenario.steer("a", "delete-delay", Some("20s"));
        if away {
            scenario.stop();
        }
        scenario.fault_injector.hold_watch("pods", held);
        scenario.delete(Kind::Plan, "p");
        if made_again {
            scenario.apply(plan_with("p", |spec| spec.node_selector = None));
        }
        scenario.pass_secs(10);
        assert!(scenario.is_cordoned("a"), "its pod is still at work");
        scenario.pass_secs(30);
        if held {
            assert!(scenario.is_cordoned("a"), "nobody has said that the pod is gone");
            scenario.fault_injector.hold_watch("pods", false);
        }
        scenario.start();
        scenario.rest();
        assert!(!scenario.is_cordoned("a") && scenario.node("a").ledger.is_none());
    }
}

#[test]
fn the_last_holder_releases_the_node_and_holders_of_other_controllers_stay() {
    let strangers = [
        ("system-upgrade", "system-upgrade-controller", true),
        ("elsewhere", "system-upgrade-controller", false),
        ("system-upgrade", "another", false),
    ];
    for (namespace, controller, leaves) in strangers {
        let mut scenario = cordoned();
        scenario.change_ledger("a", |ledger| {
            let other = Holder {
                namespace: namespace.to_owned(),
                controller: controller.to_owned(),
                plan: "gone".to_owned(),
                plan_uid: "plan-x".into(),
                ..ledger.holders[0].clone()
            };
            ledger.holders.insert(0, other);
        });
        scenario.roll_out();
        assert!(scenario.is_done("a", "p"));
        assert_eq!(scenario.is_cordoned("a"), !leaves, "{namespace} {controller}");
        let holders = scenario
            .node("a")
            .ledger
            .as_ref()
            .map_or(0, |ledger| ledger.holders.len());
        assert_eq!(holders, usize::from(!leaves));
    }
}

#[test]
fn the_schedulability_before_the_first_holder_is_restored_when_the_last_holder_leaves() {
    let mut scenario = cordoned();
    scenario.change_ledger("a", |ledger| ledger.before = true);
    scenario.delete(Kind::Plan, "p");
    scenario.rest();
    assert!(scenario.is_cordoned("a") && scenario.node("a").ledger.is_none());
}

#[test]
fn records_of_plans_that_are_gone_leave_the_node_and_those_of_another_namespace_stay() {
    let mut scenario = Scenario::with(&["a"], plan("p"));
    scenario.fail("a");
    let known = scenario.cluster.get(Kind::Node, "", "a").unwrap();
    let record = known["metadata"]["annotations"]["plan.refit.rs/p"]
        .as_str()
        .unwrap();
    let theirs = record.replace("\"system-upgrade\"", "\"elsewhere\"");
    assert_ne!(theirs, record);
    scenario.annotate(Kind::Node, "a", "plan.refit.rs/theirs", Some(&theirs));
    scenario.delete(Kind::Plan, "p");
    scenario.rest();
    let records: Vec<_> = scenario.node("a").records.keys().map(|plan| &**plan).collect();
    assert_eq!(records, ["theirs"]);
    assert!(!scenario.is_cordoned("a"));
}

#[test]
fn a_finished_roll_out_keeps_quiet() {
    let mut scenario = Scenario::new(&Setup::default());
    scenario.add_nodes(&["a"]);
    scenario.apply_and_settle(plan("p"));
    scenario.roll_out();
    let version = scenario.cluster.with(|state| state.store.version());
    scenario.pass_secs(600);
    assert_eq!(scenario.cluster.with(|state| state.store.version()), version);
    scenario.assert_over();
}
