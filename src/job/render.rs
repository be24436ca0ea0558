//! The manifest of the Job for a Plan on a node (S30–S39).
//!
//! The Job is created once and starts at once, with parallelism 1. Its TTL stays an annotation until its result is
//! recorded. Annotations distinguish it from Jobs of another Plan, node or attempt.

mod check;
mod containers;
mod drain;
mod hook;
mod init;
mod limits;
mod metadata;
mod plan_containers;
mod pod;
mod prepull;
mod template;
mod verify;
mod volumes;

use k8s_openapi::api::batch::v1::{
    Job, PodFailurePolicy, PodFailurePolicyOnExitCodesRequirement, PodFailurePolicyRule,
};
use k8s_openapi::api::core::v1::PodSpec;

use crate::error::JobError;
use crate::job_input::{JobInput, NodeInput, PlanInput};
use crate::settings::JobSettings;
use refit_api::{AfterWait, ApiAccess, PlanSpec, WaitFor, names};
use template::ONE_AT_A_TIME;

pub(super) use check::names as check_names;
pub use check::{Findings, Remark, all_containers, check};
pub use containers::{DRAIN, OVERDUE, PROBE, SENTINEL, SKIPPED};
pub(super) use containers::{command_args, literal, on_host, sentinel_name};
pub use drain::drain_command;
pub use hook::{HookInput, hook_job};
pub use limits::{active_deadline_seconds, ttl_seconds};
pub(super) use metadata::{annotations, labels, owner};
pub use plan_containers::{PREFLIGHT, UPGRADE, VERIFY};
pub use pod::tolerations;
pub(super) use pod::{pull_secrets, some_text};
pub use prepull::prepull_job;
pub use verify::{VerifyInput, verify_job};
pub(super) use volumes::{HOST_DIR, host_root};

/// The Job. As with system-upgrade-controller, an image that cannot take the version as its tag stays as it is;
/// [`check`] refuses it.
///
/// # Errors
/// Fails if the API server would refuse the Job.
pub fn render(input: &JobInput<'_>, settings: &JobSettings) -> Result<Job, JobError> {
    let JobInput { plan, node, .. } = input;
    check::names(plan, settings)?;
    if node.is_windows() {
        if settings.kubectl_image_windows.is_empty() {
            return Err(JobError::KubectlImageWindows);
        }
        check::first(check::windows_errors(plan.spec))?;
    }
    let pod_annotations = metadata::pod_annotations(plan, node);
    let mut annotations = metadata::job_annotations(input, settings, pod_annotations.clone())?;
    // Someone may edit the Plan while the Job runs, so the Job itself says that another one has to verify the node.
    if plan.spec.verify.is_some() {
        annotations.insert(names::ANNOTATION_VERIFY.to_owned(), "true".to_owned());
    }
    let pod = pod(plan, node, settings)?;
    let mut job = template::on_node(input, settings, annotations, pod_annotations, pod);
    if let Some(spec) = &mut job.spec {
        spec.pod_failure_policy = skip_policy(plan.spec);
        if plan.spec.has_sentinel() || spec.pod_failure_policy.is_some() {
            // Two concurrent pods could both reboot the node. With a failure policy, the API server allows no other.
            spec.pod_replacement_policy = Some(ONE_AT_A_TIME.to_owned());
        }
    }
    Ok(job)
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

fn pod(plan: &PlanInput<'_>, node: &NodeInput<'_>, settings: &JobSettings) -> Result<PodSpec, JobError> {
    let spec = plan.spec;
    let mut init_containers = init::containers(plan, node, settings)?;
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
        image_pull_secrets: pod::pull_secrets(
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
        ..pod::on_node(plan, node, main, volumes)
    })
}

#[cfg(test)]
pub(super) mod tests;
