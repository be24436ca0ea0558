//! Reboots, decided by the boot ID of the Node, and payloads that reboot the node themselves.

mod lost;

use std::time::Duration;

use super::scenario::{Scenario, Setup};
use crate::api::{Plan, RebootSpec, RebootWhen};
use crate::rehearse::Kind;
use crate::rehearse::fault::{Moment, Rule};
use crate::rehearse::json::json;
use crate::rollout::tests::build::{plan, plan_with};
use crate::rollout::{Phase, PodStage};

fn rebooting(when: RebootWhen) -> Plan {
    plan_with("p", |spec| {
        spec.reboot = Some(RebootSpec {
            when: Some(when),
            timeout: Some("5m".to_owned()),
            ..RebootSpec::default()
        });
    })
}

fn always() -> Plan {
    rebooting(RebootWhen::Always)
}

/// The upgrade of node `a` is running; a reboot of its machine ends as `comes_back` says.
fn upgrading(comes_back: &str) -> Scenario {
    let mut story = Scenario::new(&Setup {
        backoff_limit: 2,
        ..Setup::default()
    });
    story.add_nodes(&["a"]);
    story.steer("a", "comes-back", Some(comes_back));
    story.apply(always());
    story.comes_to("a", PodStage::Upgrade);
    story.settle();
    story
}

/// The reboot Pod of node `a` exists and has not started, because its kubelet is slow.
fn requested() -> Scenario {
    let mut story = upgrading("ready");
    story.steer("a", "start-delay", Some("60s"));
    story.succeed("a");
    assert_eq!(story.reboot_pods().len(), 1);
    assert_eq!(story.invariants.reboots, 0);
    story
}

/// How often a machine has rebooted.
fn boots(story: &Scenario, node: &str) -> usize {
    story.invariants.nodes[node].left_boots()
}

#[track_caller]
fn assert_done_after_one_boot(story: &mut Scenario) {
    story.steer("a", "start-delay", None);
    story.roll_out();
    story.assert_over();
    assert_eq!((boots(story, "a"), story.invariants.upgrades), (1, 1));
    assert_eq!(story.events_of("JobComplete").len(), 1);
}

#[track_caller]
fn assert_failed_with(story: &Scenario, reason: &str) {
    assert_eq!(story.phase("p", "a"), ("Failed".to_owned(), reason.to_owned()));
    assert_eq!(story.complete("p").1, "JobFailed");
    assert!(story.complete("p").2.contains(reason));
    assert!(!story.is_done("a", "p") && story.is_cordoned("a"));
    let events = story.events_of("RebootFailed");
    assert!(events.len() == 1 && events[0].contains(reason), "{events:?}");
}

#[test]
fn a_node_reboots_once_and_is_done_when_it_has_settled_in_its_new_boot() {
    let mut story = Scenario::with(&["a", "b"], always());
    let first = story.slots("p")[0].clone();
    let other = if first == "a" { "b" } else { "a" };
    story.succeed(&first);
    let record = story.record(&first, "p").clone();
    assert_eq!(record.phase, Phase::Upgraded);
    assert_eq!(
        record.reboot.unwrap().boot_id.as_deref(),
        story
            .invariants
            .jobs
            .values()
            .next()
            .unwrap()
            .boots
            .first()
            .map(|boot| &**boot)
    );
    assert_eq!(story.phase("p", &first).0, "Rebooting");
    story.pass_secs(12);
    assert_eq!(boots(&story, &first), 1);
    assert_eq!(story.phase("p", &first).0, "Settling");
    assert!(
        !story.is_done(&first, "p") && story.is_cordoned(&first),
        "settle.minReady is 10 s after a reboot"
    );
    assert!(boots(&story, other) == 0 && story.jobs_for(other).is_empty());
    story.pass_secs(10);
    assert!(story.is_done(&first, "p") && !story.is_cordoned(&first));
    story.roll_out();
    story.assert_over();
    assert_eq!(
        (boots(&story, "a"), boots(&story, "b"), story.invariants.reboots),
        (1, 1, 2)
    );
    assert_eq!(
        (
            story.events_of("JobCompleteReboot").len(),
            story.events_of("JobComplete").len()
        ),
        (2, 2)
    );
    assert!(
        !story
            .cluster
            .with(|state| state.trace().iter().any(|line| line.contains("/pods/ask-"))),
        "nobody is asked"
    );
}

