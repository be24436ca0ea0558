//! Repeats roll-outs with each fault at each of their writes, and with a user action after each write. The invariants
//! must hold, the roll-out must end, and nothing may be left.

use std::ops::Range;
use std::time::Duration;

use super::scenario::{Scenario, Setup};
use crate::fault::{Effect, Moment, Rule};
use refit_api::{
    ConditionStatus, ContainerSpec, DaemonSetsSpec, DrainSpec, HookSpec, PlanSpec, RebootWhen,
    SettleConditionSpec, SettleSpec, names,
};
use refit_fixtures::{plan, plan_with, reboot, repetitions};
use refit_rehearse::Kind;
use refit_rehearse::json::json;

/// More writes than any of these roll-outs has.
const MOST: u64 = 60;

pub(super) const EFFECTS: [Effect; 5] = [
    Effect::Kill(Moment::Before),
    Effect::Kill(Moment::After),
    Effect::Hang(Moment::Before),
    Effect::Hang(Moment::After),
    Effect::Overtake,
];

/// Starts a roll-out over two nodes.
fn begin(spec: impl FnOnce(&mut PlanSpec)) -> Scenario {
    let mut scenario = Scenario::without_controller(&Setup {
        held: false,
        ..Setup::default()
    });
    scenario.add_nodes(&["a", "b"]);
    scenario.apply(plan_with("p", spec));
    scenario.start();
    scenario
}

/// The controller is killed before or after a write.
pub(super) const KILLS: [Effect; 2] = [Effect::Kill(Moment::Before), Effect::Kill(Moment::After)];

/// Repeats a scenario for each of its writes and each of these faults. `begin` starts the controller, `run` goes on from there, and
/// `check` asserts what holds in the end; both get the words for a message. `writes` is how many it may have.
pub(super) fn sweep(
    writes: Range<u64>,
    effects: &[Effect],
    begin: impl Fn() -> Scenario,
    run: impl Fn(&mut Scenario, &str),
    check: impl Fn(&mut Scenario, &str),
) {
    for (number, effect) in (0..).zip(effects) {
        let last = repetitions::writes(writes.end, number).find(|write| {
            let mut scenario = begin();
            let rule = Rule::write_or_event().nth(write + 1).effect(*effect);
            scenario.fault_injector.add(rule);
            let at = format!("{effect:?} at write {write}");
            run(&mut scenario, &at);
            let was_met = scenario.fault_injector.clear_rules();
            check(&mut scenario, &at);
            !was_met
        });
        assert!(writes.contains(&last.unwrap()), "{effect:?}: {last:?} writes");
    }
}

/// As [`sweep`], of a roll-out over two nodes. `reboots` is the expected number of reboots.
fn meet(spec: fn(&mut PlanSpec), effects: &[Effect], reboots: u64) {
    let check = |scenario: &mut Scenario, at: &str| {
        scenario.assert_over();
        assert_eq!(scenario.invariants.upgrades, 2, "{at}: each node once");
        assert_eq!(scenario.invariants.reboots, reboots, "{at}");
        assert_eq!(scenario.events_of("JobComplete").len(), 2, "{at}: each sent once");
    };
    sweep(
        8..MOST,
        effects,
        || begin(spec),
        |scenario, _| scenario.rest(),
        check,
    );
}

#[test]
fn a_roll_out_that_cordons_meets_any_fault_at_any_write() {
    meet(|_| {}, &EFFECTS, 0);
    let more = [
        Effect::Answer(Moment::Before, 500),
        Effect::Answer(Moment::Before, 429),
        Effect::Answer(Moment::After, 500),
        Effect::Answer(Moment::After, 504),
        Effect::Delay(Moment::After, Duration::from_secs(9)),
        Effect::Delay(Moment::Before, Duration::from_secs(9)),
    ];
    meet(|spec| spec.concurrency = Some(2), &more, 0);
}

#[test]
fn a_roll_out_that_reboots_meets_any_fault_at_any_write() {
    meet(|spec| spec.reboot = Some(reboot(RebootWhen::Always)), &EFFECTS, 2);
}

