use k8s_openapi::api::core::v1::PodSpec;

use super::super::tests::{
    LINUX, WINDOWS, container, job_input, linux_pod, plan_input, pod_for, settings, spec,
};
use super::*;
use crate::{VerifyInput, prepull_job, render, verify_job};

fn context(yaml: &str, node: NodeInput<'_>, settings: &JobSettings, name: &str) -> Option<SecurityContext> {
    let pod = pod_for(yaml, node, settings);
    container(&pod, name).security_context.clone()
}

/// A context that differs from the default.
fn as_user_7() -> SecurityContext {
    SecurityContext {
        run_as_user: Some(7),
        ..SecurityContext::default()
    }
}

/// Settings that ignore the security contexts of Plans.
fn strict() -> JobSettings {
    JobSettings {
        allow_user_defined_security_context: false,
        ..settings()
    }
}

fn init_names(pod: &PodSpec) -> Vec<&str> {
    let inits = pod.init_containers.iter().flatten();
    inits.map(|one| one.name.as_str()).collect()
}

fn volume_names(pod: &PodSpec) -> Vec<&str> {
    let volumes = pod.volumes.iter().flatten();
    volumes.map(|one| one.name.as_str()).collect()
}

#[test]
fn an_image_that_cannot_take_the_version_stays_as_it_is() {
    let pod = linux_pod("{upgrade: {image: 'not an image'}, prepare: {image: x}}");
    assert_eq!(container(&pod, "upgrade").image.as_deref(), Some("not an image"));
    assert_eq!(container(&pod, "prepare").image.as_deref(), Some("x:v1"));
}

#[test]
fn drain_goes_before_cordon_and_prepare_before_both() {
    let names = |yaml: &str| {
        let inits = linux_pod(yaml).init_containers.unwrap_or_default();
        inits.into_iter().map(|one| one.name).collect::<Vec<_>>()
    };
    for (more, expected) in [
        ("", &[][..]),
        (", cordon: false", &[]),
        (", cordon: true, prepare: {image: x}", &["prepare", "cordon"]),
        (
            ", cordon: true, drain: {}, prepare: {image: x}",
            &["prepare", "drain"],
        ),
    ] {
        assert_eq!(
            names(&format!("{{upgrade: {{image: x}}{more}}}")),
            expected,
            "{more}"
        );
    }
}

#[test]
fn a_cordon_container_has_no_host_no_secrets_no_volumes_and_no_privileges() {
    let pod = pod_for(
        "{upgrade: {image: x, envs: [{name: A, value: b}], volumes: [{name: a, source: /a, destination: /a}]},
          cordon: true, secrets: [{name: s, path: s}]}",
        LINUX,
        &JobSettings { image_pull_policy: "Always".to_owned(), ..settings() },
    );
    insta::assert_yaml_snapshot!(container(&pod, "cordon"));
}

#[test]
fn the_plans_own_variables_stand_between_those_of_the_pod_and_of_the_plan() {
    let pod = linux_pod("{upgrade: {image: x, envs: [{name: SYSTEM_UPGRADE_PLAN_NAME, value: mine}]}}");
    let names: Vec<_> = container(&pod, "upgrade")
        .env
        .iter()
        .flatten()
        .map(|one| one.name.as_str())
        .collect();
    assert_eq!(
        names,
        [
            "SYSTEM_UPGRADE_NODE_NAME",
            "SYSTEM_UPGRADE_POD_NAME",
            "SYSTEM_UPGRADE_POD_UID",
            "SYSTEM_UPGRADE_PLAN_NAME",
            "SYSTEM_UPGRADE_PLAN_NAME",
            "SYSTEM_UPGRADE_PLAN_LATEST_HASH",
            "SYSTEM_UPGRADE_PLAN_LATEST_VERSION",
        ]
    );
}

#[test]
fn an_upgrade_is_privileged_unless_the_plan_or_the_controller_says_otherwise() {
    let boot = |privileged| SecurityContext {
        privileged: Some(privileged),
        capabilities: Some(Capabilities {
            add: Some(vec!["CAP_SYS_BOOT".to_owned()]),
            drop: None,
        }),
        ..SecurityContext::default()
    };
    let plain = "{upgrade: {image: x}}";
    let chosen = "{upgrade: {image: x, securityContext: {runAsUser: 7}}}";
    assert_eq!(context(plain, LINUX, &settings(), "upgrade"), Some(boot(true)));
    assert_eq!(context(chosen, LINUX, &settings(), "upgrade"), Some(as_user_7()));
    let unprivileged = JobSettings {
        privileged: false,
        ..settings()
    };
    assert_eq!(context(plain, LINUX, &unprivileged, "upgrade"), Some(boot(false)));
    assert_eq!(context(chosen, LINUX, &strict(), "upgrade"), Some(boot(true)));
}

