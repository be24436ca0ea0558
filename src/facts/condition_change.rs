//! Changes of the lifecycle conditions of a node.

use jiff::Timestamp;
use refit_api::text::seconds;
use refit_api::{NodeConditionReason, NodeConditionType};
use serde_json::{Value, json};

use crate::condition::NodeCondition;

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
    pub fn is(&self, condition: &NodeCondition) -> bool {
        condition.is_true() && *condition.reason == *self.reason.name() && *condition.message == *self.message
    }
}

impl ConditionChange {
    /// A strategic merge patch, as a kubelet sends it: the API server merges conditions by their type. At any other version of
    /// the Node it fails, so it never changes a condition that another client has just written.
    pub fn patch(uid: &str, version: &str, changes: &[Self], at: Timestamp) -> Value {
        let at = seconds(at);
        let conditions: Vec<_> = changes.iter().map(|change| change.item(&at)).collect();
        json!({
            "metadata": { "uid": uid, "resourceVersion": version },
            "status": { "conditions": conditions },
        })
    }

    fn item(&self, at: &str) -> Value {
        let Some(text) = &self.to else {
            return json!({ "$patch": "delete", "type": self.type_ });
        };
        let mut condition = json!({
            "type": self.type_,
            "status": "True",
            "reason": text.reason,
            "message": text.message,
            "lastHeartbeatTime": at,
        });
        if self.is_transition {
            condition["lastTransitionTime"] = at.into();
        }
        condition
    }
}
