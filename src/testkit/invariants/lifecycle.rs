//! Lifecycle conditions of nodes: refit's own go with their reason, and those of others stay as they are.

use super::{Checked, Invariants};
use refit_api::node_condition::is_of_refit;
use refit_api::{NodeConditionReason, NodeConditionType};
use refit_facts::{NodeCondition, NodeFacts};

/// Whether a controller has written it.
fn is_own(condition: &NodeCondition) -> bool {
    condition.lifecycle().is_some()
        && is_of_refit(&condition.reason)
        && *condition.reason != *NodeConditionReason::RefitDrainCommand.name()
}

/// A controller has written the node.
pub(super) fn check_written(old: &NodeFacts, new: &NodeFacts) -> Checked {
    let of_others = |node: &NodeFacts| -> Vec<NodeCondition> {
        let all = node.conditions.iter().filter(|one| !is_own(one));
        all.cloned().collect()
    };
    invariant!(
        of_others(old) == of_others(new),
        "refit changes conditions of others on {}: {:?} becomes {:?}",
        new.name,
        old.conditions,
        new.conditions
    );
    let odd = new.conditions.iter().find(|one| is_own(one) && !one.is_true());
    invariant!(odd.is_none(), "{} says what is not so: {odd:?}", new.name);
    Ok(())
}

pub(super) fn check_none_left(name: &str, node: &NodeFacts) -> Checked {
    let left = node.conditions.iter().find(|one| is_own(one));
    invariant!(left.is_none(), "a condition is left on {name}: {left:?}");
    Ok(())
}

impl Invariants {
    /// Checks, when nothing is left to do, that nodes that are held say so, and no others.
    ///
    /// # Errors
    /// Fails with the first node that does not.
    pub fn check_held(&self) -> Checked {
        for (name, node) in &self.nodes {
            let slots = self
                .plans
                .values()
                .flat_map(|plan| plan.status().active.iter().flatten());
            let has_slot = slots
                .filter(|slot| slot.name == *name)
                .any(refit_api::NodeProgress::has_slot);
            let holders = node.facts.ledger.iter().flat_map(|ledger| &ledger.holders);
            let is_held = holders.count() > 0 || has_slot;
            let says = node
                .facts
                .condition(NodeConditionType::MaintenanceInProgress.name());
            let is_of_others = says.is_some_and(|one| !is_own(one));
            invariant!(
                is_of_others || says.is_some() == is_held,
                "{name} is held: {is_held}, and says {says:?}"
            );
        }
        Ok(())
    }
}