#[test]
fn prepare_has_the_plans_context_or_none() {
    let plain = "{upgrade: {image: x}, prepare: {image: x}}";
    let chosen = "{upgrade: {image: x}, prepare: {image: x, securityContext: {runAsUser: 7}}}";
    assert_eq!(context(plain, LINUX, &settings(), "prepare"), None);
    assert_eq!(context(chosen, LINUX, &settings(), "prepare"), Some(as_user_7()));
    assert_eq!(context(chosen, LINUX, &strict(), "prepare"), None);
}

#[test]
fn on_windows_all_are_host_processes_but_an_upgrade_with_its_own_context() {
    let chosen = "{upgrade: {image: x, securityContext: {runAsUser: 7}}, cordon: true,
                   prepare: {image: x, securityContext: {runAsUser: 7}}}";
    let (plain, host_process) = ("{upgrade: {image: x}}", || Some(windows_host_process()));
    for (yaml, settings, name, expected) in [
        (chosen, settings(), "prepare", host_process()),
        (chosen, settings(), "cordon", host_process()),
        (chosen, settings(), "upgrade", Some(as_user_7())),
        (plain, settings(), "upgrade", host_process()),
        (chosen, strict(), "upgrade", host_process()),
    ] {
        assert_eq!(
            context(yaml, WINDOWS, &settings, name),
            expected,
            "{name} of {yaml}"
        );
    }
}

#[test]
fn a_windows_node_needs_the_windows_kubectl_image() {
    let spec = spec("{upgrade: {image: x}}");
    let settings = JobSettings {
        kubectl_image_windows: String::new(),
        ..settings()
    };
    let render = |node| super::super::render(&job_input(plan_input(&spec), node), &settings);
    assert_eq!(
        render(WINDOWS).unwrap_err().to_string(),
        "SYSTEM_UPGRADE_JOB_KUBECTL_IMAGE_WINDOWS is required when targeting Windows nodes"
    );
    assert!(render(LINUX).is_ok());
    assert!(render(NodeInput { os: None, ..LINUX }).is_ok());
}

/// Which containers get a token of the service account: those that mount it, or all, because the API server mounts it.
fn with_token(yaml: &str, node: NodeInput<'_>, settings: &JobSettings) -> Vec<String> {
    let pod = pod_for(yaml, node, settings);
    let containers = pod.init_containers.iter().flatten().chain(&pod.containers);
    let (named, mounts): (Vec<String>, Vec<bool>) = containers
        .map(|one| (one.name.clone(), volumes::has_token(one)))
        .unzip();
    let volume = pod
        .volumes
        .iter()
        .flatten()
        .any(|volume| volume.projected.is_some());
    assert_eq!(volume, mounts.contains(&true), "{yaml}");
    if pod.automount_service_account_token.is_none() {
        assert!(!volume, "{yaml}");
        return named;
    }
    assert_eq!(pod.automount_service_account_token, Some(false), "{yaml}");
    let mounting = named.into_iter().zip(mounts);
    mounting
        .filter_map(|(name, mounts)| mounts.then_some(name))
        .collect()
}

/// The settings of refit's manifests.
fn of_manifests() -> JobSettings {
    JobSettings {
        own_account_api_access: ApiAccess::PrepareOnly,
        ..settings()
    }
}

