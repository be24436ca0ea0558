//! What people see of roll-outs: status, explanations and reports. Reads the cluster once, needs read access only, and says
//! what it could not read. Writes nothing and decides nothing.

#![forbid(unsafe_code)]

mod cause;
mod detail;
mod differs;
pub mod explain;
mod explanation;
pub mod maintenance;
pub mod node_op;
mod obstacle;
mod overview;
pub mod plan;
pub mod prepare;
pub mod read;
mod remedy;
pub mod report;
mod selected;
mod stall;
pub mod table;
mod text;
mod time;
mod unavailable;

pub use explain::{explain_any_node, explain_maintenance, explain_node, explain_plan};
pub use explanation::Explanation;
pub use plan::PlanOverview;
pub use read::{Scope, Snapshot};
