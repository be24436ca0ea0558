//! What happens next, decided from what is known: which nodes start now, which wait and why, what status says.
//!
//! PURE: no client, no clock, no I/O. [`World`] is an index of facts that watches and answers to own writes fill;
//! [`decide`] looks at all of it and answers for all Plans at once. It is deterministic, and decided again on its own
//! result it asks for nothing. What matters is on the cluster; what the index alone remembers may only delay.

mod blocker;
mod conditions;
mod decide;
mod digests;
mod event;
pub mod facts;
mod fields;
mod give_back;
mod next;
mod node;
mod plan;
pub mod record;
mod resolve;
mod start;
mod status;
mod step;
mod terms;
mod view;
mod world;

#[cfg(test)]
mod tests;

pub use blocker::Blocker;
pub use decide::{Decision, Report, decide, decide_blind};
pub use event::{Event, EventType, Regarding};
pub use facts::{
    ChannelFacts, Found, JobFacts, Labels, Missing, NodeFacts, Outcome, PlanFacts, PodFacts, RebootPod,
    Schema, SecretFacts, Stage, WorkloadFacts,
};
pub use plan::Written;
pub use record::{Cancelled, Holder, Ledger, Phase, Reboot, Record};
pub use step::{Key, Lane, MARK_WAITS, NodeChange, Step};
pub use world::{Defaults, Kind, Lists, Trouble, World};
