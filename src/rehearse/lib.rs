//! A simulated cluster in this process, in virtual time.
//!
//! An API server is the transport of a `kube::Client`; behind it run the controllers, the scheduler and the kubelets of
//! a cluster. The unchanged refit controller runs against it. Time is tokio's: with a paused runtime, hours pass while
//! no task is ready. Nothing here reads another clock, uses other randomness or opens a connection, so the same seed
//! gives the same requests. What is not simulated is refused and recorded ([`state::State::unsupported_requests`]),
//! never faked.

#![forbid(unsafe_code)]

pub mod assumptions;
pub mod cluster;
mod controller_manager;
pub mod delete;
pub mod fault;
pub mod ids;
pub mod journal;
pub mod json;
pub mod kubelets;
pub mod nodes;
pub mod pod_lifecycle;
mod pods;
pub mod record;
pub mod report;
pub mod resources;
pub mod run;
mod scheduler;
mod schema;
pub mod server;
pub mod snapshot;
pub mod state;
pub mod status_error;
pub mod store;
mod strategy;
pub mod upgrade_script;
pub mod verdict;
pub mod version_change;
pub mod words;
mod work_queue;
pub mod write;

pub use cluster::{Cluster, Options};
pub use kubelets::DefaultBehaviour;
pub use resources::Kind;
pub use state::State;
pub use status_error::StatusError;

use std::future::Future;

/// Runs a future in virtual time: when all tasks wait, the clock advances to the first timer. It uses one thread, so
/// that the order of events does not depend on the machine.
///
/// # Errors
/// Fails if the operating system cannot provide a runtime.
pub fn in_virtual_time<T>(work: impl Future<Output = T>) -> std::io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()?;
    Ok(runtime.block_on(work))
}
