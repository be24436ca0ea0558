//! Job, pod or report are lost before the controller has read them: the node is asked for its boot.

use super::*;

/// The Job on node `a` has succeeded and its pod is gone; the controller has seen neither.
fn pod_is_gone() -> Scenario {
    let mut scenario = upgrading("ready");
    scenario.stop();
    scenario.succeed_unseen("a");
    lose_pods(&mut scenario);
    scenario
}

fn lose_pods(scenario: &mut Scenario) {
    let pods: Vec<String> = scenario.pods().map(|pod| pod.facts.name.to_string()).collect();
    for pod in &pods {
        scenario.delete_pod_now(pod);
    }
    scenario.pass(Duration::from_millis(100));
}

/// Deletes the Job and its pods unobserved.
fn lose_job(scenario: &mut Scenario) {
    let job = scenario.job_for("a").name;
    scenario.delete(Kind::Job, &job);
    lose_pods(scenario);
}

fn requested_pods(scenario: &Scenario) -> usize {
    scenario.requests("POST /pods")
}

#[test]
fn a_node_whose_report_is_lost_is_asked_after_a_moment_and_reboots_once() {
    let mut scenario = pod_is_gone();
    scenario.start();
    scenario.settle();
    assert_eq!(requested_pods(&scenario), 0, "its event may come a moment later");
    assert_done_after_one_boot(&mut scenario);
    assert_eq!(
        (requested_pods(&scenario), scenario.invariants.reboots),
        (2, 1),
        "one asks, one reboots"
    );
}

#[test]
fn a_node_that_cannot_say_any_more_has_failed() {
    for answers in [true, false] {
        let mut scenario = pod_is_gone();
        if answers {
            scenario.reboot("a");
        } else {
            scenario.power("a", false);
        }
        scenario.start();
        scenario.pass_secs(16 * 60);
        assert_eq!(scenario.phase("p", "a"), ["Failed", "EvidenceLost"]);
        assert!(
            scenario
                .entry("p", "a")
                .message
                .unwrap()
                .contains("refit.rs/retry"),
            "the way out"
        );
        assert_eq!(
            (scenario.invariants.upgrades, scenario.invariants.reboots),
            (1, 0)
        );
        assert!(scenario.is_cordoned("a"));
        scenario.power("a", true);
        scenario.retry("a", "p");
        scenario.finish();
        assert_eq!(scenario.invariants.upgrades, 2);
    }
}

#[test]
fn a_job_that_was_lost_after_its_success_does_not_run_again() {
    let mut scenario = upgrading("ready");
    scenario.stop();
    scenario.succeed_unseen("a");
    lose_job(&mut scenario);
    scenario.start();
    assert_done_after_one_boot(&mut scenario);
    assert!(scenario.invariants.jobs.is_empty(), "done by the sentinel");
}

#[test]
fn a_job_that_was_lost_before_status_named_it_does_not_run_again() {
    let mut scenario = Scenario::of_nodes(&["a"]);
    scenario.steer("a", "upgrade.run-delay", Some("1s"));
    scenario.settle();
    scenario.fault(Rule::on("create", "jobs").kill(Moment::After));
    scenario.stop_at_death();
    scenario.apply(always());
    scenario.pass_secs(5);
    assert_eq!(scenario.entry("p", "a").job, None);
    lose_job(&mut scenario);
    scenario.start();
    assert_done_after_one_boot(&mut scenario);
}

#[test]
fn a_job_that_was_lost_before_its_success_is_created_again_in_the_same_boot() {
    for early in [true, false] {
        let mut scenario = Scenario::of_nodes(&["a"]);
        scenario.steer(
            "a",
            if early { "start-delay" } else { "upgrade.run-delay" },
            Some("1h"),
        );
        scenario.apply(always());
        scenario.pass_secs(5);
        scenario.stop();
        lose_job(&mut scenario);
        scenario.steer("a", "start-delay", None);
        scenario.start();
        scenario.finish();
        assert_eq!(
            (boots(&scenario, "a"), scenario.invariants.upgrades),
            (1, if early { 1 } else { 2 })
        );
        assert!(scenario.events_of("RebootFailed").is_empty());
    }
}

#[test]
fn a_sentinel_of_an_earlier_job_proves_nothing_about_a_lost_one() {
    let mut scenario = Scenario::with(&["a"], rebooting(RebootWhen::IfRequired));
    scenario.roll_out();
    for version in ["v2", "v1"] {
        // Returns to a version that ran before in this boot.
        scenario.edit("p", |spec| spec.version = Some(version.to_owned()));
        if version == "v2" {
            scenario.roll_out();
        }
    }
    scenario.comes_to("a", PodStage::Upgrade);
    scenario.stop();
    let job = scenario.live_job("a").name;
    scenario.delete(Kind::Job, &job);
    lose_pods(&mut scenario);
    scenario.start();
    scenario.finish();
    assert_eq!((boots(&scenario, "a"), scenario.invariants.upgrades), (0, 4));
}

#[test]
fn a_controller_that_dies_at_any_write_while_it_looks_for_evidence_leaves_no_node_stuck() {
    for write in 0..12 {
        let mut scenario = upgrading("ready");
        scenario.stop();
        lose_job(&mut scenario);
        scenario
            .fault_injector
            .add(Rule::write_or_event().nth(write + 1).kill(Moment::After));
        scenario.start();
        scenario.finish();
        assert_eq!(
            (boots(&scenario, "a"), scenario.invariants.upgrades),
            (1, 2),
            "write {write}"
        );
    }
}
