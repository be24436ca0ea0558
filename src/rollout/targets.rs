//! The nodes that a Plan selects, and their order. Kept per Plan, so that finding the next node does not require a look
//! at all of them.

use std::collections::{BTreeMap, BTreeSet};

use foldhash::HashMap;

use super::node::state::{NodeState, PlanNodes};
use super::open_waves::OpenWaves;
use super::order::{Group, Order, SortKey, UNASSIGNED};
use super::reboot_needed::{self, RebootNeeded};
use refit_api::selector::Selector;
use refit_api::{NodeInfoSelector, VersionEvidence, Wave, WaveNodes, annotation, names};
use refit_base::version::{Claim, Version};
use refit_facts::store::Store;
use refit_facts::{Hash, NodeFacts, NodeName, NodeUid, PlanFacts, Text};

/// How a Plan selects and orders nodes.
#[derive(Clone, Debug, Default)]
pub(super) struct Selection {
    pub(super) selector: Selector,
    pub(super) info: NodeInfoSelector,
    /// What shows that a node has the Plan's version and needs no Job.
    pub(super) skips_at_version: Option<VersionEvidence>,
    /// Whether the choice of a version depends on the oldest kubelet.
    pub(super) counts_kubelets: bool,
    /// Whether done nodes have kubelets of the Plan's version.
    pub(super) claims_kubelets: bool,
    pub(super) tolerates_not_ready: bool,
    /// Set if only nodes are upgraded that request it; the others are done.
    pub(super) reboot_needed: Option<RebootNeeded>,
    pub(super) order: Order,
    /// The last one takes the nodes that are left; empty without waves.
    pub(super) waves: Vec<Wave>,
}

impl Selection {
    /// Index of the first wave whose selector matches the node.
    fn wave(&self, node: &NodeFacts) -> u16 {
        let matches = |wave: &Wave| match &wave.nodes {
            WaveNodes::Selected(selector) => selector.matches_by(|key| node.labels.get(key)),
            WaveNodes::UpTo(_) | WaveNodes::Rest => false,
        };
        match self.waves.iter().position(matches) {
            Some(index) => u16::try_from(index).unwrap_or(UNASSIGNED),
            None if self.waves.is_empty() => 0,
            None => UNASSIGNED,
        }
    }
}

/// The state of a node for a Plan, without regard to its Jobs and records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TargetState {
    /// The label `plan.upgrade.cattle.io/<plan>` is `disabled`.
    Disabled,
    /// The label has the current hash, or the Plan is on request, and the node requests nothing.
    Done,
    /// A user keeps the Plan, at its version, off the node.
    Skipped,
    /// The node is to be upgraded.
    Eligible { sort_key: SortKey, ready: bool },
}

/// The nodes that a Plan selects.
#[derive(Debug, Default)]
pub(super) struct Targets {
    /// The hash for which the states were computed.
    hash: Option<Hash>,
    /// The version of that hash.
    version: Option<Text>,
    /// What the kubelets of done nodes must report.
    pub(super) claim: Option<Claim>,
    states: HashMap<NodeName, TargetState>,
    ready: BTreeSet<(SortKey, NodeName)>,
    not_ready: BTreeSet<(SortKey, NodeName)>,
    /// The group of each selected node, done ones included, if the order has groups.
    groups: HashMap<NodeName, Group>,
    /// Nodes that are not Ready or are cordoned, done ones included and disabled ones not.
    pub(super) unavailable: BTreeSet<NodeName>,
    /// Nodes that the annotation `refit.rs/skip` excludes at this version.
    pub(super) skipped: BTreeSet<NodeName>,
    /// Ready nodes to upgrade that have the version already, if such nodes need no Job.
    pub(super) at_version: BTreeSet<NodeName>,
    /// Nodes of a Plan on request whose label has the current hash, and whose request it no longer answers: it must be removed,
    /// so that their next request counts.
    pub(super) answered: BTreeSet<NodeName>,
    done_and_not_ready: BTreeSet<NodeName>,
    /// Done nodes whose kubelet has another version.
    pub(super) differing: BTreeSet<NodeName>,
    /// The kubelets of the nodes that are not disabled or skipped, if the choice of a version depends on them.
    kubelets: BTreeMap<NodeName, Text>,
    /// Whether a done node was seen not Ready since the last call of [`take_unready`](Self::take_unready).
    unready: bool,
    pub(super) done: i64,
    pub(super) disabled: i64,
}

impl Targets {
    /// Number of selected nodes, except disabled and skipped ones.
    pub(super) fn selected(&self) -> i64 {
        i64::try_from(self.states.len() - self.skipped.len()).unwrap_or(i64::MAX) - self.disabled
    }

    /// Whether no node is selected.
    pub(super) fn is_empty(&self) -> bool {
        self.states.is_empty()
    }

