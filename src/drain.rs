//! Cordon, uncordon and drain as kubectl does them, for the init containers of Jobs and for people.
//!
//! Everything is looked at first: the node, its pods by kubectl's rules, and what one may do. Only then the node is
//! cordoned, its pods are listed again, and evicted. For a Plan the cordon is written down in the node's ledger, and a
//! patch of that ledger is the last act. It never decides about another node than those it was given, and it gives no node
//! back: that is the controller's, by level.

pub mod answer;
pub mod board;
mod cordon;
pub mod event;
mod evict;
mod failure;
mod find;
mod permissions;
pub mod pods;
mod publish;
mod run;
mod session;

pub use cordon::CordonError;
pub use event::{DryRun, Event};
pub use failure::Failure;
pub use session::Session;

use crate::api::duration::GoDuration;
use crate::api::names;
use crate::rollout::Holder;
use pods::Rules;

/// What a drain is to do, as kubectl's flags say it.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// `--pod-selector`, as text.
    pub pod_selector: String,
    /// Which pods may go.
    pub rules: Rules,
    /// `--grace-period` in seconds; absent means each pod's own.
    pub grace_period: Option<u32>,
    /// `--timeout`; absent means for ever.
    pub timeout: Option<GoDuration>,
    /// `--disable-eviction`.
    pub disable_eviction: bool,
    /// `--chunk-size`; 0 is all at once.
    pub chunk_size: u32,
}

/// Which nodes are meant.
#[derive(Clone, Debug)]
pub enum Which {
    /// By name.
    Names(Vec<String>),
    /// By label selector.
    Selector(String),
}

/// The pod that this process runs in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnPod {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
}

/// For which Plan this process runs, where it runs for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanRun {
    /// Who holds the node.
    pub holder: Holder,
    /// The machine that is meant.
    pub node_uid: String,
    /// Where progress is written.
    pub pod: Option<OwnPod>,
    /// The ledger is to say whose pods were evicted.
    pub notes_workloads: bool,
}

impl PlanRun {
    /// Reads it from the environment that the controller gives its containers. `lookup` reads a variable.
    pub fn read(lookup: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let text = |name: &str| lookup(name).filter(|value| !value.is_empty());
        let plan_uid = text(names::ENV_PLAN_UID)?;
        let namespace = text(names::ENV_PLAN_NAMESPACE)?;
        let pod = || {
            Some(OwnPod {
                namespace: namespace.clone(),
                name: text(names::ENV_POD_NAME)?,
                uid: text(names::ENV_POD_UID)?,
            })
        };
        Some(Self {
            pod: pod(),
            node_uid: text(names::ENV_NODE_UID).unwrap_or_default(),
            holder: Holder {
                controller: text(names::ENV_CONTROLLER_NAME).unwrap_or_default(),
                plan: text(names::ENV_PLAN_NAME).unwrap_or_default(),
                plan_uid,
                namespace,
                cancelled: false,
                passed: false,
                evicted: Vec::new(),
            },
            notes_workloads: text(names::ENV_NOTE_WORKLOADS).is_some(),
        })
    }
}

#[cfg(test)]
mod tests;
