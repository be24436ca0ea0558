//! The pod that reboots a node, and the one that only asks whether its upgrade had succeeded, as manifests.
//!
//! Neither says that anything has happened: the controller believes the Node. Either may be lost and made again at any time:
//! what it does depends on the boot that it finds. Its name is fixed, so that there are never two.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, SecurityContext, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::JobSettings;
use super::name::{
    ask_pod_name, is_label_value, is_plan_label, label_value, plan_label_key, reboot_pod_name,
};
use super::render::{self, JobError, NodeInput, PlanInput};
use crate::api::names;

/// Name of the one container of these pods.
pub const REBOOT: &str = "reboot";

/// The class of pods that a node cannot do without: not evicted under pressure, ended last when the node shuts down, and let in
/// by a kubelet that has no room, at the cost of others.
pub const CRITICAL: &str = "system-node-critical";

/// Kubernetes' own bound on `activeDeadlineSeconds`.
const MAX_SECONDS: i64 = i32::MAX as i64;

/// What a pod is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Errand<'a> {
    /// Reboot the node if it is still in this boot, and its sentinel says that the upgrade succeeded in it.
    Reboot {
        /// The boot under which the upgrade succeeded.
        boot_id: &'a str,
    },
    /// Report what the sentinel says, as the Job's own main container would have.
    Ask,
}

/// What the pod is rendered from.
#[derive(Clone, Copy, Debug)]
pub struct RebootInput<'a> {
    /// The Plan as it is now. Its version and hash do not count: the reboot belongs to an upgrade of before.
    pub plan: PlanInput<'a>,
    /// The node.
    pub node: NodeInput<'a>,
    /// The hash that was upgraded to.
    pub hash: &'a str,
    /// What the pod is for.
    pub errand: Errand<'a>,
    /// Seconds that are left of the reboot's timeout. The kubelet ends the pod then, whatever becomes of the controller.
    pub seconds: i64,
    /// Whether to ask for [`CRITICAL`]. Clusters that keep that class for their own namespaces by a quota refuse such a pod
    /// with 403: then it is made without, with the Plan's class.
    pub critical: bool,
}

impl RebootInput<'_> {
    /// Name of the pod.
    pub fn name(&self) -> String {
        let Self {
            plan,
            node,
            hash,
            errand,
            ..
        } = self;
        let name = match errand {
            Errand::Reboot { .. } => reboot_pod_name,
            Errand::Ask => ask_pod_name,
        };
        name(plan.name, plan.uid, node.name, node.uid, hash)
    }
}

/// The pod.
///
/// # Errors
/// What no pod of this Plan and node can be; a Job for them could not be made either.
pub fn reboot_pod(input: &RebootInput<'_>, settings: &JobSettings) -> Result<Pod, JobError> {
    check(input, settings)?;
    let RebootInput { plan, node, .. } = input;
    let reboots = matches!(input.errand, Errand::Reboot { .. });
    Ok(Pod {
        metadata: ObjectMeta {
            name: Some(input.name()),
            namespace: Some(plan.namespace.to_owned()),
            labels: Some(labels(input, settings)),
            annotations: Some(annotations(input)),
            owner_references: Some(vec![render::owner(plan)]),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            active_deadline_seconds: Some(input.seconds.clamp(1, MAX_SECONDS)),
            automount_service_account_token: Some(false),
            containers: vec![container(input, settings)?],
            dns_policy: Some("Default".to_owned()), // the node's own: nothing is looked up
            enable_service_links: Some(false),
            // The pods' network may be what the upgrade has broken, or what waits for the reboot.
            host_network: Some(true),
            host_pid: reboots.then_some(true),
            image_pull_secrets: render::pull_secrets(plan.spec, &settings.own_image_pull_secrets),
            // Past the scheduler: it would not let a pod onto a node that has no room or is not Ready.
            node_name: Some(node.name.to_owned()),
            priority_class_name: if input.critical {
                Some(CRITICAL.to_owned())
            } else {
                render::some_text(plan.spec.priority_class_name.as_ref())
            },
            restart_policy: Some(if reboots { "OnFailure" } else { "Never" }.to_owned()),
            // It has no token; but where accounts are what may run such pods (OpenShift), this one may.
            service_account_name: render::some_text(plan.spec.service_account_name.as_ref()),
            tolerations: Some(vec![Toleration {
                operator: Some("Exists".to_owned()),
                ..Toleration::default()
            }]),
            volumes: (!reboots).then(|| vec![render::host_root()]),
            ..PodSpec::default()
        }),
        status: None,
    })
}

