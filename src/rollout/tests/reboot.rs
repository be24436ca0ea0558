//! A reboot, decided by the Node's boot ID (design: the reboot).

use super::build::{plan, plan_with};
use super::toy::{Fate, Toy};
use crate::api::{Plan, RebootSpec, RebootWhen};
use crate::rollout::{Blocker, Phase, Stage, Step};

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

/// The Job of node `a` has succeeded, and the controller has not looked yet.
fn succeeded(plan: Plan) -> Toy {
    let mut toy = Toy::with(&["a"], plan);
    toy.succeeds_unseen("a");
    toy
}

/// The pod that reboots node `a` is there, and has not run.
fn asked_for() -> Toy {
    let mut toy = succeeded(always());
    toy.settle();
    assert_eq!(toy.reboot_pods().len(), 1);
    toy
}

/// All goes on until nothing is left to do, the times that pass aside.
fn ends(toy: &mut Toy) {
    for _ in 0..4 {
        toy.rolls_out();
        toy.later(10);
    }
}

fn is_done_after_one_boot(toy: &Toy) {
    assert!(toy.is_done("a", "p") && !toy.is_cordoned("a"));
    assert_eq!(toy.boots("a"), 1);
    assert_eq!(toy.laws.starts.values().sum::<u32>(), 1, "the upgrade ran once");
    assert!(toy.reboot_pods().is_empty(), "{:?}", toy.reboot_pods());
    assert!(toy.nodes["a"].it.facts.records.is_empty());
}

fn failed_with(toy: &Toy, reason: &str) {
    let entry = toy.entry("p", "a");
    assert_eq!(
        (entry.phase.as_str(), entry.reason.as_deref()),
        ("Failed", Some(reason)),
        "{entry:?}"
    );
    assert_eq!(toy.complete("p").1, "JobFailed");
    assert!(toy.complete("p").2.contains(reason));
    assert!(!toy.is_done("a", "p") && toy.is_cordoned("a"));
    let told = toy.told_of("RebootFailed");
    assert!(told.len() == 1 && told[0].contains(reason), "{told:?}");
    assert!(toy.reboot_pods().is_empty(), "{:?}", toy.reboot_pods());
}

#[test]
fn a_node_reboots_once_and_is_done_in_its_new_boot() {
    let mut toy = Toy::with(&["a", "b"], always());
    let first = toy.slots("p")[0].clone();
    let other = if first == "a" { "b" } else { "a" };
    toy.rolls_out();
    assert_eq!(toy.boots(&first), 1);
    assert!(
        !toy.is_done(&first, "p"),
        "settle.minReady is 10 s after a reboot"
    );
    assert!(toy.is_cordoned(&first) && toy.boots(other) == 0 && toy.jobs_for(other).is_empty());
    toy.later(9);
    assert_eq!(toy.entry("p", &first).phase, "Settling");
    assert!(!toy.is_done(&first, "p"));
    toy.later(1);
    assert!(toy.is_done(&first, "p") && !toy.is_cordoned(&first));
    ends(&mut toy);
    assert!(toy.is_done(other, "p") && toy.boots(other) == 1);
    assert_eq!((toy.boots(&first), toy.laws.reboots), (1, 2));
    assert_eq!(toy.complete("p").0, "True");
    assert_eq!(toy.told_of("JobCompleteReboot").len(), 2);
    assert_eq!(toy.told_of("JobComplete").len(), 2);
    assert!(toy.reboot_pods().is_empty());
}

