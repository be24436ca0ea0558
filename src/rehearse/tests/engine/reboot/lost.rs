//! Job, pod or report are lost before the controller has read them: the node is asked for its boot.

use super::*;

/// The Job on node `a` has succeeded and its pod is gone; the controller has seen neither.
fn pod_is_gone() -> Scenario {
    let mut story = upgrading("ready");
    story.stop();
    story.succeed_unseen("a");
    lose_pods(&mut story);
    story
}

fn lose_pods(story: &mut Scenario) {
    let pods: Vec<String> = story.pods().map(|pod| pod.facts.name.to_string()).collect();
    for pod in &pods {
        story.delete_pod_now(pod);
    }
    story.pass(Duration::from_millis(100));
}

/// Deletes the Job and its pods unobserved.
fn lose_job(story: &mut Scenario) {
    let job = story.job_for("a").name;
    story.delete(Kind::Job, &job);
    lose_pods(story);
}

fn requested_pods(story: &Scenario) -> usize {
    story.requests("POST /pods")
}

#[test]
fn a_node_whose_report_is_lost_is_asked_after_a_moment_and_reboots_once() {
    let mut story = pod_is_gone();
    story.start();
    story.settle();
    assert_eq!(requested_pods(&story), 0, "its event may come a moment later");
    assert_done_after_one_boot(&mut story);
    assert_eq!(
        (requested_pods(&story), story.invariants.reboots),
        (2, 1),
        "one asks, one reboots"
    );
}

#[test]
fn a_node_that_cannot_say_any_more_has_failed() {
    for answers in [true, false] {
        let mut story = pod_is_gone();
        if answers {
            story.reboot("a");
        } else {
            story.power("a", false);
        }
        story.start();
        story.pass_secs(16 * 60);
        assert_eq!(
            story.phase("p", "a"),
            ("Failed".to_owned(), "EvidenceLost".to_owned())
        );
        assert!(
            story.entry("p", "a").message.unwrap().contains("refit.rs/retry"),
            "the way out"
        );
        assert_eq!((story.invariants.upgrades, story.invariants.reboots), (1, 0));
        assert!(story.is_cordoned("a"));
        story.power("a", true);
        story.retry("a", "p");
        story.roll_out();
        story.assert_over();
        assert_eq!(story.invariants.upgrades, 2);
    }
}

#[test]
fn a_job_that_was_lost_after_its_success_does_not_run_again() {
    let mut story = upgrading("ready");
    story.stop();
    story.succeed_unseen("a");
    lose_job(&mut story);
    story.start();
    assert_done_after_one_boot(&mut story);
    assert!(story.invariants.jobs.is_empty(), "done by the sentinel");
}

#[test]
fn a_job_that_was_lost_before_status_named_it_does_not_run_again() {
    let mut story = Scenario::empty();
    story.add_nodes(&["a"]);
    story.steer("a", "upgrade.run-delay", Some("1s"));
    story.settle();
    story.fault(Rule::on("create", "jobs").kill(Moment::After));
    story.stop_at_death();
    story.apply(always());
    story.pass_secs(5);
    assert_eq!(story.entry("p", "a").job, None);
    lose_job(&mut story);
    story.start();
    assert_done_after_one_boot(&mut story);
}

#[test]
fn a_job_that_was_lost_before_its_success_is_created_again_in_the_same_boot() {
    for early in [true, false] {
        let mut story = Scenario::empty();
        story.add_nodes(&["a"]);
        story.steer(
            "a",
            if early { "start-delay" } else { "upgrade.run-delay" },
            Some("1h"),
        );
        story.apply(always());
        story.pass_secs(5);
        story.stop();
        lose_job(&mut story);
        story.steer("a", "start-delay", None);
        story.start();
        story.roll_out();
        story.assert_over();
        assert_eq!(
            (boots(&story, "a"), story.invariants.upgrades),
            (1, if early { 1 } else { 2 })
        );
        assert!(story.events_of("RebootFailed").is_empty());
    }
}

#[test]
fn a_controller_that_dies_at_any_write_while_it_looks_for_evidence_leaves_no_node_stuck() {
    for write in 0..12 {
        let mut story = upgrading("ready");
        story.stop();
        lose_job(&mut story);
        story
            .fault_injector
            .add(Rule::write_or_event().nth(write + 1).kill(Moment::After));
        story.start();
        story.roll_out();
        story.assert_over();
        assert_eq!(
            (boots(&story, "a"), story.invariants.upgrades),
            (1, 2),
            "write {write}"
        );
    }
}
