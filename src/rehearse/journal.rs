//! What has happened, in its order: every change of an object and who made it, for those who tell of it or judge it.

use std::sync::Arc;

use jiff::Timestamp;

use super::resources::Kind;
use super::store::{Change, Key};

/// Something that has happened.
#[derive(Clone, Debug)]
pub struct Entry {
    /// When.
    pub at: Timestamp,
    /// Who did it: the name of a client, or [`CLUSTER`].
    pub who: Arc<str>,
    /// What it was.
    pub what: What,
}

/// What may happen.
#[derive(Clone, Debug)]
pub enum What {
    /// An object has changed.
    Change(Kind, Change),
    /// A pod reboots the machine that it runs on.
    Reboot {
        /// Name of the node.
        node: String,
        /// The pod.
        pod: Key,
    },
}

/// What the cluster's own controllers, its scheduler and its kubelets are called.
pub const CLUSTER: &str = "cluster";
