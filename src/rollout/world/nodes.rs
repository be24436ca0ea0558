//! Nodes, and indexes of them.

use std::collections::{BTreeMap, BTreeSet};

use super::index::Index;
use refit_api::names::ControlPlaneRole;
use refit_facts::store::{Put, Store};
use refit_facts::{NodeFacts, NodeName, NodeUid, PlanName, Text};

/// Number of hostnames at which those that are not shared any more are forgotten. A kubelet may give its Node one
/// hostname after another, and the set would grow without limit.
const MAX_SHARED_HOSTNAMES: usize = 1_024;

#[derive(Debug, Default)]
pub(crate) struct Nodes {
    table: Store<NodeName, NodeUid, NodeFacts>,
    /// By their hostname labels.
    by_hostname: Index<Text, NodeName>,
    /// Hostnames that several Nodes have had at a time. A kubelet may give its Node that of another one in turns.
    shared_hostnames: BTreeSet<Text>,
    /// Nodes that exist and cannot be read. The table has what was known of them before, if anything.
    unreadable: BTreeMap<NodeName, UnreadableNode>,
    /// Nodes with a record of the Plan.
    pub(crate) recorded: Index<PlanName, NodeName>,
    /// Nodes whose annotation `refit.rs/labelled-jobs` names the Plan.
    pub(crate) labelled: Index<PlanName, NodeName>,
    /// Nodes with a ledger.
    pub(crate) ledgers: BTreeSet<NodeName>,
    /// Nodes with a taint that says that Plans of this namespace are still to upgrade them.
    pub(crate) pending: BTreeSet<NodeName>,
    /// Nodes off which a controller keeps remediation operators.
    pub(crate) paused: BTreeSet<NodeName>,
    /// Nodes with a lifecycle condition of this controller.
    pub(crate) lifecycle: BTreeSet<NodeName>,
    /// Nodes that are not Ready or are cordoned.
    pub(crate) unavailable: BTreeSet<NodeName>,
    /// Nodes with each role of the control plane.
    pub(crate) control_plane: BTreeMap<ControlPlaneRole, BTreeSet<NodeName>>,
}

/// A Node that cannot be read. What was known of it stays: it must not lose its slot, and is left alone until it can be
/// read again.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UnreadableNode {
    pub(crate) uid: NodeUid,
    pub(crate) why: String,
}

impl Nodes {
    pub(crate) fn get(&self, name: &str) -> Option<&NodeFacts> {
        self.table.get(name)
    }

    pub(crate) fn get_key_value(&self, name: &str) -> Option<(&NodeName, &NodeFacts)> {
        self.table.get_key_value(name)
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Unordered.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&NodeName, &NodeFacts)> {
        self.table.iter()
    }

    pub(crate) fn table(&self) -> &Store<NodeName, NodeUid, NodeFacts> {
        &self.table
    }

    /// Whether another Node has the same hostname by its label, or has had it.
    pub(crate) fn shares_hostname(&self, node: &NodeFacts) -> bool {
        self.shared_hostnames.contains(node.hostname())
    }

    /// Whether the Node cannot be read. Nothing may change on such a node.
    pub(crate) fn is_unreadable(&self, node: &str) -> bool {
        self.unreadable.contains_key(node)
    }

    pub(crate) fn are_all_readable(&self) -> bool {
        self.unreadable.is_empty()
    }

    pub(crate) fn unreadable(&self, node: &str) -> Option<(&NodeName, &UnreadableNode)> {
        self.unreadable.get_key_value(node)
    }

