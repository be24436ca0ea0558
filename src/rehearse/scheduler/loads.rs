//! How many pods each node has.

use std::collections::{BTreeMap, BTreeSet};

/// The number of pods per node, and the nodes in that order.
#[derive(Debug, Default)]
pub(crate) struct Loads {
    pods: BTreeMap<String, usize>,
    order: BTreeSet<(usize, String)>,
}

impl Loads {
    fn of(&self, node: &str) -> usize {
        self.pods.get(node).copied().unwrap_or_default()
    }

    pub(crate) fn add_node(&mut self, node: &str) {
        self.order.insert((self.of(node), node.to_owned()));
    }

    /// Removes a node. Its pods stay counted for a new node with the same name.
    pub(crate) fn remove_node(&mut self, node: &str) {
        self.order.remove(&(self.of(node), node.to_owned()));
    }

    /// Counts a pod of a node, or removes it from the count.
    pub(crate) fn change(&mut self, node: &str, more: bool) {
        let before = self.of(node);
        let after = if more {
            before + 1
        } else {
            before.saturating_sub(1)
        };
        self.pods.insert(node.to_owned(), after);
        if self.order.remove(&(before, node.to_owned())) {
            self.order.insert((after, node.to_owned()));
        }
    }

    /// Nodes with the fewest pods first.
    pub(super) fn ascending(&self) -> impl Iterator<Item = &str> {
        self.order.iter().map(|(_, node)| node.as_str())
    }
}