#[test]
fn a_roll_out_that_drains_and_waits_meets_any_fault_at_any_write() {
    let spec = |spec: &mut PlanSpec| {
        spec.drain = Some(DrainSpec::default());
        spec.post_complete_delay = Some("20s".to_owned());
        spec.settle = Some(Box::new(SettleSpec {
            min_ready: Some("10s".to_owned()),
            workloads: Some(true),
            daemon_sets: Some(DaemonSetsSpec::default()),
            conditions: Some(vec![SettleConditionSpec {
                type_: "Ready".to_owned(),
                status: Some(ConditionStatus::True),
            }]),
            taints_gone: Some(vec!["example.com/agent-not-ready".to_owned()]),
            ..SettleSpec::default()
        }));
    };
    meet(spec, &EFFECTS, 0);
}

/// The Plan verifies its nodes.
fn verify(spec: &mut PlanSpec) {
    spec.verify = Some(Box::new(ContainerSpec {
        image: "look".to_owned(),
        ..ContainerSpec::default()
    }));
}

#[test]
fn a_roll_out_that_verifies_meets_any_fault_at_any_write() {
    let spec = |spec: &mut PlanSpec| {
        verify(spec);
        spec.reboot = Some(reboot(RebootWhen::Always));
        spec.post_complete_delay = Some("20s".to_owned());
    };
    meet(spec, &EFFECTS, 2);
}

/// The Plan runs a Job before its first node and after its last.
fn hooks(spec: &mut PlanSpec) {
    let hook = || HookSpec {
        container: ContainerSpec {
            image: "hook".to_owned(),
            ..ContainerSpec::default()
        },
        ..HookSpec::default()
    };
    (spec.before, spec.after) = (Some(Box::new(hook())), Some(Box::new(hook())));
}

#[test]
fn a_roll_out_with_a_job_before_and_one_after_meets_any_fault_at_any_write() {
    meet(hooks, &EFFECTS, 0);
}

#[test]
fn a_job_before_or_after_that_someone_deletes_at_any_moment_is_created_again_unless_it_has_succeeded() {
    let delete_all = |scenario: &mut Scenario| {
        let jobs: Vec<String> = scenario.invariants.hook_jobs.keys().cloned().collect();
        for job in &jobs {
            scenario.delete(Kind::Job, job);
        }
    };
    act(hooks, delete_all, 2);
}

/// Repeats a roll-out with an action after each of its writes, and checks that it ends.
fn act(spec: fn(&mut PlanSpec), action: impl Fn(&mut Scenario), most_upgrades: u64) {
    for write in repetitions::writes(MOST, 0) {
        let mut scenario = begin(spec);
        let came = scenario.after_writes(write);
        action(&mut scenario);
        scenario.rest();
        if scenario.complete("p")[1] == "JobFailed" {
            // refit does not repeat an interrupted upgrade without a retry.
            for node in ["a", "b"] {
                scenario.retry(node, "*");
            }
            scenario.rest();
        }
        scenario.assert_over();
        assert!(
            scenario.invariants.upgrades <= most_upgrades,
            "after write {write}: {}",
            scenario.invariants.upgrades
        );
        if !came {
            return;
        }
    }
    panic!("it has no end");
}

#[test]
fn a_job_that_someone_deletes_at_any_moment_is_created_again_unless_its_node_is_done() {
    let delete_all = |scenario: &mut Scenario| {
        let jobs: Vec<String> = scenario.invariants.jobs.keys().cloned().collect();
        for job in &jobs {
            scenario.delete(Kind::Job, job);
        }
    };
    act(|_| {}, delete_all, 3);
    act(
        |spec| spec.reboot = Some(reboot(RebootWhen::Always)),
        delete_all,
        3,
    );
    act(
        |spec| spec.post_complete_delay = Some("20s".to_owned()),
        delete_all,
        3,
    );
    let delete_all = |scenario: &mut Scenario| {
        let of_both = scenario
            .invariants
            .jobs
            .keys()
            .chain(scenario.invariants.verify_jobs.keys());
        let jobs: Vec<String> = of_both.cloned().collect();
        for job in &jobs {
            scenario.delete(Kind::Job, job);
        }
    };
    act(verify, delete_all, 3);
}

#[test]
fn a_label_that_someone_removes_at_any_moment_runs_the_plan_again() {
    let unlabel = |scenario: &mut Scenario| {
        scenario.set_done_label("a", "p", None);
        scenario.set_done_label("b", "p", None);
    };
    act(|_| {}, unlabel, 4);
}