#[test]
fn a_node_that_has_rebooted_since_its_upgrade_is_not_rebooted_again() {
    // Before the controller has seen the Job finish, or when the reboot Pod exists.
    for late in [false, true] {
        let mut story = if late { requested() } else { upgrading("ready") };
        if !late {
            story.stop();
            story.succeed_unseen("a");
        }
        story.reboot("a");
        story.start();
        assert_done_after_one_boot(&mut story);
        assert_eq!(story.invariants.reboots, 0, "late: {late}");
    }
}

#[test]
fn a_node_that_does_not_reboot_has_failed_and_is_retried_when_someone_wants_it() {
    let mut story = upgrading("as-if-nothing");
    story.succeed("a");
    story.pass_secs(280);
    assert_eq!(boots(&story, "a"), 0);
    assert_eq!(story.phase("p", "a").0, "Rebooting");
    story.pass_secs(30);
    assert_failed_with(&story, "NeverRebooted");
    story.steer("a", "comes-back", None);
    story.retry("a", "p");
    story.roll_out();
    story.assert_over();
    assert_eq!((boots(&story, "a"), story.invariants.upgrades), (1, 2));
}

#[test]
fn a_node_that_does_not_come_back_has_failed_and_its_pod_goes_when_it_is_back() {
    let mut story = upgrading("never");
    story.succeed("a");
    story.pass_secs(280);
    assert_eq!(story.phase("p", "a").0, "Rebooting");
    story.pass_secs(30);
    assert_failed_with(&story, "RebootTimedOut");
    story.power("a", true);
    story.rest();
    assert_failed_with(&story, "RebootTimedOut");
    assert!(story.reboot_pods().is_empty());
}

#[test]
fn a_node_that_comes_back_and_is_not_ready_has_failed_though_it_is_ready_later() {
    let mut story = upgrading("not-ready");
    story.succeed("a");
    story.pass_secs(60);
    assert_eq!(story.phase("p", "a").1, "NodeNotReady");
    story.pass_secs(320);
    story.ready("a", true);
    story.rest();
    assert_failed_with(&story, "NotReadyAfterReboot");
    assert!(story.reboot_pods().is_empty());
}

#[test]
fn a_node_reboots_only_where_it_says_that_it_has_to() {
    for required in [false, true] {
        let mut story = Scenario::empty();
        story.add_nodes(&["a"]);
        story.steer(
            "a",
            "reboot-required",
            Some(if required { "true" } else { "false" }),
        );
        story.apply(rebooting(RebootWhen::IfRequired));
        story.settle();
        story.roll_out();
        story.assert_over();
        assert_eq!(
            (boots(&story, "a"), story.invariants.reboots),
            (usize::from(required), u64::from(required))
        );
    }
}

#[test]
fn a_node_whose_sentinel_someone_has_removed_is_not_rebooted() {
    let mut story = requested();
    story.cluster.with(|state| state.kubelets.forget_sentinels("a"));
    story.steer("a", "start-delay", None);
    story.rest();
    assert_eq!((story.invariants.reboots, boots(&story, "a")), (0, 0));
    assert_failed_with(&story, "SentinelMissing");
}

#[test]
fn a_pod_that_is_lost_is_created_again_and_the_node_reboots_once() {
    for dies in [false, true] {
        let mut story = requested();
        let pod = story.reboot_pods()[0].clone();
        if dies {
            story.stop();
        }
        story.delete_pod_now(&pod);
        story.start();
        assert_done_after_one_boot(&mut story);
        assert_eq!(story.invariants.reboots, 1);
    }
    // After the reboot was requested, while the machine shuts down.
    let mut story = upgrading("ready");
    story.succeed("a");
    let pod = story.reboot_pods()[0].clone();
    story.delete_pod_now(&pod);
    assert_done_after_one_boot(&mut story);
}

