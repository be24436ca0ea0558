//! What happens next: which nodes start, which wait and why, and what status says.
//!
//! Pure: no client, no clock, no I/O. [`ClusterState`] is an index of facts, filled from watches and from the responses
//! to refit's own writes. [`decide`] looks at all of it and decides for all Plans at once. It is deterministic, and
//! requests nothing when it is applied to its own result. All state that matters is on the cluster; what only the index
//! remembers may only delay a step.

mod blocker;
mod completion;
mod conditions;
mod decide;
mod digests;
mod event;
pub mod facts;
mod fields;
mod node;
mod observation;
mod plan;
mod poll;
pub mod record;
mod release;
mod resolve;
mod start;
mod state;
mod status;
mod step;
mod targets;

#[cfg(test)]
pub(crate) mod tests;

pub use blocker::Blocker;
pub use decide::{Decision, Report, decide, decide_degraded};
pub use event::{Event, Regarding};
pub use facts::{
    ChannelFacts, JobFacts, JobOutcome, Labels, Missing, NodeFacts, PlanFacts, PodFacts, PodStage, RebootPod,
    Schema, SecretFacts, SentinelResult, WorkloadFacts,
};
pub use observation::{Kind, Observation, StepEffect};
pub use record::{Phase, Reboot, Record};
pub use state::{ClusterState, Defaults, ListCounts, StepFailure};
pub use step::{Key, Lane, NodeChange, Query, Step};
