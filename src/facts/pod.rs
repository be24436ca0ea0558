//! Facts of a pod: its progress, and what it reports about its node.

use std::fmt;

use jiff::Timestamp;

use refit_api::NodePhase;
use refit_api::ids::{BootId, Hash, JobUid, NodeName, NodeUid, PlanName, PlanUid, PodUid, Text};

/// Progress of the pod of a Job. Variants are in the order of progress: of several running pods, the one that has come
/// furthest represents the Job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodStage {
    /// Not bound to the node.
    #[default]
    Unbound,
    /// Bound; no container has run.
    Starting,
    /// `prepare` runs.
    Prepare,
    /// `cordon` runs.
    Cordon,
    /// `drain` runs.
    Drain,
    /// `upgrade` has started.
    Upgrade,
    /// Succeeded or Failed.
    Ended,
}

impl PodStage {
    /// The value of `status.active[].phase`.
    pub fn phase(self) -> NodePhase {
        match self {
            Self::Unbound => NodePhase::Pending,
            Self::Starting => NodePhase::Starting,
            Self::Prepare => NodePhase::Preparing,
            Self::Cordon => NodePhase::Cordoning,
            Self::Drain => NodePhase::Draining,
            Self::Upgrade => NodePhase::Upgrading,
            Self::Ended => NodePhase::Finishing,
        }
    }
}

/// What a pod reports about the upgrade on its node when it exits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SentinelResult {
    Success {
        /// Boot in which it succeeded.
        boot_id: BootId,
        /// Whether the node must reboot.
        required: bool,
    },
    /// Nothing shows that the upgrade succeeded.
    Nothing {
        /// Current boot, if the pod reported it.
        boot_id: Option<BootId>,
    },
}

/// Purpose of a reboot Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RebootPod {
    /// UID of the Plan that controls it.
    pub owner_uid: PlanUid,
    pub plan_uid: PlanUid,
    pub node_uid: NodeUid,
    pub service_account: Text,
    /// Hash whose upgrade succeeded.
    pub hash: Hash,
    /// The boot to end. Without one, the pod only reads the sentinel.
    pub boot_id: Option<BootId>,
    /// `metadata.creationTimestamp`.
    pub created: Timestamp,
    /// Whether it has succeeded: it found the node in another boot, or has read the sentinel.
    pub succeeded: bool,
}

/// Facts of a pod of this controller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodFacts {
    /// `metadata.name`.
    pub name: Text,
    /// `metadata.uid`.
    pub uid: PodUid,
    /// UID of the Job that controls it; empty for a reboot Pod, and for one without an owner.
    pub job_uid: JobUid,
    /// It has refit's labels, and neither a Job nor a Plan controls it. Nothing of it is believed, but its name is taken.
    pub foreign: bool,
    /// Plan, from the label.
    pub plan: PlanName,
    /// Node to which it is bound.
    pub node: Option<NodeName>,
    pub stage: PodStage,
    /// Why it does not progress (unschedulable, image pull), as its status says.
    pub waiting: Option<String>,
    /// The end of the last container that failed.
    pub failed: Option<Termination>,
    /// Whether its `upgrade` container has started.
    pub upgraded: bool,
    /// What it reports about its node.
    pub sentinel_result: Option<SentinelResult>,
    /// Set for a reboot Pod, which belongs to no Job.
    pub reboot: Option<Box<RebootPod>>,
    /// Whether `metadata.deletionTimestamp` is set, or a delete request of refit has succeeded.
    pub deleting: bool,
    /// Whether it runs once for each roll-out, so that it works on no node.
    pub hook: bool,
}

/// How a container failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Termination {
    pub container: String,
    pub exit_code: i32,
    /// Its termination message, or the end of its log.
    pub says: String,
    /// Whether it ended because its pod was deleted, as at the deadline of its Job.
    pub is_of_deletion: bool,
}

impl fmt::Display for Termination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            container,
            exit_code,
            says,
            ..
        } = self;
        write!(f, "container {container} exited with {exit_code}")?;
        match says.as_str() {
            "" => Ok(()),
            says => write!(f, ": {says}"),
        }
    }
}
