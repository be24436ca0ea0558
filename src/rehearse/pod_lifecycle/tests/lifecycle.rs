//! What a pod does at which time.

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Taint;
use serde_json::{Value, json};

use super::super::step::backoff;
use super::super::{PodBehaviour, Write};
use super::{PodFixture, State, job, single};

#[test]
fn init_containers_run_one_by_one_and_then_the_others() {
    let mut fixture = PodFixture::new(&job(), &[]);
    fixture.run_until(10_000);
    let started = fixture.started.iter().map(|(_, container)| container.as_str());
    assert_eq!(started.collect::<Vec<_>>(), ["prepare", "drain", "upgrade"]);
    // 200 ms to start, 200 ms for each init container, and a second of work.
    let expected = [
        (0, "Pending"),
        (200, "Pending"),
        (400, "Pending"),
        (600, "Running"),
        (1_600, "Succeeded"),
    ];
    assert_eq!(fixture.reported, expected);
}

#[test]
fn a_second_sync_at_the_same_time_changes_nothing() {
    let mut fixture = PodFixture::new(&job(), &[]);
    for until in [0, 200, 400, 600, 1_600, 5_000] {
        fixture.run_until(until);
        let step = fixture.step();
        assert_eq!((step.write, step.started), (None, Vec::new()), "at {until} ms");
    }
}

#[test]
fn a_kubelet_that_keeps_only_the_status_reaches_the_same_result() {
    for (steering, grace) in [
        (&[][..], None),
        (&[("drain.exit-code", "1")], None),
        (&[("run-delay", "never")], Some(30)),
    ] {
        let end = |forgetful| {
            let mut fixture = PodFixture::new(&job(), steering);
            for second in 1..60 {
                fixture.run_until(second * 1_000);
                if let (5, Some(grace)) = (second, grace) {
                    fixture.delete(grace);
                }
                if forgetful {
                    fixture.forget();
                }
            }
            let exits = ["prepare", "drain", "upgrade"].map(|name| fixture.exit(name));
            (fixture.phase(), exits, fixture.started.len(), fixture.gone)
        };
        assert_eq!(end(false), end(true), "{steering:?}");
    }
}

#[test]
fn the_first_restart_is_at_once_and_the_next_ones_back_off() {
    let mut fixture = PodFixture::new(&single("OnFailure"), &[("exit-code", "1"), ("start-delay", "0")]);
    fixture.run_until(200_000);
    let starts: Vec<i64> = fixture.started.iter().map(|(at, _)| *at).collect();
    // Each runs for a second; the back-offs are 0, 10, 20, 40 and 80 seconds.
    assert_eq!(starts, [0, 1_000, 12_000, 33_000, 74_000, 155_000]);
}

#[test]
fn the_back_off_ends_at_five_minutes() {
    let ten = SignedDuration::from_secs(10);
    let seconds = |restarts| backoff(ten, restarts).as_secs();
    assert_eq!(
        [0, 1, 2, 5, 6, 7, 400].map(seconds),
        [0, 10, 20, 160, 300, 300, 300]
    );
}

#[test]
fn the_second_pod_of_a_job_is_not_its_first_attempt() {
    let mut fixture = PodFixture::new(&single("Never"), &[("exit-code-first", "9")]);
    fixture.machine.runs.insert("c".to_owned(), 1);
    fixture.run_until(10_000);
    assert_eq!((fixture.phase(), fixture.exit("c")), ("Succeeded", Some(0)));
}

#[test]
fn a_pod_succeeds_when_all_its_containers_have() {
    let spec = json!({"restartPolicy": "Never",
        "containers": [{"name": "c", "image": "i"}, {"name": "d", "image": "i"}]});
    for (code, phase) in [("0", "Succeeded"), ("4", "Failed")] {
        let mut fixture = PodFixture::new(&spec, &[("d.exit-code", code), ("d.run-delay", "5s")]);
        fixture.run_until(4_000);
        assert_eq!((fixture.phase(), fixture.exit("c")), ("Running", Some(0)));
        fixture.run_until(10_000);
        assert_eq!(fixture.phase(), phase);
    }
}

#[test]
fn a_delay_of_never_does_not_end() {
    for (key, phase) in [
        ("start-delay", "Pending"),
        ("prepare.run-delay", "Pending"),
        ("run-delay", "Running"),
    ] {
        let mut fixture = PodFixture::new(&job(), &[(key, "never")]);
        fixture.run_until(1_000_000_000);
        assert_eq!(fixture.phase(), phase, "{key}");
    }
}

