//! What a decision says: the steps to take now, and why nodes wait.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::blocker::Blocker;
use super::step::Step;
use super::wave::progress::WaveProgress;
use super::world::reservations::Grants;
use refit_api::{NodePhase, OpenEnum, Reason, RepeatStatus};
use refit_facts::{NodeName, PlanName, Text};

/// The steps to take now, why the other nodes wait, and the time of the next decision.
#[must_use = "a decision does nothing by itself"]
#[derive(Debug, Default, PartialEq)]
pub struct Decision {
    /// Steps, in no particular order.
    pub steps: Vec<Step>,
    /// When to decide again, if nothing happens before.
    pub requeue_at: Option<Timestamp>,
    /// Which nodes other objects than Plans may take.
    pub grants: Grants,
    /// Why nodes wait, by Plan.
    pub reports: BTreeMap<PlanName, Report>,
}

/// Why the nodes of a Plan wait.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Default blocker for waiting nodes that `nodes` does not list. Absent if no node waits.
    pub blocker: Option<Blocker>,
    /// Blockers of single nodes.
    pub nodes: BTreeMap<NodeName, Blocker>,
    /// Number of waiting nodes.
    pub waiting: usize,
    /// The nodes that have a slot.
    pub slots: BTreeMap<NodeName, Slot>,
    /// The wave, if the Plan has waves and a version.
    pub wave: Option<WaveProgress>,
    /// Whether answers to the checks are needed.
    pub asks_checks: bool,
    /// Nodes whose pods must be listed.
    pub asks_pods: Vec<NodeName>,
    /// Done nodes whose kubelet has another version.
    pub differs: BTreeMap<NodeName, Differs>,
    /// Nodes that start next, with `prepull`.
    pub prepulls: Vec<NodeName>,
    /// The current repetition and the next one.
    pub repeat: Option<RepeatStatus>,
    /// When nodes that wait for a time of their own are looked at again.
    pub requeue_at: Option<Timestamp>,
}

static NOT_READY: Blocker = Blocker::NodeNotReady;

impl Report {
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

    pub(super) fn requeue(&mut self, at: Timestamp) {
        self.requeue_at = Some(self.requeue_at.map_or(at, |known| known.min(at)));
    }
}

impl Decision {
    /// Whether nodes wait until the API server has another version.
    pub fn waits_for_api_server(&self) -> bool {
        let nodes = self.reports.values().flat_map(|report| report.nodes.values());
        let is_api_server =
            |blocker: &Blocker| matches!(blocker, Blocker::ControlPlaneOlder { node: None, .. });
        nodes.into_iter().any(is_api_server)
    }

    pub(super) fn requeue(&mut self, at: Timestamp) {
        self.requeue_at = Some(self.requeue_at.map_or(at, |known| known.min(at)));
    }
}

/// A node that has a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    pub phase: NodePhase,
    /// Why it does not progress, or has failed.
    pub reason: Option<OpenEnum<Reason>>,
    /// As in `status.active[].since`.
    pub since: Option<Timestamp>,
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
