//! What the versions of nodes allow: each kubelet says which Kubernetes its node runs, whatever labels and Plans say.

use std::collections::BTreeMap;

use super::limit::{Limit, Turn, Verdict};
use crate::blocker::Blocker;
use crate::plan::DerivedPlan;
use crate::state::ClusterState;
use refit_api::names::ControlPlaneRole;
use refit_base::version::{Version, kubelet_version};
use refit_facts::{NodeFacts, NodeName, Text};

/// The limits between the version of a Plan and those of its nodes and of the control plane.
pub(crate) struct VersionLimits<'a> {
    version: &'a Text,
    parsed: Option<Version>,
    /// Whether the version is that of a kubelet.
    is_of_kubelets: bool,
    allows_downgrade: bool,
    max_minor_skip: Option<u64>,
    /// A part of the control plane that is older than the version.
    older: Option<Blocker>,
    /// Results by kubelet version, and whether the node is of the control plane: many nodes share few versions.
    known: BTreeMap<(&'a str, bool), Option<Blocker>>,
}

/// The limit of a node whose kubelet has the version already, and that is being marked as done.
pub(super) fn at_version(turn: &mut Turn<'_, '_>) -> Verdict {
    let version = turn.node.kubelet.clone();
    let is_at_version = turn.plan.targets.at_version.contains(&turn.node.name);
    Verdict::skip_if(is_at_version.then_some(Blocker::AtVersion { version }))
}

impl<'a> Limit<'a> for VersionLimits<'a> {
    fn admit(&mut self, turn: &mut Turn<'_, 'a>) -> Verdict {
        Verdict::skip_if(self.blocker(turn.node))
    }
}

impl<'a> VersionLimits<'a> {
    /// `None` if there are none.
    pub(crate) fn of(cluster: &ClusterState, plan: &'a DerivedPlan) -> Option<Self> {
        let spec = plan.spec();
        let (is_of_kubelets, max_minor_skip) = (spec.installs_kubernetes(), spec.max_minor_skip());
        if !is_of_kubelets && max_minor_skip.is_none() {
            return None;
        }
        let version = &plan.resolved.as_ref()?.version;
        // A release candidate of RKE2 installs the kubelet of the release.
        let parsed: Option<Version> = kubelet_version(version).parse().ok();
        // Kubernetes has always been version 1.
        let is_of_kubelets = is_of_kubelets && parsed.as_ref().is_some_and(|it| it.major() == 1);
        let older = parsed
            .as_ref()
            .filter(|_| is_of_kubelets)
            .and_then(|parsed| older_control_plane(cluster, version, parsed));
        Some(Self {
            version,
            parsed,
            is_of_kubelets,
            allows_downgrade: spec.allows_downgrade(),
            max_minor_skip,
            older,
            known: BTreeMap::new(),
        })
    }

    pub(crate) fn blocker(&mut self, node: &'a NodeFacts) -> Option<Blocker> {
        let is_control_plane = node.is_control_plane();
        let key = (&*node.kubelet, is_control_plane);
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let older = || self.older.clone().filter(|_| !is_control_plane);
        let found = self
            .newer(&node.kubelet)
            .or_else(older)
            .or_else(|| self.skip(&node.kubelet));
        self.known.insert(key, found.clone());
        found
    }

    fn newer(&self, kubelet: &Text) -> Option<Blocker> {
        if !self.is_of_kubelets || self.allows_downgrade {
            return None;
        }
        let current: Version = kubelet.parse().ok()?;
        (*self.parsed.as_ref()? < current).then(|| Blocker::NodeIsNewer {
            kubelet: kubelet.clone(),
            version: self.version.clone(),
        })
    }

    fn skip(&self, kubelet: &Text) -> Option<Blocker> {
        let limit = self.max_minor_skip?;
        let parsed = self.parsed.as_ref();
        let skip = parsed.and_then(|version| version.minors_from(&kubelet.parse().ok()?));
        skip.is_none_or(|skip| skip > limit).then(|| Blocker::MinorSkip {
            kubelet: kubelet.clone(),
            version: self.version.clone(),
            skip,
            limit,
        })
    }
}

/// A control-plane node, or the API server, that is older than the version. Kubernetes' version skew policy: a kubelet must
/// not be newer than the API server that it talks to.
fn older_control_plane(cluster: &ClusterState, version: &Text, parsed: &Version) -> Option<Blocker> {
    let is_older = |has: &Text| has.parse::<Version>().is_ok_and(|has| has < *parsed);
    let nodes = cluster
        .world
        .nodes
        .control_plane
        .get(&ControlPlaneRole::ControlPlane);
    let node = nodes.into_iter().flatten().find_map(|name: &NodeName| {
        let node = cluster.world.nodes.get(name)?;
        is_older(&node.kubelet).then(|| (Some(name.clone()), node.kubelet.clone()))
    });
    let api_server = || {
        let has = cluster.world.api_server_version.clone()?;
        is_older(&has).then_some((None, has))
    };
    let (node, has) = node.or_else(api_server)?;
    Some(Blocker::ControlPlaneOlder {
        node,
        has,
        version: version.clone(),
    })
}
