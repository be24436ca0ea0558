//! Commands that run on a node with `spec.reboot`: the probe before it is disturbed, the sentinel after the upgrade,
//! and the reboot.
//!
//! They need no API server: they report by exit codes and termination messages, and the controller trusts only the
//! Node. They start no runtime and no threads before they enter the host's mount namespace, which a process with
//! threads cannot do (`setns(2)`).

mod command;
#[cfg(test)]
mod fixture;
mod host;
mod namespace;
mod probe;
mod reboot;
mod sentinel;

pub use command::{CommandFailure, Commands};
pub use host::{Found, Host, HostError};
pub use namespace::enter_host;
pub use probe::{Probed, probe};
pub use reboot::{Failure, Order, Outcome, ask, reboot};
pub use sentinel::{RebootWhen, keep};