#[test]
fn a_node_that_a_user_cordons_at_any_moment_and_uncordons_later_is_done_all_the_same() {
    let cordon = |scenario: &mut Scenario| {
        scenario.cordon("a", true);
        scenario.pass_secs(5);
        scenario.cordon("a", false);
    };
    act(|spec| spec.drain = Some(DrainSpec::default()), cordon, 2);
}

#[test]
fn a_version_that_is_edited_at_any_moment_is_rolled_out_in_the_end() {
    let edit = |scenario: &mut Scenario| scenario.edit("p", |spec| spec.version = Some("v2".to_owned()));
    act(|spec| spec.drain = Some(DrainSpec::default()), edit, 4);
    act(|spec| spec.reboot = Some(reboot(RebootWhen::Always)), edit, 4);
    act(hooks, edit, 4);
}

#[test]
fn a_plan_that_is_created_again_at_any_moment_starts_afresh() {
    let again = |scenario: &mut Scenario| {
        scenario.delete(Kind::Plan, "p");
        scenario.apply(plan("p"));
    };
    act(|_| {}, again, 4);
    act(hooks, again, 4);
    let again = |scenario: &mut Scenario| {
        scenario.delete_only_plan("p");
        scenario.pass_secs(1);
        scenario.apply(plan("p"));
    };
    act(hooks, again, 4);
}

#[test]
fn jobs_of_a_plan_that_is_deleted_without_them_at_any_moment_go_whenever_the_controller_dies() {
    for moment in [Moment::Before, Moment::After] {
        for write in repetitions::writes(MOST, 0) {
            let mut scenario = begin(hooks);
            let came = scenario.after_writes(write);
            // Once, or after each of the next writes.
            let times = if moment == Moment::Before { 1 } else { 4 };
            let kill = Rule::write_or_event().effect(Effect::Kill(moment));
            scenario.fault_injector.add(kill.times(times));
            scenario.delete_only_plan("p");
            scenario.rest();
            scenario.fault_injector.clear_rules();
            scenario.rest();
            scenario.assert_over();
            let open = scenario.invariants.hook_jobs.values().find(|job| !job.recorded);
            assert!(open.is_none(), "after write {write}: {open:?}");
            if !came {
                break;
            }
        }
    }
}

#[test]
fn a_machine_that_reboots_or_is_replaced_at_any_moment_is_done_in_the_end() {
    act(|_| {}, |scenario| scenario.reboot("a"), 4);
    act(
        |spec| spec.reboot = Some(reboot(RebootWhen::Always)),
        |scenario| scenario.reboot("a"),
        4,
    );
    let replace = |scenario: &mut Scenario| {
        scenario.delete(Kind::Node, "a");
        scenario.add_node("a", &json!({}));
    };
    act(|_| {}, replace, 4);
}

#[test]
fn a_definition_without_refits_fields_at_any_moment_loses_nothing() {
    let replace = |scenario: &mut Scenario| {
        scenario.serve_definition_of_suc(true);
        scenario.pass_secs(20);
        scenario.serve_definition_of_suc(false);
    };
    let spec = |spec: &mut PlanSpec| spec.reboot = Some(reboot(RebootWhen::Always));
    act(spec, replace, 2);
    act(verify, replace, 2);
    act(hooks, replace, 2);
}

#[test]
fn a_plan_that_is_aborted_at_any_moment_and_resumed_later_upgrades_each_node_once() {
    for pause in [1, 20] {
        let abort = |scenario: &mut Scenario| {
            scenario.annotate(Kind::Plan, "p", names::ANNOTATION_ABORT, Some("by user"));
            scenario.pass_secs(pause);
            scenario.annotate(Kind::Plan, "p", names::ANNOTATION_ABORT, None);
        };
        act(|spec| spec.drain = Some(DrainSpec::default()), abort, 2);
        act(|spec| spec.reboot = Some(reboot(RebootWhen::Always)), abort, 2);
    }
}

#[test]
fn a_node_that_is_skipped_at_any_moment_and_not_later_is_upgraded_once() {
    for pause in [1, 20] {
        let skip = |scenario: &mut Scenario| {
            scenario.annotate(Kind::Node, "a", names::ANNOTATION_SKIP, Some("p"));
            scenario.pass_secs(pause);
            scenario.annotate(Kind::Node, "a", names::ANNOTATION_SKIP, None);
        };
        act(|spec| spec.drain = Some(DrainSpec::default()), skip, 2);
        act(|spec| spec.reboot = Some(reboot(RebootWhen::Always)), skip, 2);
    }
}
