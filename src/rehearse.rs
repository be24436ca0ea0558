//! The cluster in the process: the parts of Kubernetes that a roll-out needs, in a time of their own.
//!
//! An API server stands under `kube::Client`, behind it are the controllers, the scheduler and the kubelets of a cluster, and
//! the same controller runs against it that runs against a real one. Time is tokio's: in a paused runtime hours pass while
//! nobody has anything to do. Nothing here reads another clock, rolls dice or opens a connection, so that the same seed gives
//! the same requests. What it does not play it refuses ([`state::State::holes`]); it never pretends.

mod agenda;
pub mod assume;
pub mod cluster;
mod deletion;
pub mod fault;
mod ids;
pub mod input;
pub mod journal;
pub mod json;
pub mod kubelets;
mod manager;
pub mod nodes;
pub mod play;
pub mod podlife;
pub mod record;
pub mod report;
pub mod resources;
mod rules;
mod scheduler;
mod schema;
pub mod server;
pub mod snapshot;
pub mod state;
pub mod store;
#[cfg(test)]
mod tests;
pub mod verdict;
mod write;

pub use cluster::{Cluster, Options};
pub use fault::Fault;
pub use kubelets::Habits;
pub use resources::Kind;
pub use state::State;

use std::future::Future;

/// Runs something in virtual time: whenever all of it waits, the clock leaps to when the first wait ends. One thread, so
/// that things happen in an order that does not depend on the machine.
///
/// # Errors
/// The operating system gives no runtime.
pub fn in_virtual_time<T>(work: impl Future<Output = T>) -> std::io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()?;
    Ok(runtime.block_on(work))
}
