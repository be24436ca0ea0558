//! refit's own containers on a node that may reboot.

use serde_json::json;

use super::*;
use refit_api::{PlanSpec, RebootFault, SentinelReport};
use refit_job::{
    JobInput, JobSettings, NodeInput, PlanInput, RebootInput, RebootPodMode, reboot_pod, render,
};

const BOOT: &str = "5e1b0d4e-0a9a-4a52-b7a3-0d2f3a4b5c6d";
const REBOOT_MODE: RebootPodMode<'_> = RebootPodMode::Reboot { boot_id: BOOT };
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
        digests: &refit_job::NO_DIGESTS,
    };
    let node = NodeInput {
        name: "n",
        uid: "node-uid",
        os: None,
        shares_hostname: false,
        may_be_new: false,
    };
    (plan, node)
}

fn settings() -> JobSettings {
    JobSettings::new("refit", "refit")
}

fn fixture(spec: &impl serde::Serialize, steering: &[(&str, &str)]) -> PodFixture {
    let mut fixture = PodFixture::new(&serde_json::to_value(spec).unwrap(), steering);
    fixture.machine.boot_id = BOOT.to_owned();
    fixture
}

fn job_pod(when: &str, steering: &[(&str, &str)]) -> PodFixture {
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
    fixture(&job.spec.unwrap().template.spec.unwrap(), steering)
}

/// A reboot pod on a machine with these sentinels.
fn reboot_pod_fixture(
    mode: RebootPodMode<'_>,
    sentinel: Option<&str>,
    steering: &[(&str, &str)],
) -> PodFixture {
    let spec = PlanSpec::default();
    let (plan, node) = input(&spec);
    let input = RebootInput {
        plan,
        node,
        hash: "hash",
        mode,
        seconds: 900,
        name_is_taken: false,
        critical: true,
    };
    let pod = reboot_pod(&input, &settings()).unwrap();
    let mut fixture = fixture(&pod.spec.unwrap(), steering);
    if let Some(boot_id) = sentinel {
        let report = SentinelReport {
            boot_id: boot_id.to_owned(),
            required: true,
        };
        let name = "plan-uid.node-uid.hash".parse().unwrap();
        fixture.machine.sentinels.insert(name, report);
    }
    fixture
}

/// How its main container ended last.
fn exit(fixture: &PodFixture) -> Option<(i32, String)> {
    let container = fixture.lifecycle.state.containers.last()?;
    let end = match &container.state {
        State::Ended(end) => end,
        State::Waiting | State::Running(_) => container.last.as_ref()?,
    };
    Some((end.exit.code, end.exit.message.clone().unwrap_or_default()))
}

fn message(fixture: &PodFixture) -> String {
    exit(fixture).unwrap().1
}

fn code(fixture: &PodFixture) -> Option<i32> {
    exit(fixture).map(|(code, _)| code)
}

#[test]
fn a_sentinel_reports_its_boot_and_stays_on_the_machine() {
    for (when, steering, required) in [
        ("Always", &[][..], true),
        ("IfRequired", &[], false),
        ("IfRequired", &[("reboot-required", "true")], true),
    ] {
        let mut fixture = job_pod(when, steering);
        fixture.run_until(60_000);
        assert_eq!(fixture.phase(), "Succeeded", "{when}");
        let report = SentinelReport::parse(&message(&fixture)).unwrap();
        assert_eq!(
            (report.boot_id.as_str(), report.required),
            (BOOT, required),
            "{when}"
        );
        let kept = fixture
            .machine
            .sentinels
            .iter()
            .map(|(name, report)| (name.as_str(), report));
        assert_eq!(kept.collect::<Vec<_>>(), [("plan-uid.node-uid.hash", &report)]);
    }
}

#[test]
fn a_failed_upgrade_or_sentinel_leaves_none() {
    for steering in [("upgrade.exit-code", "1"), ("sentinel.exit-code", "1")] {
        let mut fixture = job_pod("Always", &[steering]);
        fixture.run_until(60_000);
        assert_eq!(fixture.phase(), "Failed");
        assert!(fixture.machine.sentinels.is_empty());
    }
    // An invalid message does not change the sentinel on the machine.
    let mut fixture = job_pod("Always", &[("sentinel.message", "garbage")]);
    fixture.run_until(60_000);
    assert_eq!(
        (message(&fixture).as_str(), fixture.machine.sentinels.len()),
        ("garbage", 1)
    );
}

