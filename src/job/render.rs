//! The Job for a Plan on a node, as a manifest (S30–S39).

use std::collections::BTreeMap;

use k8s_openapi::api::batch::v1::Job;

use super::JobSettings;
use super::image::ImageError;
use crate::api::PlanSpec;
use crate::api::duration::DurationError;
use crate::api::selector::SelectorError;

/// What a Job is rendered from. It borrows all of it and is `Copy`: a roll-out renders thousands.
#[derive(Clone, Copy, Debug)]
pub struct JobInput<'a> {
    pub plan: PlanInput<'a>,
    pub node: NodeInput<'a>,
    /// Name of the Job: [`job_name`](super::name::job_name), or
    /// [`second_job_name`](super::name::second_job_name) where that is taken.
    pub name: &'a str,
    /// Which attempt on this node for this hash, from 1.
    pub attempt: u32,
    /// Whether the node was unschedulable before the Job, where nothing of refit's own on the node can note it.
    pub unschedulable_before: Option<bool>,
}

/// The Plan's side of a Job: the same for all its nodes.
#[derive(Clone, Copy, Debug)]
pub struct PlanInput<'a> {
    pub name: &'a str,
    pub namespace: &'a str,
    pub uid: &'a str,
    pub labels: Option<&'a BTreeMap<String, String>>,
    pub annotations: Option<&'a BTreeMap<String, String>>,
    pub spec: &'a PlanSpec,
    /// `status.latestVersion`.
    pub latest_version: &'a str,
    /// `status.latestHash`.
    pub latest_hash: &'a str,
    /// What [`inputs`](super::inputs::inputs) gave for this spec and version.
    pub inputs: &'a str,
}

/// The node's side of a Job.
#[derive(Clone, Copy, Debug)]
pub struct NodeInput<'a> {
    pub name: &'a str,
    pub uid: &'a str,
    /// Value of the label `kubernetes.io/os`.
    pub os: Option<&'a str>,
}

/// Why there can be no Job.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JobError {
    #[error("the Plan's name {0:?} cannot be the name of a label (at most 63 characters)")]
    PlanName(String),
    #[error("the controller's name {0:?} cannot be the value of a label")]
    ControllerName(String),
    #[error("the version {0:?} cannot be the value of a label")]
    Version(String),
    #[error("{container}: image {image:?}: {error}")]
    Image {
        container: &'static str,
        image: String,
        error: ImageError,
    },
    #[error("spec.postCompleteDelay: {0}")]
    PostCompleteDelay(DurationError),
    #[error("spec.drain.podSelector: {0}")]
    PodSelector(SelectorError),
    #[error("volume {0:?} has two sources")]
    VolumeConflict(String),
    #[error("volume {0:?}: the name is no DNS label")]
    VolumeName(String),
    #[error("SYSTEM_UPGRADE_JOB_KUBECTL_IMAGE_WINDOWS is required when targeting Windows nodes")]
    KubectlImageWindows,
}

/// What is worth telling, though a Job can be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remark {
    /// The Plan's security context of this container is not used: the controller does not allow Plans to have one.
    SecurityContextIgnored { container: &'static str },
    /// The drain may take longer than the whole Job.
    DrainTimeoutExceedsDeadline,
}

/// What [`check`] finds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Without any of these there is a Job.
    pub errors: Vec<JobError>,
    pub remarks: Vec<Remark>,
}

/// All that is wrong with the Jobs of a Plan, before a node is chosen.
pub fn check(plan: &PlanInput<'_>, settings: &JobSettings) -> Findings {
    let _ = (plan, settings);
    Findings::default()
}

/// The Job. An image that cannot take the version as its tag stays as it is, as with system-upgrade-controller; [`check`]
/// is what refuses it.
pub fn render(input: &JobInput<'_>, settings: &JobSettings) -> Result<Job, JobError> {
    let _ = (input, settings);
    Ok(Job::default())
}
