//! The reboot Pod in the hands of others: of a kubelet, which passes its arguments, and of drains.

use serde_json::{Value, json};

use refit_api::PlanSpec;
use refit_api::selector::Selector;
use refit_cluster::drain::pods;
use refit_cluster::drain::pods::{Rules, Verdict, triage};
use refit_job::reboot::REBOOT;
use refit_job::{JobSettings, NO_DIGESTS, NodeInput, PlanInput, RebootInput, RebootPodMode, reboot_pod};
use refit_rehearse::pod_lifecycle::ContainerStart;

const BOOT: &str = "5e1b0d4e-0a9a-4a52-b7a3-0d2f3a4b5c6d";
const REBOOT_MODE: RebootPodMode<'_> = RebootPodMode::Reboot { boot_id: BOOT };

fn spec(spec: Value) -> PlanSpec {
    serde_json::from_value(spec).unwrap()
}

fn settings() -> JobSettings {
    JobSettings::new("system-upgrade-controller", "example.com/refit:0.1.0")
}

fn input<'a>(spec: &'a PlanSpec, mode: RebootPodMode<'a>) -> RebootInput<'a> {
    RebootInput {
        plan: PlanInput {
            name: "os",
            namespace: "system-upgrade",
            uid: "plan-uid",
            labels: None,
            annotations: None,
            spec,
            latest_version: "v2",
            latest_hash: "of-the-next-version",
            inputs: "inputs",
            digests: &NO_DIGESTS,
        },
        node: NodeInput {
            name: "node1.example.com",
            uid: "node-uid",
            os: Some("linux"),
            shares_hostname: false,
            may_be_new: false,
        },
        hash: "hash",
        mode,
        seconds: 900,
        name_is_taken: false,
        critical: true,
    }
}

#[test]
fn the_reboot_command_is_that_of_the_plan_or_the_default() {
    let args = |reboot: Value| {
        let spec = spec(json!({"reboot": reboot}));
        let pod = reboot_pod(&input(&spec, REBOOT_MODE), &settings()).unwrap();
        // As a kubelet passes them to the process.
        ContainerStart::render(&pod, REBOOT, 0).unwrap().args
    };
    let boot = format!("--boot-id={BOOT}");
    let always = ["reboot", &boot, "--sentinel=plan-uid.node-uid.hash"];
    assert_eq!(args(json!({"when": "Always"})), always);
    assert_eq!(args(Value::Null), always, "the Plan was edited meanwhile");
    let command = ["/opt/x", "$(SYSTEM_UPGRADE_NODE_NAME)", "$$", "--help", "$(X"];
    let all = [&always[..], &["--"], &command].concat();
    assert_eq!(args(json!({"when": "Always", "command": command})), all);
}

#[test]
fn a_reboot_pod_is_skipped_by_drains_of_jobs_and_evicted_without_flags_by_users() {
    let spec = spec(json!({}));
    for mode in [REBOOT_MODE, RebootPodMode::Ask] {
        let pod = reboot_pod(&input(&spec, mode), &settings()).unwrap();
        // The selector of refit's and system-upgrade-controller's drains, whatever else a Plan selects
        // (docs/contract.md, S37).
        let drained: Selector = "!upgrade.cattle.io/controller".parse().unwrap();
        assert!(!drained.matches(pod.metadata.labels.as_ref().unwrap()));
        // It needs neither --force nor --delete-emptydir-data: it is evicted, and recreated.
        let pod: pods::Pod = serde_json::from_value(serde_json::to_value(&pod).unwrap()).unwrap();
        let now = "2026-01-02T03:04:05Z".parse().unwrap();
        assert_eq!(triage(&pod, None, Rules::default(), now), Verdict::Goes);
    }
}