#[test]
fn every_container_of_a_plan_has_a_token_unless_its_plan_or_the_setting_for_refits_own_account_says_otherwise()
 {
    let own = "serviceAccountName: system-upgrade";
    let other = "serviceAccountName: harvester";
    let plan = "upgrade: {image: x}, prepare: {image: y}, drain: {}";
    let [all, prepare, none] = [
        &["prepare", "drain", "upgrade"][..],
        &["prepare", "drain"],
        &["drain"],
    ];
    for (settings, account, access, expected) in [
        (settings(), own, "", all),
        (settings(), other, "", all),
        (settings(), "", "", all),
        (of_manifests(), own, "", prepare),
        (of_manifests(), other, "", all),
        (of_manifests(), "", "", all),
        // The Plan wins.
        (settings(), other, "apiAccess: PrepareOnly", prepare),
        (settings(), own, "apiAccess: None", none),
        (of_manifests(), own, "apiAccess: All", all),
        (of_manifests(), own, "apiAccess: None", none),
        (of_manifests(), other, "apiAccess: None", none),
    ] {
        let fields = [plan, account, access];
        let fields: Vec<&str> = fields.into_iter().filter(|field| !field.is_empty()).collect();
        let yaml = format!("{{{}}}", fields.join(", "));
        assert_eq!(with_token(&yaml, LINUX, &settings), expected, "{yaml}");
    }
}

#[test]
fn a_token_is_mounted_where_it_is_used_and_nowhere_else() {
    for (yaml, names) in [
        ("{upgrade: {image: x}, apiAccess: PrepareOnly}", &[][..]),
        (
            "{upgrade: {image: x}, cordon: true, apiAccess: PrepareOnly}",
            &["cordon"],
        ),
        (
            "{upgrade: {image: x}, prepare: {image: y}, apiAccess: PrepareOnly}",
            &["prepare"],
        ),
        // The containers of refit's own fields need none, so the API server must not mount it.
        ("{upgrade: {image: x}, reboot: {when: Always}}", &["upgrade"]),
        (
            "{upgrade: {image: x}, drain: {}, reboot: {when: Always}}",
            &["drain", "upgrade"],
        ),
        ("{upgrade: {image: x}, preflight: {image: y}}", &["upgrade"]),
        (
            "{drain: {}, trigger: RebootNeeded, reboot: {when: Always}}",
            &["drain"],
        ),
    ] {
        assert_eq!(with_token(yaml, LINUX, &settings()), names, "{yaml}");
    }
    let windows = "{upgrade: {image: x}, drain: {}, apiAccess: None}";
    assert_eq!(with_token(windows, WINDOWS, &settings()), ["drain"]);
}

/// The API server's own mount gives way to that of the pod, too.
#[test]
fn a_volume_of_the_plan_at_the_place_of_the_token_is_kept() {
    let yaml = "{upgrade: {image: x}, prepare: {image: y, volumes: [{name: mine, source: /mine, \
                destination: /var/run/secrets/kubernetes.io/serviceaccount}]}}";
    for access in ["apiAccess: PrepareOnly", "apiAccess: All"] {
        let yaml = yaml.replacen('{', &format!("{{{access}, "), 1);
        let pod = pod_for(&yaml, LINUX, &settings());
        let mounts = container(&pod, "prepare")
            .volume_mounts
            .as_deref()
            .unwrap_or_default();
        let there: Vec<_> = mounts
            .iter()
            .filter(|mount| mount.mount_path.ends_with("serviceaccount"))
            .map(|mount| mount.name.as_str())
            .collect();
        assert_eq!(there, ["mine"], "{access}");
    }
}

#[test]
fn preflight_comes_first_has_no_privileges_and_can_change_nothing_on_the_host() {
    let yaml = "{upgrade: {image: x}, cordon: true, prepare: {image: y}, reboot: {when: Always},
                 preflight: {image: z, volumes: [{name: a, source: /a, destination: /a}]}}";
    let pod = linux_pod(yaml);
    assert_eq!(
        init_names(&pod),
        ["probe", "preflight", "prepare", "cordon", "upgrade"]
    );
    let preflight = container(&pod, "preflight");
    assert_eq!(preflight.image.as_deref(), Some("z:v1"));
    let mounts = preflight.volume_mounts.as_deref().unwrap_or_default();
    assert!(mounts.iter().any(|mount| mount.mount_path == "/host"));
    assert!(mounts.iter().any(|mount| mount.mount_path == "/a"));
    for mount in mounts {
        assert_eq!(
            (mount.read_only, mount.recursive_read_only.as_deref()),
            (Some(true), Some("IfPossible")),
            "{mount:?}"
        );
    }
    let context = preflight.security_context.as_ref().unwrap();
    assert_eq!(
        (context.privileged, context.allow_privilege_escalation),
        (Some(false), Some(false))
    );
    let dropped = context.capabilities.as_ref().and_then(|it| it.drop.clone());
    assert_eq!(dropped, Some(vec!["ALL".to_owned()]));
}

