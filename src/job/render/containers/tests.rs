use super::super::tests::{LINUX, WINDOWS, container, job_input, plan_input, pod_for, settings, spec};
use super::*;

fn context(yaml: &str, node: NodeInput<'_>, settings: &JobSettings, name: &str) -> Option<SecurityContext> {
    container(&pod_for(yaml, node, settings), name)
        .security_context
        .clone()
}

#[test]
fn an_image_that_cannot_take_the_version_stays_as_it_is() {
    let pod = pod_for(
        "{upgrade: {image: 'not an image'}, prepare: {image: x}}",
        LINUX,
        &settings(),
    );
    assert_eq!(container(&pod, "upgrade").image.as_deref(), Some("not an image"));
    assert_eq!(container(&pod, "prepare").image.as_deref(), Some("x:v1"));
}

#[test]
fn drain_goes_before_cordon_and_prepare_before_both() {
    let names = |yaml: &str| {
        let pod = pod_for(yaml, LINUX, &settings());
        pod.init_containers
            .unwrap_or_default()
            .into_iter()
            .map(|one| one.name)
            .collect::<Vec<_>>()
    };
    assert_eq!(names("{upgrade: {image: x}}"), [""; 0]);
    assert_eq!(names("{upgrade: {image: x}, cordon: false}"), [""; 0]);
    assert_eq!(
        names("{upgrade: {image: x}, cordon: true, prepare: {image: x}}"),
        ["prepare", "cordon"]
    );
    assert_eq!(
        names("{upgrade: {image: x}, cordon: true, drain: {}, prepare: {image: x}}"),
        ["prepare", "drain"]
    );
}

#[test]
fn what_cordons_has_no_host_no_secrets_no_volumes_and_no_privileges() {
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
    let pod = pod_for(
        "{upgrade: {image: x, envs: [{name: SYSTEM_UPGRADE_PLAN_NAME, value: mine}]}}",
        LINUX,
        &settings(),
    );
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
    let seven = SecurityContext {
        run_as_user: Some(7),
        ..SecurityContext::default()
    };
    assert_eq!(context(plain, LINUX, &settings(), "upgrade"), Some(boot(true)));
    assert_eq!(context(chosen, LINUX, &settings(), "upgrade"), Some(seven));
    let unprivileged = JobSettings {
        privileged: false,
        ..settings()
    };
    assert_eq!(context(plain, LINUX, &unprivileged, "upgrade"), Some(boot(false)));
    let strict = JobSettings {
        allow_user_defined_security_context: false,
        ..settings()
    };
    assert_eq!(context(chosen, LINUX, &strict, "upgrade"), Some(boot(true)));
}

#[test]
fn prepare_has_the_plans_context_or_none() {
    let plain = "{upgrade: {image: x}, prepare: {image: x}}";
    let chosen = "{upgrade: {image: x}, prepare: {image: x, securityContext: {runAsUser: 7}}}";
    assert_eq!(context(plain, LINUX, &settings(), "prepare"), None);
    assert_eq!(
        context(chosen, LINUX, &settings(), "prepare")
            .unwrap()
            .run_as_user,
        Some(7)
    );
    let strict = JobSettings {
        allow_user_defined_security_context: false,
        ..settings()
    };
    assert_eq!(context(chosen, LINUX, &strict, "prepare"), None);
}

#[test]
fn on_windows_all_are_host_processes_but_an_upgrade_with_its_own_context() {
    let chosen = "{upgrade: {image: x, securityContext: {runAsUser: 7}}, cordon: true,
                   prepare: {image: x, securityContext: {runAsUser: 7}}}";
    for name in ["prepare", "cordon"] {
        assert_eq!(
            context(chosen, WINDOWS, &settings(), name),
            Some(windows_host_process()),
            "{name}"
        );
    }
    assert_eq!(
        context(chosen, WINDOWS, &settings(), "upgrade")
            .unwrap()
            .run_as_user,
        Some(7)
    );
    assert_eq!(
        context("{upgrade: {image: x}}", WINDOWS, &settings(), "upgrade"),
        Some(windows_host_process())
    );
    let strict = JobSettings {
        allow_user_defined_security_context: false,
        ..settings()
    };
    assert_eq!(
        context(chosen, WINDOWS, &strict, "upgrade"),
        Some(windows_host_process())
    );
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
