//! Nodes that have just joined. A kubelet registers its Node with few labels; the distribution, the cloud and the network add
//! others, and remove start-up taints, in the seconds after that. Until then a server can look like an agent.

use jiff::Timestamp;

use super::limit::{Limit, Turn, Verdict};
use super::taints::Tolerations;
use crate::blocker::{Blocker, Joining};
use crate::later::requeue;
use crate::plan::DerivedPlan;
use crate::state::ClusterState;
use refit_facts::{NodeFacts, Taint};

/// Taints that a node has from its registration until it is set up, by what removes them.
const STARTUP_TAINTS: [&str; 7] = [
    "node.cloudprovider.kubernetes.io/uninitialized",
    // Cluster API, when it has copied the labels of the Machine.
    "node.cluster.x-k8s.io/uninitialized",
    "karpenter.sh/unregistered",
    "node.kubernetes.io/network-unavailable",
    "node.cilium.io/agent-not-ready",
    "cni.istio.io/not-ready",
    "ebs.csi.aws.com/agent-not-ready",
];
const STARTUP_TAINT_PREFIXES: [&str; 2] = [
    // The Node Readiness Controller.
    "readiness.k8s.io/",
    "startup-taint.cluster-autoscaler.kubernetes.io/",
];

/// Whether a node has joined.
pub(super) struct Joined(Tolerations);

impl Joined {
    pub(super) fn of(plan: &DerivedPlan) -> Self {
        Self(Tolerations::of(plan))
    }
}

impl<'a> Limit<'a> for Joined {
    fn admit(&mut self, turn: &mut Turn<'_, 'a>) -> Verdict {
        let found = joining(turn.cluster, &self.0, turn.node, turn.now);
        if let Some(Joining::Until(until)) = found {
            requeue(&mut turn.picture.requeue_at, until);
        }
        Verdict::skip_if(found.map(Blocker::NodeJoining))
    }
}

/// Why a node is not ready to be upgraded yet.
pub(super) fn joining(
    cluster: &ClusterState,
    tolerations: &Tolerations,
    node: &NodeFacts,
    now: Timestamp,
) -> Option<Joining> {
    // Plans for work on nodes tolerate everything; one that names the taint is about such nodes.
    let mut taints = node.taints.iter().flatten();
    if let Some(taint) = taints.find(|taint| is_startup(taint) && !tolerations.name(taint)) {
        return Some(Joining::Taint(taint.clone()));
    }
    let until = node.created?.checked_add(cluster.defaults.min_node_age).ok()?;
    (now < until).then_some(Joining::Until(until))
}

fn is_startup(taint: &Taint) -> bool {
    let key = taint.key.as_str();
    STARTUP_TAINTS.contains(&key)
        || STARTUP_TAINT_PREFIXES
            .iter()
            .any(|prefix| key.starts_with(prefix))
}
