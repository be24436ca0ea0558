//! Why no Job can be created.

use refit_api::image::ImageError;
use refit_api::selector::SelectorError;
use refit_api::sentinel::NotASentinelName;
use refit_api::{HostAccess, RebootWhen};
use refit_base::go::DurationError;

/// Why no Job can be created.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JobError {
    #[error(
        "the Plan's name {0:?} cannot be part of the label plan.upgrade.cattle.io/<plan>: 63 characters at most"
    )]
    PlanName(String),
    #[error("the controller's name {0:?} cannot be the value of a label")]
    ControllerName(String),
    #[error("the version {0:?} cannot be the value of a label")]
    Version(String),
    /// The Plan has no hash, so its Job could not be distinguished from that of another version.
    #[error("the Plan has no hash")]
    NoHash,
    /// An image is invalid, or cannot take the version as its tag.
    #[error("the image {image:?} of {container}: {error}")]
    Image {
        container: &'static str,
        image: String,
        error: ImageError,
    },
    #[error("spec.postCompleteDelay: {0}")]
    PostCompleteDelay(DurationError),
    #[error("spec.drain.podSelector: {0}")]
    PodSelector(SelectorError),
    #[error("the name of volume {0:?} is not a DNS label")]
    VolumeName(String),
    /// Two volumes have the same name.
    #[error("volume {0:?} has two sources")]
    VolumeConflict(String),
    /// A host path or a mount path is invalid.
    #[error("volume {name:?} has a path that is empty or leads upwards: {path:?}")]
    VolumePath { name: String, path: String },
    /// Two volumes have the same mount path.
    #[error("two volumes are mounted at {path:?} in {container}")]
    MountConflict { container: &'static str, path: String },
    /// No image is set to cordon or drain Windows nodes (S3, S63). Applies to Windows nodes only.
    #[error("SYSTEM_UPGRADE_JOB_KUBECTL_IMAGE_WINDOWS is required when targeting Windows nodes")]
    KubectlImageWindows,
    /// The image that cordons, drains and reboots is not known. Does not apply to Windows nodes, which kubectl drains.
    #[error("the image of refit itself is not known")]
    OwnImage,
    /// refit cannot prove a reboot of Windows. Applies to Windows nodes only.
    #[error("spec.reboot.when is {}, and a Windows node cannot be rebooted: leave such nodes out with spec.nodeSelector", .0.as_str())]
    RebootOnWindows(RebootWhen),
    /// `HostProcess` containers, which replace privileged ones on Windows, always use the host's network. Applies to
    /// Windows nodes only.
    #[error("spec.hostAccess is {}, and on a Windows node only Full works: leave such nodes out with spec.nodeSelector", .0.as_str())]
    HostAccessOnWindows(HostAccess),
    /// A UID or the hash is malformed.
    #[error("the name of the sentinel file {error}: found {plan_uid:?}, {node_uid:?}, {hash:?}")]
    SentinelName {
        plan_uid: String,
        node_uid: String,
        hash: String,
        error: NotASentinelName,
    },
}

impl JobError {
    /// Whether it applies to Windows nodes only.
    pub const fn is_for_windows(&self) -> bool {
        matches!(
            self,
            Self::KubectlImageWindows | Self::RebootOnWindows(_) | Self::HostAccessOnWindows(_)
        )
    }
}
