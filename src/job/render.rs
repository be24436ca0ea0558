//! The manifest of the Job for a Plan on a node (S30–S39).
//!
//! The Job is created once and starts at once, with parallelism 1. Its TTL stays an annotation until its result is
//! recorded. Annotations distinguish it from Jobs of another Plan, node or attempt.

mod check;
mod containers;
mod drain;
mod hook;
mod metadata;
mod prepull;
mod verify;
mod volumes;

use std::collections::BTreeMap;

use k8s_openapi::api::batch::v1::{
    Job, JobSpec, PodFailurePolicy, PodFailurePolicyOnExitCodesRequirement, PodFailurePolicyRule,
};
use k8s_openapi::api::core::v1::{
    Affinity, Container, LocalObjectReference, NodeAffinity, NodeSelector, NodeSelectorRequirement,
    NodeSelectorTerm, PodAffinityTerm, PodAntiAffinity, PodSpec, PodTemplateSpec, Toleration, Volume,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement, ObjectMeta};

use super::JobSettings;
use super::name::RunId;
use refit_api::{AfterWait, ApiAccess, HostAccess, PlanSpec, WaitFor, names, wait_for};
use refit_base::go::GoDuration;

pub use check::{Findings, JobError, Remark, check};
pub use containers::{DRAIN, OVERDUE, PREFLIGHT, PROBE, SENTINEL, SKIPPED, UPGRADE, VERIFY};
pub(super) use containers::{command_args, literal, on_host, sentinel_name};
pub use drain::drain_command;
pub use hook::{HookInput, hook_job};
pub(super) use metadata::{inherited_annotations, inherited_labels, owner};
pub use prepull::prepull_job;
pub use verify::{VerifyInput, verify_job};
pub(super) use volumes::{HOST_DIR, host_root};

/// `podReplacementPolicy`: no other pod before the one that fails has ended.
const ONE_AT_A_TIME: &str = "Failed";

/// The inputs of a Job. It only borrows and is `Copy`, because a roll-out renders thousands.
#[derive(Clone, Copy, Debug)]
pub struct JobInput<'a> {
    pub plan: PlanInput<'a>,
    pub node: NodeInput<'a>,
    /// Name of the Job: [`job_name`](super::name::job_name), or [`RunId::second_job_name`] if
    /// that is taken.
    pub name: &'a str,
    /// Number of the attempt on this node for this hash, from 1.
    pub attempt: u32,
    /// Whether the node was unschedulable before the Job. Set if no ledger records that, because the drain is not
    /// refit's own.
    pub unschedulable_before: Option<bool>,
}

/// The Plan's inputs of a Job, the same for all its nodes.
#[derive(Clone, Copy, Debug)]
pub struct PlanInput<'a> {
    pub name: &'a str,
    /// Namespace of the Plan and of its Jobs.
    pub namespace: &'a str,
    pub uid: &'a str,
    /// Labels of the Plan. Job and pod inherit the user's labels, but not those of Kubernetes, Rancher and refit.
    pub labels: Option<&'a BTreeMap<String, String>>,
    /// Annotations of the Plan, inherited in the same way.
    pub annotations: Option<&'a BTreeMap<String, String>>,
    pub spec: &'a PlanSpec,
    /// `status.latestVersion`.
    pub latest_version: &'a str,
    /// `status.latestHash`.
    pub latest_hash: &'a str,
    /// Result of [`inputs`](super::inputs::inputs) for this spec and version.
    pub inputs: &'a str,
    /// Digests of images, by image with tag. These images run by digest.
    pub digests: &'a BTreeMap<String, String>,
}

impl<'a> PlanInput<'a> {
    /// What the names of objects on a node depend on.
    pub(super) fn run_id(&self, node: &NodeInput<'a>, upgrade: &'a str) -> RunId<'a> {
        RunId {
            plan: self.name,
            plan_uid: self.uid,
            node: node.name,
            node_uid: node.uid,
            upgrade,
        }
    }
}

/// [`PlanInput::digests`] of a Plan that pins none.
pub static NO_DIGESTS: BTreeMap<String, String> = BTreeMap::new();

/// The node's inputs of a Job.
#[derive(Clone, Copy, Debug)]
pub struct NodeInput<'a> {
    pub name: &'a str,
    pub uid: &'a str,
    /// Value of the label `kubernetes.io/os`.
    pub os: Option<&'a str>,
    /// Whether another node has the same label `kubernetes.io/hostname`, which a kubelet can give its node. By
    /// hostname, pods there would then keep the Job's pod off this node.
    pub shares_hostname: bool,
    /// Whether it has the taint of a new node, or may get it before the pod is bound.
    pub may_be_new: bool,
}

