//! Times and steering. `recordings.rs` compares the order of statuses with that of a real kubelet.

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::super::{ContainerAttempt, Power, Write};
use super::{PodFixture, job, single};

#[test]
fn init_containers_run_one_by_one_and_then_the_others() {
    let mut fixture = PodFixture::new(&job(), &[]);
    fixture.run_until(10_000);
    let started = fixture.started.iter().map(|started| started.container.as_str());
    assert_eq!(started.collect::<Vec<_>>(), ["prepare", "drain", "upgrade"]);
    // 200 ms to start, 200 ms for each init container, and a second of work.
    let reported = fixture.reported.iter();
    let reported = reported.map(|(at, status)| (*at, status.phase.as_deref().unwrap()));
    let expected = [
        (0, "Pending"),
        (200, "Pending"),
        (400, "Pending"),
        (600, "Running"),
        (1_600, "Succeeded"),
    ];
    assert_eq!(reported.collect::<Vec<_>>(), expected);
}

#[test]
fn a_pod_without_delays_is_reported_in_as_few_statuses_as_possible() {
    let none = [("start-delay", "0"), ("init-delay", "0"), ("run-delay", "0")];
    let mut fixture = PodFixture::new(&job(), &none);
    fixture.run_until(0);
    assert_eq!((fixture.phase(), fixture.reported.len()), ("Succeeded", 4));
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
fn the_first_restart_is_at_once_and_the_next_ones_back_off() {
    let mut fixture = PodFixture::new(&single("OnFailure"), &[("exit-code", "1"), ("start-delay", "0")]);
    fixture.run_until(200_000);
    let running = fixture.reported.iter().filter(|(_, status)| {
        status.container_statuses.as_ref().unwrap()[0]
            .state
            .as_ref()
            .unwrap()
            .running
            .is_some()
    });
    let starts: Vec<i64> = running.map(|(at, _)| *at).collect();
    // Each runs for a second; the back-offs are 0, 10, 20, 40 and 80 seconds.
    assert_eq!(starts, [0, 1_000, 12_000, 33_000, 74_000, 155_000]);
}

#[test]
fn the_back_off_ends_at_five_minutes() {
    let ten = SignedDuration::from_secs(10);
    let seconds = |restarts| super::super::containers::backoff(ten, restarts).as_secs();
    assert_eq!(
        [0, 1, 2, 5, 6, 7, 400].map(seconds),
        [0, 10, 20, 160, 300, 300, 300]
    );
}

#[test]
fn crash_loop_back_off_is_reported_when_resync_is_on() {
    let mut fixture = PodFixture::new(&single("Always"), &[("run-delay", "1s"), ("resync-delay", "3s")]);
    fixture.run_until(9_000);
    let waiting = fixture.state().waiting.unwrap();
    assert_eq!(waiting.reason.as_deref(), Some("CrashLoopBackOff"));
    assert_eq!(
        waiting.message.as_deref(),
        Some("back-off 10s restarting failed container=c pod=p_ns(UID)")
    );
}

#[test]
fn the_second_pod_of_a_job_is_not_its_first_attempt() {
    let mut fixture = PodFixture::new(&single("Never"), &[("exit-code-first", "9")]);
    let behaviour = fixture.behaviour().after_earlier_pods(1);
    for _ in 0..10 {
        let step = fixture
            .lifecycle
            .sync(&fixture.pod, &fixture.machine, &behaviour, fixture.now);
        fixture.now = step.wake.unwrap_or(fixture.now);
    }
    assert_eq!(
        (fixture.phase(), fixture.exit("c")),
        ("Succeeded", Some((0, "Completed")))
    );
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
    assert_eq!(
        (fixture.phase(), fixture.status().reason.as_deref()),
        ("Failed", Some("DeadlineExceeded"))
    );
    assert_eq!(fixture.reported.last().unwrap().0, 5_300);
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
        assert_eq!(
            (fixture.phase(), fixture.exit("c")),
            ("Failed", Some((code, "Error"))),
            "{steered}"
        );
        assert_eq!(
            (fixture.reported.last().unwrap().0, fixture.gone),
            (5_000 + took, true),
            "{steered}"
        );
    }
}

#[test]
fn a_pod_that_was_deleted_before_it_was_seen_is_never_started() {
    let mut fixture = PodFixture::new(&single("Never"), &[]);
    fixture.delete(30);
    fixture.run_until(60_000);
    assert!(fixture.started.is_empty() && fixture.gone);
    assert_eq!(
        (fixture.phase(), fixture.exit("c")),
        ("Failed", Some((137, "ContainerStatusUnknown")))
    );
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
    fixture.machine.power = Power::On;
    fixture.run_until(60_000);
    let exit = fixture.state().terminated.unwrap();
    assert_eq!((fixture.phase(), exit.exit_code), ("Succeeded", 0));
    let finished = fixture.start + SignedDuration::from_millis(1_200);
    assert_eq!(exit.finished_at, Some(Time(finished)));
}

