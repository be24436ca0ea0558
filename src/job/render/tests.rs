use k8s_openapi::api::core::v1::{Container, EnvVar};
use proptest::prelude::*;
use serde::Deserialize;

use super::*;
use crate::api::Plan;
use crate::job::inputs::inputs;
use crate::job::name::{is_label_value, job_name, label_value};

/// A Plan, a node, and the Job that system-upgrade-controller creates for them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Fixture {
    why: String,
    plan: Plan,
    node: FixtureNode,
    job: Job,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FixtureNode {
    name: String,
    labels: BTreeMap<String, String>,
}

fn fixtures() -> Vec<Fixture> {
    serde_saphyr::from_str(include_str!("suc_jobs.yaml")).unwrap()
}

impl Fixture {
    fn render(&self, settings: &JobSettings) -> Job {
        let (plan, status) = (&self.plan, self.plan.status.as_ref().unwrap());
        let os = self.node.labels.get(names::LABEL_OS).map(String::as_str);
        let version = status.latest_version.as_deref().unwrap();
        let hash = status.latest_hash.as_deref().unwrap();
        let plan_name = plan.metadata.name.as_deref().unwrap();
        let input = JobInput {
            plan: PlanInput {
                name: plan_name,
                namespace: plan.metadata.namespace.as_deref().unwrap(),
                uid: plan.metadata.uid.as_deref().unwrap(),
                labels: plan.metadata.labels.as_ref(),
                annotations: plan.metadata.annotations.as_ref(),
                spec: &plan.spec,
                latest_version: version,
                latest_hash: hash,
                inputs: &inputs(&plan.spec, version),
                digests: &NO_DIGESTS,
            },
            node: NodeInput {
                name: &self.node.name,
                uid: "node-uid",
                os,
                shares_hostname: false,
            },
            name: &job_name(plan_name, &self.node.name, hash),
            attempt: 1,
            unschedulable_before: (os == Some("windows")).then_some(false),
        };
        render(&input, settings).unwrap_or_else(|error| panic!("{}: {error}", self.why))
    }
}

pub(in crate::job) fn settings() -> JobSettings {
    JobSettings {
        kubectl_image_windows: "rancher/kuberlr-kubectl:v8.1.2".to_owned(),
        own_image_pull_secrets: vec!["registry".to_owned(), "refit-pull".to_owned()],
        ..JobSettings::new("system-upgrade-controller", "example.com/refit:0.1.0")
    }
}

pub(super) fn spec(yaml: &str) -> PlanSpec {
    serde_saphyr::from_str(yaml).unwrap_or_else(|error| panic!("{yaml}: {error}"))
}

pub(in crate::job) fn plan_input(spec: &PlanSpec) -> PlanInput<'_> {
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

pub(in crate::job) const LINUX: NodeInput<'static> = NodeInput {
    name: "node1",
    uid: "node-uid",
    os: Some("linux"),
    shares_hostname: false,
};
pub(super) const WINDOWS: NodeInput<'static> = NodeInput {
    os: Some("windows"),
    shares_hostname: false,
    ..LINUX
};

