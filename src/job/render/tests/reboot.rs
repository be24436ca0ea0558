//! Jobs whose nodes may reboot, and their access to the host.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::suc::fixtures;
use super::*;

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
    let with = "{upgrade: {image: x, envs: [{name: A, value: b}], args: [a]}, apiAccess: None, reboot: {when: Always}}";
    let without = "{upgrade: {image: x, envs: [{name: A, value: b}], args: [a]}, apiAccess: None, reboot: {when: Never}}";
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
    after.plan.spec.settle = Some(Box::default());
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
        assert_eq!(prepare + 1, mounts.len(), "all but its own volume");
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
            JobError::RebootOnWindows(refit_api::RebootWhen::Always),
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
