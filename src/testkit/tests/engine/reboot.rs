//! Reboots, decided by the boot ID of the Node, and payloads that reboot the node themselves.

mod lost;

use std::time::Duration;

use super::scenario::{Scenario, Setup};
use crate::fault::{Moment, Rule};
use refit_api::{Plan, RebootBy, RebootSpec, RebootWhen};
use refit_facts::PodStage;
use refit_facts::record::Phase;
use refit_fixtures::{plan, plan_with};
use refit_rehearse::Kind;
use refit_rehearse::json::json;

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
    let mut scenario = Scenario::new(&Setup {
        backoff_limit: 2,
        ..Setup::default()
    });
    scenario.add_nodes(&["a"]);
    scenario.steer("a", "comes-back", Some(comes_back));
    scenario.apply(always());
    scenario.comes_to("a", PodStage::Upgrade);
    scenario.settle();
    scenario
}

/// The reboot Pod of node `a` exists and has not started, because its kubelet is slow.
fn requested() -> Scenario {
    let mut scenario = upgrading("ready");
    scenario.steer("a", "start-delay", Some("60s"));
    scenario.succeed("a");
    assert_eq!(scenario.reboot_pods().len(), 1);
    assert_eq!(scenario.invariants.reboots, 0);
    scenario
}

/// How often a machine has rebooted.
fn boots(scenario: &Scenario, node: &str) -> usize {
    scenario.invariants.nodes[node].left_boots()
}

#[track_caller]
fn assert_done_after_one_boot(scenario: &mut Scenario) {
    scenario.steer("a", "start-delay", None);
    scenario.finish();
    assert_eq!((boots(scenario, "a"), scenario.invariants.upgrades), (1, 1));
    assert_eq!(scenario.events_of("JobComplete").len(), 1);
}

#[track_caller]
fn assert_failed_with(scenario: &Scenario, reason: &str) {
    assert_eq!(scenario.phase("p", "a"), ["Failed", reason]);
    assert_eq!(scenario.complete("p")[1], "JobFailed");
    assert!(scenario.complete("p")[2].contains(reason));
    assert!(!scenario.is_done("a", "p") && scenario.is_cordoned("a"));
    let events = scenario.events_of("RebootFailed");
    assert!(events.len() == 1 && events[0].contains(reason), "{events:?}");
}

#[test]
fn a_node_reboots_once_and_is_done_when_it_has_settled_in_its_new_boot() {
    let mut scenario = Scenario::with(&["a", "b"], always());
    let first = scenario.slots("p")[0].clone();
    let other = if first == "a" { "b" } else { "a" };
    scenario.succeed(&first);
    let record = scenario.record(&first, "p").clone();
    assert_eq!(record.phase, Phase::Upgraded);
    assert_eq!(
        record.reboot.unwrap().boot_id.as_deref(),
        scenario
            .invariants
            .jobs
            .values()
            .next()
            .unwrap()
            .boots
            .first()
            .map(|boot| &**boot)
    );
    assert_eq!(scenario.phase("p", &first)[0], "Rebooting");
    scenario.pass_secs(12);
    assert_eq!(boots(&scenario, &first), 1);
    assert_eq!(scenario.phase("p", &first)[0], "Settling");
    assert!(
        !scenario.is_done(&first, "p") && scenario.is_cordoned(&first),
        "settle.minReady is 10 s after a reboot"
    );
    assert!(boots(&scenario, other) == 0 && scenario.jobs_for(other).is_empty());
    scenario.pass_secs(10);
    assert!(scenario.is_done(&first, "p") && !scenario.is_cordoned(&first));
    scenario.finish();
    assert_eq!(boots(&scenario, "a"), 1);
    assert_eq!(boots(&scenario, "b"), 1);
    assert_eq!(scenario.invariants.reboots, 2);
    assert_eq!(scenario.events_of("JobCompleteReboot").len(), 2);
    assert_eq!(scenario.events_of("JobComplete").len(), 2);
    assert!(
        !scenario
            .cluster
            .with(|state| state.trace().iter().any(|line| line.contains("/pods/ask-"))),
        "nobody is asked"
    );
}

