//! The containers of the pod: `prepare`, `cordon` or `drain`, then `upgrade` (S21–S24, S35–S38). With `reboot`, `probe`
//! runs before them and `sentinel` after them.
//!
//! The Plan's containers have the access that `spec.hostAccess` gives. `cordon` and `drain` are refit itself, without
//! access to the host, Secrets or volumes, and without privileges. On Windows they are kubectl, as with
//! system-upgrade-controller. `probe` and `sentinel` run as root with the host's files.
//!
//! A token of the service account is mounted where it is used: `cordon` and `drain`, and what `spec.apiAccess` says. If that is
//! every container, the API server mounts it, as under system-upgrade-controller.

use k8s_openapi::api::core::v1::{
    Capabilities, Container, EnvVar, EnvVarSource, ObjectFieldSelector, SELinuxOptions, SeccompProfile,
    SecurityContext, WindowsSecurityContextOptions,
};

use super::plan_containers::{PREPARE, UPGRADE};
use super::volumes;
use crate::error::JobError;
use crate::job_input::{NodeInput, PlanInput};
use crate::settings::JobSettings;
use refit_api::{
    ApiAccess, ContainerSpec, HostAccess, NodeMark, RebootSpec, RebootWhen, SentinelName, image, names,
};

/// Name of the init container that checks whether the node can be rebooted.
pub const PROBE: &str = "probe";
/// Exit code of `preflight` that skips the node, as of a test that Automake skips, and of a [`DRAIN`] that releases it.
pub const SKIPPED: i32 = 77;
/// Exit code of a drain before which pods had not ended in time.
pub const OVERDUE: i32 = 75;
/// Name of the init container that drains.
pub const DRAIN: &str = "drain";
/// Name of the main container of a Job with `reboot`. Its termination message is a
/// [`SentinelReport`](refit_api::SentinelReport).
pub const SENTINEL: &str = "sentinel";

/// User and group of refit's image.
const NOBODY: i64 = 65534;
const ROOT: i64 = 0;

/// The container that checks whether the node can be rebooted, and removes the sentinel of an earlier attempt.
pub(super) fn probe(
    plan: &PlanInput<'_>,
    node: &NodeInput<'_>,
    settings: &JobSettings,
) -> Result<Container, JobError> {
    let (spec, reboot) = (plan.spec, plan.spec.reboot_or_default());
    let sentinel = sentinel_name(plan.uid, node.uid, plan.latest_hash)?;
    let mut args = vec!["probe".to_owned(), format!("--sentinel={sentinel}")];
    if spec.reboot_when() == RebootWhen::IfRequired {
        args.extend(required_file_args(reboot));
    }
    args.extend(command_args(reboot));
    Ok(on_host(PROBE, args, settings))
}

pub(super) fn prepare(
    prepare: &ContainerSpec,
    plan: &PlanInput<'_>,
    node: &NodeInput<'_>,
    settings: &JobSettings,
) -> Container {
    let context = if node.is_windows() {
        Some(windows_host_process())
    } else {
        allowed_context(prepare, settings).cloned()
    };
    let mut container = of_user(PREPARE, prepare, plan, settings, context);
    // The images of K3s and RKE2 ask the API server in `prepare` for the progress of other Plans (S68).
    if settings.api_access(plan.spec) != ApiAccess::None {
        volumes::mount_token(&mut container);
    }
    container
}

/// The container that cordons or drains.
pub(super) fn disruption(
    name: &str,
    args: Vec<String>,
    plan: &PlanInput<'_>,
    node: &NodeInput<'_>,
    settings: &JobSettings,
) -> Container {
    let mut container = if node.is_windows() {
        kubectl(name, args, plan, settings)
    } else {
        own(name, args, plan, node, settings)
    };
    volumes::mount_token(&mut container);
    container
}

pub(super) fn upgrade(
    upgrade: &ContainerSpec,
    plan: &PlanInput<'_>,
    node: &NodeInput<'_>,
    settings: &JobSettings,
) -> Container {
    let context = match allowed_context(upgrade, settings) {
        Some(context) => Some(context.clone()),
        None if node.is_windows() => Some(windows_host_process()),
        // A privileged container can access the host's devices, and so the host.
        None if plan.spec.host_access() == HostAccess::None => None,
        None => Some(SecurityContext {
            privileged: Some(settings.privileged),
            capabilities: Some(Capabilities {
                add: Some(vec!["CAP_SYS_BOOT".to_owned()]),
                drop: None,
            }),
            ..SecurityContext::default()
        }),
    };
    let mut container = of_user(UPGRADE, upgrade, plan, settings, context);
    if settings.api_access(plan.spec) == ApiAccess::All {
        volumes::mount_token(&mut container);
    }
    container
}

