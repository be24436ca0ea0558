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
pub mod outcome;
mod permissions;
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
pub use session::Session;

use pods::Rules;
use refit_api::ids::NodeUid;
use refit_api::selector::Selector;
use refit_api::{AfterTimeout, Holder, NodeMark, WaitFor, names};
use refit_base::go::GoDuration;

/// Options of a drain, from kubectl's flags.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// `--pod-selector`, as text.
    pub pod_selector: String,
    /// Which pods may be evicted.
    pub rules: Rules,
    /// `--grace-period` in seconds. If absent, each pod's own.
    pub grace_period: Option<u32>,
    /// `--timeout`. If absent, there is no time limit.
    pub timeout: Option<GoDuration>,
    pub disable_eviction: bool,
    pub wait_for_detach: bool,
    /// `--evict-last`: groups of pods that are evicted after all others, one after the other.
    pub evict_last: Vec<Selector>,
    /// `--wait-for`: pods that may end by themselves before the first eviction.
    pub wait_for: Vec<WaitFor>,
    /// `--load-balancer-delay`.
    pub load_balancer_delay: GoDuration,
    /// `--settle-delay`.
    pub settle_delay: GoDuration,
    /// `--after-timeout`.
    pub after_timeout: AfterTimeout,
    /// `--conditions`.
    pub conditions: bool,
    /// `--chunk-size`; 0 means one page.
    pub chunk_size: u32,
}

impl Options {
    /// The time limit, for a message that it is exceeded.
    fn reached(&self) -> String {
        self.timeout
            .map_or_else(String::new, |timeout| timeout.to_string())
    }
}

/// Selection of nodes.
#[derive(Clone, Debug)]
pub enum NodeSelection {
    Names(Vec<String>),
    /// By label selector.
    Selector(String),
}

/// The Plan for which this process runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanRun {
    /// The Plan's entry in the ledger.
    pub holder: Holder,
    /// UID of the expected machine.
    pub node_uid: NodeUid,
    /// UID of the pod of this process, if it runs in one. The controller shows the progress of a drain only with the
    /// UID of the pod that drains.
    pub pod: Option<String>,
    /// Whether the ledger must name the controllers of the evicted pods.
    pub notes_workloads: bool,
    /// What to mark on the node while the Plan holds it.
    pub marks: Vec<NodeMark>,
}

impl PlanRun {
    /// Reads it from the environment variables that the controller sets in its containers. `lookup` reads a variable.
    pub fn read(lookup: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let text = |name: &str| lookup(name).filter(|value| !value.is_empty());
        let plan_uid = text(names::ENV_PLAN_UID)?;
        let namespace = text(names::ENV_PLAN_NAMESPACE)?;
        Some(Self {
            pod: text(names::ENV_POD_UID),
            node_uid: text(names::ENV_NODE_UID).unwrap_or_default().into(),
            holder: Holder {
                controller: text(names::ENV_CONTROLLER_NAME).unwrap_or_default(),
                plan: text(names::ENV_PLAN_NAME).unwrap_or_default(),
                plan_uid: plan_uid.into(),
                namespace,
                cancelled: false,
                completed: false,
                evicted: Vec::new(),
            },
            notes_workloads: text(names::ENV_NOTE_WORKLOADS).is_some(),
            marks: NodeMark::split(&text(names::ENV_NODE_MARKS).unwrap_or_default()),
        })
    }
}

#[cfg(test)]
mod tests;
