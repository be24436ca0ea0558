//! Manifests of the pod that reboots a node, and of the pod that only reads its sentinel.
//!
//! The state of neither proves anything: the controller trusts the Node. Either may be lost and recreated at any time,
//! because what it does depends on the current boot. Its name is fixed, so there is only one at a time.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, SecurityContext, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::error::JobError;
use crate::job_input::{NodeInput, PlanInput};
use crate::render;
use crate::settings::JobSettings;
use refit_api::names;

/// Name of the only container of these pods.
pub const REBOOT: &str = "reboot";

/// Priority class of essential pods: the kubelet does not evict them under pressure, stops them last at shutdown, and
/// admits them without room by preempting others.
pub const CRITICAL: &str = "system-node-critical";

/// Kubernetes' limit of `activeDeadlineSeconds`.
const MAX_SECONDS: i64 = i32::MAX as i64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RebootPodMode<'a> {
    /// Reboot the node if it is still in this boot and has a sentinel.
    Reboot {
        /// The boot in which the upgrade succeeded.
        boot_id: &'a str,
    },
    /// Report the sentinel, as the main container of the Job would have.
    Ask,
}

#[derive(Clone, Copy, Debug)]
pub struct RebootInput<'a> {
    /// The current Plan. Its version and hash are not used, because the reboot belongs to an earlier upgrade.
    pub plan: PlanInput<'a>,
    pub node: NodeInput<'a>,
    /// The hash of the upgrade.
    pub hash: &'a str,
    pub mode: RebootPodMode<'a>,
    /// Time left until `reboot.timeout`, in seconds. Then the kubelet stops the pod, even if no controller runs.
    pub seconds: i64,
    /// Whether a pod that is not refit's has [`name`](Self::name). The API server then adds a random suffix, so
    /// that a kubelet which creates pods with the names of others cannot keep their nodes from rebooting.
    pub name_is_taken: bool,
    /// Whether to set [`CRITICAL`]. If a quota reserves that class for other namespaces, the API server refuses the pod
    /// with 403, and it is created with the Plan's class instead.
    pub critical: bool,
}

impl RebootInput<'_> {
    pub fn name(&self) -> String {
        let Self {
            plan,
            node,
            hash,
            mode,
            ..
        } = self;
        let run = plan.run_id(node, hash);
        match mode {
            RebootPodMode::Reboot { .. } => run.reboot_pod_name(),
            RebootPodMode::Ask => run.query_pod_name(),
        }
    }
}

/// The pod.
///
/// # Errors
/// Fails if no Job could be created for this Plan and node either.
pub fn reboot_pod(input: &RebootInput<'_>, settings: &JobSettings) -> Result<Pod, JobError> {
    check(input, settings)?;
    let RebootInput { plan, node, .. } = input;
    let reboots = matches!(input.mode, RebootPodMode::Reboot { .. });
    Ok(Pod {
        metadata: ObjectMeta {
            name: (!input.name_is_taken).then(|| input.name()),
            generate_name: input.name_is_taken.then(|| format!("{}-", input.name())),
            namespace: Some(plan.namespace.to_owned()),
            labels: Some(labels(input, settings)),
            annotations: Some(annotations(input)),
            owner_references: Some(vec![render::owner(plan)]),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            active_deadline_seconds: Some(input.seconds.clamp(1, MAX_SECONDS)),
            // The pod is privileged on the host; a token would add access to the cluster, which it does not need.
            automount_service_account_token: Some(false),
            containers: vec![container(input, settings)?],
            dns_policy: Some("Default".to_owned()), // the node's own resolver: the pod looks nothing up
            enable_service_links: Some(false),
            // The upgrade may have broken the pod network, or that may need the reboot.
            host_network: Some(true),
            host_pid: reboots.then_some(true),
            image_pull_secrets: render::pull_secrets(plan.spec, &settings.own_image_pull_secrets),
            // Bypasses the scheduler, which places no pod on a node that is full or not Ready.
            node_name: Some(node.name.to_owned()),
            priority_class_name: if input.critical {
                Some(CRITICAL.to_owned())
            } else {
                render::some_text(plan.spec.priority_class_name.as_ref())
            },
            // A reboot that fails is retried by the kubelet, so that it also works while no controller runs. A query
            // ends with its answer.
            restart_policy: Some(if reboots { "OnFailure" } else { "Never" }.to_owned()),
            // The pod has no token, but on OpenShift the account decides whether it may be privileged.
            service_account_name: render::some_text(plan.spec.service_account_name.as_ref()),
            // The kubelet checks NoExecute taints of a pod that bypasses the scheduler, and the upgrade may have set
            // any.
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
        return Err(JobError::RebootOnWindows(plan.spec.reboot_when()));
    }
    let of_upgrade = PlanInput {
        latest_version: "",
        latest_hash: hash,
        ..*plan
    };
    render::check_names(&of_upgrade, settings)?;
    if settings.own_image.is_empty() {
        return Err(JobError::OwnImage);
    }
    Ok(())
}

/// Labels by which the controller watches its pods, and by which drains of refit and of system-upgrade-controller skip
/// it. They also keep Jobs of the same Plan, and of other exclusive Plans, off the node until it reboots.
fn labels(input: &RebootInput<'_>, settings: &JobSettings) -> BTreeMap<String, String> {
    let RebootInput { plan, node, hash, .. } = input;
    let role = match input.mode {
        RebootPodMode::Reboot { .. } => names::ROLE_REBOOT,
        RebootPodMode::Ask => names::ROLE_ASK,
    };
    render::labels(plan, node, settings, (names::LABEL_ROLE, role), hash)
}

/// Annotations with the Plan, the node and the boot, and one that keeps autoscalers from removing the node. `kubectl
/// drain` has no such annotation: it evicts the pod, which has a controller, without `--force`, and refit creates it
/// again.
fn annotations(input: &RebootInput<'_>) -> BTreeMap<String, String> {
    let RebootInput { plan, node, .. } = input;
    let mut annotations = render::annotations(plan, node);
    let mut add = |key: &str, value: &str| annotations.insert(key.to_owned(), value.to_owned());
    add("cluster-autoscaler.kubernetes.io/safe-to-evict", "false");
    add("karpenter.sh/do-not-disrupt", "true");
    if let RebootPodMode::Reboot { boot_id } = input.mode {
        add(names::ANNOTATION_BOOT_ID, boot_id);
    }
    annotations
}

fn container(input: &RebootInput<'_>, settings: &JobSettings) -> Result<Container, JobError> {
    let RebootInput { plan, node, hash, .. } = input;
    let sentinel = render::sentinel_name(plan.uid, node.uid, hash)?;
    let sentinel = format!("--sentinel={sentinel}");
    let RebootPodMode::Reboot { boot_id } = input.mode else {
        let host = format!("--host={}", render::HOST_DIR);
        let args = vec!["reboot".to_owned(), "--ask".to_owned(), sentinel, host];
        return Ok(render::on_host(REBOOT, args, settings));
    };
    let boot_id = format!("--boot-id={}", render::literal(boot_id));
    let mut args = vec!["reboot".to_owned(), boot_id, sentinel];
    args.extend(render::command_args(plan.spec.reboot_or_default()));
    Ok(Container {
        // To enter the host's mount namespace and to signal its process 1. The pod mounts nothing of the host.
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