    /// The version of the oldest of these kubelets, as far as it can be compared, and a node that has it.
    pub(super) fn oldest_kubelet(&self, counts: impl Fn(&Version) -> bool) -> Option<(Version, &NodeName)> {
        // Many nodes share few versions. Of those that do, the last counts, because it changes seldom during a roll-out.
        let mut distinct: BTreeMap<&Text, &NodeName> = BTreeMap::new();
        for (node, text) in &self.kubelets {
            distinct.insert(text, node);
        }
        let versions = distinct
            .into_iter()
            .filter_map(|(text, node)| Some((text.parse::<Version>().ok()?, node)))
            .filter(|(version, _)| counts(version));
        versions.reduce(|oldest, next| if next.0 < oldest.0 { next } else { oldest })
    }

    /// Number of nodes to upgrade.
    pub(super) fn eligible(&self) -> usize {
        self.ready.len() + self.not_ready.len()
    }

    pub(super) fn state(&self, node: &str) -> Option<&TargetState> {
        self.states.get(node)
    }

    /// Whether the node is yet to be upgraded.
    pub(super) fn is_eligible(&self, node: &str) -> bool {
        matches!(self.state(node), Some(TargetState::Eligible { .. }))
    }

    /// The group of a selected node, if the order has groups.
    pub(super) fn group(&self, node: &str) -> Option<&Group> {
        self.groups.get(node)
    }

    /// The first node of these waves that is left to upgrade, Ready or not; not one without which the roll-out continues.
    pub(super) fn next_in_order(&self, reach: OpenWaves, nodes: &PlanNodes) -> Option<&NodeName> {
        let is_left = |(_, name): &&(SortKey, NodeName)| !nodes.get(name).is_some_and(NodeState::is_given_up);
        let ready = reach.of(&self.ready).find(is_left);
        let not_ready = reach.of(&self.not_ready).find(is_left);
        ready.into_iter().chain(not_ready).min().map(|(_, name)| name)
    }

    /// Nodes of these waves to upgrade that are Ready, in their order.
    pub(super) fn ready_in(&self, reach: OpenWaves) -> impl Iterator<Item = &NodeName> {
        reach.of(&self.ready).map(|(_, name)| name)
    }

    pub(super) fn done_and_not_ready(&self) -> Option<&NodeName> {
        self.done_and_not_ready.first()
    }

    /// Whether a done node was seen not Ready since the last call, even for a moment.
    pub(super) fn take_unready(&mut self) -> bool {
        std::mem::take(&mut self.unready)
    }

    /// Nodes to upgrade that are Ready, in their order.
    pub(super) fn ready(&self) -> impl Iterator<Item = &NodeName> {
        self.ready.iter().map(|(_, name)| name)
    }

    /// Nodes to upgrade that are not Ready, in their order.
    pub(super) fn not_ready(&self) -> impl Iterator<Item = &NodeName> {
        self.not_ready.iter().map(|(_, name)| name)
    }

    /// Those of them in these waves that can be started, in their order.
    pub(super) fn unavailable_and_ready(&self, reach: OpenWaves) -> impl Iterator<Item = &NodeName> {
        let startable = self
            .unavailable
            .iter()
            .filter_map(|name| match self.state(name)? {
                TargetState::Eligible {
                    sort_key,
                    ready: true,
                } if reach.has(sort_key) => Some((sort_key, name)),
                _ => None,
            });
        startable.collect::<BTreeMap<_, _>>().into_values()
    }

    /// Computes the states of all nodes again.
    pub(super) fn rebuild(
        &mut self,
        target: Option<(Hash, Text)>,
        plan: &PlanFacts,
        selection: &Selection,
        nodes: &Store<NodeName, NodeUid, NodeFacts>,
    ) {
        let (hash, version) = target.unzip();
        let claim = version.as_deref().filter(|_| selection.claims_kubelets);
        *self = Self {
            claim: claim.and_then(Claim::of),
            hash,
            version,
            // A node that was not Ready for a moment must begin the soak again, even if the Plan changes before
            // that is noted.
            unready: self.unready,
            ..Self::default()
        };
        for (_, node) in nodes.iter() {
            self.node_changed(plan, selection, node);
        }
    }

