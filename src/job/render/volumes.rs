//! Volumes of the pod and their mounts in containers (S17, S34, S35).
//!
//! It also creates the volumes of `prepare`, which system-upgrade-controller omits (W20). Two containers may share a
//! volume. Two different volumes of one name are an error, because the API server would refuse the Job on every node.

use k8s_openapi::api::core::v1::{
    ConfigMapProjection, Container, DownwardAPIProjection, DownwardAPIVolumeFile, DownwardAPIVolumeSource,
    HostPathVolumeSource, KeyToPath, ObjectFieldSelector, ProjectedVolumeSource, SecretVolumeSource,
    ServiceAccountTokenProjection, Volume, VolumeMount, VolumeProjection,
};

use super::plan_containers::{of_hooks, of_plan, with_access};
use crate::error::JobError;
use crate::name::secret_volume_name;
use refit_api::selector::is_dns_label;
use refit_api::{ContainerSpec, HostAccess, PlanSpec, SecretSpec, VolumeSpec};

const HOST_ROOT: &str = "host-root";
/// Mount path of the host's root directory.
pub(crate) const HOST_DIR: &str = "/host";
const POD_INFO: &str = "pod-info";
/// Volume with the token of the service account. Its name is refit's own, because a Plan may have a volume of any name.
const TOKEN: &str = "refit-api-access";
const TOKEN_DIR: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Lifetime of a token, which the kubelet renews: that of the tokens that the API server adds to pods
/// (`WarnOnlyBoundTokenExpirationSeconds` in pkg/serviceaccount/claims.go).
const TOKEN_SECONDS: i64 = 3607;
const SECRETS_DIR: &str = "/run/system-upgrade/secrets";

/// Volumes of the pod that upgrades: the host, pod information, Secrets, then host paths.
pub(super) fn of_pod(spec: &PlanSpec) -> Result<Vec<Volume>, JobError> {
    of_containers(spec, &upgrading(spec))
}

/// Volumes of the pod that verifies.
pub(super) fn of_verify(spec: &PlanSpec) -> Result<Vec<Volume>, JobError> {
    of_containers(spec, &[spec.verify.as_deref()])
}

/// Volumes of a pod that runs once for each roll-out.
pub(super) fn of_hook(spec: &PlanSpec, container: &ContainerSpec) -> Result<Vec<Volume>, JobError> {
    of_containers(spec, &[Some(container)])
}

fn of_containers(spec: &PlanSpec, containers: &[Option<&ContainerSpec>]) -> Result<Vec<Volume>, JobError> {
    let (volumes, errors) = collect(spec, containers);
    errors.into_iter().next().map_or(Ok(volumes), Err)
}

/// The containers of the pod that upgrades: in the order of S34, then those whose volumes system-upgrade-controller omits.
fn upgrading(spec: &PlanSpec) -> [Option<&ContainerSpec>; 3] {
    [
        spec.upgrade_container(),
        spec.prepare.as_deref(),
        spec.preflight.as_deref(),
    ]
}

/// Errors of volumes and mounts.
pub(super) fn errors(spec: &PlanSpec) -> Vec<JobError> {
    let mut errors = collect(spec, &upgrading(spec)).1;
    errors.extend(collect(spec, &[spec.verify.as_deref()]).1);
    for (container, of) in of_plan(spec) {
        errors.extend(mount_conflicts(spec, container, of));
    }
    for (container, hook) in of_hooks(spec) {
        let spec = with_access(spec, hook);
        errors.extend(collect(&spec, &[Some(&hook.container)]).1);
        errors.extend(mount_conflicts(&spec, container, &hook.container));
    }
    errors
}

fn mount_conflicts(spec: &PlanSpec, container: &'static str, of: &ContainerSpec) -> Vec<JobError> {
    let mounts = mounts(spec, of.volumes.as_deref());
    let conflicts = mounts.iter().enumerate().filter(|(index, mount)| {
        let is_first = |other: &VolumeMount| other.mount_path == mount.mount_path;
        mounts[..*index].iter().any(is_first)
    });
    let error = |(_, mount): (usize, &VolumeMount)| JobError::MountConflict {
        container,
        path: mount.mount_path.clone(),
    };
    conflicts.map(error).collect()
}