impl NodeInput<'_> {
    /// Whether the node runs Windows, where containers differ (S38).
    pub(super) fn is_windows(&self) -> bool {
        self.os == Some("windows")
    }
}

/// The Job. As with system-upgrade-controller, an image that cannot take the version as its tag stays as it is;
/// [`check`] refuses it.
///
/// # Errors
/// Fails if the API server would refuse the Job.
pub fn render(input: &JobInput<'_>, settings: &JobSettings) -> Result<Job, JobError> {
    let JobInput { plan, node, .. } = input;
    if let Some(error) = check::name_errors(plan, settings).into_iter().next() {
        return Err(error);
    }
    if node.is_windows() && settings.kubectl_image_windows.is_empty() {
        return Err(JobError::KubectlImageWindows);
    }
    if let Some(error) = check::windows_errors(plan.spec)
        .into_iter()
        .next()
        .filter(|_| node.is_windows())
    {
        return Err(error);
    }
    let pod_annotations = metadata::pod_annotations(plan, node);
    let mut annotations = metadata::job_annotations(input, settings, pod_annotations.clone())?;
    // Someone may edit the Plan while the Job runs, so the Job itself says that another one has to verify the node.
    if plan.spec.verify.is_some() {
        annotations.insert(names::ANNOTATION_VERIFY.to_owned(), "true".to_owned());
    }
    let pod = pod(plan, node, settings)?;
    let mut job = job(input, settings, annotations, pod_annotations, pod);
    if let Some(spec) = &mut job.spec {
        spec.pod_failure_policy = skip_policy(plan.spec);
        if plan.spec.has_sentinel() || spec.pod_failure_policy.is_some() {
            // Two concurrent pods could both reboot the node. With a failure policy, the API server allows no other.
            spec.pod_replacement_policy = Some(ONE_AT_A_TIME.to_owned());
        }
    }
    Ok(job)
}

/// What the Jobs of a Plan on a node have in common.
fn job(
    input: &JobInput<'_>,
    settings: &JobSettings,
    annotations: BTreeMap<String, String>,
    pod_annotations: BTreeMap<String, String>,
    pod: PodSpec,
) -> Job {
    let JobInput { plan, node, .. } = input;
    let labels = metadata::labels(plan, node, settings);
    Job {
        metadata: ObjectMeta {
            name: Some(input.name.to_owned()),
            namespace: Some(plan.namespace.to_owned()),
            labels: Some(labels.clone()),
            annotations: Some(annotations),
            owner_references: Some(vec![metadata::owner(plan)]),
            ..ObjectMeta::default()
        },
        spec: Some(JobSpec {
            // Parallelism is 1 from the start. system-upgrade-controller creates with 0 and patches it later (S33),
            // which costs a write per node and leaves a Job that never runs if the controller dies in between.
            completions: Some(1),
            parallelism: Some(1),
            backoff_limit: Some(settings.backoff_limit),
            active_deadline_seconds: active_deadline_seconds(plan.spec, settings),
            pod_replacement_policy: Some(settings.pod_replacement_policy.clone()),
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some(labels),
                    annotations: Some(pod_annotations),
                    ..ObjectMeta::default()
                }),
                spec: Some(pod),
            },
            ..JobSpec::default()
        }),
        status: None,
    }
}

/// Ends the Job at once when `preflight` skips the node, or pods have not ended before the drain. Otherwise the Job would run it
/// again up to `backoffLimit` times.
fn skip_policy(spec: &PlanSpec) -> Option<PodFailurePolicy> {
    let waits = spec.drain_waits().unwrap_or_default();
    let ends = |wait: &WaitFor| wait.after_timeout != AfterWait::Evict;
    let by_drain = waits.iter().any(ends).then(|| (DRAIN, vec![OVERDUE, SKIPPED]));
    let by_preflight = spec.preflight.as_ref().map(|_| (PREFLIGHT, vec![SKIPPED]));
    let rules: Vec<_> = by_preflight
        .into_iter()
        .chain(by_drain)
        .map(|(container, values)| PodFailurePolicyRule {
            action: "FailJob".to_owned(),
            on_exit_codes: Some(PodFailurePolicyOnExitCodesRequirement {
                container_name: Some(container.to_owned()),
                operator: "In".to_owned(),
                values,
            }),
            on_pod_conditions: None,
        })
        .collect();
    (!rules.is_empty()).then_some(PodFailurePolicy { rules })
}

/// Whether a Job that ended with [`POD_FAILURE_POLICY`](crate::POD_FAILURE_POLICY) did so because the drain ended with this
/// exit code, as its message says (`matchPodFailurePolicy` in `pkg/controller/job`).
pub fn is_ended_by_drain(message: &str, code: i32) -> bool {
    let of_drain = message.strip_prefix(&*format!("Container {DRAIN} for pod "));
    of_drain.is_some_and(|rest| rest.contains(&format!(" failed with exit code {code} ")))
}

