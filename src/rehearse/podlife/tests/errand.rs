//! What refit's own containers do on a node that may reboot.

use serde_json::json;

use super::*;
use crate::api::{PlanSpec, RebootFault, SentinelReport};
use crate::job::{Errand, JobInput, JobSettings, NodeInput, PlanInput, RebootInput, reboot_pod, render};

const BOOT: &str = "5e1b0d4e-0a9a-4a52-b7a3-0d2f3a4b5c6d";
const NEXT_BOOT: &str = "6f2c1e5f-1bab-4b63-88b4-1e3f4b5c6d7e";

fn input(spec: &PlanSpec) -> (PlanInput<'_>, NodeInput<'_>) {
    let plan = PlanInput {
        name: "os",
        namespace: "ns",
        uid: "plan-uid",
        labels: None,
        annotations: None,
        spec,
        latest_version: "v1",
        latest_hash: "hash",
        inputs: "inputs",
        digests: &crate::job::NO_DIGESTS,
    };
    let node = NodeInput {
        name: "n",
        uid: "node-uid",
        os: None,
    };
    (plan, node)
}

fn settings() -> JobSettings {
    JobSettings::new("refit", "refit")
}

fn stage(spec: &impl serde::Serialize, steering: &[(&str, &str)]) -> Stage {
    let mut stage = Stage::new(&serde_json::to_value(spec).unwrap(), steering);
    stage.machine.boot_id = BOOT.to_owned();
    stage
}

/// The pod of a Job.
fn job_pod(when: &str, steering: &[(&str, &str)]) -> Stage {
    let spec: PlanSpec =
        serde_json::from_value(json!({"upgrade": {"image": "i"}, "reboot": {"when": when}})).unwrap();
    let (plan, node) = input(&spec);
    let input = JobInput {
        plan,
        node,
        name: "job",
        attempt: 1,
        unschedulable_before: None,
    };
    let job = render(&input, &settings()).unwrap();
    stage(&job.spec.unwrap().template.spec.unwrap(), steering)
}

/// A pod that reboots, or asks, on a machine that has these sentinels.
fn errand_pod(errand: Errand<'_>, sentinel: Option<&str>, steering: &[(&str, &str)]) -> Stage {
    let spec = PlanSpec::default();
    let (plan, node) = input(&spec);
    let input = RebootInput {
        plan,
        node,
        hash: "hash",
        errand,
        seconds: 900,
        critical: true,
    };
    let pod = reboot_pod(&input, &settings()).unwrap();
    let mut stage = stage(&pod.spec.unwrap(), steering);
    if let Some(boot_id) = sentinel {
        let report = SentinelReport {
            boot_id: boot_id.to_owned(),
            required: true,
        };
        let name = "plan-uid.node-uid.hash".parse().unwrap();
        stage.machine.sentinels.insert(name, report);
    }
    stage
}

/// How its one main container has ended last.
fn exit(stage: &Stage) -> Option<(i32, String)> {
    let status = &stage.pod.status.as_ref()?.container_statuses.as_ref()?[0];
    let ended = [&status.state, &status.last_state];
    let exit = ended
        .into_iter()
        .find_map(|state| state.as_ref()?.terminated.as_ref())?;
    Some((exit.exit_code, exit.message.clone().unwrap_or_default()))
}

fn message(stage: &Stage) -> String {
    exit(stage).unwrap().1
}

fn code(stage: &Stage) -> Option<i32> {
    exit(stage).map(|(code, _)| code)
}

#[test]
fn a_sentinel_reports_its_boot_and_stays_on_the_machine() {
    for (when, steering, required) in [
        ("Always", &[][..], true),
        ("IfRequired", &[], false),
        ("IfRequired", &[("reboot-required", "true")], true),
    ] {
        let mut stage = job_pod(when, steering);
        stage.run_until(60_000);
        assert_eq!(stage.phase(), "Succeeded", "{when}");
        let report = SentinelReport::parse(&message(&stage)).unwrap();
        assert_eq!(
            (report.boot_id.as_str(), report.required),
            (BOOT, required),
            "{when}"
        );
        let kept: Vec<_> = stage
            .machine
            .sentinels
            .iter()
            .map(|(name, report)| (name.as_str(), report))
            .collect();
        assert_eq!(kept, [("plan-uid.node-uid.hash", &report)]);
    }
}

#[test]
fn a_failed_upgrade_or_sentinel_leaves_none() {
    for steering in [("upgrade.exit-code", "1"), ("sentinel.exit-code", "1")] {
        let mut stage = job_pod("Always", &[steering]);
        stage.run_until(60_000);
        assert_eq!(stage.phase(), "Failed");
        assert!(stage.machine.sentinels.is_empty());
    }
    // Garbage in the message does not change what is on the machine.
    let mut stage = job_pod("Always", &[("sentinel.message", "garbage")]);
    stage.run_until(60_000);
    assert_eq!(
        (message(&stage).as_str(), stage.machine.sentinels.len()),
        ("garbage", 1)
    );
}

