//! Cordon, uncordon and drain as kubectl does them, for the init containers of Jobs and as commands.
//!
//! The session first checks the node, its pods by kubectl's rules, and the permissions. Only then it cordons the node,
//! lists the pods again and evicts them. For a Plan, it writes the cordon to the node's ledger, and its last step is a
//! patch of that ledger. It changes no other node than those it was given, and does not uncordon a drained node: the
//! controller releases it.

mod budget;
mod changes;
mod conditions;
mod cordon;
mod detach;
pub mod event;
mod evict;
mod failure;
mod fit;
pub mod flags;
mod forecast;
mod lister;
mod options;
pub mod outcome;
mod permissions;
mod plan_run;
pub mod pods;
mod publish;
mod run;
mod session;
pub mod tracker;
mod virtual_machine;
mod wait_for;
mod waiter;

pub use changes::{Changes, NodeVersions};
pub use cordon::CordonError;
pub use event::{DryRun, Event};
pub use failure::Failure;
pub use forecast::forecast;
pub use options::{NodeSelection, Options};
pub use plan_run::PlanRun;
pub use pods::is_of_operator;
pub use session::Session;
