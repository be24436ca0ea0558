mod reboot;
mod suc;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, EnvVar};
use proptest::prelude::*;

use super::*;
use crate::NO_DIGESTS;
use crate::name::{is_label_value, label_value};
use refit_api::HostAccess;

pub(crate) fn settings() -> JobSettings {
    JobSettings {
        kubectl_image_windows: "rancher/kuberlr-kubectl:v8.1.2".to_owned(),
        own_image_pull_secrets: vec!["registry".to_owned(), "refit-pull".to_owned()],
        ..JobSettings::new("system-upgrade-controller", "example.com/refit:0.1.0")
    }
}

pub(super) fn spec(yaml: &str) -> PlanSpec {
    serde_saphyr::from_str(yaml).unwrap_or_else(|error| panic!("{yaml}: {error}"))
}

pub(crate) fn plan_input(spec: &PlanSpec) -> PlanInput<'_> {
    PlanInput {
        name: "k3s",
        namespace: "system-upgrade",
        uid: "plan-uid",
        labels: None,
        annotations: None,
        spec,
        latest_version: "v1",
        latest_hash: "hash",
        inputs: "inputs",
        digests: &NO_DIGESTS,
    }
}

pub(crate) const LINUX: NodeInput<'static> = NodeInput {
    name: "node1",
    uid: "node-uid",
    os: Some("linux"),
    shares_hostname: false,
    may_be_new: false,
};
pub(super) const WINDOWS: NodeInput<'static> = NodeInput {
    os: Some("windows"),
    shares_hostname: false,
    may_be_new: false,
    ..LINUX
};

pub(crate) fn job_input<'a>(plan: PlanInput<'a>, node: NodeInput<'a>) -> JobInput<'a> {
    JobInput {
        plan,
        node,
        name: "job",
        attempt: 1,
        unschedulable_before: None,
    }
}

pub(super) fn pod_for(yaml: &str, node: NodeInput<'_>, settings: &JobSettings) -> PodSpec {
    let spec = spec(yaml);
    let job = render(&job_input(plan_input(&spec), node), settings).unwrap_or_else(|e| panic!("{yaml}: {e}"));
    job.spec.unwrap().template.spec.unwrap()
}

pub(super) fn linux_pod(yaml: &str) -> PodSpec {
    pod_for(yaml, LINUX, &settings())
}

pub(super) fn container<'a>(pod: &'a PodSpec, name: &str) -> &'a Container {
    let all = pod.init_containers.iter().flatten().chain(&pod.containers);
    all.into_iter()
        .find(|one| one.name == name)
        .unwrap_or_else(|| panic!("no container {name}"))
}

#[test]
fn the_deadline_is_the_plans_or_the_controllers_and_never_over_the_maximum() {
    // jobActiveDeadlineSecs, the maximum, the result
    let vectors = [
        (Some(1), 0, Some(1)),
        (Some(12_600), 0, Some(12_600)),
        (None, 0, Some(600)),
        (Some(0), 0, None),
        (Some(-1), 0, Some(600)),
        (Some(12_600), 300, Some(300)),
        (Some(1), 300, Some(1)),
        (None, 300, Some(300)),
        (None, 900, Some(600)),
        (Some(0), 300, Some(300)),
        (Some(-1), 300, Some(300)),
        (Some(5), -1, Some(5)),
    ];
    for (seconds, max, expected) in vectors {
        let spec = PlanSpec {
            job_active_deadline_secs: seconds,
            ..PlanSpec::default()
        };
        let settings = JobSettings {
            active_deadline_seconds_max: max,
            ..settings()
        };
        assert_eq!(
            active_deadline_seconds(&spec, &settings),
            expected,
            "{seconds:?} of at most {max}"
        );
    }
}

#[test]
fn a_job_is_kept_for_a_minute_longer_than_its_node_waits() {
    let ttl = |delay: Option<&str>| {
        let spec = PlanSpec {
            post_complete_delay: delay.map(str::to_owned),
            ..PlanSpec::default()
        };
        ttl_seconds(&spec, &settings())
    };
    for (delay, seconds) in [
        (None, 900),
        (Some("30s"), 900),
        (Some("14m"), 900),
        (Some("14m0.9s"), 900),
        (Some("14m1s"), 901),
        (Some("1h"), 3_660),
        (Some("-30s"), 900),
        (Some("2562047h"), i32::MAX),
    ] {
        assert_eq!(ttl(delay), Ok(seconds), "{delay:?}");
    }
    assert!(matches!(ttl(Some("soon")), Err(JobError::PostCompleteDelay(_))));
}