#[test]
fn a_probe_removes_the_sentinel_of_an_earlier_try_and_no_other() {
    let mut stage = job_pod("Always", &[("upgrade.exit-code", "1")]);
    for name in ["plan-uid.node-uid.hash", "plan-uid.node-uid.another"] {
        let report = SentinelReport {
            boot_id: BOOT.to_owned(),
            required: true,
        };
        stage.machine.sentinels.insert(name.parse().unwrap(), report);
    }
    stage.run_until(60_000);
    assert_eq!(stage.phase(), "Failed");
    let left: Vec<_> = stage.machine.sentinels.keys().map(ToString::to_string).collect();
    assert_eq!(left, ["plan-uid.node-uid.another"]);
}

#[test]
fn the_boot_that_is_to_end_ends_and_in_the_next_one_the_pod_succeeds() {
    let mut stage = errand_pod(Errand::Reboot { boot_id: BOOT }, Some(BOOT), &[]);
    stage.run_until(60_000);
    assert_eq!((stage.reboots, stage.phase()), (1, "Running"));
    stage.machine.boot_id = NEXT_BOOT.to_owned();
    stage.machine.booted_at = stage.now;
    stage.machine.sentinels.clear();
    stage.run_until(120_000);
    assert_eq!(
        (stage.reboots, stage.phase(), code(&stage)),
        (1, "Succeeded", Some(0))
    );
}

#[test]
fn a_host_that_does_nothing_is_waited_for() {
    let mut stage = errand_pod(
        Errand::Reboot { boot_id: BOOT },
        Some(BOOT),
        &[("comes-back", "as-if-nothing")],
    );
    stage.run_until(899_000);
    assert_eq!((stage.reboots, stage.phase()), (0, "Running"));
    stage.run_until(960_000);
    assert_eq!(stage.phase(), "Failed", "its deadline is over");
}

#[test]
fn nothing_is_rebooted_without_a_sentinel_of_the_boot() {
    for sentinel in [None, Some(NEXT_BOOT)] {
        let mut stage = errand_pod(Errand::Reboot { boot_id: BOOT }, sentinel, &[]);
        stage.run_until(1_500);
        assert_eq!((stage.reboots, code(&stage)), (0, Some(3)));
        let message = message(&stage);
        let (fault, sentence) = RebootFault::parse(&message).unwrap();
        assert_eq!(fault, RebootFault::SentinelMissing);
        assert!(sentence.ends_with(&format!("in boot {BOOT}")), "{sentence}");
    }
}

#[test]
fn a_command_that_fails_is_told() {
    let mut stage = errand_pod(
        Errand::Reboot { boot_id: BOOT },
        Some(BOOT),
        &[("reboot.exit-code", "1")],
    );
    stage.run_until(1_500);
    assert_eq!((stage.reboots, code(&stage)), (0, Some(1)));
    let (fault, sentence) = RebootFault::parse(&message(&stage))
        .map(|(fault, text)| (fault, text.to_owned()))
        .unwrap();
    assert_eq!(
        (fault, sentence.as_str()),
        (RebootFault::CommandFailed, "it ended with exit status: 1")
    );
}

#[test]
fn whoever_asks_gets_the_report_that_is_on_the_machine() {
    let mut stage = errand_pod(Errand::Ask, Some(BOOT), &[]);
    stage.run_until(60_000);
    assert_eq!((stage.phase(), stage.reboots), ("Succeeded", 0));
    assert_eq!(SentinelReport::parse(&message(&stage)).unwrap().boot_id, BOOT);
    let mut stage = errand_pod(Errand::Ask, None, &[]);
    stage.run_until(60_000);
    assert_eq!((stage.phase(), code(&stage)), ("Failed", Some(3)));
}

#[test]
fn how_a_node_comes_back_is_steered() {
    use crate::rehearse::podlife::{Boot, ComesBack};
    let steered = |steering: &[(&str, &str)]| Stage::new(&job(), steering).behaviour().boot();
    assert_eq!(steered(&[]), Boot::default());
    let secs = SignedDuration::from_secs;
    let all = steered(&[
        ("comes-back", "not-ready"),
        ("boot-delay", "3s"),
        ("ready-delay", "4s"),
    ]);
    assert_eq!(
        (all.comes_back, all.off, all.not_ready),
        (ComesBack::NotReady, secs(3), secs(4))
    );
    assert_eq!(steered(&[("comes-back", "never")]).comes_back, ComesBack::Never);
    for (key, value) in [
        ("comes-back", "soon"),
        ("reboot-required", "yes"),
        ("boot-delay", "never"),
    ] {
        let stage = Stage::new(&job(), &[(key, value)]);
        let resolved = Behaviour::resolve(&stage.pod, &[], &Defaults::default(), &|_| false);
        assert!(resolved.unwrap_err().to_string().contains(value), "{key}");
    }
}