#[test]
fn a_pod_that_exceeds_its_deadline_fails() {
    let mut spec = job();
    spec["activeDeadlineSeconds"] = json!(5);
    let mut fixture = PodFixture::new(&spec, &[("drain.run-delay", "never"), ("delete-delay", "300ms")]);
    fixture.run_until(60_000);
    assert_eq!(fixture.reported.last(), Some(&(5_300, "Failed")));
    assert_eq!(fixture.reason(), Some("DeadlineExceeded"));
    assert_eq!(fixture.container("upgrade").state, State::Waiting);
}

#[test]
fn a_deleted_pod_stops_in_its_own_time_or_is_killed_at_the_end_of_its_grace_period() {
    for (steered, grace, code, took) in [
        ("1s", 30, 143, 1_000),
        ("never", 30, 137, 30_000),
        ("40s", 30, 137, 30_000),
    ] {
        let mut fixture = PodFixture::new(
            &single("Never"),
            &[("run-delay", "never"), ("delete-delay", steered)],
        );
        fixture.run_until(5_000).delete(grace);
        fixture.run_until(100_000);
        assert_eq!(fixture.exit("c"), Some(code), "{steered}");
        assert_eq!(
            (fixture.reported.last(), fixture.gone),
            (Some(&(5_000 + took, "Failed")), true),
            "{steered}"
        );
    }
}

#[test]
fn a_deleted_pod_whose_containers_exit_with_0_has_succeeded() {
    let steering = [("run-delay", "never"), ("stop-exit-code", "0")];
    let mut fixture = PodFixture::new(&single("Never"), &steering);
    fixture.run_until(5_000).delete(30);
    fixture.run_until(60_000);
    assert_eq!(fixture.phase(), "Succeeded");
}

#[test]
fn a_pod_that_was_deleted_before_it_was_seen_is_never_started() {
    let mut fixture = PodFixture::new(&single("Never"), &[]);
    fixture.delete(30);
    fixture.run_until(60_000);
    assert!(fixture.started.is_empty() && fixture.gone);
    assert_eq!((fixture.phase(), fixture.exit("c")), ("Failed", Some(137)));
}

#[test]
fn a_pod_that_has_ended_is_deleted_unless_the_api_server_does_it() {
    for (grace, expected) in [(30, Some(Write::Remove)), (0, None)] {
        let mut fixture = PodFixture::new(&single("Never"), &[]);
        fixture.run_until(5_000).delete(grace);
        assert_eq!(fixture.step().write, expected, "grace period {grace}");
    }
}

#[test]
fn a_pod_on_a_machine_without_power_stands_still_and_is_not_reported() {
    let mut fixture = PodFixture::new(&job(), &[]);
    fixture.run_until(700).power_off();
    fixture.delete(0);
    let step = fixture.step();
    assert_eq!((step.write, step.wake, fixture.phase()), (None, None, "Running"));
}

#[test]
fn a_node_that_was_only_disconnected_reports_later_what_happened_meanwhile() {
    let mut fixture = PodFixture::new(&single("Never"), &[]);
    fixture.run_until(500).power_off();
    fixture.run_until(60_000);
    fixture.machine.power = super::Power::On;
    fixture.run_until(60_000);
    let State::Ended(end) = &fixture.container("c").state else {
        panic!("it has not ended")
    };
    assert_eq!((fixture.phase(), end.exit.code), ("Succeeded", 0));
    assert_eq!(end.at, fixture.start + SignedDuration::from_millis(1_200));
}

#[test]
fn a_reboot_ends_what_runs_with_255() {
    for (policy, phase, starts) in [("Never", "Failed", 1), ("OnFailure", "Succeeded", 2)] {
        let mut fixture = PodFixture::new(&single(policy), &[]);
        fixture.run_until(700).power_off();
        fixture.run_until(10_000).boot();
        // It is reported before the container starts again.
        let _ = fixture.step();
        let State::Ended(end) = &fixture.container("c").state else {
            panic!("{policy}: it has not ended")
        };
        assert_eq!(
            (end.exit.code, end.at),
            (255, fixture.machine.booted_at),
            "{policy}"
        );
        fixture.run_until(20_000);
        assert_eq!(
            (fixture.phase(), fixture.started.len()),
            (phase, starts),
            "{policy}"
        );
    }
}

#[test]
fn a_reboot_before_the_first_container_only_delays_the_pod() {
    let mut fixture = PodFixture::new(&single("Never"), &[("start-delay", "5s")]);
    fixture.run_until(2_000).power_off();
    fixture.run_until(10_000).boot();
    fixture.run_until(60_000);
    assert_eq!(fixture.reported.last(), Some(&(16_000, "Succeeded")));
}

