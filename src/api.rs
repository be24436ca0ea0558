//! The Plan: spec, status, and the labels and annotations that refit reads and writes. Contains no I/O.

pub mod crd;
pub mod drain;
pub mod image;
pub mod ledger;
pub mod names;
pub mod node_limit;
pub mod open_enum;
pub mod phase;
pub mod plan;
pub mod prepare;
pub mod reason;
pub mod reboot;
pub mod selector;
pub mod sentinel;
pub mod status;
pub mod text;
pub mod validate;
pub mod version_policy;
pub mod window;

pub use drain::{DrainNote, DrainWait};
pub use ledger::{Cancelled, Holder, Ledger};
pub use node_limit::NodeLimit;
pub use open_enum::OpenEnum;
pub use phase::{ConditionType, NodePhase};
pub use plan::{
    ContainerSpec, DrainSpec, DrainTimeout, Plan, PlanSpec, SecretRef, SecretSpec, TimeWindowSpec, VolumeSpec,
};
pub use reason::{Reason, Severity};
pub use reboot::{HostAccess, RebootSpec, RebootWhen, SettleSpec};
pub use sentinel::{RebootFault, SentinelName, SentinelReport};
pub use status::{
    ChannelStatus, FirstSeen, NodeCounts, NodeProgress, PinnedImage, PinnedStatus, PlanCondition, PlanStatus,
};
pub use version_policy::{BadPolicy, VersionPolicySpec};
