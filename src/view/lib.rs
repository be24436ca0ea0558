//! What people see of roll-outs: status, explanations and reports. Reads the cluster once, needs read access only, and says
//! what it could not read. Writes nothing and decides nothing.

#![forbid(unsafe_code)]

mod cause;
mod differs;
pub mod explain;
pub mod maintenance;
pub mod node_op;
pub mod plan;
pub mod read;
mod remedy;
pub mod report;
mod stall;
pub mod table;
mod time;

pub use explain::{Explanation, explain_node, explain_plan};
pub use plan::PlanOverview;
pub use read::{Scope, Snapshot};