#[test]
fn a_container_can_reboot_its_node_once_or_always() {
    for (steered, reboots, phase) in [
        ("once", 1, "Succeeded"),
        ("always", 4, "Running"),
        ("never", 0, "Succeeded"),
    ] {
        let mut fixture = PodFixture::new(&single("OnFailure"), &[("reboot", steered)]);
        for _ in 0..4 {
            fixture.run_until(fixture.millis() + 5_000);
            if fixture.phase() == "Running" {
                fixture.boot();
            }
        }
        assert_eq!((fixture.reboots, fixture.phase()), (reboots, phase), "{steered}");
    }
}

#[test]
fn a_payload_reboots_its_node_afterwards_unless_that_stays_in_its_boot() {
    for (comes_back, reboots) in [("ready", true), ("as-if-nothing", false)] {
        let steering = [("reboot", "afterwards"), ("comes-back", comes_back)];
        let mut fixture = PodFixture::new(&single("Never"), &steering);
        fixture.run_until(60_000);
        assert_eq!(
            (fixture.phase(), fixture.reboots > 0),
            ("Succeeded", reboots),
            "{comes_back}"
        );
    }
}

#[test]
fn a_container_with_a_task_ends_when_the_end_of_the_task_is_reported() {
    let mut fixture = PodFixture::new(&job(), &[]);
    fixture.has_task = &["drain"];
    fixture.run_until(60_000);
    assert_eq!(fixture.phase(), "Pending");
    let running = fixture.lifecycle.running().map(|running| running.container);
    assert_eq!(running.collect::<Vec<_>>(), ["drain"]);
    fixture.report("drain", 0, "drained");
    fixture.run_until(120_000);
    assert_eq!((fixture.phase(), fixture.exit("drain")), ("Succeeded", Some(0)));
}

#[test]
fn the_end_of_an_earlier_attempt_is_not_the_end_of_this_one() {
    let mut fixture = PodFixture::new(&single("OnFailure"), &[]);
    fixture.has_task = &["c"];
    fixture.run_until(5_000);
    fixture.report("c", 1, "");
    fixture.run_until(20_000);
    assert_eq!((fixture.phase(), fixture.started.len()), ("Running", 2));
    fixture.report("c", 0, "");
    fixture.run_until(30_000);
    assert_eq!((fixture.phase(), fixture.exit("c")), ("Running", None));
}

#[test]
fn a_pod_is_ready_while_it_runs_and_the_condition_keeps_the_time_of_its_last_change() {
    let mut fixture = PodFixture::new(&single("Never"), &[]);
    for (until, ready, since) in [(100, false, 0), (1_000, true, 200), (60_000, false, 1_200)] {
        fixture.run_until(until);
        let since = fixture.start + SignedDuration::from_millis(since);
        assert_eq!(fixture.lifecycle.state.ready, Some((ready, since)), "{until}");
    }
}

#[test]
fn a_kubelet_refuses_what_its_node_does_not_take() {
    let elsewhere = json!({"nodeSelector": {"zone": "z2"}});
    for (spec, effect, reason) in [
        (json!({}), "NoSchedule", None),
        (json!({}), "NoExecute", Some("TaintToleration")),
        (
            json!({"tolerations": [{"operator": "Exists"}]}),
            "NoExecute",
            None,
        ),
        (elsewhere, "NoSchedule", Some("NodeAffinity")),
    ] {
        let refused = refused(&spec, &[], effect);
        assert_eq!(refused.as_deref(), reason, "{spec} {effect}");
    }
    let steered = [("reject", "OutOfcpu: there is none left")];
    assert_eq!(
        refused(&json!({}), &steered, "NoSchedule").as_deref(),
        Some("OutOfcpu")
    );
}

/// The reason why a pod with these additions to its spec is refused, on a node with a taint.
fn refused(additions: &Value, steering: &[(&str, &str)], effect: &str) -> Option<String> {
    let mut spec = single("Never");
    let additions = additions.as_object().unwrap().clone();
    spec.as_object_mut().unwrap().extend(additions);
    let mut fixture = PodFixture::new(&spec, steering);
    fixture.machine.taints = vec![Taint {
        key: "t".into(),
        effect: effect.into(),
        ..Taint::default()
    }];
    fixture.run_until(0);
    (fixture.phase() == "Failed").then(|| {
        assert!(fixture.started.is_empty());
        fixture.reason().unwrap().to_owned()
    })
}

#[test]
fn a_pod_whose_steering_is_not_understood_is_refused() {
    let mut fixture = PodFixture::new(&single("Never"), &[]);
    let behaviour = PodBehaviour::rejecting("InvalidSteering");
    let _ = fixture
        .lifecycle
        .sync(&fixture.pod, &fixture.machine, &behaviour, fixture.now);
    assert_eq!(
        (fixture.phase(), fixture.reason()),
        ("Failed", Some("InvalidSteering"))
    );
}
