//! The nodes that start next: they pull the image in advance, or say that they are next.

use jiff::{SignedDuration, Timestamp};

use super::joining::joining;
use super::taints::Tolerations;
use crate::blocker::Blocker;
use crate::node::state::PlanNodes;
use crate::open_waves::OpenWaves;
use crate::picture::PlanPicture;
use crate::plan::DerivedPlan;
use crate::state::ClusterState;
use refit_facts::NodeName;

/// Maximum number of nodes of a Plan that are next.
const MAX_NEXT: usize = 32;
/// How long before a window nodes say that they are next.
const NEAR: SignedDuration = SignedDuration::from_hours(1);

/// The first of these nodes that can start: as many as may be in progress at a time.
pub(super) fn nodes<'a>(
    cluster: &ClusterState,
    plan: &DerivedPlan,
    nodes: &PlanNodes,
    turns: impl Iterator<Item = &'a NodeName>,
    now: Timestamp,
) -> Vec<NodeName> {
    let tolerations = Tolerations::of(plan);
    let is_fit = |name: &&NodeName| {
        let node = cluster.world.nodes.get(name);
        node.is_some_and(|node| {
            joining(cluster, &tolerations, node, now).is_none() && tolerations.blocker(node).is_none()
        })
    };
    let next = turns
        .filter(|name| !nodes.contains_key(*name) && !plan.targets.at_version().contains(*name))
        .filter(is_fit);
    let most = usize::try_from(plan.limit()).unwrap_or_default();
    next.take(most.min(MAX_NEXT)).cloned().collect()
}

/// Notes the nodes that the next free slots go to. Those with a blocker of their own are not next, unless they are only being
/// looked at.
pub(super) fn add(
    cluster: &ClusterState,
    plan: &DerivedPlan,
    slots: &PlanNodes,
    reach: OpenWaves,
    now: Timestamp,
    picture: &mut PlanPicture,
) {
    if !cluster.defaults.node_conditions {
        return;
    }
    let turns = plan.targets.ready_in(reach);
    let is_looked_at =
        |why: &Blocker| matches!(why, Blocker::PodsPending { .. } | Blocker::LeasePending { .. });
    let turns = turns.filter(|name| picture.nodes.get(*name).is_none_or(is_looked_at));
    picture.next = nodes(cluster, plan, slots, turns, now);
}

/// Notes the nodes that start when the next window opens, if that is what keeps them, and soon.
pub(super) fn add_for_window(
    cluster: &ClusterState,
    plan: &DerivedPlan,
    slots: &PlanNodes,
    reach: OpenWaves,
    shut: &Blocker,
    now: Timestamp,
    picture: &mut PlanPicture,
) {
    let opens = match shut {
        Blocker::NotBefore { at } => Some(*at),
        other => other.next_window(),
    };
    let Some(opens) = opens.filter(|_| cluster.defaults.node_conditions) else {
        return;
    };
    let near = opens.saturating_sub(NEAR).unwrap_or(opens);
    if now < near {
        picture.requeue(near);
        return;
    }
    add(cluster, plan, slots, reach, now, picture);
    picture.next_from = Some(opens);
}