#[test]
fn a_node_that_has_rebooted_since_its_upgrade_is_not_rebooted_again() {
    // Before the controller has seen the Job finish, or when the reboot Pod exists.
    for late in [false, true] {
        let mut scenario = if late { requested() } else { upgrading("ready") };
        if !late {
            scenario.stop();
            scenario.succeed_unseen("a");
        }
        scenario.reboot("a");
        scenario.start();
        assert_done_after_one_boot(&mut scenario);
        assert_eq!(scenario.invariants.reboots, 0, "late: {late}");
    }
}

#[test]
fn a_node_that_does_not_reboot_has_failed_and_is_retried_when_someone_wants_it() {
    let mut scenario = upgrading("as-if-nothing");
    scenario.succeed("a");
    scenario.pass_secs(280);
    assert_eq!(boots(&scenario, "a"), 0);
    assert_eq!(scenario.phase("p", "a")[0], "Rebooting");
    scenario.pass_secs(30);
    assert_failed_with(&scenario, "NeverRebooted");
    scenario.steer("a", "comes-back", None);
    scenario.retry("a", "p");
    scenario.finish();
    assert_eq!((boots(&scenario, "a"), scenario.invariants.upgrades), (1, 2));
}

#[test]
fn a_node_that_does_not_come_back_has_failed_and_its_pod_goes_when_it_is_back() {
    let mut scenario = upgrading("never");
    scenario.succeed("a");
    scenario.pass_secs(280);
    assert_eq!(scenario.phase("p", "a")[0], "Rebooting");
    scenario.pass_secs(30);
    assert_failed_with(&scenario, "RebootTimedOut");
    scenario.power("a", true);
    scenario.rest();
    assert_failed_with(&scenario, "RebootTimedOut");
    assert!(scenario.reboot_pods().is_empty());
}

#[test]
fn a_node_that_comes_back_and_is_not_ready_has_failed_though_it_is_ready_later() {
    let mut scenario = upgrading("not-ready");
    scenario.succeed("a");
    scenario.pass_secs(60);
    assert_eq!(scenario.phase("p", "a")[1], "NodeNotReady");
    scenario.pass_secs(320);
    scenario.ready("a", true);
    scenario.rest();
    assert_failed_with(&scenario, "NotReadyAfterReboot");
    assert!(scenario.reboot_pods().is_empty());
}

#[test]
fn a_node_reboots_only_where_it_says_that_it_has_to() {
    for required in [false, true] {
        let mut scenario = Scenario::of_nodes(&["a"]);
        scenario.steer(
            "a",
            "reboot-required",
            Some(if required { "true" } else { "false" }),
        );
        scenario.apply_and_settle(rebooting(RebootWhen::IfRequired));
        scenario.finish();
        assert_eq!(
            (boots(&scenario, "a"), scenario.invariants.reboots),
            (usize::from(required), u64::from(required))
        );
    }
}

#[test]
fn a_node_whose_sentinel_someone_has_removed_is_not_rebooted() {
    let mut scenario = requested();
    scenario
        .cluster
        .with(|state| state.kubelets.forget_sentinels("a"));
    scenario.steer("a", "start-delay", None);
    scenario.rest();
    assert_eq!((scenario.invariants.reboots, boots(&scenario, "a")), (0, 0));
    assert_failed_with(&scenario, "SentinelMissing");
}

#[test]
fn a_pod_that_is_lost_is_created_again_and_the_node_reboots_once() {
    for dies in [false, true] {
        let mut scenario = requested();
        let pod = scenario.reboot_pods()[0].clone();
        if dies {
            scenario.stop();
        }
        scenario.delete_pod_now(&pod);
        scenario.start();
        assert_done_after_one_boot(&mut scenario);
        assert_eq!(scenario.invariants.reboots, 1);
    }
    // After the reboot was requested, while the machine shuts down.
    let mut scenario = upgrading("ready");
    scenario.succeed("a");
    let pod = scenario.reboot_pods()[0].clone();
    scenario.delete_pod_now(&pod);
    assert_done_after_one_boot(&mut scenario);
}

