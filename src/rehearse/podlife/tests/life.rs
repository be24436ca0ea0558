use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::super::{Power, Started, Write};
use super::{Stage, job, single};

#[test]
fn init_containers_run_one_by_one_and_then_the_others() {
    let mut stage = Stage::new(&job(), &[]);
    stage.run_until(10_000);
    let started: Vec<_> = stage
        .started
        .iter()
        .map(|started| started.container.as_str())
        .collect();
    assert_eq!(started, ["prepare", "drain", "upgrade"]);
    // 200 ms to start, 200 ms each for the init containers, a second for the work.
    let told: Vec<_> = stage
        .told
        .iter()
        .map(|(at, status)| (*at, status.phase.as_deref().unwrap()))
        .collect();
    let expected = [
        (0, "Pending"),
        (200, "Pending"),
        (400, "Pending"),
        (600, "Running"),
        (1_600, "Succeeded"),
    ];
    assert_eq!(told, expected);
}

#[test]
fn a_pod_without_delays_is_told_in_as_few_statuses_as_can_be() {
    let none = [("start-delay", "0"), ("init-delay", "0"), ("run-delay", "0")];
    let mut stage = Stage::new(&job(), &none);
    stage.run_until(0);
    assert_eq!((stage.phase(), stage.told.len()), ("Succeeded", 4));
}

#[test]
fn asking_again_changes_nothing() {
    let mut stage = Stage::new(&job(), &[]);
    for until in [0, 200, 400, 600, 1_600, 5_000] {
        stage.run_until(until);
        let step = stage.step();
        assert_eq!((step.write, step.started), (None, Vec::new()), "at {until} ms");
    }
}

#[test]
fn a_container_that_fails_fails_a_pod_that_never_restarts() {
    let steering = [("exit-code", "3"), ("message", "no space left on device")];
    let mut stage = Stage::new(&single("Never"), &steering);
    stage.run_until(10_000);
    assert_eq!((stage.phase(), stage.exit("c")), ("Failed", Some((3, "Error"))));
    let exit = stage.status().container_statuses.as_ref().unwrap()[0]
        .state
        .clone()
        .unwrap()
        .terminated
        .unwrap();
    assert_eq!(exit.message.as_deref(), Some("no space left on device"));
    let ran = exit
        .finished_at
        .unwrap()
        .0
        .duration_since(exit.started_at.unwrap().0);
    assert_eq!(ran, SignedDuration::from_secs(1));
}

#[test]
fn an_init_container_that_fails_keeps_the_others_from_starting() {
    let mut stage = Stage::new(&job(), &[("drain.exit-code", "1"), ("drain.message", "PDB")]);
    stage.run_until(10_000);
    assert_eq!(
        (stage.phase(), stage.exit("drain"), stage.exit("upgrade")),
        ("Failed", Some((1, "Error")), None)
    );
    assert_eq!(stage.started.len(), 2);
}

