//! The containers of the pod: `prepare`, `cordon` or `drain`, then `upgrade` (S21–S24, S35–S38). Where the node may have to
//! reboot there is `probe` before them and `sentinel` after them.
//!
//! The Plan's containers get the host as `spec.hostAccess` says. What cordons and drains is refit itself, and gets
//! no more than it needs: no host, no secrets, no volumes, no privileges. On Windows it is kubectl, as with
//! system-upgrade-controller. What probes and keeps the sentinel gets the host's files, and root for them.

use k8s_openapi::api::core::v1::{
    Capabilities, Container, EnvVar, EnvVarSource, ObjectFieldSelector, SELinuxOptions, SeccompProfile,
    SecurityContext, WindowsSecurityContextOptions,
};

use super::{JobError, NodeInput, PlanInput, drain, volumes};
use crate::api::{ContainerSpec, HostAccess, PlanSpec, RebootSpec, RebootWhen, SentinelName, names};
use crate::job::{JobSettings, image};

/// Name of the init container that looks whether the node can be rebooted.
pub const PROBE: &str = "probe";
const PREPARE: &str = "prepare";
const CORDON: &str = "cordon";
const DRAIN: &str = "drain";
/// Name of the container that upgrades: the last init container where there is a [`SENTINEL`], else the main one.
pub const UPGRADE: &str = "upgrade";
/// Name of the main container of a Job whose node may have to reboot. Its termination message is a
/// [`SentinelReport`](crate::api::SentinelReport).
pub const SENTINEL: &str = "sentinel";

/// The user and group "nobody", with which refit's image runs.
const NOBODY: i64 = 65534;
/// The user and group "root".
const ROOT: i64 = 0;

/// The containers that the Plan itself describes, and their names.
pub(super) fn of_plan(spec: &PlanSpec) -> impl Iterator<Item = (&'static str, &ContainerSpec)> {
    spec.prepare
        .iter()
        .map(|prepare| (PREPARE, prepare))
        .chain(std::iter::once((UPGRADE, &spec.upgrade)))
}

/// The containers before the upgrade, in their order.
pub(super) fn init(
    plan: &PlanInput<'_>,
    node: &NodeInput<'_>,
    settings: &JobSettings,
) -> Result<Vec<Container>, JobError> {
    let spec = plan.spec;
    let mut containers = Vec::new();
    if spec.may_reboot() {
        let name = sentinel_name(plan.uid, node.uid, plan.latest_hash)?;
        let args = probe_args(&name, spec.reboot_or_default());
        containers.push(on_host(PROBE, args, settings));
    }
    if let Some(prepare) = &spec.prepare {
        let context = if node.is_windows() {
            Some(windows_host_process())
        } else {
            allowed_context(prepare, settings).cloned()
        };
        containers.push(of_user(PREPARE, prepare, plan, settings, context));
    }
    let disruption = match &spec.drain {
        Some(drain) => Some((DRAIN, drain::drain_args(drain, node.name)?)),
        None if spec.cordon.unwrap_or_default() => Some((CORDON, drain::cordon_args(node.name))),
        None => None,
    };
    if let Some((name, args)) = disruption {
        containers.push(if node.is_windows() {
            kubectl(name, args, plan, settings)
        } else {
            own(name, args, plan, node, settings)
        });
    }
    Ok(containers)
}

