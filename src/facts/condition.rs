//! Conditions of Nodes.

use refit_api::ids::Text;

/// Maximum number of conditions that are kept as facts.
pub(crate) const MAX_CONDITIONS: usize = 64;

/// An entry of `status.conditions` of a Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeCondition {
    pub type_: Text,
    /// `True`, `False` or `Unknown`.
    pub status: Text,
    /// Reason in CamelCase; empty if there is none.
    pub reason: Text,
    /// The message of a condition that refit writes; empty for others, which may count or tell times: each change of a
    /// fact causes a decision.
    pub message: Text,
}

impl NodeCondition {
    pub fn is_true(&self) -> bool {
        &*self.status == "True"
    }
}
