//! The nodes that a Plan selects, and their order. Kept per Plan, so that finding the next node does not require a look
//! at all of them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use sha2::{Digest, Sha256};

use super::facts::{Hash, NodeFacts, NodeName, NodeUid, PlanFacts};
use super::state::Table;
use crate::api::names;
use crate::api::selector::Selector;

/// SHA-256 of node UID, Plan UID and hash: Plans and versions differ in the order of nodes (S50).
type Order = [u8; 32];

/// The state of a node for a Plan, without regard to its Jobs and records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TargetState {
    /// The label `plan.upgrade.cattle.io/<plan>` is `disabled`.
    Disabled,
    /// The label has the current hash.
    Done,
    /// The node is to be upgraded.
    Eligible { order: Order, ready: bool },
}

/// The nodes that a Plan selects.
#[derive(Debug, Default)]
pub(super) struct Targets {
    /// The hash for which the states were computed.
    hash: Option<Hash>,
    states: HashMap<NodeName, TargetState>,
    ready: BTreeSet<(Order, NodeName)>,
    not_ready: BTreeSet<(Order, NodeName)>,
    /// Nodes that are not Ready or are cordoned, done ones included and disabled ones not.
    unavailable: BTreeSet<NodeName>,
    done: i64,
    disabled: i64,
}

impl Targets {
    /// Number of selected nodes, except disabled ones.
    pub(super) fn selected(&self) -> i64 {
        i64::try_from(self.states.len()).unwrap_or(i64::MAX) - self.disabled
    }

    pub(super) fn done(&self) -> i64 {
        self.done
    }

    pub(super) fn disabled(&self) -> i64 {
        self.disabled
    }

    /// Number of nodes to upgrade.
    pub(super) fn eligible(&self) -> usize {
        self.ready.len() + self.not_ready.len()
    }

    pub(super) fn state(&self, node: &str) -> Option<TargetState> {
        self.states.get(node).copied()
    }

    /// Nodes to upgrade that are Ready, in their order.
    pub(super) fn ready(&self) -> impl Iterator<Item = &NodeName> {
        self.ready.iter().map(|(_, name)| name)
    }

    /// Nodes to upgrade that are not Ready, in their order.
    pub(super) fn not_ready(&self) -> impl Iterator<Item = &NodeName> {
        self.not_ready.iter().map(|(_, name)| name)
    }

    /// Nodes that are not Ready or are cordoned, those aside that a label keeps the Plan off.
    pub(super) fn unavailable(&self) -> &BTreeSet<NodeName> {
        &self.unavailable
    }

    /// Those of them that can be started, in their order.
    pub(super) fn unavailable_and_ready(&self) -> impl Iterator<Item = &NodeName> {
        let startable = self
            .unavailable
            .iter()
            .filter_map(|name| match self.state(name)? {
                TargetState::Eligible { order, ready: true } => Some((order, name)),
                _ => None,
            });
        startable.collect::<BTreeMap<_, _>>().into_values()
    }

    /// Computes the states of all nodes again.
    pub(super) fn rebuild(
        &mut self,
        hash: Option<Hash>,
        plan: &PlanFacts,
        selector: &Selector,
        tolerates_not_ready: bool,
        nodes: &Table<NodeName, NodeUid, NodeFacts>,
    ) {
        *self = Self {
            hash,
            ..Self::default()
        };
        for (_, node) in nodes.iter() {
            self.node_changed(plan, selector, tolerates_not_ready, node);
        }
    }

    /// Updates the state of one node.
    pub(super) fn node_changed(
        &mut self,
        plan: &PlanFacts,
        selector: &Selector,
        tolerates_not_ready: bool,
        node: &NodeFacts,
    ) {
        self.remove(&node.name);
        let Some(state) = self.classify(plan, selector, tolerates_not_ready, node) else {
            return;
        };
        match state {
            TargetState::Done => self.done += 1,
            TargetState::Disabled => self.disabled += 1,
            TargetState::Eligible { order, ready: true } => {
                self.ready.insert((order, node.name.clone()));
            }
            TargetState::Eligible { order, ready: false } => {
                self.not_ready.insert((order, node.name.clone()));
            }
        }
        let is_available = node.is_ready_and_untainted() && !node.unschedulable;
        if !is_available && state != TargetState::Disabled {
            self.unavailable.insert(node.name.clone());
        }
        self.states.insert(node.name.clone(), state);
    }

    pub(super) fn remove(&mut self, name: &NodeName) {
        self.unavailable.remove(name);
        match self.states.remove(name) {
            Some(TargetState::Done) => self.done -= 1,
            Some(TargetState::Disabled) => self.disabled -= 1,
            Some(TargetState::Eligible { order, ready: true }) => {
                self.ready.remove(&(order, name.clone()));
            }
            Some(TargetState::Eligible { order, ready: false }) => {
                self.not_ready.remove(&(order, name.clone()));
            }
            None => {}
        }
    }

    fn classify(
        &self,
        plan: &PlanFacts,
        selector: &Selector,
        tolerates_not_ready: bool,
        node: &NodeFacts,
    ) -> Option<TargetState> {
        if !selector.matches_by(|key| node.labels.get(key)) {
            return None;
        }
        let hash = self.hash.as_deref().unwrap_or_default();
        match node.labels.get_joined(names::LABEL_PLAN_PREFIX, &plan.name) {
            Some(names::LABEL_VALUE_DISABLED) => Some(TargetState::Disabled),
            Some(done) if done == hash && !hash.is_empty() => Some(TargetState::Done),
            _ => Some(TargetState::Eligible {
                order: order(&node.uid, &plan.uid, hash),
                ready: node.ready || tolerates_not_ready,
            }),
        }
    }
}

fn order(node_uid: &str, plan_uid: &str, hash: &str) -> Order {
    let mut digest = Sha256::new();
    digest.update(node_uid);
    digest.update(plan_uid);
    digest.update(hash);
    digest.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::order;

    #[test]
    fn nodes_come_in_the_order_of_the_vector() {
        let hash = "21c75c607087495cc7f2c945c508a36de1f8661ce8c6b4d5989a883c";
        let hex = |node| hex::encode(order(node, "plan-uid", hash));
        assert!(hex("node-uid-3").starts_with("01ff"), "{}", hex("node-uid-3"));
        assert!(hex("node-uid-2").starts_with("306b"), "{}", hex("node-uid-2"));
        assert!(hex("node-uid-1").starts_with("a953"), "{}", hex("node-uid-1"));
    }
}