/// Time limit of a Job in seconds; `None` means no limit (S12). What `drain.waitFor` waits comes in addition: the limits are
/// about work that hangs, and the wait has limits of its own.
pub fn active_deadline_seconds(spec: &PlanSpec, settings: &JobSettings) -> Option<i64> {
    let waits = wait_for::longest(&spec.drain_waits().unwrap_or_default());
    Some(work_deadline_seconds(spec, settings)?.saturating_add(waits.as_secs()))
}

fn work_deadline_seconds(spec: &PlanSpec, settings: &JobSettings) -> Option<i64> {
    let max = Some(settings.active_deadline_seconds_max).filter(|max| *max > 0);
    let deadline = match spec.job_active_deadline_secs {
        // 0 is the user's way to say "no limit"; only the administrator's maximum overrules it (S12).
        Some(0) => None,
        Some(seconds @ 1..) => Some(seconds),
        Some(_) | None => Some(settings.active_deadline_seconds),
    };
    match (deadline, max) {
        (Some(deadline), Some(max)) => Some(deadline.min(max)),
        (deadline, max) => deadline.or(max),
    }
}

/// TTL of a finished Job in seconds: at least a minute longer than the Plan's delay (S39).
///
/// # Errors
/// Fails if `postCompleteDelay` is not a duration.
pub fn ttl_seconds(spec: &PlanSpec, settings: &JobSettings) -> Result<i32, JobError> {
    let ttl = settings.ttl_seconds_after_finish;
    let Some(delay) = &spec.post_complete_delay else {
        return Ok(ttl);
    };
    let delay: GoDuration = delay.parse().map_err(JobError::PostCompleteDelay)?;
    let kept = delay.saturating_add(GoDuration::MINUTE).as_secs();
    Ok(ttl.max(i32::try_from(kept.max(0)).unwrap_or(i32::MAX)))
}

fn pod(plan: &PlanInput<'_>, node: &NodeInput<'_>, settings: &JobSettings) -> Result<PodSpec, JobError> {
    let spec = plan.spec;
    let mut init_containers = containers::init(plan, node, settings)?;
    let upgrade = spec.upgrade_container();
    let upgrade = upgrade.map(|upgrade| containers::upgrade(upgrade, plan, node, settings));
    // Kubernetes runs init containers in order and the main container last. So with `reboot` the sentinel is the main
    // container: it runs only if everything before it succeeded.
    let mut main = match upgrade {
        Some(upgrade) if !spec.has_sentinel() => upgrade,
        upgrade => {
            init_containers.extend(upgrade);
            containers::sentinel(plan, node, settings)?
        }
    };
    // The pull secrets of refit's image are of no use to a pod that does not run it, and the account of the Plan need
    // not have them.
    let uses_own_image = init_containers
        .iter()
        .chain([&main])
        .any(|one| one.image.as_ref() == Some(&settings.own_image));
    let mut volumes = volumes::of_pod(spec)?;
    let is_every = init_containers.iter().chain([&main]).all(volumes::has_token_path);
    // As under system-upgrade-controller, so that its pods and refit's are equal.
    let automount = settings.api_access(spec) == ApiAccess::All && is_every;
    if automount {
        let all = init_containers.iter_mut().chain([&mut main]);
        all.for_each(volumes::unmount_token);
    } else if init_containers.iter().chain([&main]).any(volumes::has_token) {
        volumes.push(volumes::token());
    }
    if prepull::applies(spec, node) {
        volumes.push(prepull::volume());
    }
    Ok(PodSpec {
        image_pull_secrets: pull_secrets(
            spec,
            if uses_own_image {
                &settings.own_image_pull_secrets
            } else {
                &[]
            },
        ),
        init_containers: Some(init_containers).filter(|all| !all.is_empty()),
        // Absent, the API server mounts a token into every container.
        automount_service_account_token: (!automount).then_some(false),
        ..on_node(plan, node, main, volumes)
    })
}

/// A pod on the node, with the access that the Plan gives.
fn on_node(plan: &PlanInput<'_>, node: &NodeInput<'_>, main: Container, volumes: Vec<Volume>) -> PodSpec {
    PodSpec {
        affinity: Some(affinity(plan, node)),
        tolerations: Some(tolerations_on(node, plan.spec)),
        ..of_plan(plan, main, volumes)
    }
}