#[test]
fn verify_is_a_job_of_its_own_with_the_access_of_preflight() {
    let spec = spec(
        "{upgrade: {image: x, volumes: [{name: u, source: /u, destination: /u}]}, drain: {}, reboot: {when: Always},
          verify: {image: z, args: [look], volumes: [{name: a, source: /a, destination: /a}]}}",
    );
    let input = VerifyInput {
        plan: plan_input(&spec),
        node: LINUX,
        attempt: 2,
        upgrade_job: "of-the-upgrade",
    };
    let job = verify_job(&input, &settings()).unwrap().unwrap();
    assert!(job.metadata.name.as_deref().unwrap().starts_with("verify-"));
    let annotations = job.metadata.annotations.unwrap();
    assert_eq!(annotations[names::ANNOTATION_VERIFIES], "of-the-upgrade");
    assert_eq!(annotations[names::ANNOTATION_ATTEMPT], "2");
    assert!(!annotations.contains_key(names::ANNOTATION_REBOOT));
    let of_job = job.spec.unwrap();
    assert_eq!(of_job.pod_failure_policy, None);
    let pod = of_job.template.spec.unwrap();
    assert!(pod.init_containers.is_none() && pod.containers.len() == 1);
    assert_eq!(pod.automount_service_account_token, Some(false));
    assert_eq!(volume_names(&pod), ["host-root", "pod-info", "a"]);
    let verify = &pod.containers[0];
    assert_eq!(
        (verify.name.as_str(), verify.image.as_deref()),
        ("verify", Some("z:v1"))
    );
    let mounts = verify.volume_mounts.as_deref().unwrap_or_default();
    assert!(
        mounts.iter().all(|mount| mount.read_only == Some(true)),
        "{mounts:?}"
    );
    let context = verify.security_context.as_ref().unwrap();
    assert_eq!(
        (context.privileged, context.allow_privilege_escalation),
        (Some(false), Some(false))
    );
    let upgrade = render(&job_input(plan_input(&spec), LINUX), &settings()).unwrap();
    assert_eq!(
        upgrade.metadata.annotations.unwrap()[names::ANNOTATION_VERIFY],
        "true"
    );
    let pod = upgrade.spec.unwrap().template.spec.unwrap();
    assert!(pod.volumes.iter().flatten().all(|volume| volume.name != "a"));
}

/// A volume that no pod has makes the API server refuse the Job on every node.
#[test]
fn the_volumes_that_only_preflight_has_are_in_its_pod() {
    let yaml = "{upgrade: {image: x}, apiAccess: None, preflight: {image: z, volumes: [{name: a, source: /a, destination: /a}]}}";
    let pod = linux_pod(yaml);
    assert_eq!(volume_names(&pod), ["host-root", "pod-info", "a"]);
}

#[test]
fn an_image_is_pulled_before_the_node_is_disturbed_by_a_program_that_does_nothing() {
    let yaml =
        "{upgrade: {image: x, volumes: [{name: a, source: /a, destination: /a}]}, drain: {}, prepull: true,
                 prepare: {image: y}, serviceAccountName: s, secrets: [{name: s, path: s}]}";
    let pod = linux_pod(yaml);
    assert_eq!(
        init_names(&pod),
        ["prepare", "prepull-program", "prepull", "drain"]
    );
    let pull = container(&pod, "prepull");
    assert_eq!(pull.image, container(&pod, "upgrade").image);
    assert_eq!(
        pull.image_pull_policy,
        container(&pod, "upgrade").image_pull_policy
    );
    for name in ["prepull-program", "prepull"] {
        let one = container(&pod, name);
        let mounts: Vec<_> = one
            .volume_mounts
            .iter()
            .flatten()
            .map(|mount| (mount.name.as_str(), mount.read_only))
            .collect();
        assert_eq!(mounts, [("refit-prepull", (name == "prepull").then_some(true))]);
        assert!(one.env.is_none() && one.env_from.is_none(), "{name}");
        let context = one.security_context.as_ref().unwrap();
        assert_eq!(
            (context.privileged, context.run_as_non_root),
            (Some(false), Some(true))
        );
    }
    let args = container(&pod, "drain").args.as_ref().unwrap();
    assert_eq!(args[3], "!refit.rs/prepull,!upgrade.cattle.io/controller");
    // There is nothing to disturb, or it is kubectl that drains.
    let has_prepull = |pod: &PodSpec| {
        let volume = pod
            .volumes
            .iter()
            .flatten()
            .any(|one| one.name == "refit-prepull");
        let mut inits = pod.init_containers.iter().flatten();
        let container = inits.any(|one| one.name.starts_with("prepull"));
        assert_eq!(volume, container);
        container
    };
    assert!(has_prepull(&linux_pod(
        "{upgrade: {image: x}, cordon: true, prepull: true}"
    )));
    assert!(!has_prepull(&linux_pod("{upgrade: {image: x}, prepull: true}")));
    assert!(!has_prepull(&linux_pod(
        "{upgrade: {image: x}, cordon: true, prepull: false}"
    )));
    assert!(!has_prepull(&pod_for(yaml, WINDOWS, &settings())));
}