/// Mounts of a container with these volumes: the host, pod information, Secrets, then the volumes.
pub(super) fn mounts(spec: &PlanSpec, volumes: Option<&[VolumeSpec]>) -> Vec<VolumeMount> {
    let mount = |name: &str, path: String, read_only: bool| VolumeMount {
        name: name.to_owned(),
        mount_path: path,
        read_only: read_only.then_some(true),
        ..VolumeMount::default()
    };
    let mut mounts = Vec::new();
    if has_host_root(spec) {
        mounts.push(host_root_mount());
    }
    mounts.push(mount(POD_INFO, "/run/system-upgrade/pod".to_owned(), true));
    mounts.extend(
        spec.secrets
            .iter()
            .flatten()
            .map(|secret| mount(&secret_volume_name(&secret.name), secret_path(secret), true)),
    );
    mounts.extend(
        volumes
            .unwrap_or_default()
            .iter()
            .map(|volume| mount(&volume.name, volume.destination.clone(), false)),
    );
    mounts
}

/// Gives a container a token of the pod's service account, where clients look for it. A mount of the Plan at that path
/// is kept, as with the API server's own.
pub(super) fn mount_token(container: &mut Container) {
    let mounts = container.volume_mounts.get_or_insert_default();
    if mounts.iter().all(|mount| mount.mount_path != TOKEN_DIR) {
        mounts.push(VolumeMount {
            name: TOKEN.to_owned(),
            mount_path: TOKEN_DIR.to_owned(),
            read_only: Some(true),
            ..VolumeMount::default()
        });
    }
}

/// Whether the API server would mount nothing more, because the container has a token, or a volume of the Plan at its place.
pub(super) fn has_token_path(container: &Container) -> bool {
    let mut mounts = container.volume_mounts.iter().flatten();
    mounts.any(|mount| mount.mount_path == TOKEN_DIR)
}

/// Takes back what [`mount_token`] did, for the API server to do it.
pub(super) fn unmount_token(container: &mut Container) {
    if let Some(mounts) = &mut container.volume_mounts {
        mounts.retain(|mount| mount.name != TOKEN);
    }
    if container.volume_mounts.as_ref().is_some_and(Vec::is_empty) {
        container.volume_mounts = None;
    }
}

/// Whether a container mounts the token of the service account, and so reaches the API server.
pub(super) fn has_token(container: &Container) -> bool {
    container
        .volume_mounts
        .iter()
        .flatten()
        .any(|mount| mount.name == TOKEN)
}

/// What the API server would mount into every container of the pod: a token, the certificate authority of the API
/// server, and the namespace.
pub(super) fn token() -> Volume {
    let projected = ProjectedVolumeSource {
        default_mode: Some(0o644),
        sources: Some(vec![
            VolumeProjection {
                service_account_token: Some(ServiceAccountTokenProjection {
                    expiration_seconds: Some(TOKEN_SECONDS),
                    path: "token".to_owned(),
                    ..ServiceAccountTokenProjection::default()
                }),
                ..VolumeProjection::default()
            },
            VolumeProjection {
                config_map: Some(ConfigMapProjection {
                    name: "kube-root-ca.crt".to_owned(),
                    items: Some(vec![KeyToPath {
                        key: "ca.crt".to_owned(),
                        path: "ca.crt".to_owned(),
                        ..KeyToPath::default()
                    }]),
                    optional: None,
                }),
                ..VolumeProjection::default()
            },
            VolumeProjection {
                downward_api: Some(DownwardAPIProjection {
                    items: Some(vec![DownwardAPIVolumeFile {
                        path: "namespace".to_owned(),
                        field_ref: Some(ObjectFieldSelector {
                            api_version: Some("v1".to_owned()),
                            field_path: "metadata.namespace".to_owned(),
                        }),
                        ..DownwardAPIVolumeFile::default()
                    }]),
                }),
                ..VolumeProjection::default()
            },
        ]),
        ..ProjectedVolumeSource::default()
    };
    Volume {
        name: TOKEN.to_owned(),
        projected: Some(projected),
        ..Volume::default()
    }
}

