use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::*;
use crate::name::{RunId, job_name};
use crate::render::tests::{LINUX, plan_input};
use refit_api::PlanSpec;

const BOOT: &str = "5e1b0d4e-0a9a-4a52-b7a3-0d2f3a4b5c6d";
const REBOOT_MODE: RebootPodMode<'_> = RebootPodMode::Reboot { boot_id: BOOT };

fn settings() -> JobSettings {
    JobSettings {
        own_image_pull_secrets: vec!["refit-pull".to_owned()],
        privileged: false,
        image_pull_policy: "Always".to_owned(),
        ..JobSettings::new("system-upgrade-controller", "example.com/refit:0.1.0")
    }
}

fn spec(spec: Value) -> PlanSpec {
    serde_json::from_value(spec).unwrap()
}

fn input<'a>(spec: &'a PlanSpec, mode: RebootPodMode<'a>) -> RebootInput<'a> {
    RebootInput {
        plan: PlanInput {
            name: "os",
            latest_version: "v2",
            latest_hash: "of-the-next-version",
            ..plan_input(spec)
        },
        node: NodeInput {
            name: "node1.example.com",
            ..LINUX
        },
        hash: "hash",
        mode,
        seconds: 900,
        name_is_taken: false,
        critical: true,
    }
}

fn made(input: &RebootInput<'_>) -> Value {
    serde_json::to_value(reboot_pod(input, &settings()).unwrap()).unwrap()
}

#[test]
fn the_pod_that_reboots() {
    let spec = spec(json!({
        "serviceAccountName": "system-upgrade", "imagePullSecrets": [{"name": "registry"}], "exclusive": true,
        "reboot": {"when": "Always", "command": ["sh", "-c", "sleep $(DELAY) && kill -s $$SIG 1"]},
    }));
    let mut input = input(&spec, REBOOT_MODE);
    let labels = BTreeMap::from(["team", "a.cattle.io/b"].map(|key| (key.to_owned(), "x".to_owned())));
    input.plan.labels = Some(&labels);
    let annotations = [("sidecar.istio.io/inject".to_owned(), "x".to_owned())].into();
    input.plan.annotations = Some(&annotations);
    insta::assert_yaml_snapshot!(made(&input));
}

#[test]
fn the_pod_that_asks() {
    let spec = spec(json!({"reboot": {"when": "Always"}}));
    insta::assert_yaml_snapshot!(made(&input(&spec, RebootPodMode::Ask)));
}

#[test]
fn the_name_of_a_reboot_pod_depends_on_plan_node_and_hash_only() {
    fn run<'a>(plan: [&'a str; 2], node: [&'a str; 2], upgrade: &'a str) -> RunId<'a> {
        RunId {
            plan: plan[0],
            plan_uid: plan[1],
            node: node[0],
            node_uid: node[1],
            upgrade,
        }
    }
    fn name(plan: [&str; 2], node: [&str; 2], hash: &str) -> String {
        run(plan, node, hash).reboot_pod_name()
    }
    let base = name(["os", "p1"], ["node1", "n1"], "h1");
    assert_eq!(base, "reboot-os-on-node1-649cefec62b8e15e");
    let mut all = BTreeSet::from([
        base.clone(),
        name(["os", "p2"], ["node1", "n1"], "h1"),
        name(["os", "p1"], ["node1", "n2"], "h1"),
        name(["os", "p1"], ["node1", "n1"], "h2"),
        run(["os", "p1"], ["node1", "n1"], "h1").query_pod_name(),
        job_name("os", "node1", "h1"),
        run(["os", "p1"], ["node1", "n1"], "h1").second_job_name(),
    ]);
    assert_eq!(all.len(), 7, "{all:?}");
    let long = "l".repeat(63);
    for plan in [long.as_str(), "a.b", "p"] {
        let node = format!("{}.example.com", "n".repeat(63));
        let name = name([plan, "p1"], [&node, "n1"], "h1");
        assert!(name.len() <= 63 && all.insert(name.clone()), "{name}");
        let is_label = |part: &str| !part.is_empty() && !part.starts_with('-') && !part.ends_with('-');
        assert!(name.split('.').all(is_label), "{name}");
    }
    // Another boot is another attempt of the same reboot: the two pods must not exist together.
    let spec = spec(json!({}));
    let other = "6f2c1e5f-1bab-4b63-88b4-1e3f4b5c6d7e";
    assert_eq!(
        input(&spec, REBOOT_MODE).name(),
        input(&spec, RebootPodMode::Reboot { boot_id: other }).name()
    );
}

#[test]
fn the_deadline_of_a_reboot_pod_is_one_that_kubernetes_accepts() {
    let spec = spec(json!({}));
    for (seconds, expected) in [(-5, 1), (0, 1), (900, 900), (i64::MAX, 2_147_483_647)] {
        let mut input = input(&spec, REBOOT_MODE);
        input.seconds = seconds;
        assert_eq!(made(&input)["spec"]["activeDeadlineSeconds"], json!(expected));
    }
}

#[test]
fn without_the_critical_priority_class_a_reboot_pod_has_that_of_the_plan() {
    let spec = spec(json!({"priorityClassName": "upgrades"}));
    let mut input = input(&spec, REBOOT_MODE);
    assert_eq!(made(&input)["spec"]["priorityClassName"], "system-node-critical");
    input.critical = false;
    assert_eq!(made(&input)["spec"]["priorityClassName"], "upgrades");
}

#[test]
fn inputs_that_give_no_reboot_pod_are_errors() {
    let spec = spec(json!({"reboot": {"when": "Always"}}));
    let base = input(&spec, REBOOT_MODE);
    let failed = |change: &dyn Fn(&mut RebootInput<'_>)| {
        let mut input = base;
        change(&mut input);
        reboot_pod(&input, &settings()).unwrap_err().to_string()
    };
    assert_eq!(
        failed(&|input| input.node.os = Some("windows")),
        "spec.reboot.when is Always, and a Windows node cannot be rebooted: leave such nodes out with spec.nodeSelector"
    );
    assert_eq!(failed(&|input| input.hash = ""), "the Plan has no hash");
    assert_eq!(
        failed(&|input| input.node.uid = "../x"),
        "the name of the sentinel file must be <plan uid>.<node uid>.<hash>, each of letters, digits and '-': found \
         \"plan-uid\", \"../x\", \"hash\""
    );
    let long = "p".repeat(64);
    assert!(
        failed(&|input| input.plan.name = Box::leak(long.clone().into_boxed_str()))
            .contains("cannot be part of")
    );
}