#[test]
fn what_has_to_be_rebooted_is_written_down_before_anything_is_done_about_it() {
    let mut toy = succeeded(always());
    let steps = toy.steps();
    let is_record =
        |step: &Step| matches!(step, Step::PatchNode { change, .. } if change.unschedulable.is_none());
    assert!(steps.iter().any(is_record), "{steps:?}");
    let too_early = |step: &Step| {
        matches!(
            step,
            Step::CreatePod { .. } | Step::MarkRecorded { .. } | Step::DeleteJob { .. }
        )
    };
    assert!(!steps.iter().any(too_early), "{steps:?}");
    toy.rounds_until(|toy| !toy.nodes["a"].it.facts.records.is_empty());
    let record = toy.nodes["a"].it.facts.records["p"].clone();
    assert_eq!(record.phase, Phase::Upgraded);
    assert_eq!(record.reboot.unwrap().boot_id.as_deref(), Some("boot-1"));
    assert!(toy.reboot_pods().is_empty());
    toy.settle();
    assert_eq!(toy.reboot_pods().len(), 1);
    assert!(toy.job_for("a").facts.recorded);
    toy.later(1);
    assert_eq!(toy.entry("p", "a").phase, "Rebooting");
}

#[test]
fn a_controller_that_dies_after_any_write_leaves_a_reboot_that_happens_once() {
    let mut longest = 0;
    for fatal in 1..60 {
        let mut toy = Toy::asleep();
        toy.add_nodes(&["a"]);
        toy.apply(always());
        toy.wakes_up();
        let mut writes = 0;
        for _ in 0..120 {
            toy.tell_all();
            if toy.is_listed() {
                toy.decides();
            }
            if let Some(flight) = toy.sent().first().copied() {
                writes += 1;
                toy.reaches(flight, Fate::Fine);
                if writes == fatal {
                    toy.wakes_up();
                    continue;
                }
            }
            while !toy.answered().is_empty() {
                let flight = toy.answered()[0];
                toy.hears(flight);
            }
            if toy.sent().is_empty() {
                toy.one_move();
                toy.passes(jiff::SignedDuration::from_secs(1));
            }
        }
        ends(&mut toy);
        is_done_after_one_boot(&toy);
        assert_eq!(toy.laws.reboots, 1);
        longest = longest.max(writes);
        if writes < fatal {
            break;
        }
    }
    assert!((10..59).contains(&longest), "{longest} writes");
}

#[test]
fn a_node_that_has_rebooted_since_its_upgrade_is_not_rebooted_again() {
    // Told of before the controller asks, or after.
    for late in [false, true] {
        let mut toy = if late { asked_for() } else { succeeded(always()) };
        toy.reboots("a");
        ends(&mut toy);
        is_done_after_one_boot(&toy);
        assert_eq!(toy.laws.reboots, 0, "late: {late}");
    }
}

#[test]
fn a_node_that_does_not_reboot_has_failed_and_stays_cordoned() {
    let mut toy = Toy::with(&["a"], always());
    toy.deaf.insert("a".to_owned());
    toy.rolls_out();
    assert_eq!((toy.laws.reboots, toy.boots("a")), (1, 0));
    toy.later(299);
    assert_eq!(toy.entry("p", "a").phase, "Rebooting");
    toy.later(1);
    toy.rolls_out();
    failed_with(&toy, "NeverRebooted");

    // Tried again when somebody wants it, from the beginning.
    toy.deaf.clear();
    toy.retry("a", "p");
    ends(&mut toy);
    assert!(toy.is_done("a", "p") && toy.boots("a") == 1);
    assert_eq!(toy.laws.starts.values().sum::<u32>(), 2);
}

#[test]
fn a_node_that_does_not_come_back_has_failed() {
    let mut toy = asked_for();
    toy.power_cycle("a");
    toy.ready("a", false);
    toy.later(299);
    assert_eq!(toy.entry("p", "a").phase, "Rebooting");
    toy.later(1);
    assert_eq!(toy.entry("p", "a").reason.as_deref(), Some("RebootTimedOut"));
    assert!(toy.is_cordoned("a") && toy.told_of("RebootFailed").len() == 1);
    // The pod goes when the node is back; the failure stays.
    toy.comes_back("a", true);
    toy.rolls_out();
    failed_with(&toy, "RebootTimedOut");
}

