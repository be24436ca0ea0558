//! The Plan as users write it: spec, status, and the names of the labels and annotations that refit reads and writes.
//! Nothing here talks to a cluster.

pub mod crd;
pub mod names;
pub mod plan;
pub mod status;
pub mod window;

pub use plan::{
    ContainerSpec, DrainSpec, DrainTimeout, Plan, PlanSpec, SecretSpec, TimeWindowSpec, VolumeSpec,
};
pub use status::{ChannelStatus, NodeCounts, NodeProgress, PlanCondition, PlanStatus};