fn check(input: &RebootInput<'_>, settings: &JobSettings) -> Result<(), JobError> {
    let RebootInput { plan, node, hash, .. } = input;
    if node.is_windows() {
        return Err(JobError::RebootOnWindows(plan.spec.reboot_or_default().when()));
    }
    if !is_plan_label(plan.name) {
        return Err(JobError::PlanName(plan.name.to_owned()));
    }
    if !is_label_value(&settings.controller_name) {
        return Err(JobError::ControllerName(settings.controller_name.clone()));
    }
    if hash.is_empty() {
        return Err(JobError::NoHash);
    }
    Ok(())
}

/// Those by which the controller watches its pods, and by which drains of refit and of system-upgrade-controller leave it alone.
/// They also keep a Job of the same Plan, and of other exclusive ones, off the node while it is about to reboot.
fn labels(input: &RebootInput<'_>, settings: &JobSettings) -> BTreeMap<String, String> {
    let RebootInput { plan, node, hash, .. } = input;
    let role = match input.errand {
        Errand::Reboot { .. } => names::ROLE_REBOOT,
        Errand::Ask => names::ROLE_ASK,
    };
    let own = [
        (names::LABEL_CONTROLLER, settings.controller_name.clone()),
        (
            names::LABEL_EXCLUSIVE,
            render::is_exclusive(plan.spec).to_string(),
        ),
        (names::LABEL_NODE, label_value(node.name).into_owned()),
        (names::LABEL_PLAN, plan.name.to_owned()),
        (names::LABEL_ROLE, role.to_owned()),
    ];
    let mut labels = render::inherited_labels(plan);
    labels.extend(own.map(|(key, value)| (key.to_owned(), value)));
    labels.insert(plan_label_key(plan.name), (*hash).to_owned());
    labels
}

/// Whose pod it is, for which boot, and what keeps autoscalers from taking the node away. `kubectl drain` knows no such
/// annotation: since the pod has a controller it is evicted without `--force`, and made again.
fn annotations(input: &RebootInput<'_>) -> BTreeMap<String, String> {
    let RebootInput { plan, node, .. } = input;
    let mut own = vec![
        (names::ANNOTATION_PLAN_UID, plan.uid),
        (names::ANNOTATION_NODE_NAME, node.name),
        (names::ANNOTATION_NODE_UID, node.uid),
        ("cluster-autoscaler.kubernetes.io/safe-to-evict", "false"),
        ("karpenter.sh/do-not-disrupt", "true"),
    ];
    if let Errand::Reboot { boot_id } = input.errand {
        own.push((names::ANNOTATION_BOOT_ID, boot_id));
    }
    let mut annotations = render::inherited_annotations(plan);
    annotations.extend(
        own.into_iter()
            .map(|(key, value)| (key.to_owned(), value.to_owned())),
    );
    annotations
}

fn container(input: &RebootInput<'_>, settings: &JobSettings) -> Result<Container, JobError> {
    let RebootInput { plan, node, hash, .. } = input;
    let sentinel = render::sentinel_name(plan.uid, node.uid, hash)?;
    let sentinel = format!("--sentinel={sentinel}");
    let Errand::Reboot { boot_id } = input.errand else {
        let host = format!("--host={}", render::HOST_DIR);
        let args = vec!["reboot".to_owned(), "--ask".to_owned(), sentinel, host];
        return Ok(render::on_host(REBOOT, args, settings));
    };
    let boot_id = format!("--boot-id={}", render::literal(boot_id));
    let mut args = vec!["reboot".to_owned(), boot_id, sentinel];
    args.extend(render::command_args(plan.spec.reboot_or_default()));
    Ok(Container {
        // To enter the host's mount namespace and to signal its process 1. It mounts nothing of the host: it goes there.
        security_context: Some(SecurityContext {
            privileged: Some(true),
            read_only_root_filesystem: Some(true),
            run_as_group: Some(0),
            run_as_non_root: Some(false),
            run_as_user: Some(0),
            ..SecurityContext::default()
        }),
        volume_mounts: None,
        ..render::on_host(REBOOT, args, settings)
    })
}

#[cfg(test)]
mod tests;
