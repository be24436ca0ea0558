//! The Plan for which a process cordons or drains.

use refit_api::ids::NodeUid;
use refit_api::{Holder, NodeMark, names};

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