#[test]
fn the_first_restart_is_at_once_and_the_next_ones_back_off() {
    let mut stage = Stage::new(&single("OnFailure"), &[("exit-code", "1"), ("start-delay", "0")]);
    stage.run_until(200_000);
    let running = stage.told.iter().filter(|(_, status)| {
        status.container_statuses.as_ref().unwrap()[0]
            .state
            .as_ref()
            .unwrap()
            .running
            .is_some()
    });
    let starts: Vec<i64> = running.map(|(at, _)| *at).collect();
    // Each runs for a second; then 0, 10, 20, 40 and 80 seconds.
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
fn crash_loop_back_off_is_told_when_it_is_asked_for() {
    let mut stage = Stage::new(&single("Always"), &[("run-delay", "1s"), ("resync-delay", "3s")]);
    stage.run_until(9_000);
    let container = stage.status().container_statuses.as_ref().unwrap()[0]
        .state
        .clone()
        .unwrap();
    let waiting = container.waiting.unwrap();
    assert_eq!(waiting.reason.as_deref(), Some("CrashLoopBackOff"));
    assert_eq!(
        waiting.message.as_deref(),
        Some("back-off 10s restarting failed container=c pod=p_ns(UID)")
    );
}

#[test]
fn what_is_steered_for_the_first_try_is_for_the_first_try_only() {
    let steering = [("exit-code-first", "9"), ("run-delay", "1s")];
    let mut stage = Stage::new(&single("OnFailure"), &steering);
    stage.run_until(10_000);
    assert_eq!(
        (stage.phase(), stage.exit("c"), stage.started.len()),
        ("Succeeded", Some((0, "Completed")), 2)
    );
}

#[test]
fn the_first_try_of_a_jobs_second_pod_is_not_the_first() {
    let mut stage = Stage::new(&single("Never"), &[("exit-code-first", "9")]);
    let behaviour = stage.behaviour().after_earlier_pods(1);
    for _ in 0..10 {
        let step = stage.life.step(&stage.pod, &stage.machine, &behaviour, stage.now);
        stage.now = step.wake.unwrap_or(stage.now);
    }
    assert_eq!(
        (stage.phase(), stage.exit("c")),
        ("Succeeded", Some((0, "Completed")))
    );
}

#[test]
fn never_is_never() {
    for (key, phase) in [
        ("start-delay", "Pending"),
        ("prepare.run-delay", "Pending"),
        ("run-delay", "Running"),
    ] {
        let mut stage = Stage::new(&job(), &[(key, "never")]);
        stage.run_until(1_000_000_000);
        assert_eq!(stage.phase(), phase, "{key}");
    }
}

#[test]
fn a_pod_that_outlives_its_deadline_fails() {
    let mut spec = job();
    spec["activeDeadlineSeconds"] = json!(5);
    let mut stage = Stage::new(&spec, &[("drain.run-delay", "never"), ("delete-delay", "300ms")]);
    stage.run_until(60_000);
    assert_eq!(
        (stage.phase(), stage.status().reason.as_deref()),
        ("Failed", Some("DeadlineExceeded"))
    );
    assert_eq!(stage.told.last().unwrap().0, 5_300);
}

#[test]
fn a_deleted_pod_stops_in_its_own_time_or_is_killed_at_the_end_of_its_grace_period() {
    for (steered, grace, code, took) in [
        ("1s", 30, 143, 1_000),
        ("never", 30, 137, 30_000),
        ("40s", 30, 137, 30_000),
    ] {
        let mut stage = Stage::new(
            &single("Never"),
            &[("run-delay", "never"), ("delete-delay", steered)],
        );
        stage.run_until(5_000).delete(grace);
        stage.run_until(100_000);
        assert_eq!(
            (stage.phase(), stage.exit("c")),
            ("Failed", Some((code, "Error"))),
            "{steered}"
        );
        assert_eq!(
            (stage.told.last().unwrap().0, stage.gone),
            (5_000 + took, true),
            "{steered}"
        );
    }
}

#[test]
fn a_pod_that_somebody_deleted_before_it_was_seen_is_never_started() {
    let mut stage = Stage::new(&single("Never"), &[]);
    stage.delete(30);
    stage.run_until(60_000);
    assert!(stage.started.is_empty() && stage.gone);
    assert_eq!(
        (stage.phase(), stage.exit("c")),
        ("Failed", Some((137, "ContainerStatusUnknown")))
    );
}

#[test]
fn a_pod_that_has_ended_is_deleted_unless_the_api_server_does_it() {
    for (grace, expected) in [(30, Some(Write::Remove)), (0, None)] {
        let mut stage = Stage::new(&single("Never"), &[]);
        stage.run_until(5_000).delete(grace);
        assert_eq!(stage.step().write, expected, "grace period {grace}");
    }
}

#[test]
fn without_power_nothing_happens_and_nothing_is_told() {
    let mut stage = Stage::new(&job(), &[]);
    stage.run_until(700).power_off();
    stage.delete(0);
    let step = stage.step();
    assert_eq!((step.write, step.wake, stage.phase()), (None, None, "Running"));
}

#[test]
fn a_node_that_was_only_cut_off_tells_afterwards_what_happened_meanwhile() {
    let mut stage = Stage::new(&single("Never"), &[]);
    stage.run_until(500).power_off();
    stage.run_until(60_000);
    stage.machine.power = Power::On;
    stage.run_until(60_000);
    let exit = stage.status().container_statuses.as_ref().unwrap()[0]
        .state
        .clone()
        .unwrap()
        .terminated
        .unwrap();
    assert_eq!((stage.phase(), exit.exit_code), ("Succeeded", 0));
    assert_eq!(
        exit.finished_at,
        Some(Time(stage.start + SignedDuration::from_millis(1_200)))
    );
}

#[test]
fn a_reboot_ends_what_runs_with_255() {
    for (policy, phase, starts) in [("Never", "Failed", 1), ("OnFailure", "Succeeded", 2)] {
        let mut stage = Stage::new(&single(policy), &[]);
        stage.run_until(700).power_off();
        stage.run_until(10_000).boot();
        let told = stage.told.len();
        stage.run_until(20_000);
        let lost = &stage.told[told].1.container_statuses.as_ref().unwrap()[0];
        let exit = lost.state.as_ref().unwrap().terminated.as_ref().unwrap();
        assert_eq!(
            (exit.exit_code, exit.reason.as_deref()),
            (255, Some("Unknown")),
            "{policy}"
        );
        assert_eq!(exit.finished_at, Some(Time(stage.machine.booted_at)), "{policy}");
        assert_eq!((stage.phase(), stage.started.len()), (phase, starts), "{policy}");
    }
}

#[test]
fn a_reboot_runs_the_init_containers_again() {
    let mut spec = job();
    spec["restartPolicy"] = json!("OnFailure");
    let mut stage = Stage::new(&spec, &[("run-delay", "10s")]);
    stage.run_until(5_000).boot();
    stage.run_until(60_000);
    let started: Vec<_> = stage
        .started
        .iter()
        .map(|started| (started.container.as_str(), started.attempt))
        .collect();
    let expected = [
        ("prepare", 0),
        ("drain", 0),
        ("upgrade", 0),
        ("prepare", 1),
        ("drain", 1),
        ("upgrade", 1),
    ];
    assert_eq!(
        (stage.phase(), started.as_slice()),
        ("Succeeded", expected.as_slice())
    );
}

#[test]
fn a_reboot_before_the_first_container_costs_nothing_but_time() {
    let mut stage = Stage::new(&single("Never"), &[("start-delay", "5s")]);
    stage.run_until(2_000).power_off();
    stage.run_until(10_000).boot();
    stage.run_until(60_000);
    assert_eq!(
        (stage.phase(), stage.told.last().unwrap().0),
        ("Succeeded", 16_000)
    );
}

#[test]
fn a_reboot_forgets_back_offs() {
    let mut stage = Stage::new(&single("OnFailure"), &[("exit-code", "1"), ("backoff", "1m")]);
    stage.run_until(10_000).boot();
    stage.run_until(10_200);
    assert_eq!(
        stage.started.last(),
        Some(&Started {
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
        let mut stage = Stage::new(&single("OnFailure"), &[("reboot", steered)]);
        for _ in 0..4 {
            stage.run_until(stage.millis() + 5_000);
            if stage.phase() == "Running" {
                stage.boot();
            }
        }
        assert_eq!((stage.reboots, stage.phase()), (reboots, phase), "{steered}");
    }
}

#[test]
fn a_shutdown_ends_what_runs_and_refuses_what_comes() {
    let mut running = Stage::new(&single("Never"), &[("run-delay", "never")]);
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

    let mut coming = Stage::new(&single("Never"), &[]);
    coming.machine.power = Power::ShuttingDown;
    coming.run_until(0);
    assert_eq!(
        (coming.phase(), coming.status().reason.as_deref()),
        ("Failed", Some("NodeShutdown"))
    );
}

#[test]
fn a_sidecar_runs_beside_the_others_and_ends_after_them() {
    let spec = json!({
        "restartPolicy": "Never",
        "initContainers": [{"name": "proxy", "image": "i", "restartPolicy": "Always"}, {"name": "setup", "image": "i"}],
        "containers": [{"name": "work", "image": "i"}],
    });
    let mut stage = Stage::new(&spec, &[("delete-delay", "500ms")]);
    stage.run_until(60_000);
    let started: Vec<_> = stage
        .started
        .iter()
        .map(|started| started.container.as_str())
        .collect();
    assert_eq!(started, ["proxy", "setup", "work"]);
    assert_eq!(
        (stage.phase(), stage.exit("proxy")),
        ("Succeeded", Some((143, "Error")))
    );
    assert_eq!(stage.told.last().unwrap().0, 200 + 200 + 1_000 + 500);
}

#[test]
fn what_is_acted_ends_when_its_end_is_reported() {
    let mut stage = Stage::new(&job(), &[]);
    stage.acted = &["drain"];
    stage.run_until(60_000);
    assert_eq!(
        (stage.phase(), stage.started.last().unwrap().container.as_str()),
        ("Pending", "drain")
    );
    assert_eq!(
        stage
            .life
            .running()
            .map(|running| running.container)
            .collect::<Vec<_>>(),
        ["drain"]
    );
    stage.report("drain", 0, "drained");
    stage.run_until(120_000);
    assert_eq!(
        (stage.phase(), stage.exit("drain")),
        ("Succeeded", Some((0, "Completed")))
    );
}

#[test]
fn the_end_of_an_earlier_attempt_is_not_the_end_of_this_one() {
    let mut stage = Stage::new(&single("OnFailure"), &[]);
    stage.acted = &["c"];
    stage.run_until(5_000);
    stage.report("c", 1, "");
    stage.run_until(20_000);
    assert_eq!((stage.phase(), stage.started.len()), ("Running", 2));
    stage.report("c", 0, "");
    stage.run_until(30_000);
    assert_eq!((stage.phase(), stage.exit("c")), ("Running", None));
}

#[test]
fn addresses_are_the_nodes_or_the_pods_own() {
    let mut host = job();
    host["hostNetwork"] = json!(true);
    let mut host = Stage::new(&host, &[]);
    let mut own = Stage::new(&job(), &[]);
    host.run_until(0);
    own.run_until(0);
    let ips = |stage: &Stage| (stage.status().host_ip.clone(), stage.status().pod_ip.clone());
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
    let mut stage = Stage::new(&single("Never"), &[]);
    stage.run_until(60_000);
    let since = |index: usize| {
        stage.status().conditions.as_ref().unwrap()[index]
            .last_transition_time
            .clone()
            .unwrap()
            .0
    };
    let millis = |index| since(index).duration_since(stage.start).as_millis();
    // PodReadyToStartContainers and Ready went with the end, Initialized and PodScheduled stand from the beginning.
    assert_eq!([0, 1, 2, 4].map(millis), [1_200, 0, 1_200, 0]);
}

#[test]
fn conditions_of_others_are_left_alone() {
    let mut stage = Stage::new(&single("Never"), &[]);
    stage.run_until(500);
    let others = json!({"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"});
    let others = serde_json::from_value(others).unwrap();
    stage
        .pod
        .status
        .as_mut()
        .unwrap()
        .conditions
        .as_mut()
        .unwrap()
        .push(others);
    assert_eq!(stage.step().write, None, "it is no news to the kubelet");
    stage.run_until(60_000);
    assert_eq!(
        stage.status().conditions.as_ref().unwrap()[0].type_,
        "DisruptionTarget"
    );
}
