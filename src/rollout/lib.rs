//! What happens next: which nodes start, which wait and why, and what status says.
//!
//! Pure: no client, no clock, no I/O. [`ClusterState`] is an index of facts, filled from watches and from the responses
//! to refit's own writes. [`decide`] looks at all of it and decides for all Plans at once. It is deterministic, and
//! requests nothing when it is applied to its own result. All state that matters is on the cluster; what only the index
//! remembers may only delay a step.

#![forbid(unsafe_code)]

mod answered;
mod blocker;
mod checks;
mod completion;
mod conditions;
mod decide;
mod decision;
mod dependencies;
mod despite;
mod differs;
mod digests;
mod event;
mod failure;
mod followers;
mod grants;
mod hooks;
mod label_receipts;
mod later;
mod lifecycle;
mod maintenance;
mod memory;
mod node;
mod notified;
mod observation;
mod obstacle;
mod open_waves;
mod order;
mod pending_taints;
mod permissions;
mod picture;
mod plan;
mod pod_blockers;
mod poll;
mod pruning;
mod reboot_needed;
mod refusal;
mod release;
mod remediation;
mod repeat;
mod reservation;
mod resolve;
mod settings;
mod start;
mod state;
mod status;
mod step;
pub mod summary;
mod targets;
mod wave;
mod world;

#[cfg(test)]
mod tests;

pub use blocker::{Blocker, Joining};
pub use decide::{decide, decide_degraded};
pub use decision::Decision;
pub use event::{Event, Regarding};
pub use memory::StepFailure;
pub use memory::answers::{DaemonPods, LeaseCheck, LeaseState, PodCheck, Refusal, UnreadyPod};
pub use memory::turns::{MaintenanceProgress, MaintenanceTask};
pub use node::state::NodeState;
pub use observation::{Kind, Observation, StepEffect};
pub use permissions::plan_needs;
pub use picture::{Differs, PlanPicture};
pub use settings::Defaults;
pub use start::schedule::Opening;
pub use state::ClusterState;
pub use state::apply::lists::ListCounts;
pub use step::{Key, Lane, MaintenanceTurn, NodeChange, Query, RemediationStep, Step};
pub use world::limits::GlobalLimits;
pub use world::maintenances::{MaintenanceId, ReservationDecision, ReservationDecisions};
