//! The picture of a roll-out: which nodes are in progress, how many wait, and why. Status, metrics, and all who read the
//! status show it, and work out nothing of it anew.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::blocker::Blocker;
use super::node::state::PlanNodes;
use super::wave::progress::WaveProgress;
use refit_api::{DespiteStatus, Hook, NodeCounts, NodeProgress, OpenEnum, Reason, RepeatStatus};
use refit_facts::{NodeName, Text};

/// A Plan as the decision sees it.
#[derive(Debug, Default, PartialEq)]
pub struct PlanPicture {
    /// Default blocker for waiting nodes that `nodes` does not list. Absent if no node waits.
    pub blocker: Option<Blocker>,
    /// Blockers of single nodes.
    pub nodes: BTreeMap<NodeName, Blocker>,
    /// Number of waiting nodes.
    pub waiting: usize,
    /// The version that it rolls out, once resolved.
    pub version: Option<Text>,
    /// Numbers of nodes, as in `status.nodes`.
    pub counts: NodeCounts,
    /// The nodes that have a slot.
    pub slots: PlanNodes,
    /// How many nodes may have one: none while the Plan is suspended or aborted, or everything is frozen.
    pub limit: i64,
    /// Whether the kubelets of done nodes are compared with the version.
    pub claims_kubelets: bool,
    /// The wave, if the Plan has waves and a version.
    pub wave: Option<WaveProgress>,
    /// Whether answers to the checks are needed.
    pub asks_checks: bool,
    /// What must be asked about nodes before they start.
    pub asks: Vec<Ask>,
    /// How many of these failed before.
    pub failing_asks: usize,
    /// Done nodes whose kubelet has another version.
    pub differs: BTreeMap<NodeName, Differs>,
    /// Nodes that start next, with `prepull`.
    pub prepulls: Vec<NodeName>,
    /// Nodes that start next, with `--node-conditions`.
    pub next: Vec<NodeName>,
    /// When they may start, if a window is near.
    pub next_from: Option<Timestamp>,
    /// The current repetition and the next one.
    pub repeat: Option<RepeatStatus>,
    /// Why the Plan is not complete although all nodes are done.
    pub after: Option<Blocker>,
    /// The hook whose Job is to run now.
    pub starts_hook: Option<Hook>,
    /// The limits in spite of which nodes start.
    pub despite: Vec<DespiteStatus>,
    /// When nodes that wait for a time of their own are looked at again.
    pub requeue_at: Option<Timestamp>,
}

/// What is asked about a node before it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Its pods.
    Pods(NodeName),
    /// Who holds its Lease.
    Lease(NodeName),
}

static NOT_READY: Blocker = Blocker::NodeNotReady;

impl PlanPicture {
    /// What lets no node start, Ready or not.
    fn shut(&self) -> Option<&Blocker> {
        self.blocker.as_ref().filter(|blocker| !blocker.is_capacity())
    }

    /// Why a node without a slot waits.
    pub(super) fn why(&self, node: &str, is_ready: bool) -> Option<&Blocker> {
        let own = self.nodes.get(node).or(self.shut());
        own.or((!is_ready).then_some(&NOT_READY))
            .or(self.blocker.as_ref())
    }

    /// Number of waiting nodes by reason, as [`Self::why`] has it for each of them. Given are those that are not Ready.
    pub(super) fn waiting_by_reason<'a>(
        &self,
        not_ready: impl Iterator<Item = &'a NodeName>,
    ) -> BTreeMap<Reason, usize> {
        let mut counts = BTreeMap::new();
        let mut add = |blocker: Option<&Blocker>, count: usize| {
            if let Some(blocker) = blocker.filter(|_| count > 0) {
                *counts.entry(blocker.reason()).or_default() += count;
            }
        };
        self.nodes.values().for_each(|blocker| add(Some(blocker), 1));
        let mut rest = self.waiting.saturating_sub(self.nodes.len());
        if self.shut().is_none() {
            let has_own = |name: &&NodeName| self.nodes.contains_key(*name) || self.slots.contains_key(*name);
            let not_ready = not_ready.filter(|name| !has_own(name)).count().min(rest);
            add(Some(&NOT_READY), not_ready);
            rest -= not_ready;
        }
        add(self.blocker.as_ref(), rest);
        counts
    }

    /// Whether metrics count the waiting nodes as this list has them.
    pub(super) fn counts_waiting_as<'a>(
        &self,
        active: &[NodeProgress],
        not_ready: impl Iterator<Item = &'a NodeName>,
    ) -> bool {
        let mut listed = BTreeMap::new();
        for node in active.iter().filter(|node| !node.has_slot()) {
            if let Some(reason) = node.reason.as_ref().and_then(OpenEnum::known) {
                *listed.entry(reason).or_default() += 1;
            }
        }
        listed == self.waiting_by_reason(not_ready)
    }
}

/// A done node whose kubelet has another version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Differs {
    pub kubelet: Text,
    /// `VersionDiffers` or `Drifted`.
    pub reason: Reason,
    /// Whether it has lasted long enough to be reported.
    pub is_certain: bool,
    pub(super) uid: String,
    pub(super) since: Timestamp,
}