/// A container that may look at the node and change nothing there.
pub(super) fn look(
    name: &str,
    container: &ContainerSpec,
    plan: &PlanInput<'_>,
    node: &NodeInput<'_>,
    settings: &JobSettings,
) -> Container {
    let context = match allowed_context(container, settings) {
        Some(context) => context.clone(),
        None if node.is_windows() => windows_host_process(),
        None => unprivileged(),
    };
    let mut container = of_user(name, container, plan, settings, Some(context));
    for mount in container.volume_mounts.iter_mut().flatten() {
        mount.read_only = Some(true);
        // Otherwise file systems that are mounted below it stay writable. `Enabled` would keep the pod from starting
        // where the runtime does not support this (KEP-3857).
        mount.recursive_read_only = Some("IfPossible".to_owned());
        // The API server accepts a recursive read-only mount only without propagation.
        mount.mount_propagation = None;
    }
    container
}

/// A container that runs once for each roll-out.
pub(super) fn hook(
    name: &str,
    container: &ContainerSpec,
    plan: &PlanInput<'_>,
    settings: &JobSettings,
) -> Container {
    let context = allowed_context(container, settings).cloned();
    let context = context.unwrap_or_else(unprivileged);
    let mut of_hook = of_user(name, container, plan, settings, Some(context));
    if settings.api_access(plan.spec) == ApiAccess::All {
        volumes::mount_token(&mut of_hook);
    }
    of_hook
}

fn unprivileged() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        capabilities: Some(Capabilities {
            add: None,
            drop: Some(vec!["ALL".to_owned()]),
        }),
        privileged: Some(false),
        seccomp_profile: Some(SeccompProfile {
            type_: "RuntimeDefault".to_owned(),
            localhost_profile: None,
        }),
        ..SecurityContext::default()
    }
}

/// The container that records that the upgrade succeeded, in which boot, and whether a reboot is required.
pub(super) fn sentinel(
    plan: &PlanInput<'_>,
    node: &NodeInput<'_>,
    settings: &JobSettings,
) -> Result<Container, JobError> {
    let name = sentinel_name(plan.uid, node.uid, plan.latest_hash)?;
    let mut args = vec!["sentinel".to_owned(), format!("--name={name}")];
    match plan.spec.reboot_when() {
        RebootWhen::IfRequired => args.extend(required_file_args(plan.spec.reboot_or_default())),
        RebootWhen::Always | RebootWhen::Never => args.push("--always".to_owned()),
    }
    Ok(on_host(SENTINEL, args, settings))
}

pub(crate) fn sentinel_name(plan_uid: &str, node_uid: &str, hash: &str) -> Result<SentinelName, JobError> {
    SentinelName::new(plan_uid, node_uid, hash).map_err(|error| JobError::SentinelName {
        plan_uid: plan_uid.to_owned(),
        node_uid: node_uid.to_owned(),
        hash: hash.to_owned(),
        error,
    })
}

fn required_file_args(reboot: &RebootSpec) -> impl Iterator<Item = String> {
    let files = reboot.required_files().into_iter();
    files.map(|path| format!("--required-file={}", literal(path)))
}

/// The Plan's reboot command as arguments; empty for refit's default.
pub(crate) fn command_args(reboot: &RebootSpec) -> Vec<String> {
    let Some(command) = &reboot.command else {
        return Vec::new();
    };
    let arguments = command.iter().map(|argument| literal(argument));
    std::iter::once("--".to_owned()).chain(arguments).collect()
}

/// Escapes a text, because Kubernetes expands `$(NAME)` in arguments, and `$$` to `$`.
pub(crate) fn literal(text: &str) -> String {
    text.replace('$', "$$")
}

fn of_user(
    name: &str,
    container: &ContainerSpec,
    plan: &PlanInput<'_>,
    settings: &JobSettings,
    security_context: Option<SecurityContext>,
) -> Container {
    let mut env = pod_env();
    env.extend(container.envs.iter().flatten().cloned());
    // The last one of two variables of the same name counts, and a variable may refer to earlier ones only (S35).
    env.extend(plan_env(plan));
    Container {
        image: Some(image(container, plan)),
        command: container.command.clone(),
        args: container.args.clone(),
        env: Some(env),
        env_from: container.env_from.clone(),
        volume_mounts: Some(volumes::mounts(plan.spec, container.volumes.as_deref())),
        image_pull_policy: Some(settings.image_pull_policy.clone()),
        security_context,
        ..bare(name)
    }
}

/// The image of a container of the Plan.
pub(super) fn image(container: &ContainerSpec, plan: &PlanInput<'_>) -> String {
    let image =
        image::tagged(&container.image, plan.latest_version).unwrap_or_else(|_| container.image.clone());
    // The tag is only for readers: with both, container runtimes use the digest alone.
    match plan.digests.get(&image) {
        Some(digest) => format!("{image}@{digest}"),
        None => image,
    }
}

