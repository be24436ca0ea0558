//! A log of all changes of objects and who made them, for the recorder and the invariants.

use std::sync::Arc;

use jiff::Timestamp;

use super::resources::Kind;
use super::store::{Change, Key};
use super::upgrade_script::PrepareWait;

#[derive(Clone, Debug)]
pub struct Entry {
    pub at: Timestamp,
    /// The name of a client, or [`CLUSTER`].
    pub who: Arc<str>,
    pub what: JournalEvent,
}

#[derive(Clone, Debug)]
pub enum JournalEvent {
    Change(Kind, Change),
    /// A pod reboots its machine.
    Reboot {
        node: String,
        pod: Key,
    },
    /// The reason why `prepare` waits has changed; `None` if it no longer waits.
    Prepare {
        node: String,
        /// The Plan of its Job.
        plan: String,
        wait: Option<PrepareWait>,
    },
}

/// The name of the cluster's own controllers, scheduler and kubelets.
pub const CLUSTER: &str = "cluster";
