//! Keeps a majority of the control-plane nodes, and of the etcd members, available: with fewer, the API server stops
//! answering, and with it everything that could repair the cluster.

use std::collections::BTreeSet;

use super::super::blocker::Blocker;
use super::super::plan::DerivedPlan;
use super::super::state::ClusterState;
use refit_api::names::ControlPlaneRole;
use refit_facts::{NodeFacts, NodeName};

/// With fewer nodes, no node can go down without the loss of the majority, so the guard would never let one start.
const LEAST: usize = 3;

/// The roles whose majority must stay, each with its nodes.
pub(super) struct Quorums<'a> {
    groups: Vec<Group<'a>>,
}

struct Group<'a> {
    role: ControlPlaneRole,
    /// Also those that were deleted a short time ago.
    members: BTreeSet<&'a NodeName>,
    /// Members that are Ready, have a vote in etcd as far as they say so, and on which no Plan works that takes nodes down.
    up: BTreeSet<&'a NodeName>,
}

impl<'a> Quorums<'a> {
    /// `is_worked_on` says whether a Plan that takes nodes down works on the node.
    pub(super) fn of(cluster: &'a ClusterState, is_worked_on: impl Fn(&NodeName) -> bool) -> Self {
        let is_up = |role: ControlPlaneRole, name: &&NodeName| {
            let node = cluster.world.nodes.get(name);
            node.is_some_and(|node| node.is_ready_and_untainted() && has_vote(cluster, role, node))
                && !is_worked_on(name)
        };
        let groups = cluster
            .world
            .nodes
            .control_plane
            .iter()
            .map(|(role, nodes)| Group {
                role: *role,
                members: nodes
                    .iter()
                    .chain(cluster.memory.timers.departed(*role))
                    .collect(),
                up: nodes.iter().filter(|name| is_up(*role, name)).collect(),
            });
        Self {
            groups: groups.filter(|group| group.members.len() >= LEAST).collect(),
        }
    }

    /// Counts the node as down from now on.
    pub(super) fn take(&mut self, node: &NodeName) {
        for group in &mut self.groups {
            group.up.remove(node);
        }
    }

    /// Why the node may not start: without it, no majority would be available. A node that is not Ready takes nothing away.
    pub(super) fn blocker(
        &self,
        cluster: &ClusterState,
        plan: &DerivedPlan,
        node: &NodeName,
    ) -> Option<Blocker> {
        if !plan.spec().guards_control_plane() {
            return None;
        }
        self.lost_without(cluster, node)
    }

    /// The majority that would be lost without the node.
    pub(super) fn lost_without(&self, cluster: &ClusterState, node: &NodeName) -> Option<Blocker> {
        if self.groups.is_empty() {
            return None;
        }
        if !cluster.world.nodes.get(node)?.ready {
            return None;
        }
        let lost = self.groups.iter().find(|group| group.is_lost_without(node))?;
        let others = lost.members.iter().copied().filter(|name| *name != node);
        let down: Vec<NodeName> = others.filter(|name| !lost.up.contains(name)).cloned().collect();
        let is_voteless = |name: &&NodeName| {
            let node = cluster.world.nodes.get(name);
            node.is_some_and(|node| node.is_ready_and_untainted() && !has_vote(cluster, lost.role, node))
        };
        Some(Blocker::ControlPlaneQuorum {
            role: lost.role,
            of: lost.members.len(),
            needed: lost.needed(),
            voteless: down.iter().filter(is_voteless).cloned().collect(),
            down,
        })
    }
}

/// Whether etcd can rely on the member of the node, as far as anything says so.
fn has_vote(cluster: &ClusterState, role: ControlPlaneRole, node: &NodeFacts) -> bool {
    let is_down = cluster
        .world
        .etcd_down
        .as_ref()
        .is_some_and(|down| down.contains(&node.name));
    !is_down && (role != ControlPlaneRole::Etcd || node.etcd_voter() != Some(false))
}

impl Group<'_> {
    fn needed(&self) -> usize {
        self.members.len() / 2 + 1
    }

    fn is_lost_without(&self, node: &NodeName) -> bool {
        let rest = self.up.len() - usize::from(self.up.contains(node));
        self.members.contains(node) && rest < self.needed()
    }
}