/// A pod on any node, with the access that the Plan gives.
fn of_plan(plan: &PlanInput<'_>, main: Container, volumes: Vec<Volume>) -> PodSpec {
    let spec = plan.spec;
    let namespaces = (spec.host_access() == HostAccess::Full).then_some(true);
    PodSpec {
        // Otherwise the API server would mount a token into every container.
        automount_service_account_token: Some(false),
        containers: vec![main],
        // On the network of the host, `ClusterFirst` means the resolver of the node, which knows no Services (S33).
        dns_policy: namespaces.map(|_| "ClusterFirstWithHostNet".to_owned()),
        host_ipc: namespaces,
        host_network: namespaces,
        host_pid: namespaces,
        image_pull_secrets: pull_secrets(spec, &[]),
        priority_class_name: some_text(spec.priority_class_name.as_ref()),
        // A failed container fails its pod, so that `backoffLimit` counts it and the next pod starts with `prepare`
        // again (S33). A `podFailurePolicy` requires it, too (KEP-3329).
        restart_policy: Some("Never".to_owned()),
        service_account_name: some_text(spec.service_account_name.as_ref()),
        volumes: Some(volumes),
        ..PodSpec::default()
    }
}

/// Binds the Job to this node by name, and keeps it off hosts with a pod of the same Plan, or of another exclusive
/// Plan, by the hostname label (S33).
fn affinity(plan: &PlanInput<'_>, node: &NodeInput<'_>) -> Affinity {
    let (key, value) = if is_exclusive(plan.spec) {
        (names::LABEL_EXCLUSIVE, "true")
    } else {
        (names::LABEL_PLAN, plan.name)
    };
    Affinity {
        node_affinity: Some(NodeAffinity {
            required_during_scheduling_ignored_during_execution: Some(NodeSelector {
                node_selector_terms: vec![NodeSelectorTerm {
                    // By name, not by the hostname label as in S33: a label may be another than the name of its node,
                    // and then the pod would never be scheduled, or be scheduled elsewhere.
                    match_fields: Some(vec![NodeSelectorRequirement {
                        key: names::FIELD_NODE_NAME.to_owned(),
                        operator: "In".to_owned(),
                        values: Some(vec![node.name.to_owned()]),
                    }]),
                    match_expressions: None,
                }],
            }),
            ..NodeAffinity::default()
        }),
        pod_anti_affinity: (!node.shares_hostname).then(|| PodAntiAffinity {
            required_during_scheduling_ignored_during_execution: Some(vec![PodAffinityTerm {
                label_selector: Some(LabelSelector {
                    match_expressions: Some(vec![LabelSelectorRequirement {
                        key: key.to_owned(),
                        operator: "In".to_owned(),
                        values: Some(vec![value.to_owned()]),
                    }]),
                    match_labels: None,
                }),
                topology_key: names::LABEL_HOSTNAME.to_owned(),
                ..PodAffinityTerm::default()
            }]),
            ..PodAntiAffinity::default()
        }),
        pod_affinity: None,
    }
}

/// The toleration that admits the pod to a node that it has cordoned, then the Plan's (S18).
pub fn tolerations(spec: &PlanSpec) -> Vec<Toleration> {
    let cordoned = Toleration {
        key: Some("node.kubernetes.io/unschedulable".to_owned()),
        operator: Some("Exists".to_owned()),
        effect: Some("NoSchedule".to_owned()),
        ..Toleration::default()
    };
    std::iter::once(cordoned)
        .chain(spec.tolerations.iter().flatten().cloned())
        .collect()
}

/// Those of [`tolerations`], and on a new node that of its taint. It is not a part of the digests of the Plan: a node that
/// gets the taint must not replace Jobs.
fn tolerations_on(node: &NodeInput<'_>, spec: &PlanSpec) -> Vec<Toleration> {
    let of_new_node = Toleration {
        key: Some(names::TAINT_NEW_NODE.to_owned()),
        operator: Some("Exists".to_owned()),
        effect: Some("NoSchedule".to_owned()),
        ..Toleration::default()
    };
    let mut all = tolerations(spec);
    all.extend(node.may_be_new.then_some(of_new_node));
    all
}

/// The Plan's, then those of refit's own image that are not among them.
pub(super) fn pull_secrets(spec: &PlanSpec, own: &[String]) -> Option<Vec<LocalObjectReference>> {
    let mut secrets = spec.image_pull_secrets.clone().unwrap_or_default();
    for name in own {
        if !secrets.iter().any(|secret| secret.name == *name) {
            secrets.push(LocalObjectReference { name: name.clone() });
        }
    }
    Some(secrets).filter(|all| !all.is_empty())
}

pub(super) fn is_exclusive(spec: &PlanSpec) -> bool {
    spec.exclusive.unwrap_or_default()
}

/// In the Go types of system-upgrade-controller, an empty text is the same as none.
pub(super) fn some_text(text: Option<&String>) -> Option<String> {
    text.filter(|text| !text.is_empty()).cloned()
}

#[cfg(test)]
pub(super) mod tests;
