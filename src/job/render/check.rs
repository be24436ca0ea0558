//! What is wrong with the Jobs of a Plan, before one is made: what the API server would refuse on every node, and what
//! would fail on every node.

use super::{PlanInput, active_deadline_seconds, containers, drain, ttl_seconds, volumes};
use crate::api::duration::{DurationError, GoDuration};
use crate::api::selector::SelectorError;
use crate::api::sentinel::NotASentinelName;
use crate::api::{DrainTimeout, HostAccess, PlanSpec, RebootWhen};
use crate::job::JobSettings;
use crate::job::image::{self, ImageError};
use crate::job::name::{is_label_value, is_plan_label};

/// Why there can be no Job.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JobError {
    /// The Plan's name is too long for its label.
    #[error(
        "the Plan's name {0:?} cannot be part of the label plan.upgrade.cattle.io/<plan>: 63 characters at most"
    )]
    PlanName(String),
    /// The controller's name is not what a label can hold.
    #[error("the controller's name {0:?} cannot be the value of a label")]
    ControllerName(String),
    /// The version is not what a label can hold.
    #[error("the version {0:?} cannot be the value of a label")]
    Version(String),
    /// The Plan has no hash: a Job without one could not be told from that of another version.
    #[error("the Plan has no hash")]
    NoHash,
    /// An image is none, or the version is no tag of it.
    #[error("the image {image:?} of {container}: {error}")]
    Image {
        /// Name of the container.
        container: &'static str,
        /// The image as the Plan has it.
        image: String,
        /// What is wrong.
        error: ImageError,
    },
    /// The delay is no duration.
    #[error("spec.postCompleteDelay: {0}")]
    PostCompleteDelay(DurationError),
    /// The drain's selector is none.
    #[error("spec.drain.podSelector: {0}")]
    PodSelector(SelectorError),
    /// A volume has a name that no volume can have.
    #[error("the name of volume {0:?} is no DNS label")]
    VolumeName(String),
    /// One name stands for two volumes.
    #[error("volume {0:?} has two sources")]
    VolumeConflict(String),
    /// A host path or a mount path that no volume can have.
    #[error("volume {name:?} has a path that is empty or leads upwards: {path:?}")]
    VolumePath {
        /// Name of the volume.
        name: String,
        /// The path.
        path: String,
    },
    /// Two volumes are mounted in one place.
    #[error("two volumes are mounted at {path:?} in {container}")]
    MountConflict {
        /// Name of the container.
        container: &'static str,
        /// Where they are mounted.
        path: String,
    },
    /// Nothing can cordon or drain a Windows node (S63). Concerns Windows nodes only.
    #[error("SYSTEM_UPGRADE_JOB_KUBECTL_IMAGE_WINDOWS is required when targeting Windows nodes")]
    KubectlImageWindows,
    /// Nothing proves a reboot of Windows. Concerns Windows nodes only.
    #[error("spec.reboot.when is {}, and a Windows node cannot be rebooted: leave such nodes out with spec.nodeSelector", .0.as_str())]
    RebootOnWindows(RebootWhen),
    /// What Windows has in place of privileged containers is on the host's network. Concerns Windows nodes only.
    #[error("spec.hostAccess is {}, and on a Windows node only Full works: leave such nodes out with spec.nodeSelector", .0.as_str())]
    HostAccessOnWindows(HostAccess),
    /// A UID that no UID looks like, or a hash.
    #[error("the name of the sentinel file {error}: found {plan_uid:?}, {node_uid:?}, {hash:?}")]
    SentinelName {
        /// UID of the Plan.
        plan_uid: String,
        /// UID of the node.
        node_uid: String,
        /// The hash.
        hash: String,
        /// What it must be.
        error: NotASentinelName,
    },
}

impl JobError {
    /// Whether it concerns Windows nodes only.
    pub const fn is_for_windows(&self) -> bool {
        matches!(
            self,
            Self::KubectlImageWindows | Self::RebootOnWindows(_) | Self::HostAccessOnWindows(_)
        )
    }
}

