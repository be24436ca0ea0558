//! The reasons of events about objects of other projects: a closed list. The documents of these objects print it.

use super::Severity;
use crate::open_enum::closed_enum;

closed_enum! {
    /// The reason of an event about a `NodeMaintenance`, where it is node-maintenance-operator's word, about a
    /// `NodeOp` or a `NodeOpUpgrade`, or about a pod that a drain evicts.
    ForeignReason {
        BeginMaintenance "refit begins with the object"
        SucceedMaintenance "the node is drained"
        FailedMaintenance "`phase` is `Failed`; `lastError` says why"
        UncordonNode "about the Node: the object is being deleted after it had succeeded, and the node is not cordoned any more"
        RemovedMaintenance "the object is being deleted, and refit has released its node"
        Refused "the object cannot become a Plan; the message says what to correct"
        DrainTimeout "about a pod: it could not be evicted within `drain.timeout`, and is deleted or stays, as `afterTimeout` says"
    }
}

impl ForeignReason {
    pub const fn severity(self) -> Severity {
        match self {
            Self::FailedMaintenance | Self::Refused | Self::DrainTimeout => Severity::Warning,
            Self::BeginMaintenance
            | Self::SucceedMaintenance
            | Self::UncordonNode
            | Self::RemovedMaintenance => Severity::Normal,
        }
    }
}