#[test]
fn a_pod_that_the_kubelet_refuses_is_created_again_and_its_message_is_shown() {
    let mut scenario = upgrading("ready");
    scenario.steer("a", "reject", Some("OutOfpods: no room"));
    scenario.succeed("a");
    let pods = |scenario: &Scenario| {
        scenario.cluster.with(|state| {
            let made = state
                .trace()
                .iter()
                .filter(|line| line.contains("POST") && line.contains("/pods"));
            made.count()
        })
    };
    assert_eq!(pods(&scenario), 1, "it is left alone for a moment");
    scenario.pass_secs(60);
    assert!((3..=13).contains(&pods(&scenario)), "{}", pods(&scenario));
    assert_eq!(scenario.phase("p", "a")[0], "Rebooting");
    scenario.steer("a", "reject", None);
    assert_done_after_one_boot(&mut scenario);
}

#[test]
fn the_message_of_a_failed_pod_is_shown_until_the_deadline() {
    let mut scenario = upgrading("ready");
    scenario.steer("a", "reboot.exit-code", Some("1"));
    scenario.steer("a", "reboot.message", Some("restart-node is not on the host"));
    scenario.succeed("a");
    scenario.pass_secs(30);
    let entry = scenario.entry("p", "a");
    assert_eq!(entry.reason.as_deref(), Some("RebootPod"), "{entry:?}");
    assert!(entry.message.unwrap().contains("restart-node is not on the host"));
    scenario.restart();
    scenario.pass_secs(30);
    assert_eq!(scenario.phase("p", "a")[1], "RebootPod");
    scenario.pass_secs(300);
    assert_failed_with(&scenario, "NeverRebooted");
    assert!(
        scenario
            .entry("p", "a")
            .message
            .unwrap()
            .contains("restart-node is not on the host")
    );
}

#[test]
fn a_controller_that_was_away_for_longer_than_a_reboot_may_take_requests_it_all_the_same() {
    let mut scenario = upgrading("ready");
    scenario.fault(Rule::on("patch", "nodes").named("a").kill(Moment::After));
    scenario.stop_at_death();
    scenario.succeed("a");
    assert_eq!(scenario.record("a", "p").phase, Phase::Upgraded);
    assert!(
        scenario.reboot_pods().is_empty() && !scenario.job_for("a").recorded,
        "the record comes first"
    );
    scenario.pass_secs(2 * 3600);
    scenario.start();
    assert_done_after_one_boot(&mut scenario);
}

#[test]
fn a_plan_that_is_deleted_before_the_reboot_releases_the_node() {
    let mut scenario = requested();
    assert!(scenario.is_cordoned("a"));
    scenario.delete(Kind::Plan, "p");
    scenario.rest();
    let facts = scenario.node("a");
    assert!(!facts.unschedulable && facts.ledger.is_none() && facts.records.is_empty());
    assert!(scenario.reboot_pods().is_empty() && boots(&scenario, "a") == 0);
}

#[test]
fn a_plan_that_is_edited_during_the_reboot_ends_it_first() {
    for without in [false, true] {
        let mut scenario = requested();
        let before = scenario.hash("p");
        scenario.edit_and_settle("p", |spec| {
            spec.version = Some("v2".to_owned());
            if without {
                spec.reboot = None;
            }
        });
        assert_eq!(scenario.phase("p", "a")[0], "Rebooting");
        assert_eq!(scenario.jobs_for("a").len(), 1, "the Job of v1");
        scenario.steer("a", "start-delay", None);
        scenario.until("the node is done", |state| {
            !state.get(Kind::Node, "", "a").unwrap()["metadata"]["labels"]["plan.upgrade.cattle.io/p"]
                .is_null()
        });
        assert_eq!(scenario.done_label("a", "p"), Some(before));
        scenario.finish();
        assert_eq!(boots(&scenario, "a"), if without { 1 } else { 2 });
    }
}