#[test]
fn only_the_plans_own_labels_and_annotations_are_copied() {
    let spec = spec("{upgrade: {image: x}}");
    let map = |keys: &[&str]| {
        keys.iter()
            .map(|key| ((*key).to_owned(), "v".to_owned()))
            .collect::<BTreeMap<_, _>>()
    };
    let labels = map(&[
        "team",
        "example.com/a",
        "upgrade.cattle.io/plan",
        "objectset.rio.cattle.io/hash",
        "refit.rs/node",
    ]);
    let annotations = map(&[
        "note",
        "example.com/b",
        "upgrade.cattle.io/digest",
        "kubectl.kubernetes.io/last-applied-configuration",
        "refit.rs/attempt",
        "refit.rs/fields",
    ]);
    let plan = PlanInput {
        labels: Some(&labels),
        annotations: Some(&annotations),
        ..plan_input(&spec)
    };
    let input = JobInput {
        attempt: 3,
        unschedulable_before: Some(true),
        ..job_input(plan, LINUX)
    };
    let job = render(&input, &settings()).unwrap();
    insta::assert_yaml_snapshot!((job.metadata, job.spec.unwrap().template.metadata));
}

#[test]
fn a_node_name_that_a_label_cannot_hold_is_whole_in_an_annotation() {
    let name = format!("{}.example.com", "n".repeat(60));
    let spec = spec("{upgrade: {image: x}}");
    let node = NodeInput { name: &name, ..LINUX };
    let job = render(&job_input(plan_input(&spec), node), &settings()).unwrap();
    let template = job.spec.unwrap().template;
    for metadata in [job.metadata, template.metadata.unwrap()] {
        assert_eq!(metadata.labels.unwrap()[names::LABEL_NODE], label_value(&name));
        assert_eq!(metadata.annotations.unwrap()[names::ANNOTATION_NODE_NAME], name);
    }
    let affinity = template.spec.unwrap().affinity.unwrap().node_affinity.unwrap();
    let required = affinity
        .required_during_scheduling_ignored_during_execution
        .unwrap();
    let fields = required.node_selector_terms[0].match_fields.as_ref().unwrap();
    assert_eq!(fields[0].values.as_deref(), Some(&[name][..]));
}

#[test]
fn a_job_with_invalid_labels_is_not_created() {
    let spec = spec("{upgrade: {image: x}}");
    let long = "p".repeat(64);
    let plan = plan_input(&spec);
    let name = PlanInput { name: &long, ..plan };
    let version = PlanInput {
        latest_version: "v1 beta",
        ..plan
    };
    let hash = PlanInput {
        latest_hash: "",
        ..plan
    };
    let unnamed = JobSettings {
        controller_name: "-".to_owned(),
        ..settings()
    };
    for (plan, settings, error) in [
        (name, settings(), JobError::PlanName(long.clone())),
        (version, settings(), JobError::Version("v1 beta".to_owned())),
        (hash, settings(), JobError::NoHash),
        (plan, unnamed, JobError::ControllerName("-".to_owned())),
    ] {
        assert_eq!(render(&job_input(plan, LINUX), &settings), Err(error));
    }
}

#[test]
fn the_controllers_pull_secrets_come_after_the_plans_and_only_with_its_image() {
    let pulls = |pod: PodSpec| {
        pod.image_pull_secrets
            .map(|all| all.into_iter().map(|secret| secret.name).collect::<Vec<_>>())
    };
    let with = "{upgrade: {image: x}, cordon: true, imagePullSecrets: [{name: a}, {name: registry}]}";
    let without = "{upgrade: {image: x}, imagePullSecrets: [{name: a}, {name: registry}]}";
    for (pod, expected) in [
        (linux_pod(with), Some(&["a", "registry", "refit-pull"][..])),
        (pod_for(with, WINDOWS, &settings()), Some(&["a", "registry"])),
        (linux_pod(without), Some(&["a", "registry"])),
        (linux_pod("{upgrade: {image: x}}"), None),
    ] {
        let expected = expected.map(|all| all.iter().map(|name| (*name).to_owned()).collect());
        assert_eq!(pulls(pod), expected);
    }
}

#[test]
fn the_plans_tolerations_follow_the_one_for_cordoned_nodes() {
    let pod = linux_pod("{upgrade: {image: x}, tolerations: [{key: a}, {key: b}]}");
    let tolerations = pod.tolerations.unwrap().into_iter();
    let keys: Vec<_> = tolerations.filter_map(|toleration| toleration.key).collect();
    assert_eq!(keys, ["node.kubernetes.io/unschedulable", "a", "b"]);
}

