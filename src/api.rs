//! The Plan as users write it: spec, status, and the names of the labels and annotations that refit reads and writes.
//! Nothing here talks to a cluster.

pub mod crd;
pub mod drain;
pub mod duration;
pub mod names;
pub mod plan;
pub mod reboot;
pub mod selector;
pub mod sentinel;
pub mod status;
pub mod validate;
pub mod version_policy;
pub mod window;

pub use drain::{DrainNote, DrainWait};
pub use plan::{
    ContainerSpec, DrainSpec, DrainTimeout, Plan, PlanSpec, SecretRef, SecretSpec, TimeWindowSpec, VolumeSpec,
};
pub use reboot::{HostAccess, RebootSpec, RebootWhen, SettleSpec};
pub use sentinel::{RebootFault, SentinelName, SentinelReport};
pub use status::{
    ChannelStatus, FirstSeen, NodeCounts, NodeProgress, PinnedImage, PinnedStatus, PlanCondition, PlanStatus,
};
pub use version_policy::{BadPolicy, VersionPolicySpec};
