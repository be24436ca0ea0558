//! What runs on a node that has to reboot: the probe before anything is disturbed, the sentinel after the upgrade, and the
//! reboot itself.
//!
//! It knows one node, its own, and talks to no API server: what it finds is said in exit codes and termination messages, and the
//! controller believes the Node. It has no runtime and no threads of its own before the host's mount namespace is entered, which
//! a process with threads cannot do.

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
pub use sentinel::{Wish, keep};