#[test]
fn a_node_that_comes_back_and_is_not_ready_has_failed() {
    for tainted in [false, true] {
        let mut toy = asked_for();
        toy.power_cycle("a");
        toy.comes_back("a", tainted);
        toy.change_node("a", |node| node.facts.tainted = tainted);
        toy.later(1);
        assert_eq!(toy.entry("p", "a").reason.as_deref(), Some("NodeNotReady"));
        toy.later(300);
        toy.ready("a", true); // too late
        toy.rolls_out();
        failed_with(&toy, "NotReadyAfterReboot");
    }
}

#[test]
fn ready_counts_in_a_version_of_the_node_that_has_the_new_boot() {
    let mut toy = asked_for();
    toy.power_cycle("a");
    toy.later(20);
    assert!(
        toy.nodes["a"].it.facts.ready && !toy.is_done("a", "p"),
        "Ready of before"
    );
    toy.comes_back("a", true);
    toy.settle();
    toy.later(10);
    assert!(toy.is_done("a", "p"));
}

#[test]
fn a_node_without_the_file_that_says_so_is_not_rebooted() {
    let mut toy = Toy::with(&["a"], rebooting(RebootWhen::IfRequired));
    toy.content.insert("a".to_owned());
    toy.rolls_out();
    assert!(toy.is_done("a", "p") && !toy.is_cordoned("a"), "at once");
    assert_eq!((toy.boots("a"), toy.laws.reboots), (0, 0));

    let mut toy = Toy::with(&["a"], rebooting(RebootWhen::IfRequired));
    ends(&mut toy);
    is_done_after_one_boot(&toy);
}

#[test]
fn a_node_whose_sentinel_somebody_has_removed_is_not_rebooted() {
    let mut toy = asked_for();
    toy.nodes.get_mut("a").unwrap().it.sentinels.clear();
    toy.rolls_out();
    assert_eq!((toy.laws.reboots, toy.boots("a")), (0, 0));
    failed_with(&toy, "SentinelMissing");
}

#[test]
fn a_pod_that_is_lost_is_made_again_and_the_node_reboots_once() {
    // Deleted by hand, before and after it has asked; ended by the kubelet.
    for way in 0..4 {
        let mut toy = asked_for();
        let pod = toy.reboot_pods()[0].clone();
        match way {
            0 => toy.pod_goes(&pod),
            1 => {
                toy.play_go(&pod);
                toy.pod_goes(&pod);
            }
            2 => {
                toy.pod_goes(&pod);
                toy.wakes_up();
            }
            _ => toy.pod_is_evicted(&pod),
        }
        toy.settle();
        toy.later(5);
        ends(&mut toy);
        is_done_after_one_boot(&toy);
    }
}

#[test]
fn a_pod_that_the_kubelet_refuses_is_left_alone_for_a_moment() {
    let mut toy = asked_for();
    let pod = toy.reboot_pods()[0].clone();
    toy.pod_is_evicted(&pod);
    toy.later(4);
    let uid = toy.pods[&pod].it.facts.uid.clone();
    toy.later(1);
    assert!(toy.pods[&pod].it.terminating);
    toy.rolls_out();
    assert!(toy.pods.get(&pod).is_none_or(|pod| pod.it.facts.uid != uid));
}