    /// Stores a Node. Returns whether it has changed.
    pub(crate) fn put(&mut self, version: u64, facts: NodeFacts, namespace: &str) -> bool {
        let (name, uid) = (facts.name.clone(), facts.uid.clone());
        match self.table.put(&name, &uid, version, facts) {
            Put::Unchanged => return false,
            Put::Inserted => {}
            Put::Replaced(old) => self.unindex(&old, namespace),
        }
        let Some(new) = self.table.get(&name) else {
            return true;
        };
        for plan in new.records.keys() {
            self.recorded.add(plan, &name);
        }
        for plan in new.labelled_for(namespace) {
            self.labelled.add(&plan.into(), &name);
        }
        if new.ledger.is_some() {
            self.ledgers.insert(name.clone());
        }
        if new.pending_for(namespace).next().is_some() || new.is_new_for(namespace) {
            self.pending.insert(name.clone());
        }
        if new.remediation.is_some() {
            self.paused.insert(name.clone());
        }
        if new.has_conditions_of(namespace) {
            self.lifecycle.insert(name.clone());
        }
        if new.unschedulable || !new.is_ready_and_untainted() {
            self.unavailable.insert(name.clone());
        }
        for role in roles(new) {
            self.control_plane.entry(role).or_default().insert(name.clone());
        }
        let hostname = Text::from(new.hostname());
        self.add_hostname(&hostname, &name);
        true
    }

    pub(crate) fn remove(&mut self, name: &str, uid: &str, namespace: &str) -> Option<NodeFacts> {
        let old = self.table.remove(name, uid)?;
        self.unindex(&old, namespace);
        Some(old)
    }

    fn add_hostname(&mut self, hostname: &Text, node: &NodeName) {
        self.by_hostname.add(hostname, node);
        if self.by_hostname.of(hostname).nth(1).is_some() {
            if self.shared_hostnames.len() >= MAX_SHARED_HOSTNAMES {
                let hosts = &self.by_hostname;
                self.shared_hostnames
                    .retain(|host| hosts.of(host).nth(1).is_some());
            }
            self.shared_hostnames.insert(hostname.clone());
        }
    }

    fn unindex(&mut self, old: &NodeFacts, namespace: &str) {
        self.by_hostname.drop(&old.hostname().into(), &old.name);
        for plan in old.records.keys() {
            self.recorded.drop(plan, &old.name);
        }
        for plan in old.labelled_for(namespace) {
            self.labelled.drop(&plan.into(), &old.name);
        }
        self.ledgers.remove(&old.name);
        self.pending.remove(&old.name);
        self.paused.remove(&old.name);
        self.lifecycle.remove(&old.name);
        self.unavailable.remove(&old.name);
        for members in self.control_plane.values_mut() {
            members.remove(&old.name);
        }
    }

    /// A Node exists and cannot be read. Returns whether that is new.
    pub(crate) fn put_unreadable(&mut self, name: &str, node: UnreadableNode) -> bool {
        let is_new = self.unreadable.get(name) != Some(&node);
        self.unreadable.insert(NodeName::from(name), node);
        is_new
    }

    /// The Node was read, or is gone.
    pub(crate) fn forget_unreadable(&mut self, node: &str) -> bool {
        self.unreadable.remove(node).is_some()
    }

    pub(crate) fn start_list(&mut self) {
        self.table.start_list();
    }

    pub(crate) fn mark_listed(&mut self, name: &str) {
        self.table.mark_listed(name);
        if let Some((name, _)) = self.unreadable.get_key_value(name) {
            self.table.listing().mark(name);
        }
    }

    /// Ends a list. Returns the Nodes that it did not contain, and whether one of them could not be read.
    pub(crate) fn finish_list(&mut self) -> (Vec<(NodeName, NodeUid)>, bool) {
        let (before, listing) = (self.unreadable.len(), self.table.listing());
        self.unreadable.retain(|name, _| !listing.lacks(name));
        (self.table.finish_list(), self.unreadable.len() != before)
    }
}

pub(crate) fn roles(node: &NodeFacts) -> impl Iterator<Item = ControlPlaneRole> {
    let roles = ControlPlaneRole::ALL.into_iter();
    roles.filter(|role| node.has_role(*role))
}
