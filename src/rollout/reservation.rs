//! Nodes that other objects than Plans hold, such as a `NodeMaintenance`. A front end reports which nodes its objects
//! want; the decision says which of them they may take, and keeps Plans off them from the request on. The front end
//! then cordons the node with a holder in its ledger. When the object is gone, the holder has no reason any more, and
//! [`release`](super::release) restores the node.

use std::collections::BTreeMap;

use super::state::ClusterState;
use super::world::maintenances::Reservations;
use refit_api::{Holder, ObjectRef};
use refit_facts::NodeName;

fn wanted(cluster: &ClusterState) -> Option<&Reservations> {
    cluster.world.maintenances.reservations()
}

/// The object, other than a Plan, that wants or holds a node.
pub(super) fn reserved_by(cluster: &ClusterState, node: &str) -> Option<ObjectRef> {
    let wants = || wanted(cluster)?.get(node).map(|it| &*it.object);
    // Its kind and its name, as the ledger has them. Whatever is written there keeps Plans off.
    let text = held_by(cluster, node).or_else(wants)?;
    let (kind, name) = text.split_once(' ').unwrap_or(("NodeMaintenance", text));
    Some(ObjectRef::new(kind, name))
}

/// The object, other than a Plan, that is in the ledger of a node.
fn held_by<'a>(cluster: &'a ClusterState, node: &str) -> Option<&'a str> {
    let ledger = cluster.world.nodes.get(node)?.ledger.as_ref()?;
    let mut holders = ledger.holders.iter().filter(|holder| holder.is_of_front_end());
    holders.next().map(|holder| holder.plan.as_str())
}

/// The nodes that objects want or hold.
pub(super) fn reserved(cluster: &ClusterState) -> impl Iterator<Item = &NodeName> {
    let of_objects = wanted(cluster).into_iter().flat_map(BTreeMap::keys);
    let held = cluster
        .world
        .nodes
        .ledgers
        .iter()
        .filter(|name| held_by(cluster, name).is_some());
    of_objects.chain(held)
}

/// Whether a node is down for an object other than a Plan, or may be at any moment.
pub(super) fn is_taken(cluster: &ClusterState, node: &str) -> bool {
    held_by(cluster, node).is_some() || cluster.memory.granted.contains_key(node)
}

/// The nodes that are down for objects other than Plans, or may be at any moment.
pub(super) fn taken(cluster: &ClusterState) -> impl Iterator<Item = &NodeName> {
    reserved(cluster).filter(|node| is_taken(cluster, node))
}

/// Whether the object of a holder does not want the node any more. Nothing is known while no front end has reported.
pub(super) fn is_over(cluster: &ClusterState, node: &str, holder: &Holder) -> bool {
    let wants = |all: &Reservations| all.get(node).is_some_and(|it| *it.uid == *holder.plan_uid);
    holder.is_of_front_end() && wanted(cluster).is_some_and(|all| !wants(all))
}