pub(in crate::job) fn job_input<'a>(plan: PlanInput<'a>, node: NodeInput<'a>) -> JobInput<'a> {
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
fn the_k3os_plan_drains() {
    insta::assert_yaml_snapshot!(fixtures()[0].render(&settings()));
}

#[test]
fn a_cordon_with_prepare_and_secrets() {
    insta::assert_yaml_snapshot!(fixtures()[1].render(&settings()));
}

#[test]
fn a_windows_node_is_drained_by_kubectl() {
    insta::assert_yaml_snapshot!(fixtures()[2].render(&settings()));
}

#[test]
fn an_exclusive_plan_keeps_away_from_all_exclusive_plans() {
    insta::assert_yaml_snapshot!(fixtures()[3].render(&settings()));
}

/// Applies refit's deliberate differences to the Job of system-upgrade-controller.
fn with_our_differences(mut theirs: Job, ours: &Job, node: &str) -> Job {
    theirs.status = None;
    theirs
        .metadata
        .owner_references
        .clone_from(&ours.metadata.owner_references);
    let annotations = ours.metadata.annotations.as_ref().unwrap();
    let own = annotations.iter().filter(|(key, _)| key.starts_with("refit.rs/"));
    let own = own.map(|(key, value)| (key.clone(), value.clone()));
    theirs.metadata.annotations.get_or_insert_default().extend(own);
    let job = theirs.spec.as_mut().unwrap();
    job.parallelism = Some(1);
    job.ttl_seconds_after_finished = None;
    let metadata = job.template.metadata.as_mut().unwrap();
    let of_template = [
        names::ANNOTATION_PLAN_UID,
        names::ANNOTATION_NODE_NAME,
        names::ANNOTATION_NODE_UID,
    ];
    let own = of_template.map(|key| (key.to_owned(), annotations[key].clone()));
    metadata.annotations.get_or_insert_default().extend(own);
    let pod = job.template.spec.as_mut().unwrap();
    let affinity = pod.affinity.as_mut().unwrap().node_affinity.as_mut().unwrap();
    let required = affinity
        .required_during_scheduling_ignored_during_execution
        .as_mut();
    let by_name = NodeSelectorRequirement {
        key: "metadata.name".to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![node.to_owned()]),
    };
    required.unwrap().node_selector_terms = vec![NodeSelectorTerm {
        match_fields: Some(vec![by_name]),
        match_expressions: None,
    }];
    let our_pod = ours.spec.as_ref().unwrap().template.spec.as_ref().unwrap();
    pod.automount_service_account_token = Some(false);
    let has_token = our_pod.init_containers.iter().flatten().any(volumes::has_token);
    pod.volumes
        .get_or_insert_default()
        .extend(has_token.then(volumes::token));
    let inits = pod.init_containers.iter_mut().flatten();
    inits.for_each(volumes::mount_token);
    let inits = pod.init_containers.iter_mut().flatten();
    for one in inits.chain(&mut pod.containers) {
        one.termination_message_policy = Some("FallbackToLogsOnError".to_owned());
        one.resources = None; // Go cannot omit it
        if one.image.as_deref() == Some("rancher/kubectl:v1.30.3") {
            let own = container(our_pod, &one.name);
            assert_eq!(own.env.as_ref().unwrap()[..6], one.env.as_ref().unwrap()[..]);
            *one = Container {
                args: one.args.clone(),
                ..own.clone()
            };
            pod.image_pull_secrets.clone_from(&our_pod.image_pull_secrets);
        }
    }
    theirs
}

