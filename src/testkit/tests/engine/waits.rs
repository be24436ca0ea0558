//! A Job that fails at its deadline, by what it waited for.

use super::scenario::Scenario;
use refit_api::{DrainSpec, Plan, PlanSpec};
use refit_facts::PodStage;
use refit_fixtures::plan_with;

fn limited(change: fn(&mut PlanSpec)) -> Plan {
    plan_with("p", |spec| {
        spec.job_active_deadline_secs = Some(60);
        change(spec);
    })
}

/// Begins a scenario in which the Job of `a` waits.
type Begin = fn(&mut Scenario);

#[test]
fn a_job_that_waits_until_its_deadline_fails_with_what_it_waited_for() {
    let taint: Begin = |scenario| scenario.apply_and_taint("a", limited(|_| {}));
    let budget: Begin = |scenario| {
        scenario.guard("a");
        scenario.apply(limited(|spec| spec.drain = Some(DrainSpec::default())));
    };
    let prepare: Begin = |scenario| {
        scenario.steer("a", "prepare.run-delay", Some("never"));
        scenario.apply(limited(|spec| spec.prepare = spec.upgrade.clone()));
        scenario.comes_to("a", PodStage::Prepare);
    };
    for (begin, reason, text) in [
        (taint, "PodWaiting", "untolerated taint"),
        (budget, "DrainWaiting", "PodDisruptionBudget guarded"),
        (prepare, "PrepareTimedOut", "`prepare` had not ended"),
    ] {
        let mut scenario = Scenario::of_nodes(&["a"]);
        begin(&mut scenario);
        scenario.pass_secs(120);
        assert_eq!(scenario.phase("p", "a"), ["Failed", reason]);
        let message = scenario.entry("p", "a").message.unwrap();
        assert!(message.contains(text), "{message}");
        let end = "; DeadlineExceeded: Job was active longer than specified deadline, after 1m";
        assert!(message.contains(end), "{message}");
        let says = format!(" failed on Node a: {reason}: {message}");
        assert!(
            scenario.complete("p")[2].ends_with(&says),
            "{:?}",
            scenario.complete("p")
        );
        let events = scenario.events_of("JobFailed");
        assert!(events.len() == 1 && events[0].ends_with(&says), "{events:?}");
        scenario.restart();
        assert_eq!(scenario.phase("p", "a"), ["Failed", reason]);
    }
}

#[test]
fn an_upgrade_that_runs_until_the_deadline_has_waited_for_nothing() {
    let mut scenario = Scenario::of_nodes(&["a"]);
    scenario.apply(limited(|spec| spec.drain = Some(DrainSpec::default())));
    scenario.comes_to("a", PodStage::Upgrade);
    scenario.pass_secs(120);
    assert_eq!(scenario.phase("p", "a"), ["Failed", "DeadlineExceeded"]);
}
