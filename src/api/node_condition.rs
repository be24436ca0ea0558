//! The lifecycle conditions of Nodes (KEP-5683), and how those that refit writes are recognized. Any authorized client may
//! write them; the KEP defines neither locks nor owners. So a condition itself says who wrote it, by its reason and by the
//! beginning of its message: nothing else has to survive a crash.

use super::open_enum::closed_enum;

closed_enum! {
    /// Type of a lifecycle condition of a Node.
    NodeConditionType {
        MaintenancePlanned "The node is expected to undergo maintenance."
        DrainInProgress "The node is being drained."
        Drained "The node is drained."
        MaintenanceInProgress "The node undergoes maintenance."
    }
}

closed_enum! {
    /// Reason of a lifecycle condition that refit writes.
    NodeConditionReason {
        RefitPlan "A Plan works on the node, or does so next."
        RefitPlanWindow "A Plan may start on the node at the time in the message."
        RefitNodeMaintenance "A `NodeMaintenance` holds the node."
        RefitDrainCommand "`refit drain --conditions` drains the node, or has drained it."
    }
}

impl NodeConditionType {
    /// Those that keep refit off a node while another client says that they are True.
    pub const BUSY: [Self; 2] = [Self::MaintenanceInProgress, Self::DrainInProgress];
}

/// Beginning of all reasons of refit, also of other versions.
const REFIT: &str = "Refit";

/// Whether refit has written a condition with this reason: a controller, or the command line.
pub fn is_of_refit(reason: &str) -> bool {
    reason.starts_with(REFIT)
}

/// The message of a condition of the controller of this namespace.
pub fn message(namespace: &str, says: &str) -> String {
    format!("refit in {namespace}: {says}")
}

/// Whether the controller of this namespace has written the condition.
pub fn is_of_controller(reason: &str, text: &str, namespace: &str) -> bool {
    is_of_refit(reason) && text.starts_with(&message(namespace, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_reasons_of_refit_are_recognized_and_no_others() {
        let mut reasons = NodeConditionReason::ALL.iter();
        assert!(reasons.all(|reason| is_of_refit(reason.name())));
        assert!(!is_of_refit("AdminRequested") && !is_of_refit("refitPlan"));
    }

    #[test]
    fn a_controller_knows_its_own_conditions_by_its_namespace() {
        let text = message("one", "Plan p has the node");
        assert!(is_of_controller("RefitPlan", &text, "one"));
        assert!(!is_of_controller("RefitPlan", &text, "on"));
        assert!(!is_of_controller("RefitPlan", &text, "one-more"));
        assert!(!is_of_controller("AdminRequested", &text, "one"));
    }
}