/// A container that runs refit, whose image has it as entrypoint. It uses only the API server, and nothing on the node.
fn own(
    name: &str,
    args: Vec<String>,
    plan: &PlanInput<'_>,
    node: &NodeInput<'_>,
    settings: &JobSettings,
) -> Container {
    let mut env = pod_env();
    env.extend(plan_env(plan));
    env.extend([
        variable(names::ENV_CONTROLLER_NAME, &settings.controller_name),
        variable(names::ENV_PLAN_NAMESPACE, plan.namespace),
        variable(names::ENV_PLAN_UID, plan.uid),
        variable(names::ENV_NODE_UID, node.uid),
    ]);
    if plan.spec.settle_or_default().waits_for_workloads() && name == DRAIN {
        env.push(variable(names::ENV_NOTE_WORKLOADS, "true"));
    }
    let marks = plan
        .spec
        .drain
        .as_ref()
        .map(NodeMark::of_drain)
        .unwrap_or_default();
    if !marks.is_empty() {
        env.push(variable(names::ENV_NODE_MARKS, &NodeMark::join(&marks)));
    }
    Container {
        args: Some(args),
        env: Some(env),
        ..unprivileged_own(name, settings)
    }
}

/// A container that runs refit without privileges.
pub(super) fn unprivileged_own(name: &str, settings: &JobSettings) -> Container {
    Container {
        image: Some(settings.own_image.clone()),
        // A drain must also work if the registry is down, and the image of the controller is on most nodes already.
        image_pull_policy: Some("IfNotPresent".to_owned()),
        security_context: Some(SecurityContext {
            // refit writes no files in a container, so an attacker gets none to write to either.
            read_only_root_filesystem: Some(true),
            run_as_group: Some(NOBODY),
            run_as_non_root: Some(true),
            run_as_user: Some(NOBODY),
            ..unprivileged()
        }),
        ..bare(name)
    }
}

/// A container that runs refit as root with the host's files at `/host`, without capabilities. It runs outside of
/// `SELinux`'s container domain, which may not access these files. It has no variables, token or network.
pub(crate) fn on_host(name: &str, args: Vec<String>, settings: &JobSettings) -> Container {
    Container {
        args: Some(args),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: None,
            read_only_root_filesystem: Some(true),
            run_as_group: Some(ROOT),
            run_as_non_root: Some(false),
            run_as_user: Some(ROOT),
            se_linux_options: Some(SELinuxOptions {
                type_: Some("spc_t".to_owned()),
                ..SELinuxOptions::default()
            }),
            ..unprivileged()
        }),
        volume_mounts: Some(vec![volumes::host_root_mount()]),
        ..unprivileged_own(name, settings)
    }
}

/// kubectl on a Windows node, with the access that system-upgrade-controller gives it. The image is the user's.
fn kubectl(name: &str, args: Vec<String>, plan: &PlanInput<'_>, settings: &JobSettings) -> Container {
    let mut env = pod_env();
    env.extend(plan_env(plan));
    let upgrade = plan.spec.upgrade_container();
    let mounted = upgrade.and_then(|upgrade| upgrade.volumes.as_deref());
    Container {
        image: Some(settings.kubectl_image_windows.clone()),
        args: Some(args),
        env: Some(env),
        volume_mounts: Some(volumes::mounts(plan.spec, mounted)),
        image_pull_policy: Some(settings.image_pull_policy.clone()),
        security_context: Some(windows_host_process()),
        ..bare(name)
    }
}

/// What all containers have in common. The last lines of a failed container become its termination message.
fn bare(name: &str) -> Container {
    Container {
        name: name.to_owned(),
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        ..Container::default()
    }
}

/// The Plan's security context, if the controller allows it.
fn allowed_context<'a>(container: &'a ContainerSpec, settings: &JobSettings) -> Option<&'a SecurityContext> {
    container
        .security_context
        .as_ref()
        .filter(|_| settings.allow_user_defined_security_context)
}

/// Windows has no privileged containers; `HostProcess` containers are the equivalent.
fn windows_host_process() -> SecurityContext {
    SecurityContext {
        windows_options: Some(WindowsSecurityContextOptions {
            host_process: Some(true),
            run_as_user_name: Some("NT AUTHORITY\\SYSTEM".to_owned()),
            ..WindowsSecurityContextOptions::default()
        }),
        ..SecurityContext::default()
    }
}

/// Variables of the pod. They precede the Plan's, which can refer to them.
fn pod_env() -> Vec<EnvVar> {
    let field = |name: &str, path: &str| EnvVar {
        name: name.to_owned(),
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector {
                api_version: None,
                field_path: path.to_owned(),
            }),
            ..EnvVarSource::default()
        }),
        ..EnvVar::default()
    };
    vec![
        field(names::ENV_NODE_NAME, "spec.nodeName"),
        field(names::ENV_POD_NAME, "metadata.name"),
        field(names::ENV_POD_UID, "metadata.uid"),
    ]
}

/// Variables of the Plan. They follow the Plan's own, which cannot override them.
fn plan_env(plan: &PlanInput<'_>) -> [EnvVar; 3] {
    [
        variable(names::ENV_PLAN_NAME, plan.name),
        variable(names::ENV_PLAN_LATEST_HASH, plan.latest_hash),
        variable(names::ENV_PLAN_LATEST_VERSION, plan.latest_version),
    ]
}

fn variable(name: &str, value: &str) -> EnvVar {
    EnvVar {
        name: name.to_owned(),
        value: Some(value.to_owned()),
        ..EnvVar::default()
    }
}

#[cfg(test)]
mod tests;