#[test]
fn a_pod_that_the_kubelet_refuses_is_created_again_and_its_message_is_shown() {
    let mut story = upgrading("ready");
    story.steer("a", "reject", Some("OutOfpods: no room"));
    story.succeed("a");
    let pods = |story: &Scenario| {
        story.cluster.with(|state| {
            let made = state
                .trace()
                .iter()
                .filter(|line| line.contains("POST") && line.contains("/pods"));
            made.count()
        })
    };
    assert_eq!(pods(&story), 1, "it is left alone for a moment");
    story.pass_secs(60);
    assert!((3..=13).contains(&pods(&story)), "{}", pods(&story));
    assert_eq!(story.phase("p", "a").0, "Rebooting");
    story.steer("a", "reject", None);
    assert_done_after_one_boot(&mut story);
}

#[test]
fn the_message_of_a_failed_pod_is_shown_until_the_deadline() {
    let mut story = upgrading("ready");
    story.steer("a", "reboot.exit-code", Some("1"));
    story.steer("a", "reboot.message", Some("restart-node is not on the host"));
    story.succeed("a");
    story.pass_secs(30);
    let entry = story.entry("p", "a");
    assert_eq!(entry.reason.as_deref(), Some("RebootPod"), "{entry:?}");
    assert!(entry.message.unwrap().contains("restart-node is not on the host"));
    story.restart();
    story.pass_secs(30);
    assert_eq!(story.phase("p", "a").1, "RebootPod");
    story.pass_secs(300);
    assert_failed_with(&story, "NeverRebooted");
    assert!(
        story
            .entry("p", "a")
            .message
            .unwrap()
            .contains("restart-node is not on the host")
    );
}

#[test]
fn a_controller_that_was_away_for_longer_than_a_reboot_may_take_requests_it_all_the_same() {
    let mut story = upgrading("ready");
    story.fault(Rule::on("patch", "nodes").named("a").kill(Moment::After));
    story.stop_at_death();
    story.succeed("a");
    assert_eq!(story.record("a", "p").phase, Phase::Upgraded);
    assert!(
        story.reboot_pods().is_empty() && !story.job_for("a").recorded,
        "the record comes first"
    );
    story.pass_secs(2 * 3600);
    story.start();
    assert_done_after_one_boot(&mut story);
}

#[test]
fn a_plan_that_is_deleted_before_the_reboot_gives_the_node_back() {
    let mut story = requested();
    assert!(story.is_cordoned("a"));
    story.delete(Kind::Plan, "p");
    story.rest();
    let facts = story.node("a");
    assert!(!facts.unschedulable && facts.ledger.is_none() && facts.records.is_empty());
    assert!(story.reboot_pods().is_empty() && boots(&story, "a") == 0);
}

#[test]
fn a_plan_that_is_edited_during_the_reboot_ends_it_first() {
    for without in [false, true] {
        let mut story = requested();
        let before = story.hash("p");
        story.edit("p", |spec| {
            spec.version = Some("v2".to_owned());
            if without {
                spec.reboot = None;
            }
        });
        story.settle();
        assert_eq!(story.phase("p", "a").0, "Rebooting");
        assert_eq!(story.jobs_for("a").len(), 1, "the Job of v1");
        story.steer("a", "start-delay", None);
        story.until("the node is done", |state| {
            !state.get(Kind::Node, "", "a").unwrap()["metadata"]["labels"]["plan.upgrade.cattle.io/p"]
                .is_null()
        });
        assert_eq!(story.done_label("a", "p"), Some(before));
        story.roll_out();
        story.assert_over();
        assert_eq!(boots(&story, "a"), if without { 1 } else { 2 });
    }
}

#[test]
fn a_refused_pod_is_reported_in_status() {
    let mut story = upgrading("ready");
    story.fault_always(Rule::on("create", "pods").answer(422));
    story.succeed("a");
    assert_eq!(story.phase("p", "a").1, "PodRefused");
    assert!(
        story.complete("p").2.contains("injected fault 422"),
        "{:?}",
        story.complete("p")
    );
    story.mend();
    story.pass_secs(30);
    assert_done_after_one_boot(&mut story);
}

#[test]
fn a_pod_without_use_is_deleted() {
    let mut story = requested();
    story.annotate(Kind::Node, "a", "plan.refit.rs/p", None);
    story.set_done_label("a", "p", Some("disabled"));
    story.rest();
    assert!(story.reboot_pods().is_empty() && story.invariants.reboots == 0);
}

