//! Objects that cannot be read. What was known of one stays: a Node that cannot be read must not lose its slot, nor a Job
//! its result. A Node is left alone until it can be read again; a Job or a pod that was never read is as if it were not
//! there, and its name stays taken.

use crate::observation::Kind;
use crate::state::ClusterState;
use crate::step::Key;
use refit_facts::{NodeName, NodeUid, Text};

/// A Node that cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UnreadableNode {
    pub(crate) uid: NodeUid,
    pub(crate) why: String,
    /// Whether the list in progress contains it.
    pub(super) listed: bool,
}

impl ClusterState {
    pub(super) fn apply_unreadable(&mut self, kind: Kind, name: &str, uid: Text, why: String) -> bool {
        let known = match kind {
            Kind::Node => self.nodes.get(name).map(|it| it.uid.text().clone()),
            Kind::Job => self.jobs.get(name).map(|it| it.uid.text().clone()),
            Kind::Pod => self.pods.get(name).map(|it| it.uid.text().clone()),
            Kind::Plan => self.plans.get(name).map(|it| it.facts.uid.text().clone()),
        };
        // Another object had the name, and is gone.
        let is_gone = known.filter(|known| *known != uid);
        let mut changed = is_gone.is_some_and(|gone| match kind {
            Kind::Node => self.remove_node(name, &gone),
            Kind::Job => self.remove_job(name, &gone),
            Kind::Pod => self.remove_pod(name, &gone),
            Kind::Plan => self.remove_plan(name, &gone),
        });
        if kind == Kind::Node {
            let node = UnreadableNode {
                uid: uid.into(),
                why,
                listed: true,
            };
            let known = self.unreadable_nodes.get(name);
            changed |= known != Some(&node);
            self.unreadable_nodes.insert(NodeName::from(name), node);
        }
        changed
    }

    /// The Node was read, or is gone.
    pub(super) fn forget_unreadable(&mut self, node: &str) -> bool {
        self.unreadable_nodes.remove(node).is_some()
    }

    pub(super) fn start_list_of_unreadable(&mut self) {
        self.unreadable_nodes
            .values_mut()
            .for_each(|it| it.listed = false);
    }

    /// Returns whether a Node that cannot be read is gone.
    pub(super) fn finish_list_of_unreadable(&mut self) -> bool {
        let before = self.unreadable_nodes.len();
        self.unreadable_nodes.retain(|_, it| it.listed);
        self.unreadable_nodes.len() != before
    }

    /// Whether the Node cannot be read. Nothing may change on such a node.
    pub(crate) fn is_unreadable(&self, node: &str) -> bool {
        self.unreadable_nodes.contains_key(node)
    }

    /// The nodes in another order: those whose last step was refused come last, so that they cannot take all places of a
    /// decision from the others.
    pub(crate) fn refused_last<'n>(
        &self,
        nodes: impl Iterator<Item = &'n NodeName>,
    ) -> impl Iterator<Item = &'n NodeName> {
        let (refused, others): (Vec<_>, Vec<_>) =
            nodes.partition(|name| self.failures_by_step.contains_key(&Key::Node((*name).clone())));
        others.into_iter().chain(refused)
    }
}
