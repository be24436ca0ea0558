//! The limits of the `ConfigMap` `refit`, over all Plans.

use std::collections::{BTreeMap, BTreeSet};

use super::super::blocker::Blocker;
use crate::node::state::NodeStates;
use crate::state::ClusterState;
use crate::world::limits::KnownLimits;
use refit_api::NodeLimit;
use refit_api::limits::{MAX_CONCURRENT, MAX_UNAVAILABLE};
use refit_facts::{NodeName, PlanName};

/// Why no node of any Plan may start.
pub(super) fn frozen(cluster: &ClusterState) -> Option<Blocker> {
    match &cluster.world.limits {
        // Then nothing is decided, as `ClusterState::write_block` says.
        KnownLimits::Unread => None,
        KnownLimits::Known(limits) => limits.freeze.as_ref().map(|reason| Blocker::Frozen {
            reason: reason.clone(),
            invalid: false,
        }),
        KnownLimits::Invalid(why) => Some(Blocker::Frozen {
            reason: why.clone(),
            invalid: true,
        }),
    }
}

/// Why an available node may not become unavailable: what cannot be read may have a limit.
pub(super) fn unreadable(cluster: &ClusterState, node: &NodeName) -> Option<Blocker> {
    match &cluster.world.limits {
        KnownLimits::Invalid(_) if !cluster.world.nodes.unavailable.contains(node) => frozen(cluster),
        _ => None,
    }
}

/// How many more nodes may start, over all Plans.
pub(super) struct ClusterLimits {
    limits: Vec<ClusterLimit>,
}

struct ClusterLimit {
    key: &'static str,
    limit: usize,
    /// The nodes that count.
    nodes: BTreeSet<NodeName>,
}

impl ClusterLimits {
    pub(super) fn of<'a>(
        cluster: &'a ClusterState,
        node_states: &'a NodeStates,
        leaving: &'a BTreeMap<PlanName, BTreeSet<NodeName>>,
        worked_on: impl Iterator<Item = &'a NodeName>,
    ) -> Self {
        let mut limits = Vec::new();
        let Some(known) = cluster.world.limits.known() else {
            return Self { limits };
        };
        let number = |limit: NodeLimit| limit.of(cluster.world.nodes.len());
        // A Plan may be deleted while the creation of its Job is in flight, and that Job may still run.
        let pending = cluster.memory.pending_creates.keys().map(|(_, node)| node);
        if let Some(limit) = known.max_concurrent {
            let states = node_states.values().flatten();
            let slots = states
                .filter(|(_, state)| !state.frees_slot)
                .map(|(name, _)| name);
            limits.push(ClusterLimit {
                key: MAX_CONCURRENT,
                limit: number(limit),
                nodes: slots
                    .chain(pending)
                    .chain(leaving.values().flatten())
                    .cloned()
                    .collect(),
            });
        }
        if let Some(limit) = known.max_unavailable {
            let states = node_states.values().flatten();
            let begun = states.filter(|(_, state)| !state.failed).map(|(name, _)| name);
            limits.push(ClusterLimit {
                key: MAX_UNAVAILABLE,
                limit: number(limit),
                nodes: cluster
                    .world
                    .nodes
                    .unavailable
                    .iter()
                    .chain(worked_on)
                    .chain(begun)
                    .cloned()
                    .collect(),
            });
        }
        Self { limits }
    }

    /// Whether unavailable nodes start first, because they cost nothing.
    pub(super) fn counts_unavailable(&self) -> bool {
        self.limits.iter().any(|limit| limit.key == MAX_UNAVAILABLE)
    }

    pub(super) fn take(&mut self, node: &NodeName) {
        for limit in &mut self.limits {
            limit.nodes.insert(node.clone());
        }
    }

    /// Why the node may not start; a node that counts anyway may.
    pub(super) fn blocker(&self, node: &NodeName) -> Option<Blocker> {
        self.limits.iter().find_map(|limit| limit.blocker(node))
    }

    /// Why the node may not become unavailable.
    pub(super) fn max_unavailable(&self, node: &NodeName) -> Option<Blocker> {
        let mut limits = self.limits.iter().filter(|limit| limit.key == MAX_UNAVAILABLE);
        limits.find_map(|limit| limit.blocker(node))
    }
}

impl ClusterLimit {
    fn blocker(&self, node: &NodeName) -> Option<Blocker> {
        let is_full = self.nodes.len() >= self.limit && !self.nodes.contains(node);
        is_full.then(|| Blocker::ClusterLimit {
            key: self.key,
            limit: self.limit,
            nodes: self.nodes.iter().take(4).cloned().collect(),
            count: self.nodes.len(),
        })
    }
}