#[test]
fn a_reboot_ends_what_runs_with_255() {
    for (policy, phase, starts) in [("Never", "Failed", 1), ("OnFailure", "Succeeded", 2)] {
        let mut fixture = PodFixture::new(&single(policy), &[]);
        fixture.run_until(700).power_off();
        fixture.run_until(10_000).boot();
        let reported = fixture.reported.len();
        fixture.run_until(20_000);
        let lost = &fixture.reported[reported].1.container_statuses.as_ref().unwrap()[0];
        let exit = lost.state.as_ref().unwrap().terminated.as_ref().unwrap();
        assert_eq!(
            (exit.exit_code, exit.reason.as_deref()),
            (255, Some("Unknown")),
            "{policy}"
        );
        assert_eq!(
            exit.finished_at,
            Some(Time(fixture.machine.booted_at)),
            "{policy}"
        );
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
    assert_eq!(
        (fixture.phase(), fixture.reported.last().unwrap().0),
        ("Succeeded", 16_000)
    );
}

#[test]
fn a_reboot_resets_the_back_offs() {
    let mut fixture = PodFixture::new(&single("OnFailure"), &[("exit-code", "1"), ("backoff", "1m")]);
    fixture.run_until(10_000).boot();
    fixture.run_until(10_200);
    assert_eq!(
        fixture.started.last(),
        Some(&ContainerAttempt {
            container: "c".into(),
            attempt: 2
        })
    );
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
fn a_shutdown_ends_what_runs_and_refuses_what_comes() {
    let mut running = PodFixture::new(&single("Never"), &[("run-delay", "never")]);
    running.run_until(5_000).machine.power = Power::ShuttingDown;
    running.run_until(20_000);
    assert_eq!(
        (running.phase(), running.status().reason.as_deref()),
        ("Failed", Some("Terminated"))
    );
    let disrupted = &running.status().conditions.as_ref().unwrap()[0];
    assert_eq!(
        (disrupted.type_.as_str(), disrupted.reason.as_deref()),
        ("DisruptionTarget", Some("TerminationByKubelet"))
    );

    let mut coming = PodFixture::new(&single("Never"), &[]);
    coming.machine.power = Power::ShuttingDown;
    coming.run_until(0);
    assert_eq!(
        (coming.phase(), coming.status().reason.as_deref()),
        ("Failed", Some("NodeShutdown"))
    );
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
    assert_eq!(
        (fixture.phase(), fixture.exit("drain")),
        ("Succeeded", Some((0, "Completed")))
    );
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
fn addresses_are_the_nodes_or_the_pods_own() {
    let mut host = job();
    host["hostNetwork"] = json!(true);
    let mut host = PodFixture::new(&host, &[]);
    let mut own = PodFixture::new(&job(), &[]);
    host.run_until(0);
    own.run_until(0);
    let ips = |fixture: &PodFixture| (fixture.status().host_ip.clone(), fixture.status().pod_ip.clone());
    assert_eq!(ips(&host), (Some("192.0.2.1".into()), Some("192.0.2.1".into())));
    assert_eq!(ips(&own), (Some("192.0.2.1".into()), None));
    own.run_until(60_000);
    assert!(ips(&own).1.unwrap().starts_with("10."));
}

#[test]
fn termination_messages_are_cut_where_a_kubelet_cuts_them() {
    let long = "ä".repeat(5_000);
    let cut = |containers| super::super::containers::cut(long.clone(), containers).len();
    assert_eq!([1, 3, 4, 13].map(cut), [4_096, 4_096, 3_072, 944]);
}

#[test]
fn a_condition_keeps_the_time_of_its_last_change() {
    let mut fixture = PodFixture::new(&single("Never"), &[]);
    fixture.run_until(60_000);
    let since = |index: usize| {
        fixture.status().conditions.as_ref().unwrap()[index]
            .last_transition_time
            .clone()
            .unwrap()
            .0
    };
    let millis = |index| since(index).duration_since(fixture.start).as_millis();
    // PodReadyToStartContainers and Ready changed at the end; Initialized and PodScheduled have their first times.
    assert_eq!([0, 1, 2, 4].map(millis), [1_200, 0, 1_200, 0]);
}
