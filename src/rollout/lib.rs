//! What happens next: which nodes start, which wait and why, and what status says.
//!
//! Pure: no client, no clock, no I/O. [`ClusterState`] is an index of facts, filled from watches and from the responses
//! to refit's own writes. [`decide`] looks at all of it and decides for all Plans at once. It is deterministic, and
//! requests nothing when it is applied to its own result. All state that matters is on the cluster; what only the index
//! remembers may only delay a step.

#![forbid(unsafe_code)]

mod blocker;
mod checks;
mod completion;
mod conditions;
mod decide;
mod dependencies;
mod differs;
mod digests;
mod event;
mod failure;
mod fields;
mod known;
mod labelled;
mod node;
mod notified;
mod observation;
mod on_request;
mod order;
mod pending;
mod plan;
mod pod_blockers;
mod poll;
mod refusal;
mod release;
mod repeat;
mod reservation;
mod resolve;
mod start;
mod state;
mod status;
mod step;
mod summary;
mod targets;
mod wave;

#[cfg(test)]
mod tests;

pub use blocker::{Blocker, Joining};
pub use decide::{Decision, Report, decide, decide_degraded};
pub use differs::Differs;
pub use event::{Event, Regarding};
pub use observation::{GlobalLimits, Kind, Observation, StepEffect};
pub use pod_blockers::PodCheck;
pub use refusal::Refusal;
pub use reservation::{Grant, Grants, Reservation, Reservations};
pub use state::{ClusterState, Defaults, ListCounts, StepFailure};
pub use step::{Key, Lane, NodeChange, Query, Step};
pub use summary::{ChannelSummary, PlanSummary, Slot, WindowSummary};
