//! Which nodes a Plan is for, and in which order they come. Kept per Plan, so that finding the next node does not mean
//! looking at all of them.

use std::collections::BTreeSet;

use sha2::{Digest, Sha256};

use super::facts::{NodeFacts, PlanFacts, Text};
use super::world::{ByName, Table};
use crate::api::names;
use crate::api::selector::Selector;

/// SHA-256 of node UID, Plan UID and hash: no two Plans and no two versions take the nodes in the same order (S50).
type Order = [u8; 32];

/// What a node is to a Plan, its Jobs and records aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// The label says that the Plan is not to touch it.
    Disabled,
    /// The label says that this hash is done.
    Done,
    /// To be done.
    Eligible { order: Order, ready: bool },
}

/// The nodes that a Plan is for.
#[derive(Debug, Default)]
pub(super) struct View {
    /// The hash that the classes are about, once there is one.
    hash: Option<Text>,
    classes: ByName<Class>,
    ready: BTreeSet<(Order, Text)>,
    not_ready: BTreeSet<(Order, Text)>,
    done: i64,
    disabled: i64,
}

impl View {
    /// How many nodes the Plan is for, those aside that a label keeps it off.
    pub(super) fn selected(&self) -> i64 {
        i64::try_from(self.classes.len()).unwrap_or(i64::MAX) - self.disabled
    }

    pub(super) fn done(&self) -> i64 {
        self.done
    }

    pub(super) fn disabled(&self) -> i64 {
        self.disabled
    }

    /// How many nodes are to be done.
    pub(super) fn eligible(&self) -> usize {
        self.ready.len() + self.not_ready.len()
    }

    pub(super) fn class(&self, node: &str) -> Option<Class> {
        self.classes.get(node).copied()
    }

    /// Nodes to be done that can be started, in their order.
    pub(super) fn ready(&self) -> impl Iterator<Item = &Text> {
        self.ready.iter().map(|(_, name)| name)
    }

    /// Nodes to be done that are not Ready, in their order.
    pub(super) fn not_ready(&self) -> impl Iterator<Item = &Text> {
        self.not_ready.iter().map(|(_, name)| name)
    }

    /// Looks at all nodes again.
    pub(super) fn rebuild(
        &mut self,
        hash: Option<Text>,
        plan: &PlanFacts,
        selector: &Selector,
        tolerates_not_ready: bool,
        nodes: &Table<NodeFacts>,
    ) {
        *self = Self {
            hash,
            ..Self::default()
        };
        for (_, node) in nodes.iter() {
            self.node_changed(plan, selector, tolerates_not_ready, node);
        }
    }

    /// Looks at one node again.
    pub(super) fn node_changed(
        &mut self,
        plan: &PlanFacts,
        selector: &Selector,
        tolerates_not_ready: bool,
        node: &NodeFacts,
    ) {
        self.remove(&node.name);
        let Some(class) = self.classify(plan, selector, tolerates_not_ready, node) else {
            return;
        };
        match class {
            Class::Done => self.done += 1,
            Class::Disabled => self.disabled += 1,
            Class::Eligible { order, ready: true } => {
                self.ready.insert((order, node.name.clone()));
            }
            Class::Eligible { order, ready: false } => {
                self.not_ready.insert((order, node.name.clone()));
            }
        }
        self.classes.insert(node.name.clone(), class);
    }

    /// A node is gone.
    pub(super) fn remove(&mut self, name: &Text) {
        match self.classes.remove(name) {
            Some(Class::Done) => self.done -= 1,
            Some(Class::Disabled) => self.disabled -= 1,
            Some(Class::Eligible { order, ready: true }) => {
                self.ready.remove(&(order, name.clone()));
            }
            Some(Class::Eligible { order, ready: false }) => {
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
    ) -> Option<Class> {
        if !selector.matches_by(|key| node.labels.get(key)) {
            return None;
        }
        let hash = self.hash.as_deref().unwrap_or_default();
        match node.labels.get_joined(names::LABEL_PLAN_PREFIX, &plan.name) {
            Some(names::LABEL_VALUE_DISABLED) => Some(Class::Disabled),
            Some(done) if done == hash && !hash.is_empty() => Some(Class::Done),
            _ => Some(Class::Eligible {
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