#[test]
fn a_refused_pod_is_reported_in_status() {
    let mut scenario = upgrading("ready");
    scenario.fault_always(Rule::on("create", "pods").answer(422));
    scenario.succeed("a");
    assert_eq!(scenario.phase("p", "a")[1], "PodRefused");
    assert!(
        scenario.complete("p")[2].contains("injected fault 422"),
        "{:?}",
        scenario.complete("p")
    );
    scenario.mend();
    scenario.pass_secs(30);
    assert_done_after_one_boot(&mut scenario);
}

#[test]
fn a_pod_without_use_is_deleted() {
    let mut scenario = requested();
    scenario.annotate(Kind::Node, "a", "plan.refit.rs/p", None);
    scenario.set_done_label("a", "p", Some("disabled"));
    scenario.rest();
    assert!(scenario.reboot_pods().is_empty() && scenario.invariants.reboots == 0);
}

#[test]
fn the_node_stays_busy_for_other_plans_until_it_is_back() {
    let mut scenario = requested();
    scenario.apply_and_settle(plan("other"));
    assert_eq!(scenario.complete("other")[1], "NodeBusy");
    scenario.steer("a", "start-delay", None);
    scenario.finish();
    assert_eq!(boots(&scenario, "a"), 1);
}

#[test]
fn an_upgrade_during_which_the_node_goes_down_has_failed_and_one_before_it_has_not() {
    let mut scenario = upgrading("ready");
    scenario.reboot("a");
    scenario.rest();
    assert_eq!(scenario.phase("p", "a")[1], "UpgradeInterrupted");
    assert_eq!(scenario.invariants.upgrades, 1);
    assert_eq!(scenario.events_of("JobFailed").len(), 1);
    assert!(scenario.job_for("a").recorded && !scenario.job_for("a").is_live());
    scenario.retry("a", "p");
    scenario.finish();
    assert_eq!((boots(&scenario, "a"), scenario.invariants.upgrades), (2, 2));

    let mut scenario = Scenario::new(&Setup {
        backoff_limit: 2,
        ..Setup::default()
    });
    scenario.add_nodes(&["a"]);
    scenario.steer("a", "start-delay", Some("1h"));
    scenario.apply_and_settle(always());
    scenario.reboot("a");
    scenario.steer("a", "start-delay", None);
    scenario.finish();
    assert_eq!(boots(&scenario, "a"), 2);
    assert_eq!(scenario.invariants.reboots, 1);
    assert_eq!(scenario.invariants.upgrades, 1);
}

#[test]
fn an_upgrade_that_fails_while_its_node_stays_up_is_retried_by_its_job() {
    let mut scenario = upgrading("ready");
    scenario.fail("a");
    assert_eq!(scenario.phase("p", "a")[1], "BackoffLimitExceeded");
    assert_eq!(scenario.invariants.upgrades, 3);
}

fn by_payload(name: &str) -> Plan {
    plan_with(name, |spec| {
        spec.reboot = Some(RebootSpec {
            by: Some(RebootBy::Payload),
            timeout: Some("5m".to_owned()),
            ..RebootSpec::default()
        });
        spec.concurrency = Some(3);
    })
}

/// R4: three servers whose payload reboots them after its success.
#[test]
fn a_node_that_its_payload_reboots_counts_in_its_next_boot_and_the_majority_waits_for_it() {
    for before in ["afterwards", "once"] {
        let mut scenario = Scenario::new(&Setup {
            backoff_limit: 99,
            held: false,
            ..Setup::default()
        });
        for name in ["a", "b", "c"] {
            let labels = json!({ "node-role.kubernetes.io/control-plane": "true" });
            scenario.add_node(name, &json!({ "metadata": { "labels": labels } }));
            scenario.steer(name, "upgrade.reboot", Some(before));
        }
        scenario.apply(by_payload("p"));
        let all_boots =
            |scenario: &Scenario| -> usize { ["a", "b", "c"].map(|node| boots(scenario, node)).iter().sum() };
        let (mut done, mut restarted) = (0, Vec::new());
        while done < 3 {
            scenario.pass_secs(1);
            let active = scenario.status("p").active.iter().flatten();
            let due = active
                .filter(|node| node.phase == "Rebooting")
                .map(|node| node.name.clone());
            if let Some(node) = due.into_iter().find(|node| !restarted.contains(node)) {
                restarted.push(node);
                scenario.restart();
            }
            let counts = scenario.status("p").nodes.unwrap();
            assert!(counts.applying <= 1, "{before}: {counts:?}");
            done = usize::try_from(counts.done).unwrap();
            assert!(done <= all_boots(&scenario), "{before}: {counts:?}");
        }
        scenario.rest();
        scenario.assert_over();
        assert!(before == "once" || restarted.len() == 3, "{restarted:?}");
        assert_eq!(
            (all_boots(&scenario), scenario.invariants.reboots),
            (3, 0),
            "{before}"
        );
    }
}

