//! Success: when a node is done, what is written then, and how the node is released.

use std::time::Duration;

use super::scenario::{Scenario, Setup};
use crate::api::{Holder, RebootWhen, names};
use crate::rehearse::Kind;
use crate::rehearse::fault::{Moment, Rule};
use crate::rehearse::json::json;
use crate::rollout::PodStage;
use crate::rollout::tests::build::{plan, plan_with, reboot};

fn delayed() -> crate::api::Plan {
    plan_with("p", |spec| spec.post_complete_delay = Some("90s".to_owned()))
}

/// The upgrade of node `a` is running.
fn cordoned() -> Scenario {
    let mut story = Scenario::with(&["a"], plan("p"));
    story.comes_to("a", PodStage::Upgrade);
    assert!(story.is_cordoned("a"));
    story
}

#[test]
fn one_patch_says_that_a_node_is_done_and_gives_it_back_before_anything_else() {
    let mut story = Scenario::with(
        &["a"],
        plan_with("p", |spec| {
            let pairs = [
                ("example.com/at", "$(LATEST_VERSION)-$(OTHER)"),
                ("example.com/x", "static"),
            ];
            spec.post_complete_labels = Some(pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
        }),
    );
    let hash = story.hash("p");
    story.comes_to("a", PodStage::Upgrade);
    story.edit("p", |spec| spec.version = Some("v2".to_owned()));
    story.settle();
    // The next node waits only for this patch: the event and the annotation on the Job follow it.
    story.fault(Rule::on("patch", "nodes").named("a").kill(Moment::After));
    story.stop_at_death();
    story.succeed("a");
    assert_eq!(story.requests("PATCH /nodes/a"), 1);
    let node = story.node("a");
    assert_eq!(story.done_label("a", "p"), Some(hash), "it is that of its Job");
    assert_eq!(node.labels.get("example.com/at"), Some("v1-$(OTHER)"));
    assert_eq!(node.labels.get("example.com/x"), Some("static"));
    assert!(!node.unschedulable && node.ledger.is_none() && node.records.is_empty());
    assert!(story.events_of("JobComplete").is_empty() && !story.job_for("a").recorded);
    story.start();
    story.roll_out();
    story.assert_over();
    assert_eq!(story.events_of("JobComplete").len(), 2);
}

#[test]
fn a_node_that_is_not_ready_is_not_done_until_it_is_though_its_job_is_gone() {
    let mut story = cordoned();
    story.ready("a", false);
    story.succeed("a");
    story.pass_secs(2);
    assert!(!story.is_done("a", "p") && story.is_cordoned("a"));
    assert_eq!(
        story.phase("p", "a"),
        ("Settling".to_owned(), "NodeNotReady".to_owned())
    );
    let job = story.job_for("a");
    assert!(job.recorded, "its result is in the node's record");
    story.delete(Kind::Job, &job.name);
    story.pass_secs(24 * 3600);
    assert_eq!(
        story.phase("p", "a").0,
        "Settling",
        "without spec.settle for as long as it takes"
    );
    story.ready("a", true);
    story.settle();
    story.assert_over();
    assert_eq!(story.events_of("JobComplete"), ["Job completed on Node a"]);
}

#[test]
fn during_the_delay_the_node_is_schedulable_not_done_and_holds_its_slot() {
    let mut story = Scenario::with(&["a", "b"], delayed());
    let first = story.slots("p")[0].clone();
    story.succeed(&first);
    story.pass_secs(2);
    assert!(!story.is_cordoned(&first) && story.done_label(&first, "p").is_none());
    assert_eq!(
        story.phase("p", &first),
        ("Settling".to_owned(), "PostCompleteDelay".to_owned())
    );
    let text = story.entry("p", &first).message.unwrap();
    assert!(
        text.starts_with("spec.postCompleteDelay ends at 2026-01-01T09:01:"),
        "{text}"
    );
    let message = format!("Job completed on Node {first}, waiting 1m30s PostCompleteDelay");
    assert_eq!(story.events_of("JobCompleteWaiting"), [message]);
    story.pass_secs(80);
    assert_eq!(story.slots("p"), [first.as_str()]);
    assert!(story.done_label(&first, "p").is_none() && story.events_of("JobComplete").is_empty());
    story.cordon(&first, true);
    story.pass_secs(10);
    assert!(
        story.is_done(&first, "p") && story.is_cordoned(&first),
        "that was a person"
    );
    assert_ne!(story.slots("p"), [first.as_str()]);
    story.roll_out();
    story.pass_secs(95);
    story.assert_over();
}

#[test]
fn a_plan_that_is_edited_during_the_delay_ends_what_it_began() {
    let mut story = Scenario::with(&["a"], delayed());
    let old = story.hash("p");
    story.succeed("a");
    story.pass_secs(2);
    story.edit("p", |spec| spec.version = Some("v2".to_owned()));
    story.settle();
    assert_eq!(story.phase("p", "a").1, "PostCompleteDelay");
    story.pass_secs(90);
    assert_eq!(story.done_label("a", "p"), Some(old));
    story.roll_out();
    story.pass_secs(95);
    story.assert_over();
    assert_eq!(story.invariants.upgrades, 2);
}

#[test]
fn a_job_lost_during_the_delay_is_not_created_again_under_any_leader() {
    let mut story = Scenario::with(&["a"], delayed());
    story.succeed("a");
    story.stop();
    let job = story.job_for("a").name;
    story.delete(Kind::Job, &job);
    story.start();
    story.pass_secs(45);
    assert!(story.invariants.jobs.is_empty());
    story.pass_secs(50);
    story.assert_over();
    assert_eq!(
        (story.events_of("JobComplete").len(), story.invariants.upgrades),
        (1, 1)
    );
}

#[test]
fn a_windows_node_goes_back_to_what_it_was_before_kubectl_cordoned_it() {
    for cordoned in [false, true] {
        let mut story = Scenario::empty();
        story.add_node(
            "win",
            &json!({ "metadata": { "labels": { "kubernetes.io/os": "windows" } } }),
        );
        story.cordon("win", cordoned);
        story.apply(delayed());
        story.comes_to("win", PodStage::Upgrade);
        // kubectl in the pod cordons the node.
        story.kubectl_cordons("win");
        story.succeed("win");
        assert_eq!(story.is_cordoned("win"), cordoned);
        story.cordon("win", true);
        story.pass_secs(95);
        assert!(
            story.is_done("win", "p") && story.is_cordoned("win"),
            "given back once"
        );
    }
}

#[test]
fn a_windows_node_that_is_not_ready_is_released_when_its_plan_is_deleted() {
    let mut story = Scenario::empty();
    story.add_node(
        "win",
        &json!({ "metadata": { "labels": { "kubernetes.io/os": "windows" } } }),
    );
    story.apply(plan("p"));
    story.comes_to("win", PodStage::Upgrade);
    story.kubectl_cordons("win");
    story.ready("win", false);
    story.succeed("win");
    assert!(story.is_cordoned("win"));
    story.delete(Kind::Plan, "p");
    story.settle();
    assert!(!story.is_cordoned("win") && story.node("win").records.is_empty());
}

#[test]
fn a_node_disabled_in_mid_upgrade_keeps_that_label_and_is_released() {
    for labels in [false, true] {
        let mut story = Scenario::with(
            &["a"],
            plan_with("p", |spec| {
                spec.post_complete_labels = labels.then(|| [("x".to_owned(), "y".to_owned())].into());
            }),
        );
        story.comes_to("a", PodStage::Upgrade);
        story.set_done_label("a", "p", Some("disabled"));
        story.succeed("a");
        assert_eq!(story.done_label("a", "p").as_deref(), Some("disabled"));
        assert!(!story.is_cordoned("a") && story.job_for("a").recorded);
        assert_eq!(story.events_of("JobComplete").len(), 1);
    }
}

#[test]
fn a_refused_patch_of_a_node_is_reported_in_status() {
    let mut story = cordoned();
    story.fault_always(Rule::on("patch", "nodes").named("a").answer(422));
    story.succeed("a");
    assert_eq!(story.phase("p", "a").1, "NodeRefused");
    assert_eq!(
        story.complete("p").2,
        "Node a: the node cannot be patched: injected fault 422"
    );
    story.mend();
    story.pass_secs(60);
    story.assert_over();
}

#[test]
fn a_controller_that_lost_the_answer_to_the_label_does_not_make_the_job_again() {
    let mut story = cordoned();
    story.fault_injector.hold_watch("nodes", true);
    story.fault(Rule::on("patch", "nodes").named("a").late(Duration::from_secs(8)));
    story.succeed_unseen("a");
    story.pass_secs(1);
    let job = story.job_for("a").name;
    story.delete(Kind::Job, &job);
    story.pass_secs(5);
    assert_eq!(
        story.requests("POST /jobs"),
        1,
        "the label is stored, which the watch has not delivered"
    );
    story.fault_injector.hold_watch("nodes", false);
    story.rest();
    story.assert_over();
}

// -- given back

#[test]
fn a_node_that_a_user_had_cordoned_stays_cordoned() {
    for spec in [
        plan("p"),
        plan_with("p", |spec| spec.cordon = None),
        plan_with("p", |spec| {
            spec.reboot = Some(reboot(RebootWhen::Always));
        }),
    ] {
        let mut story = Scenario::empty();
        story.add_nodes(&["a"]);
        story.cordon("a", true);
        story.apply(spec);
        story.settle();
        story.roll_out();
        story.assert_over();
        assert!(story.is_cordoned("a"));
    }
}

#[test]
fn a_node_is_kept_cordoned_when_a_user_requests_it_however_late() {
    for late in [false, true] {
        let mut story = cordoned();
        if late {
            // The patch that releases the node is delayed, so it carries an outdated version.
            story.fault(
                Rule::on("patch", "nodes")
                    .named("a")
                    .delay(Duration::from_secs(2)),
            );
            story.succeed_unseen("a");
            story.pass_secs(1);
        }
        story.annotate(Kind::Node, "a", names::ANNOTATION_KEEP_CORDONED, Some("true"));
        if !late {
            story.succeed("a");
        }
        story.settle();
        assert!(story.is_done("a", "p") && story.is_cordoned("a"), "late: {late}");
        assert_eq!(story.node("a").ledger, None);
    }
}

#[test]
fn a_user_who_uncordons_ends_the_ledger() {
    let mut story = cordoned();
    story.cordon("a", false);
    story.settle();
    assert_eq!(story.node("a").ledger, None);
    story.cordon("a", true); // by a user, for another reason
    story.roll_out();
    story.assert_over();
    assert!(story.is_cordoned("a"));
}

#[test]
fn a_node_is_released_when_its_plan_and_its_pod_are_gone_whether_a_controller_was_there_or_not() {
    for (away, made_again, held) in [
        (false, false, false),
        (true, false, false),
        (false, true, false),
        (false, false, true),
    ] {
        let mut story = cordoned();
        story.steer("a", "delete-delay", Some("20s"));
        if away {
            story.stop();
        }
        story.fault_injector.hold_watch("pods", held);
        story.delete(Kind::Plan, "p");
        if made_again {
            story.apply(plan_with("p", |spec| spec.node_selector = None));
        }
        story.pass_secs(10);
        assert!(story.is_cordoned("a"), "its pod is still at work");
        story.pass_secs(30);
        if held {
            assert!(story.is_cordoned("a"), "nobody has said that the pod is gone");
            story.fault_injector.hold_watch("pods", false);
        }
        story.start();
        story.rest();
        assert!(!story.is_cordoned("a") && story.node("a").ledger.is_none());
    }
}

#[test]
fn the_last_holder_gives_the_node_back_and_those_of_other_controllers_are_theirs_to_judge() {
    let strangers = [
        ("system-upgrade", "system-upgrade-controller", true),
        ("elsewhere", "system-upgrade-controller", false),
        ("system-upgrade", "another", false),
    ];
    for (namespace, controller, leaves) in strangers {
        let mut story = cordoned();
        story.change_ledger("a", |ledger| {
            let other = Holder {
                namespace: namespace.to_owned(),
                controller: controller.to_owned(),
                plan: "gone".to_owned(),
                plan_uid: "plan-x".to_owned(),
                ..ledger.holders[0].clone()
            };
            ledger.holders.insert(0, other);
        });
        story.roll_out();
        assert!(story.is_done("a", "p"));
        assert_eq!(story.is_cordoned("a"), !leaves, "{namespace} {controller}");
        let holders = story
            .node("a")
            .ledger
            .as_ref()
            .map_or(0, |ledger| ledger.holders.len());
        assert_eq!(holders, usize::from(!leaves));
    }
}

#[test]
fn the_schedulability_before_the_first_holder_is_restored_when_the_last_holder_leaves() {
    let mut story = cordoned();
    story.change_ledger("a", |ledger| ledger.before = true);
    story.delete(Kind::Plan, "p");
    story.rest();
    assert!(story.is_cordoned("a") && story.node("a").ledger.is_none());
}

#[test]
fn records_of_plans_that_are_gone_leave_the_node_and_those_of_another_namespace_stay() {
    let mut story = Scenario::with(&["a"], plan("p"));
    story.fail("a");
    let known = story.cluster.get(Kind::Node, "", "a").unwrap();
    let record = known["metadata"]["annotations"]["plan.refit.rs/p"]
        .as_str()
        .unwrap();
    let theirs = record.replace("\"system-upgrade\"", "\"elsewhere\"");
    assert_ne!(theirs, record);
    story.annotate(Kind::Node, "a", "plan.refit.rs/theirs", Some(&theirs));
    story.delete(Kind::Plan, "p");
    story.rest();
    let records: Vec<_> = story.node("a").records.keys().map(|plan| &**plan).collect();
    assert_eq!(records, ["theirs"]);
    assert!(!story.is_cordoned("a"));
}

#[test]
fn a_finished_roll_out_keeps_quiet() {
    let mut story = Scenario::new(&Setup::default());
    story.add_nodes(&["a"]);
    story.apply(plan("p"));
    story.settle();
    story.roll_out();
    let version = story.cluster.with(|state| state.store.version());
    story.pass_secs(600);
    assert_eq!(story.cluster.with(|state| state.store.version()), version);
    story.assert_over();
}