fn env_strategy() -> impl Strategy<Value = Vec<EnvVar>> {
    let one = ("[A-Z]{1,4}", ".{0,8}");
    prop::collection::vec(
        one.prop_map(|(name, value)| EnvVar {
            name,
            value: Some(value),
            value_from: None,
        }),
        0..3,
    )
}

proptest! {
    #[test]
    fn every_job_is_one_that_kubernetes_admits_and_always_the_same(
        plan_name in "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?",
        node_name in "[a-z0-9]([a-z0-9.-]{0,200}[a-z0-9])?",
        version in "[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?",
        os in prop::option::of(prop::sample::select(vec!["linux", "windows"])),
        (exclusive, cordon, drains) in any::<(bool, bool, bool)>(),
        reboot in prop::sample::select(refit_api::RebootWhen::ALL.to_vec()),
        access in prop::sample::select(vec![HostAccess::Full, HostAccess::Root]),
        envs in env_strategy(),
    ) {
        let windows = os == Some("windows");
        let reboot = if windows { refit_api::RebootWhen::Never } else { reboot };
        let reboots = reboot != refit_api::RebootWhen::Never;
        let spec = PlanSpec {
            exclusive: Some(exclusive),
            cordon: Some(cordon),
            drain: drains.then(Default::default),
            reboot: Some(refit_api::RebootSpec { when: Some(reboot), ..Default::default() }),
            host_access: Some(if windows { HostAccess::Full } else { access }),
            upgrade: Some(Box::new(refit_api::ContainerSpec { image: "x".to_owned(), envs: Some(envs), ..Default::default() })),
            ..PlanSpec::default()
        };
        let plan = PlanInput { name: &plan_name, latest_version: &version, ..plan_input(&spec) };
        let input = job_input(plan, NodeInput { name: &node_name, os, ..LINUX });
        let job = render(&input, &settings()).unwrap();
        prop_assert_eq!(&job, &render(&input, &settings()).unwrap());
        let labels = job.metadata.labels.as_ref().unwrap();
        prop_assert!(labels.values().all(|value| is_label_value(value)), "{:?}", labels);
        let template = &job.spec.as_ref().unwrap().template;
        prop_assert_eq!(template.metadata.as_ref().unwrap().labels.as_ref(), Some(labels));
        let pod = template.spec.as_ref().unwrap();
        prop_assert_eq!(pod.init_containers.iter().flatten().count(), usize::from(cordon || drains) + 2 * usize::from(reboots));
        prop_assert_eq!(pod.containers.len(), 1);
    }
}

#[test]
fn what_a_drain_waits_for_comes_on_top_of_the_deadline_and_a_drain_that_skips_ends_the_job() {
    let job = |drain: &str| {
        let spec = spec(&format!(
            "{{upgrade: {{image: x}}, preflight: {{image: y}}, drain: {drain}}}"
        ));
        let job = render(&job_input(plan_input(&spec), LINUX), &settings()).unwrap();
        let spec = job.spec.unwrap();
        let rules = spec
            .pod_failure_policy
            .map(|policy| policy.rules)
            .unwrap_or_default();
        let codes = rules.into_iter().filter_map(|rule| rule.on_exit_codes);
        let names: Vec<_> = codes.filter_map(|codes| codes.container_name).collect();
        let args = container(&spec.template.spec.unwrap(), "drain").args.clone();
        (spec.active_deadline_seconds, names, args.unwrap().pop().unwrap())
    };
    let (before, ..) = job("{}");
    let evict = "{waitFor: [{podSelector: {matchLabels: {a: b}}, timeout: 1h}, {podSelector: {matchLabels: {c: d}}, timeout: 90m}]}";
    let (deadline, rules, last) = job(evict);
    assert_eq!(deadline, before.map(|seconds| seconds + 5400));
    assert_eq!(
        (rules, last.as_str()),
        (vec!["preflight".to_owned()], "--wait-for=c=d;timeout=1h30m0s")
    );
    let (_, rules, last) = job(&evict.replace("90m", "90m, namespace: ci, afterTimeout: Skip"));
    assert_eq!(rules, ["preflight", "drain"]);
    assert_eq!(last, "--wait-for=c=d;timeout=1h30m0s;after=skip;namespace=ci");
    let by_drain = "Container drain for pod system-upgrade/apply-p-x failed with exit code 77 matching FailJob rule at index 1";
    assert!(is_ended_by_drain(by_drain, SKIPPED) && !is_ended_by_drain(by_drain, OVERDUE));
    let by_preflight =
        "Container preflight for pod x/drain failed with exit code 77 matching FailJob rule at index 0";
    assert!(!is_ended_by_drain(by_preflight, SKIPPED));
}