#[test]
fn a_payload_that_does_not_reboot_its_node_has_failed_at_the_timeout_also_after_a_restart() {
    let mut scenario = Scenario::with(&["a"], by_payload("p"));
    scenario.succeed("a");
    assert_eq!(
        scenario.entry("p", "a").message.as_deref(),
        Some("its payload has ended, and is to reboot the node")
    );
    assert_eq!(scenario.phase("p", "a")[0], "Rebooting");
    assert_eq!(
        scenario.events_of("JobCompleteReboot"),
        ["Job completed on Node a, which its payload reboots"]
    );
    scenario.restart();
    scenario.pass_secs(301);
    assert_eq!(scenario.phase("p", "a"), ["Failed", "NeverRebooted"]);
    scenario.retry("a", "p");
    scenario.settle();
    scenario.succeed("a");
    scenario.reboot("a");
    scenario.rest();
    scenario.assert_over();
    assert_eq!(scenario.status("p").progress.as_deref(), Some("1/1"));
}

#[test]
fn a_payload_that_reboots_its_node_once_is_done_after_its_second_run_and_one_that_always_does_is_stopped() {
    for reboots in ["once", "always"] {
        let mut scenario = Scenario::new(&Setup {
            backoff_limit: 99,
            held: false,
            ..Setup::default()
        });
        scenario.add_nodes(&["a"]);
        scenario.steer("a", "upgrade.reboot", Some(reboots));
        scenario.steer("a", "upgrade.run-delay", Some("5s"));
        scenario.apply(plan("p"));
        scenario.rest();
        assert_eq!(scenario.invariants.upgrades, 2, "{reboots}");
        if reboots == "once" {
            scenario.assert_over();
            assert_eq!((boots(&scenario, "a"), scenario.job_for("a").boots.len()), (1, 2));
            assert!(scenario.events_of("JobFailed").is_empty());
        } else {
            assert_eq!(boots(&scenario, "a"), 2);
            assert_eq!(scenario.phase("p", "a"), ["Failed", "RebootLoop"]);
            assert!(
                scenario.complete("p")[2].contains("rebooted 2 times"),
                "{:?}",
                scenario.complete("p")
            );
            assert!(
                scenario.events_of("JobFailed").len() == 1
                    && scenario.job_for("a").recorded
                    && scenario.is_cordoned("a")
            );
            scenario.restart();
            scenario.rest();
            assert_eq!(
                (boots(&scenario, "a"), scenario.phase("p", "a")[1].as_str()),
                (2, "RebootLoop")
            );
        }
    }
}

#[test]
fn a_controller_that_may_make_no_pods_starts_no_plan_that_reboots() {
    let mut scenario = Scenario::empty();
    scenario.fault_injector.allow("create", "pods", false);
    scenario.add_node("a", &json!({}));
    scenario.apply(always());
    scenario.apply_and_settle(plan("other"));
    scenario.roll_out();
    assert_eq!(scenario.complete("p")[1], "MissingPermission");
    assert!(
        scenario.complete("p")[2].contains("create pods"),
        "{:?}",
        scenario.complete("p")
    );
    assert!(scenario.is_done("a", "other"), "it takes no such permission");
    scenario.fault_injector.allow("create", "pods", true);
    scenario.pass_secs(60);
    scenario.finish();
}
