//! The Job that verifies a node after its upgrade and its reboot (`spec.verify`).
//!
//! It is a Job of its own, because the node may reboot in between. It has one name for each Job that upgrades, so that a
//! controller which does not know whether it has created it cannot create a second one.

use k8s_openapi::api::batch::v1::Job;

use super::plan_containers::VERIFY;
use super::pod::on_node;
use super::{check, containers, metadata, template, volumes};
use crate::error::JobError;
use crate::job_input::{JobInput, NodeInput, PlanInput};
use crate::settings::JobSettings;
use refit_api::names;

/// The inputs of the Job.
#[derive(Clone, Copy, Debug)]
pub struct VerifyInput<'a> {
    /// The current Plan, with the version and the hash of the upgrade.
    pub plan: PlanInput<'a>,
    pub node: NodeInput<'a>,
    /// Number of the attempt on this node for this hash, from 1.
    pub attempt: u32,
    /// UID of the Job that has upgraded the node.
    pub upgrade_job: &'a str,
}

impl VerifyInput<'_> {
    pub fn name(&self) -> String {
        let Self { plan, node, .. } = self;
        plan.run_id(node, self.upgrade_job).verify_job_name()
    }
}

/// The Job; `None` if the Plan has no `verify`.
///
/// # Errors
/// Fails if the API server would refuse the Job.
pub fn verify_job(input: &VerifyInput<'_>, settings: &JobSettings) -> Result<Option<Job>, JobError> {
    let VerifyInput { plan, node, .. } = input;
    let Some(verify) = &plan.spec.verify else {
        return Ok(None);
    };
    check::names(plan, settings)?;
    let container = containers::look(VERIFY, verify, plan, node, settings);
    let pod = on_node(plan, node, container, volumes::of_verify(plan.spec)?);
    // Not those of a pod that reboots: this one leaves no sentinel.
    let pod_annotations = metadata::annotations(plan, node);
    let name = input.name();
    let of_job = JobInput {
        plan: *plan,
        node: *node,
        name: &name,
        attempt: input.attempt,
        unschedulable_before: None,
    };
    let mut annotations = metadata::job_annotations(&of_job, settings, pod_annotations.clone())?;
    annotations.insert(
        names::ANNOTATION_VERIFIES.to_owned(),
        input.upgrade_job.to_owned(),
    );
    Ok(Some(template::on_node(
        &of_job,
        settings,
        annotations,
        pod_annotations,
        pod,
    )))
}
