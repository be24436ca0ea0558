//! The Jobs that run once for each roll-out (`spec.before`, `spec.after`). They belong to no node.
//!
//! Their label `upgrade.cattle.io/controller` has a value of its own: system-upgrade-controller deletes Jobs with its
//! label that name no node.

use std::collections::BTreeMap;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::PodSpec;

use super::limits::{ttl_seconds, work_deadline_seconds};
use super::plan_containers::with_access;
use super::template::{ONE_AT_A_TIME, Template};
use super::{check, containers, metadata, pod, volumes};
use crate::error::JobError;
use crate::job_input::PlanInput;
use crate::name::hook_controller;
use crate::settings::JobSettings;
use refit_api::{Hook, names};

/// The inputs of the Job.
#[derive(Clone, Copy, Debug)]
pub struct HookInput<'a> {
    pub plan: PlanInput<'a>,
    pub hook: Hook,
    /// [`hook_job_name`](crate::name::hook_job_name).
    pub name: &'a str,
    /// Number of the attempt, from 1.
    pub attempt: i64,
}

/// The Job; `None` if the Plan has no such hook.
///
/// # Errors
/// Fails if the API server would refuse the Job.
pub fn hook_job(input: &HookInput<'_>, settings: &JobSettings) -> Result<Option<Job>, JobError> {
    let HookInput { plan, hook, name, .. } = input;
    let Some(of) = hook.spec(plan.spec) else {
        return Ok(None);
    };
    check::names(plan, settings)?;
    let spec = with_access(plan.spec, of);
    let plan = &PlanInput { spec: &spec, ..*plan };
    let container = containers::hook(hook.as_str(), &of.container, plan, settings);
    let mut pod_volumes = volumes::of_hook(&spec, &of.container)?;
    if volumes::has_token(&container) {
        pod_volumes.push(volumes::token());
    }
    let pod = PodSpec {
        node_selector: of.node_selector.clone(),
        // Without the toleration of cordoned nodes that Jobs of nodes have.
        tolerations: spec.tolerations.clone().filter(|all| !all.is_empty()),
        ..pod::of_plan(plan, container, pod_volumes)
    };
    let pod_annotations = annotations(plan);
    let mut annotations = pod_annotations.clone();
    annotations.insert(
        names::ANNOTATION_TTL.to_owned(),
        ttl_seconds(&spec, settings)?.to_string(),
    );
    annotations.insert(names::ANNOTATION_ATTEMPT.to_owned(), input.attempt.to_string());
    let template = Template {
        name,
        labels: labels(plan, *hook, hook_controller(&settings.controller_name)),
        // That of the watch of pods.
        pod_labels: labels(plan, *hook, settings.controller_name.clone()),
        annotations,
        pod_annotations,
        deadline: work_deadline_seconds(&spec, settings),
        pod,
    };
    let mut job = template.job(plan, settings);
    if let Some(spec) = &mut job.spec {
        spec.pod_replacement_policy = Some(ONE_AT_A_TIME.to_owned());
    }
    Ok(Some(job))
}

fn labels(plan: &PlanInput<'_>, hook: Hook, controller: String) -> BTreeMap<String, String> {
    let own = [
        (names::LABEL_CONTROLLER, controller),
        (names::LABEL_VERSION, plan.latest_version.to_owned()),
        (names::LABEL_HOOK, hook.as_str().to_owned()),
    ];
    metadata::labels_of_plan(plan, own, plan.latest_hash)
}

fn annotations(plan: &PlanInput<'_>) -> BTreeMap<String, String> {
    let mut annotations = metadata::inherited_annotations(plan);
    annotations.insert(names::ANNOTATION_PLAN_UID.to_owned(), plan.uid.to_owned());
    annotations
}

#[cfg(test)]
mod tests;