#[test]
fn the_node_stays_busy_for_other_plans_until_it_is_back() {
    let mut story = requested();
    story.apply(plan("other"));
    story.settle();
    assert_eq!(story.complete("other").1, "NodeBusy");
    story.steer("a", "start-delay", None);
    story.roll_out();
    story.assert_over();
    assert_eq!(boots(&story, "a"), 1);
}

#[test]
fn an_upgrade_during_which_the_node_goes_down_has_failed_and_one_before_it_has_not() {
    let mut story = upgrading("ready");
    story.reboot("a");
    story.rest();
    assert_eq!(story.phase("p", "a").1, "UpgradeInterrupted");
    assert_eq!(
        (story.invariants.upgrades, story.events_of("JobFailed").len()),
        (1, 1)
    );
    assert!(story.job_for("a").recorded && !story.job_for("a").is_live());
    story.retry("a", "p");
    story.roll_out();
    story.assert_over();
    assert_eq!((boots(&story, "a"), story.invariants.upgrades), (2, 2));

    let mut story = Scenario::new(&Setup {
        backoff_limit: 2,
        ..Setup::default()
    });
    story.add_nodes(&["a"]);
    story.steer("a", "start-delay", Some("1h"));
    story.apply(always());
    story.settle();
    story.reboot("a");
    story.steer("a", "start-delay", None);
    story.roll_out();
    story.assert_over();
    assert_eq!(
        (
            boots(&story, "a"),
            story.invariants.reboots,
            story.invariants.upgrades
        ),
        (2, 1, 1)
    );
}

#[test]
fn an_upgrade_that_fails_while_its_node_stays_up_is_retried_by_its_job() {
    let mut story = upgrading("ready");
    story.fail("a");
    assert_eq!(story.phase("p", "a").1, "BackoffLimitExceeded");
    assert_eq!(story.invariants.upgrades, 3);
}

#[test]
fn a_payload_that_reboots_its_node_once_is_done_after_its_second_run_and_one_that_always_does_is_stopped() {
    for reboots in ["once", "always"] {
        let mut story = Scenario::new(&Setup {
            backoff_limit: 99,
            held: false,
            ..Setup::default()
        });
        story.add_nodes(&["a"]);
        story.steer("a", "upgrade.reboot", Some(reboots));
        story.steer("a", "upgrade.run-delay", Some("5s"));
        story.apply(plan("p"));
        story.rest();
        assert_eq!(story.invariants.upgrades, 2, "{reboots}");
        if reboots == "once" {
            story.assert_over();
            assert_eq!((boots(&story, "a"), story.job_for("a").boots.len()), (1, 2));
            assert!(story.events_of("JobFailed").is_empty());
        } else {
            assert_eq!(boots(&story, "a"), 2);
            assert_eq!(
                story.phase("p", "a"),
                ("Failed".to_owned(), "RebootLoop".to_owned())
            );
            assert!(
                story.complete("p").2.contains("rebooted 2 times"),
                "{:?}",
                story.complete("p")
            );
            assert!(
                story.events_of("JobFailed").len() == 1
                    && story.job_for("a").recorded
                    && story.is_cordoned("a")
            );
            story.restart();
            story.rest();
            assert_eq!(
                (boots(&story, "a"), story.phase("p", "a").1.as_str()),
                (2, "RebootLoop")
            );
        }
    }
}

#[test]
fn a_controller_that_may_make_no_pods_starts_no_plan_that_reboots() {
    let mut story = Scenario::empty();
    story.fault_injector.allow("create", "pods", false);
    story.add_node("a", &json!({}));
    story.apply(always());
    story.apply(plan("other"));
    story.settle();
    story.roll_out();
    assert_eq!(story.complete("p").1, "MissingPermission");
    assert!(
        story.complete("p").2.contains("create pods"),
        "{:?}",
        story.complete("p")
    );
    assert!(story.is_done("a", "other"), "it takes no such permission");
    story.fault_injector.allow("create", "pods", true);
    story.pass_secs(60);
    story.roll_out();
    story.assert_over();
}