#[test]
fn a_job_is_that_of_system_upgrade_controller_but_for_what_is_different_on_purpose() {
    let fixtures = fixtures();
    assert_eq!(fixtures.len(), 4);
    for fixture in fixtures {
        let ours = fixture.render(&settings());
        let theirs = with_our_differences(fixture.job.clone(), &ours, &fixture.node.name);
        let [ours, theirs] = [ours, theirs].map(|job| serde_json::to_string_pretty(&job).unwrap());
        for (index, (ours, theirs)) in ours.lines().zip(theirs.lines()).enumerate() {
            assert_eq!(ours, theirs, "{}, line {index}", fixture.why);
        }
        assert_eq!(ours.len(), theirs.len(), "{}", fixture.why);
    }
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

/// Names of the init containers, then of the others.
fn names_in(pod: &PodSpec) -> [Vec<&str>; 2] {
    let inits = pod.init_containers.as_deref().unwrap_or_default();
    [inits, &pod.containers].map(|all| all.iter().map(|one| one.name.as_str()).collect())
}

#[test]
fn a_job_whose_node_may_reboot_probes_first_and_ends_with_a_sentinel() {
    let spec = spec(
        "{upgrade: {image: x}, prepare: {image: x}, drain: {}, secrets: [{name: s, path: s}],
          reboot: {when: IfRequired, requiredFiles: [/run/a b, /run/$(HOME)], command: [/sbin/reboot, $$]}}",
    );
    let job = render(&job_input(plan_input(&spec), LINUX), &settings()).unwrap();
    let annotation = |of: &ObjectMeta| of.annotations.as_ref().unwrap()[names::ANNOTATION_REBOOT].clone();
    assert_eq!(annotation(&job.metadata), "IfRequired");
    let job = job.spec.unwrap();
    assert_eq!(annotation(job.template.metadata.as_ref().unwrap()), "IfRequired");
    assert_eq!(job.pod_replacement_policy.as_deref(), Some("Failed"));
    let pod = job.template.spec.unwrap();
    assert_eq!(
        names_in(&pod),
        [vec!["probe", "prepare", "drain", "upgrade"], vec!["sentinel"]]
    );
    insta::assert_yaml_snapshot!([container(&pod, "probe"), container(&pod, "sentinel")]);
    let always = linux_pod("{upgrade: {image: x}, reboot: {when: Always}}");
    let args = |name| container(&always, name).args.clone().unwrap();
    assert_eq!(args("probe"), ["probe", "--sentinel=plan-uid.node-uid.hash"]);
    assert_eq!(
        args("sentinel"),
        ["sentinel", "--name=plan-uid.node-uid.hash", "--always"]
    );
}

#[test]
fn a_reboot_does_not_change_the_upgrade_container() {
    let with = "{upgrade: {image: x, envs: [{name: A, value: b}], args: [a]}, reboot: {when: Always}}";
    let without = "{upgrade: {image: x, envs: [{name: A, value: b}], args: [a]}, reboot: {when: Never}}";
    let (with, without) = (linux_pod(with), linux_pod(without));
    assert_eq!(names_in(&without), [vec![], vec!["upgrade"]]);
    assert_eq!(container(&with, "upgrade"), container(&without, "upgrade"));
    let pulls = |pod: &PodSpec| pod.image_pull_secrets.as_ref().map(Vec::len);
    assert_eq!(
        (pulls(&with), pulls(&without)),
        (Some(2), None),
        "it has refit's image"
    );
    let but_containers = |mut pod: PodSpec| {
        (pod.containers, pod.init_containers, pod.image_pull_secrets) = Default::default();
        pod
    };
    assert_eq!(but_containers(with), but_containers(without));
}

#[test]
fn a_plan_that_never_reboots_has_the_same_job_as_without_the_field() {
    let before = fixtures()[0].render(&settings());
    let mut after = fixtures().remove(0);
    let reboot = serde_json::json!({"when": "Never", "command": ["reboot"]});
    after.plan.spec.reboot = serde_json::from_value(reboot).unwrap();
    after.plan.spec.settle = Some(crate::api::SettleSpec::default());
    after.plan.spec.host_access = Some(HostAccess::Full);
    assert_eq!(after.render(&settings()), before);
}