/// The container that upgrades.
pub(super) fn upgrade(plan: &PlanInput<'_>, node: &NodeInput<'_>, settings: &JobSettings) -> Container {
    let upgrade = &plan.spec.upgrade;
    let context = match allowed_context(upgrade, settings) {
        Some(context) => Some(context.clone()),
        None if node.is_windows() => Some(windows_host_process()),
        // A privileged container has the host's devices, and so the host.
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
    of_user(UPGRADE, upgrade, plan, settings, context)
}

/// The container that notes that the upgrade has succeeded, in which boot, and whether a reboot is asked for.
pub(super) fn sentinel(
    plan: &PlanInput<'_>,
    node: &NodeInput<'_>,
    settings: &JobSettings,
) -> Result<Container, JobError> {
    let name = sentinel_name(plan.uid, node.uid, plan.latest_hash)?;
    let mut args = vec!["sentinel".to_owned(), format!("--name={name}")];
    let reboot = plan.spec.reboot_or_default();
    match reboot.when() {
        RebootWhen::IfRequired => args.extend(required_file_args(reboot)),
        RebootWhen::Always | RebootWhen::Never => args.push("--always".to_owned()),
    }
    Ok(on_host(SENTINEL, args, settings))
}

/// Name of the sentinel file for a Plan, a node and a hash.
pub(in crate::job) fn sentinel_name(
    plan_uid: &str,
    node_uid: &str,
    hash: &str,
) -> Result<SentinelName, JobError> {
    SentinelName::new(plan_uid, node_uid, hash).map_err(|error| JobError::SentinelName {
        plan_uid: plan_uid.to_owned(),
        node_uid: node_uid.to_owned(),
        hash: hash.to_owned(),
        error,
    })
}

fn probe_args(sentinel: &SentinelName, reboot: &RebootSpec) -> Vec<String> {
    let mut args = vec!["probe".to_owned(), format!("--sentinel={sentinel}")];
    if reboot.when() == RebootWhen::IfRequired {
        args.extend(required_file_args(reboot));
    }
    args.extend(command_args(reboot));
    args
}

fn required_file_args(reboot: &RebootSpec) -> impl Iterator<Item = String> {
    let files = reboot.required_files().into_iter();
    files.map(|path| format!("--required-file={}", literal(path)))
}

/// The Plan's command for refit; nothing where refit's own are meant.
pub(in crate::job) fn command_args(reboot: &RebootSpec) -> Vec<String> {
    let Some(command) = &reboot.command else {
        return Vec::new();
    };
    let arguments = command.iter().map(|argument| literal(argument));
    std::iter::once("--".to_owned()).chain(arguments).collect()
}

/// A text as it is, and not as a reference to a variable: Kubernetes replaces `$(NAME)` in arguments, and `$$` by `$`.
pub(in crate::job) fn literal(text: &str) -> String {
    text.replace('$', "$$")
}

/// A container of the Plan.
fn of_user(
    name: &str,
    container: &ContainerSpec,
    plan: &PlanInput<'_>,
    settings: &JobSettings,
    security_context: Option<SecurityContext>,
) -> Container {
    let image =
        image::tagged(&container.image, plan.latest_version).unwrap_or_else(|_| container.image.clone());
    // The tag is for people: with both, a container runtime looks at the digest alone.
    let image = match plan.digests.get(&image) {
        Some(digest) => format!("{image}@{digest}"),
        None => image,
    };
    let mut env = pod_env();
    env.extend(container.envs.iter().flatten().cloned());
    env.extend(plan_env(plan));
    Container {
        image: Some(image),
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

/// refit itself, whose image's entrypoint it is. It talks to the API server and touches nothing on the node.
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
    if plan.spec.settle_or_default().workloads() && name == DRAIN {
        env.push(variable(names::ENV_NOTE_WORKLOADS, "true"));
    }
    Container {
        image: Some(settings.own_image.clone()),
        args: Some(args),
        env: Some(env),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            capabilities: Some(Capabilities {
                add: None,
                drop: Some(vec!["ALL".to_owned()]),
            }),
            privileged: Some(false),
            read_only_root_filesystem: Some(true),
            run_as_group: Some(NOBODY),
            run_as_non_root: Some(true),
            run_as_user: Some(NOBODY),
            seccomp_profile: Some(SeccompProfile {
                type_: "RuntimeDefault".to_owned(),
                localhost_profile: None,
            }),
            ..SecurityContext::default()
        }),
        ..bare(name)
    }
}

/// refit itself, with the host's files at `/host` and root for them: without capabilities, and outside of the container domain of
/// `SELinux`, which may not touch them. It needs no variable, no token and no network.
pub(in crate::job) fn on_host(name: &str, args: Vec<String>, settings: &JobSettings) -> Container {
    Container {
        image: Some(settings.own_image.clone()),
        args: Some(args),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        security_context: Some(SecurityContext {
            capabilities: Some(Capabilities {
                add: None,
                drop: Some(vec!["ALL".to_owned()]),
            }),
            privileged: Some(false),
            read_only_root_filesystem: Some(true),
            run_as_group: Some(ROOT),
            run_as_non_root: Some(false),
            run_as_user: Some(ROOT),
            se_linux_options: Some(SELinuxOptions {
                type_: Some("spc_t".to_owned()),
                ..SELinuxOptions::default()
            }),
            seccomp_profile: Some(SeccompProfile {
                type_: "RuntimeDefault".to_owned(),
                localhost_profile: None,
            }),
            ..SecurityContext::default()
        }),
        volume_mounts: Some(vec![volumes::host_root_mount()]),
        ..bare(name)
    }
}

/// kubectl on a Windows node, with all that system-upgrade-controller gives it: the image is the user's.
fn kubectl(name: &str, args: Vec<String>, plan: &PlanInput<'_>, settings: &JobSettings) -> Container {
    let mut env = pod_env();
    env.extend(plan_env(plan));
    Container {
        image: Some(settings.kubectl_image_windows.clone()),
        args: Some(args),
        env: Some(env),
        volume_mounts: Some(volumes::mounts(plan.spec, plan.spec.upgrade.volumes.as_deref())),
        image_pull_policy: Some(settings.image_pull_policy.clone()),
        security_context: Some(windows_host_process()),
        ..bare(name)
    }
}

/// What all containers have in common. The last lines of a failed one are its termination message.
fn bare(name: &str) -> Container {
    Container {
        name: name.to_owned(),
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        ..Container::default()
    }
}

/// The Plan's security context, where Plans may have one.
fn allowed_context<'a>(container: &'a ContainerSpec, settings: &JobSettings) -> Option<&'a SecurityContext> {
    container
        .security_context
        .as_ref()
        .filter(|_| settings.allow_user_defined_security_context)
}

/// Windows has no privileged containers; a host process is what comes near.
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

/// Where the container runs; before the Plan's own variables, which can refer to them.
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

/// For which Plan it runs; after the Plan's own variables, which cannot change them.
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