#[test]
fn the_job_that_only_pulls_has_neither_privileges_nor_the_labels_of_a_job_that_upgrades() {
    let spec = spec("{upgrade: {image: x}, drain: {}, prepull: true, imagePullSecrets: [{name: pull}]}");
    let input = job_input(plan_input(&spec), LINUX);
    let job = prepull_job(&input, &settings()).unwrap();
    let pod = job.spec.as_ref().unwrap().template.spec.as_ref().unwrap();
    assert_eq!((pod.host_network, pod.host_pid, pod.host_ipc), (None, None, None));
    let labels = job.metadata.labels.as_ref().unwrap();
    assert!(labels.keys().all(|key| !key.starts_with("upgrade.cattle.io/")));
    let secrets = pod.image_pull_secrets.iter().flatten();
    let secrets: Vec<_> = secrets.map(|secret| secret.name.as_str()).collect();
    assert_eq!(secrets, ["pull", "registry", "refit-pull"]);
    assert_eq!(container(pod, "prepull").image.as_deref(), Some("x:v1"));
    assert_eq!(
        prepull_job(&job_input(plan_input(&spec), WINDOWS), &settings()),
        None
    );
}

#[test]
fn node_marks_and_waits_are_flags_of_the_drain_container_but_not_of_kubectl() {
    let yaml = "{upgrade: {image: x}, drain: {waitForDetach: true, excludeFromLoadBalancers: true, preventScaleDown: true}}";
    let marks = |pod: &PodSpec| {
        let env = container(pod, "drain").env.clone().unwrap_or_default();
        let marks = env.into_iter().find(|one| one.name == "REFIT_NODE_MARKS");
        marks.and_then(|one| one.value)
    };
    let last_arg = |pod: &PodSpec| container(pod, "drain").args.clone().unwrap().pop();
    let pod = linux_pod(yaml);
    assert_eq!(
        marks(&pod).as_deref(),
        Some(
            "node.kubernetes.io/exclude-from-external-load-balancers,cluster-autoscaler.kubernetes.io/scale-down-disabled,karpenter.sh/do-not-disrupt"
        )
    );
    assert_eq!(last_arg(&pod).as_deref(), Some("--wait-for-detach"));
    let pod = pod_for(yaml, WINDOWS, &settings());
    assert_eq!(
        (marks(&pod), last_arg(&pod).as_deref()),
        (None, Some("--delete-emptydir-data"))
    );
    let paced = "{upgrade: {image: x}, drain: {timeout: 5m, excludeFromLoadBalancers: true, loadBalancerDelay: 1m, settleDelay: 5s,
                  afterTimeout: Delete, order: [{matchLabels: {app: rook-ceph-osd}}]}}";
    let args = container(&linux_pod(paced), "drain").args.clone().unwrap();
    let own: Vec<_> = args.iter().filter(|arg| arg.contains('=')).collect();
    assert_eq!(
        own,
        [
            "--load-balancer-delay=1m",
            "--settle-delay=5s",
            "--after-timeout=delete",
            "--evict-last=app=rook-ceph-osd"
        ]
    );
    let args = container(&pod_for(paced, WINDOWS, &settings()), "drain")
        .args
        .clone()
        .unwrap();
    assert!(!args.iter().any(|arg| arg.contains('=')), "{args:?}");
    let pod = linux_pod("{upgrade: {image: x}, cordon: true}");
    assert!(
        container(&pod, "cordon")
            .env
            .iter()
            .flatten()
            .all(|one| one.name != "REFIT_NODE_MARKS")
    );
}
