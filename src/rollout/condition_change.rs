//! A change of a lifecycle condition of a node.

use refit_api::{NodeConditionReason, NodeConditionType};
use refit_facts::NodeCondition;

/// A change of one condition of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionChange {
    pub type_: NodeConditionType,
    /// What it says from now on; `None` removes it.
    pub to: Option<ConditionText>,
    /// Whether its status changes.
    pub is_transition: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionText {
    pub reason: NodeConditionReason,
    pub message: String,
}

impl ConditionText {
    /// Whether the condition says this.
    pub(super) fn is(&self, condition: &NodeCondition) -> bool {
        condition.is_true() && *condition.reason == *self.reason.name() && *condition.message == *self.message
    }
}