#[test]
fn host_access_of_a_job_is_what_the_plan_says() {
    let got = |access: &str| {
        let yaml = format!(
            "{{upgrade: {{image: x, volumes: [{{name: v, source: /v, destination: /v}}]}}, prepare: {{image: x}}, drain: {{}}, \
             hostAccess: {access}}}"
        );
        let pod = linux_pod(&yaml);
        let namespaces = [pod.host_pid, pod.host_ipc, pod.host_network];
        assert!(namespaces.iter().all(|one| *one == namespaces[0]), "{access}");
        let volumes = pod.volumes.iter().flatten().filter(|one| one.projected.is_none());
        let volumes: Vec<_> = volumes.map(|one| one.name.clone()).collect();
        let upgrade = container(&pod, "upgrade").clone();
        let mounts: Vec<_> = upgrade
            .volume_mounts
            .iter()
            .flatten()
            .map(|one| one.mount_path.clone())
            .collect();
        let prepare = container(&pod, "prepare").volume_mounts.iter().flatten().count();
        assert_eq!(prepare, mounts.len(), "all but its own volume, and the token");
        let privileged = upgrade.security_context.and_then(|context| context.privileged);
        let text = |list: Vec<String>| list.join(" ");
        (
            namespaces[0],
            pod.dns_policy,
            text(volumes),
            text(mounts),
            privileged,
        )
    };
    let dns = || Some("ClusterFirstWithHostNet".to_owned());
    let pod_info = "/run/system-upgrade/pod";
    let host = || ("host-root pod-info v".to_owned(), format!("/host {pod_info} /v"));
    let bare = ("pod-info v".to_owned(), format!("{pod_info} /v"));
    for (access, namespaces, dns, (volumes, mounts), privileged) in [
        ("Full", Some(true), dns(), host(), Some(true)),
        ("Root", None, None, host(), Some(true)),
        ("None", None, None, bare, None),
    ] {
        assert_eq!(
            got(access),
            (namespaces, dns, volumes, mounts, privileged),
            "{access}"
        );
    }
    // The Plan's own context applies.
    let privileged = "{upgrade: {image: x, securityContext: {privileged: true}}, hostAccess: None}";
    let context = container(&linux_pod(privileged), "upgrade")
        .security_context
        .clone();
    assert_eq!(context.unwrap().privileged, Some(true));
}

#[test]
fn with_a_reboot_host_access_root_shares_no_namespaces() {
    let pod = linux_pod("{upgrade: {image: x}, hostAccess: Root, reboot: {when: Always}}");
    assert_eq!((pod.host_pid, pod.host_network), (None, None));
    let mounts = container(&pod, "sentinel").volume_mounts.as_ref().unwrap();
    assert_eq!((mounts.len(), mounts[0].mount_path.as_str()), (1, "/host"));
}

#[test]
fn a_windows_node_is_refused_a_reboot_and_restricted_host_access() {
    for (yaml, error) in [
        (
            "{upgrade: {image: x}, reboot: {when: Always}}",
            JobError::RebootOnWindows(crate::api::RebootWhen::Always),
        ),
        (
            "{upgrade: {image: x}, hostAccess: Root}",
            JobError::HostAccessOnWindows(HostAccess::Root),
        ),
    ] {
        let spec = spec(yaml);
        let render = |node| render(&job_input(plan_input(&spec), node), &settings());
        assert!(error.is_for_windows());
        assert_eq!(render(WINDOWS), Err(error.clone()));
        assert!(render(LINUX).is_ok(), "{yaml}");
        assert_eq!(check(&plan_input(&spec), &settings()).errors, [error]);
    }
}

#[test]
fn a_uid_with_a_path_in_it_is_refused_as_the_name_of_a_sentinel() {
    let spec = spec("{upgrade: {image: x}, reboot: {when: Always}}");
    let node = NodeInput {
        uid: "../../etc/x",
        ..LINUX
    };
    let error = render(&job_input(plan_input(&spec), node), &settings()).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("found \"plan-uid\", \"../../etc/x\", \"hash\""),
        "{error}"
    );
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
        reboot in prop::sample::select(crate::api::RebootWhen::ALL.to_vec()),
        access in prop::sample::select(vec![HostAccess::Full, HostAccess::Root]),
        envs in env_strategy(),
    ) {
        let windows = os == Some("windows");
        let reboot = if windows { crate::api::RebootWhen::Never } else { reboot };
        let reboots = reboot != crate::api::RebootWhen::Never;
        let spec = PlanSpec {
            exclusive: Some(exclusive),
            cordon: Some(cordon),
            drain: drains.then(Default::default),
            reboot: Some(crate::api::RebootSpec { when: Some(reboot), ..Default::default() }),
            host_access: Some(if windows { HostAccess::Full } else { access }),
            upgrade: Some(Box::new(crate::api::ContainerSpec { image: "x".to_owned(), envs: Some(envs), ..Default::default() })),
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
