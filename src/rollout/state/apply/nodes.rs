//! Nodes, and the objects other than Plans that want them.

use super::jobs;
use crate::state::ClusterState;
use refit_facts::objects::maintenance::{Maintenance, MaintenanceGroup};
use refit_facts::store::Change;
use refit_facts::{NodeFacts, NodeName, Text};

pub(super) fn put(cluster: &mut ClusterState, version: u64, facts: NodeFacts) -> bool {
    let name = facts.name.clone();
    let nodes = &mut cluster.world.nodes;
    let was_unreadable = nodes.forget_unreadable(&name);
    if !nodes.put(version, facts, &cluster.defaults.namespace) {
        return was_unreadable;
    }
    if let Some(new) = nodes.get(&name) {
        for plan_state in cluster.plans.values_mut() {
            plan_state.node_changed(new);
        }
        cluster.memory.timers.node_seen(new);
    }
    jobs::file_all_on(cluster, &name);
    true
}

pub(super) fn remove(cluster: &mut ClusterState, name: &str, uid: &str) -> bool {
    let nodes = &mut cluster.world.nodes;
    let is_it = nodes.unreadable(name).is_some_and(|(_, node)| *node.uid == *uid);
    let was_unreadable = is_it && nodes.forget_unreadable(name);
    let Some(old) = nodes.remove(name, uid, &cluster.defaults.namespace) else {
        return was_unreadable;
    };
    cluster.memory.timers.node_departed(&old);
    for plan_state in cluster.plans.values_mut() {
        plan_state.targets.remove(&old.name);
    }
    jobs::file_all_on(cluster, name);
    true
}

pub(super) fn maintenance(
    cluster: &mut ClusterState,
    group: MaintenanceGroup,
    change: Change<Box<Maintenance>>,
) -> bool {
    let maintenances = &mut cluster.world.maintenances;
    if !maintenances.apply(group, change) {
        return false;
    }
    cluster.memory.turns.forget_absent(maintenances);
    let wants = |node: &NodeName, uid: &Text| {
        let object = maintenances.reservations().and_then(|all| all.get(node));
        object.is_some_and(|it| it.uid == *uid)
    };
    cluster.memory.granted.retain(|node, uid| wants(node, uid));
    true
}