fn collect(spec: &PlanSpec, containers: &[Option<&ContainerSpec>]) -> (Vec<Volume>, Vec<JobError>) {
    let mut volumes: Vec<Volume> = has_host_root(spec).then(host_root).into_iter().collect();
    volumes.push(pod_info());
    let mut errors = Vec::new();
    let mut add = |volume: Volume| match volumes.iter().find(|other| other.name == volume.name) {
        Some(same) if *same == volume => Ok(()),
        Some(_) => Err(JobError::VolumeConflict(volume.name)),
        None => {
            volumes.push(volume);
            Ok(())
        }
    };
    for secret in spec.secrets.iter().flatten() {
        errors.extend(add(secret_volume(secret)).err());
    }
    for volume in containers
        .iter()
        .flatten()
        .flat_map(|container| container.volumes.iter().flatten())
    {
        errors.extend(volume_error(volume));
        errors.extend(add(host_path(volume)).err());
    }
    (volumes, errors)
}

/// What the API server would refuse about a volume of the Plan.
fn volume_error(volume: &VolumeSpec) -> Option<JobError> {
    if !is_dns_label(&volume.name) {
        return Some(JobError::VolumeName(volume.name.clone()));
    }
    // The API server refuses a host path with `..`, and refuses it for each Job, after refit has given the node a
    // slot.
    let leads_upwards = volume.source.split('/').any(|part| part == "..");
    let path = if volume.source.is_empty() || leads_upwards {
        &volume.source
    } else if volume.destination.is_empty() {
        &volume.destination
    } else {
        return None;
    };
    Some(JobError::VolumePath {
        name: volume.name.clone(),
        path: path.clone(),
    })
}

fn has_host_root(spec: &PlanSpec) -> bool {
    spec.host_access() != HostAccess::None
}

pub(crate) fn host_root_mount() -> VolumeMount {
    VolumeMount {
        name: HOST_ROOT.to_owned(),
        mount_path: HOST_DIR.to_owned(),
        ..VolumeMount::default()
    }
}

pub(crate) fn host_root() -> Volume {
    Volume {
        name: HOST_ROOT.to_owned(),
        host_path: Some(HostPathVolumeSource {
            path: "/".to_owned(),
            type_: Some("Directory".to_owned()),
        }),
        ..Volume::default()
    }
}

/// Labels and annotations of the pod, as files.
fn pod_info() -> Volume {
    let file = |name: &str| DownwardAPIVolumeFile {
        path: name.to_owned(),
        field_ref: Some(ObjectFieldSelector {
            api_version: Some("v1".to_owned()),
            field_path: format!("metadata.{name}"),
        }),
        ..DownwardAPIVolumeFile::default()
    };
    Volume {
        name: POD_INFO.to_owned(),
        downward_api: Some(DownwardAPIVolumeSource {
            // The API server's default. It is written here because the Job is compared with that of system-upgrade-
            // controller (S34).
            default_mode: Some(0o644),
            items: Some(vec![file("labels"), file("annotations")]),
            ..DownwardAPIVolumeSource::default()
        }),
        ..Volume::default()
    }
}

/// With `ignoreUpdates` the Secret may be missing too.
fn secret_volume(secret: &SecretSpec) -> Volume {
    Volume {
        name: secret_volume_name(&secret.name),
        secret: Some(SecretVolumeSource {
            secret_name: Some(secret.name.clone()),
            default_mode: secret.default_mode,
            optional: Some(secret.ignore_updates.unwrap_or_default()),
            ..SecretVolumeSource::default()
        }),
        ..Volume::default()
    }
}

fn host_path(volume: &VolumeSpec) -> Volume {
    Volume {
        name: volume.name.clone(),
        host_path: Some(HostPathVolumeSource {
            path: volume.source.clone(),
            type_: None,
        }),
        ..Volume::default()
    }
}

/// Mount path of a Secret (S17): an absolute path as it is, any other below [`SECRETS_DIR`].
fn secret_path(secret: &SecretSpec) -> String {
    match secret.path.as_str() {
        "" => below_secrets(&secret.name),
        path if path.starts_with('/') => path.to_owned(),
        path => below_secrets(path),
    }
}

/// Joins and cleans paths as Go's `filepath.Join`.
fn below_secrets(path: &str) -> String {
    let mut parts = Vec::new();
    for part in SECRETS_DIR.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

#[cfg(test)]
mod tests;