#[test]
fn a_probe_removes_the_sentinel_of_an_earlier_try_and_no_other() {
    let mut fixture = job_pod("Always", &[("upgrade.exit-code", "1")]);
    for name in ["plan-uid.node-uid.hash", "plan-uid.node-uid.another"] {
        let report = SentinelReport {
            boot_id: BOOT.to_owned(),
            required: true,
        };
        fixture.machine.sentinels.insert(name.parse().unwrap(), report);
    }
    fixture.run_until(60_000);
    assert_eq!(fixture.phase(), "Failed");
    let left = fixture.machine.sentinels.keys().map(ToString::to_string);
    assert_eq!(left.collect::<Vec<_>>(), ["plan-uid.node-uid.another"]);
}

#[test]
fn a_reboot_pod_ends_its_boot_and_succeeds_in_the_next_one() {
    let mut fixture = reboot_pod_fixture(REBOOT_MODE, Some(BOOT), &[]);
    fixture.run_until(60_000);
    assert_eq!((fixture.reboots, fixture.phase()), (1, "Running"));
    fixture.machine.boot_id = NEXT_BOOT.to_owned();
    fixture.machine.booted_at = fixture.now;
    fixture.machine.sentinels.clear();
    fixture.run_until(120_000);
    assert_eq!(
        (fixture.reboots, fixture.phase(), code(&fixture)),
        (1, "Succeeded", Some(0))
    );
}

#[test]
fn a_reboot_pod_waits_for_a_host_that_does_nothing() {
    let mut fixture = reboot_pod_fixture(REBOOT_MODE, Some(BOOT), &[("comes-back", "as-if-nothing")]);
    fixture.run_until(899_000);
    assert_eq!((fixture.reboots, fixture.phase()), (0, "Running"));
    fixture.run_until(960_000);
    assert_eq!(fixture.phase(), "Failed", "its deadline is over");
}

#[test]
fn a_reboot_pod_without_a_sentinel_of_the_boot_reboots_nothing() {
    for sentinel in [None, Some(NEXT_BOOT)] {
        let mut fixture = reboot_pod_fixture(REBOOT_MODE, sentinel, &[]);
        fixture.run_until(1_500);
        assert_eq!((fixture.reboots, code(&fixture)), (0, Some(3)));
        let message = message(&fixture);
        let (fault, sentence) = RebootFault::parse(&message).unwrap();
        assert_eq!(fault, RebootFault::SentinelMissing);
        assert!(sentence.ends_with(&format!("in boot {BOOT}")), "{sentence}");
    }
}

#[test]
fn a_reboot_command_that_fails_is_reported() {
    let mut fixture = reboot_pod_fixture(REBOOT_MODE, Some(BOOT), &[("reboot.exit-code", "1")]);
    fixture.run_until(1_500);
    assert_eq!((fixture.reboots, code(&fixture)), (0, Some(1)));
    let expected = (RebootFault::CommandFailed, "it ended with exit status: 1");
    assert_eq!(RebootFault::parse(&message(&fixture)), Some(expected));
}

#[test]
fn a_report_pod_gets_the_report_that_is_on_the_machine() {
    let mut fixture = reboot_pod_fixture(RebootPodMode::Ask, Some(BOOT), &[]);
    fixture.run_until(60_000);
    assert_eq!((fixture.phase(), fixture.reboots), ("Succeeded", 0));
    assert_eq!(SentinelReport::parse(&message(&fixture)).unwrap().boot_id, BOOT);
    let mut fixture = reboot_pod_fixture(RebootPodMode::Ask, None, &[]);
    fixture.run_until(60_000);
    assert_eq!((fixture.phase(), code(&fixture)), ("Failed", Some(3)));
}

#[test]
fn steering_says_how_a_node_comes_back() {
    use crate::pod_lifecycle::{Boot, ComesBack};
    let steered = |steering: &[(&str, &str)]| PodFixture::new(&job(), steering).behaviour().boot();
    assert_eq!(steered(&[]), Boot::default());
    let secs = SignedDuration::from_secs;
    let all = steered(&[("comes-back", "not-ready"), ("boot-delay", "3s")]);
    assert_eq!((all.comes_back, all.off), (ComesBack::NotReady, secs(3)));
    assert_eq!(steered(&[("comes-back", "never")]).comes_back, ComesBack::Never);
    for (key, value) in [
        ("comes-back", "soon"),
        ("reboot-required", "yes"),
        ("boot-delay", "never"),
    ] {
        let fixture = PodFixture::new(&job(), &[(key, value)]);
        let resolved = PodBehaviour::resolve(&fixture.pod, &[], &Defaults::default(), &|_| false);
        assert!(resolved.unwrap_err().contains(value), "{key}");
    }
}