#[test]
fn the_words_of_a_pod_that_failed_are_told_until_time_is_up_whatever_became_of_the_pod() {
    const WORDS: &str = "container reboot exited with 1: restart-node is not on the host";
    let mut toy = asked_for();
    let pod = toy.reboot_pods()[0].clone();
    toy.pod_is_evicted(&pod);
    toy.change_pod(&pod, |pod| pod.facts.last_words = Some(WORDS.to_owned()));
    toy.later(1);
    let failed = toy.pods[&pod].it.facts.uid.clone();
    let told = |toy: &Toy| {
        let entry = toy.entry("p", "a");
        (
            entry.reason.unwrap_or_default(),
            entry.message.unwrap_or_default(),
        )
    };
    assert_eq!(told(&toy), ("RebootPod".to_owned(), WORDS.to_owned()));

    // Another is there, which has said nothing yet; neither has one in a controller that has just begun.
    toy.later(5);
    toy.pod_goes(&pod);
    toy.later(1);
    assert_ne!(toy.pods[&pod].it.facts.uid, failed);
    assert_eq!(told(&toy), ("RebootPod".to_owned(), WORDS.to_owned()));
    toy.wakes_up();
    toy.later(1);
    assert_eq!(told(&toy), ("RebootPod".to_owned(), WORDS.to_owned()));

    toy.change_pod(&pod, |pod| pod.facts.waiting = Some("ErrImagePull".to_owned()));
    toy.later(1);
    assert_eq!(told(&toy), ("PodWaiting".to_owned(), "ErrImagePull".to_owned()));
    toy.change_pod(&pod, |pod| pod.facts.waiting = None);
    toy.later(1);
    assert_eq!(told(&toy).0, "", "it is over");
    toy.change_pod(&pod, |pod| {
        pod.facts.waiting = Some("container reboot: CrashLoopBackOff".to_owned());
        pod.facts.last_words = Some("container reboot exited with 2".to_owned());
    });
    toy.later(1);
    assert_eq!(
        told(&toy),
        (
            "RebootPod".to_owned(),
            "container reboot exited with 2".to_owned()
        )
    );

    // As the kubelet tells of a pod whose time was up.
    toy.change_pod(&pod, |pod| {
        pod.facts.waiting = None;
        pod.facts.last_words = None;
    });
    toy.later(1);
    toy.passes(jiff::SignedDuration::from_mins(5));
    toy.later(1);
    toy.pod_goes(&pod);
    failed_with(&toy, "NeverRebooted");
    assert!(
        toy.entry("p", "a")
            .message
            .unwrap()
            .ends_with("is known: container reboot exited with 2")
    );
}

#[test]
fn a_controller_that_was_away_for_longer_than_the_reboot_may_take_requests_it_all_the_same() {
    let mut toy = succeeded(always());
    toy.rounds_until(|toy| !toy.nodes["a"].it.facts.records.is_empty());
    toy.passes(jiff::SignedDuration::from_hours(2));
    toy.wakes_up();
    ends(&mut toy);
    is_done_after_one_boot(&toy);
}

#[test]
fn a_job_that_is_deleted_during_the_reboot_or_after_it_is_not_made_again() {
    for late in [false, true] {
        let mut toy = asked_for();
        if late {
            toy.reboots("a");
            toy.settle();
        }
        let job = toy.job_for("a").facts.name.to_string();
        toy.delete_job(&job);
        toy.wakes_up();
        ends(&mut toy);
        is_done_after_one_boot(&toy);
        assert!(toy.jobs.is_empty());
    }
}

#[test]
fn a_plan_that_is_deleted_before_the_reboot_gives_the_node_back() {
    let mut toy = asked_for();
    assert!(toy.is_cordoned("a"));
    toy.delete_plan("p");
    toy.settle();
    assert!(toy.is_cordoned("a"), "its pod may still be at work");
    toy.rolls_out();
    let facts = &toy.nodes["a"].it.facts;
    assert!(!facts.unschedulable && facts.ledger.is_none() && facts.records.is_empty());
    assert!(toy.reboot_pods().is_empty() && toy.boots("a") == 0);
}

#[test]
fn a_plan_that_is_edited_during_the_reboot_ends_it_first() {
    for without in [false, true] {
        let mut toy = asked_for();
        let before = toy.hash("p");
        toy.edit("p", |spec| {
            spec.version = Some("v2".to_owned());
            if without {
                spec.reboot = None;
            }
        });
        toy.settle();
        assert_eq!(toy.entry("p", "a").phase, "Rebooting");
        assert_eq!(toy.jobs_for("a").len(), 1, "the Job of v1");
        toy.reboots("a");
        toy.settle();
        toy.later(10);
        assert_eq!(toy.done_label("a", "p"), Some(before));
        ends(&mut toy);
        assert!(toy.is_done("a", "p"));
        assert_eq!(toy.boots("a"), if without { 1 } else { 2 });
    }
}

