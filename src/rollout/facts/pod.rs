//! What is known of a pod: how far it has come, and what it has found out on its node.

use jiff::Timestamp;

use super::Text;
use crate::api::DrainNote;

/// How far the pod of a Job has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Not bound to the node.
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

impl Stage {
    /// What `status.active[].phase` calls it.
    pub fn phase(self) -> &'static str {
        match self {
            Self::Unbound => "Pending",
            Self::Starting => "Starting",
            Self::Prepare => "Preparing",
            Self::Cordon => "Cordoning",
            Self::Drain => "Draining",
            Self::Upgrade => "Upgrading",
            Self::Ended => "Finishing",
        }
    }
}

/// What a pod has found out on its node about the end of the upgrade, and says when it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// The upgrade has succeeded.
    Success {
        /// In this boot.
        boot_id: Text,
        /// The node has to reboot.
        required: bool,
    },
    /// Nothing says that it has.
    Nothing {
        /// In this boot, where the pod says so.
        boot_id: Option<Text>,
    },
}

/// What a pod is for that reboots its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RebootPod {
    /// UID of the Plan.
    pub plan_uid: Text,
    /// UID of the node.
    pub node_uid: Text,
    /// Hash whose upgrade has succeeded.
    pub hash: Text,
    /// The boot that it is to end. Without one it only asks which one it would be.
    pub boot_id: Option<Text>,
    /// `metadata.creationTimestamp`.
    pub created: Timestamp,
    /// It has ended well: it has found the node in another boot, or has told what it was asked.
    pub succeeded: bool,
}

/// What is known of a pod of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodFacts {
    /// `metadata.name`.
    pub name: Text,
    /// `metadata.uid`.
    pub uid: Text,
    /// UID of the Job, by controlling ownerReference; of a pod that reboots its node, of the Plan.
    pub job_uid: Text,
    /// Plan, by label.
    pub plan: Text,
    /// Node that it is bound to.
    pub node: Option<Text>,
    /// How far it has come.
    pub stage: Stage,
    /// Why it does not come further (unschedulable, image pull), as it says.
    pub waiting: Option<String>,
    /// How far its drain has come, as it says.
    pub drain: Option<DrainNote>,
    /// What the container that failed said last.
    pub last_words: Option<String>,
    /// Its `upgrade` container has been started.
    pub upgraded: bool,
    /// What it has found out on its node.
    pub found: Option<Found>,
    /// It is no pod of a Job: it reboots its node.
    pub reboot: Option<Box<RebootPod>>,
    /// `metadata.deletionTimestamp` is set, or a delete of ours was answered.
    pub deleting: bool,
}
