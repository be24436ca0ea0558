//! Conditions of Nodes.

use std::collections::BTreeSet;

use refit_api::NodeConditionType;
use refit_api::ids::Text;
use refit_api::node_condition::{is_of_controller, is_of_refit};
use refit_api::open_enum::ClosedEnum as _;
use refit_api::text::{MAX_MESSAGE, shorten};

/// Maximum number of conditions that are kept as facts, besides those of the lifecycle.
const MAX_CONDITIONS: usize = 64;

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

    /// Whether the controller of this namespace has written it.
    pub fn is_of_controller(&self, namespace: &str) -> bool {
        self.lifecycle().is_some() && is_of_controller(&self.reason, &self.message, namespace)
    }

    /// Its type, if it is about the lifecycle of the node.
    pub fn lifecycle(&self) -> Option<NodeConditionType> {
        NodeConditionType::named(&self.type_)
    }

    /// The message to keep.
    pub(crate) fn kept_message(reason: &str, message: &str) -> Text {
        if is_of_refit(reason) {
            shorten(message, MAX_MESSAGE).as_ref().into()
        } else {
            Text::default()
        }
    }
}

/// The conditions to keep: the first ones, and the first of each type of the lifecycle. If one of refit's own could be missing,
/// refit would write it again and again.
pub(crate) fn kept<'a, T: 'a>(
    conditions: impl Iterator<Item = &'a T>,
    type_: impl Fn(&T) -> &str,
) -> impl Iterator<Item = &'a T> {
    let mut seen = BTreeSet::new();
    let keep = move |(place, one): &(usize, &'a T)| match NodeConditionType::named(type_(one)) {
        Some(lifecycle) => seen.insert(lifecycle),
        None => *place < MAX_CONDITIONS,
    };
    conditions.enumerate().filter(keep).map(|(_, one)| one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_conditions_hide_none_of_the_lifecycle() {
        let others: Vec<_> = (0..100).map(|number| format!("Other{number}")).collect();
        let mut types: Vec<&str> = others.iter().map(String::as_str).collect();
        types.extend(["Drained"; 200]);
        types.push("MaintenanceInProgress");
        let kept: Vec<_> = kept(types.iter(), |type_| type_).copied().collect();
        assert_eq!(kept.len(), MAX_CONDITIONS + 2);
        assert_eq!(kept[MAX_CONDITIONS..], ["Drained", "MaintenanceInProgress"]);
    }
}