    /// Updates the state of one node.
    pub(super) fn node_changed(&mut self, plan: &PlanFacts, selection: &Selection, node: &NodeFacts) {
        self.remove(&node.name);
        let Some(state) = self.classify(plan, selection, node) else {
            return;
        };
        match &state {
            TargetState::Done => {
                self.done += 1;
                let claim = self.claim.as_ref();
                if claim.is_some_and(|claim| claim.is_denied_by(&node.kubelet)) {
                    self.differing.insert(node.name.clone());
                }
                if !node.ready {
                    self.done_and_not_ready.insert(node.name.clone());
                    self.unready = true;
                }
            }
            TargetState::Disabled => self.disabled += 1,
            TargetState::Skipped => {
                self.skipped.insert(node.name.clone());
            }
            TargetState::Eligible {
                sort_key,
                ready: true,
            } => {
                self.ready.insert((sort_key.clone(), node.name.clone()));
                if selection
                    .skips_at_version
                    .is_some_and(|evidence| self.is_at_version(plan, node, evidence))
                {
                    self.at_version.insert(node.name.clone());
                }
            }
            TargetState::Eligible {
                sort_key,
                ready: false,
            } => {
                self.not_ready.insert((sort_key.clone(), node.name.clone()));
            }
        }
        if selection.order.has_groups() {
            let group = match &state {
                TargetState::Eligible { sort_key, .. } => sort_key.group.clone(),
                TargetState::Done | TargetState::Disabled | TargetState::Skipped => {
                    selection.order.group(node)
                }
            };
            self.groups.insert(node.name.clone(), group);
        }
        let hash = self.hash.as_deref().unwrap_or_default();
        if selection.reboot_needed.is_some() && reboot_needed::is_answered(plan, hash, node) {
            self.answered.insert(node.name.clone());
        }
        if selection.counts_kubelets && !matches!(state, TargetState::Disabled | TargetState::Skipped) {
            self.kubelets.insert(node.name.clone(), node.kubelet.clone());
        }
        let is_available = node.is_ready_and_untainted() && !node.unschedulable;
        if !is_available && state != TargetState::Disabled {
            self.unavailable.insert(node.name.clone());
        }
        self.states.insert(node.name.clone(), state);
    }

    pub(super) fn remove(&mut self, name: &NodeName) {
        self.unavailable.remove(name);
        self.answered.remove(name);
        self.groups.remove(name);
        self.done_and_not_ready.remove(name);
        self.differing.remove(name);
        self.kubelets.remove(name);
        self.at_version.remove(name);
        match self.states.remove(name) {
            Some(TargetState::Done) => self.done -= 1,
            Some(TargetState::Disabled) => self.disabled -= 1,
            Some(TargetState::Skipped) => {
                self.skipped.remove(name);
            }
            Some(TargetState::Eligible {
                sort_key,
                ready: true,
            }) => {
                self.ready.remove(&(sort_key, name.clone()));
            }
            Some(TargetState::Eligible {
                sort_key,
                ready: false,
            }) => {
                self.not_ready.remove(&(sort_key, name.clone()));
            }
            None => {}
        }
    }

    fn classify(&self, plan: &PlanFacts, selection: &Selection, node: &NodeFacts) -> Option<TargetState> {
        if !selection.selector.matches_by(|key| node.labels.get(key)) {
            return None;
        }
        let hash = self.hash.as_deref().unwrap_or_default();
        match node.labels.of_plan(&plan.name) {
            Some(names::LABEL_VALUE_DISABLED) => Some(TargetState::Disabled),
            Some(done) if done == hash && !hash.is_empty() => Some(TargetState::Done),
            // After `Done`: the upgrade changes what a node reports, and a node that is done must stay in the
            // counts.
            _ if !selection.info.matches(node.info()) && !has_begun(plan, node) => None,
            _ if self.skips(plan, node) => Some(TargetState::Skipped),
            _ if selection
                .reboot_needed
                .is_some_and(|it| !it.concerns(plan, hash, node)) =>
            {
                Some(TargetState::Done)
            }
            _ => Some(TargetState::Eligible {
                sort_key: selection.order.sort_key(selection.wave(node), node, plan, hash),
                ready: node.ready || selection.tolerates_not_ready,
            }),
        }
    }
}

/// Whether the Plan has begun on the node, by its record or by status. The upgrade may change what the node says of itself.
fn has_begun(plan: &PlanFacts, node: &NodeFacts) -> bool {
    let status = plan.status();
    let has_slot = || {
        status
            .slots()
            .any(|entry| entry.uid.as_deref() == Some(&*node.uid))
    };
    let applies = || {
        status
            .applying
            .iter()
            .flatten()
            .any(|name| name == node.hostname())
    };
    node.records.contains_key(&plan.name) || has_slot() || applies()
}

impl Targets {
    /// Whether a Ready node has the version, and the Plan has not begun there.
    fn is_at_version(&self, plan: &PlanFacts, node: &NodeFacts, evidence: VersionEvidence) -> bool {
        let version = self.version.as_deref();
        node.is_ready_and_untainted()
            && version.is_some_and(|version| evidence.missing(node.info(), version).is_none())
            && !node.records.contains_key(&plan.name)
    }

    fn skips(&self, plan: &PlanFacts, node: &NodeFacts) -> bool {
        let mut entries = node.skip.as_deref().into_iter().flat_map(annotation::entries);
        entries.any(|entry| entry.concerns(&plan.name, self.version.as_deref()))
    }
}