/// What is worth telling, though a Job can be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Remark {
    /// The controller does not let Plans choose a security context.
    #[error("the security context of {container} is ignored: ALLOW_USER_DEFINED_SECURITY_CONTEXT is false")]
    SecurityContextIgnored {
        /// Name of the container.
        container: &'static str,
    },
    /// The drain may take longer than the Job.
    #[error("the drain's timeout exceeds the deadline of the Job")]
    DrainTimeoutExceedsDeadline,
}

/// What [`check`] finds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// What keeps Jobs from being made: on all nodes, or on Windows nodes where the error says so.
    pub errors: Vec<JobError>,
    /// What does not.
    pub remarks: Vec<Remark>,
}

/// All that is wrong with the Jobs of a Plan, before a node is chosen.
///
/// It finds all that [`render`] fails on, and the images too that `render` lets pass.
pub fn check(plan: &PlanInput<'_>, settings: &JobSettings) -> Findings {
    let spec = plan.spec;
    let mut errors = name_errors(plan, settings);
    for (container, of) in containers::of_plan(spec) {
        if let Err(error) = image::tagged(&of.image, plan.latest_version) {
            errors.push(JobError::Image {
                container,
                image: of.image.clone(),
                error,
            });
        }
    }
    errors.extend(ttl_seconds(spec, settings).err());
    errors.extend(
        spec.drain
            .as_ref()
            .and_then(|drain| drain::pod_selector(drain).err()),
    );
    errors.extend(volumes::errors(spec));
    if settings.kubectl_image_windows.is_empty() {
        errors.push(JobError::KubectlImageWindows);
    }
    errors.extend(windows_errors(spec));

    let mut remarks: Vec<_> = containers::of_plan(spec)
        .filter(|(_, of)| of.security_context.is_some() && !settings.allow_user_defined_security_context)
        .map(|(container, _)| Remark::SecurityContextIgnored { container })
        .collect();
    let deadline =
        active_deadline_seconds(spec, settings).and_then(|seconds| seconds.checked_mul(1_000_000_000));
    if drain_timeout(spec)
        .zip(deadline)
        .is_some_and(|(timeout, deadline)| timeout.as_nanos() > deadline)
    {
        remarks.push(Remark::DrainTimeoutExceedsDeadline);
    }
    Findings { errors, remarks }
}

/// What a Windows node cannot be given.
pub(super) fn windows_errors(spec: &PlanSpec) -> Vec<JobError> {
    let mut errors = Vec::new();
    if spec.may_reboot() {
        errors.push(JobError::RebootOnWindows(spec.reboot_or_default().when()));
    }
    if spec.host_access() != HostAccess::Full {
        errors.push(JobError::HostAccessOnWindows(spec.host_access()));
    }
    errors
}

/// How long the drain may take, where the Plan says so.
fn drain_timeout(spec: &PlanSpec) -> Option<GoDuration> {
    match spec.drain.as_ref()?.timeout.as_ref()? {
        DrainTimeout::Nanoseconds(nanos) => Some(GoDuration::from_nanos(*nanos)),
        DrainTimeout::Text(text) => text.parse().ok(),
    }
}

/// Names that no label can hold, and a hash that is not there (W12).
pub(super) fn name_errors(plan: &PlanInput<'_>, settings: &JobSettings) -> Vec<JobError> {
    let mut errors = Vec::new();
    if !is_plan_label(plan.name) {
        errors.push(JobError::PlanName(plan.name.to_owned()));
    }
    if !is_label_value(&settings.controller_name) {
        errors.push(JobError::ControllerName(settings.controller_name.clone()));
    }
    if !is_label_value(plan.latest_version) {
        errors.push(JobError::Version(plan.latest_version.to_owned()));
    }
    if plan.latest_hash.is_empty() {
        errors.push(JobError::NoHash);
    }
    errors
}

#[cfg(test)]
mod tests;