#[test]
fn a_node_that_a_person_had_cordoned_stays_cordoned() {
    let mut toy = Toy::new();
    toy.add_node("a", |node| node.unschedulable = true);
    toy.apply(always());
    ends(&mut toy);
    assert!(toy.is_done("a", "p") && toy.is_cordoned("a") && toy.boots("a") == 1);
}

#[test]
fn a_controller_that_may_make_no_pods_starts_no_plan_that_reboots() {
    let mut toy = Toy::new();
    toy.forbidden.for_reboots = vec!["create pods".to_owned()];
    toy.add_nodes(&["a"]);
    toy.apply(always());
    toy.apply(plan("other"));
    toy.rolls_out();
    let what = "create pods".to_owned();
    assert_eq!(toy.blocker("p", "a"), Some(Blocker::MissingPermission { what }));
    assert!(toy.is_done("a", "other"), "it takes no such permission");
    toy.forbidden.for_reboots.clear();
    toy.later(60);
    ends(&mut toy);
    assert!(toy.is_done("a", "p"));
}

#[test]
fn a_pod_that_is_refused_is_told_in_status() {
    let mut toy = succeeded(always());
    toy.rounds_until(|toy| toy.sent().into_iter().any(|flight| toy.makes_pod(flight)));
    let flight = toy.sent().into_iter().find(|flight| toy.makes_pod(*flight));
    toy.reaches(flight.unwrap(), Fate::Forbidden);
    toy.hears(flight.unwrap());
    toy.settle();
    toy.later(1);
    assert_eq!(toy.entry("p", "a").reason.as_deref(), Some("PodRefused"));
    assert!(
        toy.complete("p").2.contains("forbidden"),
        "{:?}",
        toy.complete("p")
    );
    toy.later(30);
    ends(&mut toy);
    is_done_after_one_boot(&toy);
}

#[test]
fn a_pod_without_use_is_deleted_whoever_made_it() {
    let mut toy = asked_for();
    toy.change_node("a", |node| {
        node.facts.records.clear();
    });
    toy.set_done_label("a", "p", Some("disabled"));
    toy.settle();
    assert!(
        toy.pods
            .values()
            .all(|pod| pod.it.facts.reboot.is_none() || pod.it.terminating)
    );
}

#[test]
fn the_node_stays_busy_for_other_plans_until_it_is_back() {
    let mut toy = asked_for();
    toy.apply(plan("other"));
    toy.settle();
    assert_eq!(
        toy.blocker("other", "a"),
        Some(Blocker::NodeBusy { plan: "p".to_owned() })
    );
    ends(&mut toy);
    assert!(toy.is_done("a", "other") && toy.boots("a") == 1);
}

#[test]
fn an_upgrade_during_which_the_node_goes_down_has_failed() {
    let mut toy = Toy::with(&["a"], always());
    toy.comes_to("a", Stage::Upgrade);
    toy.reboots("a");
    toy.rolls_out();
    let entry = toy.entry("p", "a");
    assert_eq!(entry.reason.as_deref(), Some("UpgradeInterrupted"), "{entry:?}");
    assert_eq!(toy.laws.starts.values().sum::<u32>(), 1);
    assert_eq!(toy.told_of("JobFailed").len(), 1);
    assert!(toy.job_for("a").facts.recorded && !toy.job_for("a").facts.is_live());
    toy.retry("a", "p");
    ends(&mut toy);
    assert!(toy.is_done("a", "p") && toy.boots("a") == 2);
}

#[test]
fn a_node_that_goes_down_before_its_upgrade_is_upgraded_in_the_second_boot_and_rebooted_then() {
    let mut toy = Toy::with(&["a"], always());
    toy.comes_to("a", Stage::Cordon);
    toy.reboots("a");
    ends(&mut toy);
    assert!(toy.is_done("a", "p"));
    assert_eq!((toy.boots("a"), toy.laws.reboots), (2, 1));
    assert_eq!(toy.laws.starts.values().sum::<u32>(), 1);
}
