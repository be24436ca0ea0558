//! Pulls the image of `upgrade` before anything is disturbed (`spec.prepull`): in an init container before the drain,
//! and in a Job of its own on the nodes that come next.
//!
//! A container runs from the image, because that is what makes a kubelet pull it. What an image contains is not known, so an
//! init container before it lends it a program that does nothing: refit itself, which is static.

use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::{
    Container, EmptyDirVolumeSource, PodSpec, PodTemplateSpec, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::pod::{on_node, pull_secrets};
use super::{containers, metadata};
use crate::job_input::{JobInput, NodeInput, PlanInput};
use crate::settings::JobSettings;
use refit_api::{PlanSpec, names};

const PREPULL: &str = "prepull";
const PROGRAM: &str = "prepull-program";
/// Name of the volume with the program. It is refit's own, because a Plan may have a volume of any name.
const VOLUME: &str = "refit-prepull";
const DIR: &str = "/run/refit-prepull";

/// Attempts and time to pull an image in a Job of its own. The Job that upgrades tries again.
const BACKOFF_LIMIT: i32 = 2;
const DEADLINE_SECONDS: i64 = 1800;

/// Whether the image is pulled on this node.
pub(super) fn applies(spec: &PlanSpec, node: &NodeInput<'_>) -> bool {
    spec.prepulls() && !node.is_windows()
}

/// The containers that pull the image, in their order.
pub(super) fn containers(plan: &PlanInput<'_>, settings: &JobSettings) -> Option<[Container; 2]> {
    let upgrade = plan.spec.upgrade_container()?;
    let mount = |read_only: bool| VolumeMount {
        name: VOLUME.to_owned(),
        mount_path: DIR.to_owned(),
        read_only: read_only.then_some(true),
        ..VolumeMount::default()
    };
    let lend = Container {
        args: Some(["prepull", "--lend", DIR].map(str::to_owned).into()),
        volume_mounts: Some(vec![mount(false)]),
        ..containers::unprivileged_own(PROGRAM, settings)
    };
    let pull = Container {
        image: Some(containers::image(upgrade, plan)),
        image_pull_policy: Some(settings.image_pull_policy.clone()),
        command: Some(vec![format!("{DIR}/refit")]),
        args: Some(vec!["prepull".to_owned()]),
        volume_mounts: Some(vec![mount(true)]),
        ..containers::unprivileged_own(PREPULL, settings)
    };
    Some([lend, pull])
}

pub(super) fn volume() -> Volume {
    Volume {
        name: VOLUME.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource::default()),
        ..Volume::default()
    }
}

/// The Job that pulls the image on a node that comes next; `None` if the Plan has no such Job. It has no label of a
/// controller: nothing depends on it, and Kubernetes deletes it.
pub fn prepull_job(input: &JobInput<'_>, settings: &JobSettings) -> Option<Job> {
    let JobInput { plan, node, name, .. } = input;
    if !applies(plan.spec, node) {
        return None;
    }
    let [lend, pull] = containers(plan, settings)?;
    let labels = [(names::LABEL_PREPULL.to_owned(), "true".to_owned())];
    let pod = on_node(plan, node, pull, vec![volume()]);
    let pod = PodSpec {
        init_containers: Some(vec![lend]),
        image_pull_secrets: pull_secrets(plan.spec, &settings.own_image_pull_secrets),
        host_ipc: None,
        host_network: None,
        host_pid: None,
        dns_policy: None,
        ..pod
    };
    Some(Job {
        metadata: ObjectMeta {
            name: Some((*name).to_owned()),
            namespace: Some(plan.namespace.to_owned()),
            labels: Some(labels.clone().into()),
            owner_references: Some(vec![metadata::owner(plan)]),
            ..ObjectMeta::default()
        },
        spec: Some(JobSpec {
            backoff_limit: Some(BACKOFF_LIMIT),
            active_deadline_seconds: Some(DEADLINE_SECONDS),
            // Set at once, unlike that of a Job that upgrades: no result has to be recorded before the Job is deleted.
            ttl_seconds_after_finished: Some(settings.ttl_seconds_after_finish),
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some(labels.into()),
                    ..ObjectMeta::default()
                }),
                spec: Some(pod),
            },
            ..JobSpec::default()
        }),
        status: None,
    })
}
