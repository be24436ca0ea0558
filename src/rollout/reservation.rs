//! Nodes that other objects than Plans hold, such as a `NodeMaintenance`. A front end reports which nodes its objects
//! want; the decision says which of them they may take, and keeps Plans off them from the request on. The front end
//! then cordons the node with a holder in its ledger. When the object is gone, the holder has no reason any more, and
//! [`release`](super::release) restores the node.

use std::collections::BTreeMap;

use super::start::DisruptionLocks;
use super::state::ClusterState;
use refit_api::Holder;
use refit_facts::{NodeName, Text};

/// An object that wants or holds a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// Its kind and name, for messages.
    pub object: Text,
    pub uid: Text,
}

/// The nodes that objects want, by name; one object each.
pub type Reservations = BTreeMap<NodeName, Reservation>;

/// What was decided about an object that wants a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The UID of the object: the next one that wants the node has to wait for a decision of its own.
    pub uid: Text,
    /// Whether it may take the node, and otherwise why not.
    pub answer: Result<(), String>,
}

/// The decisions, by the name of the node.
pub type Grants = BTreeMap<NodeName, Grant>;

impl ClusterState {
    /// Whether nodes can be held by other objects than Plans.
    pub fn has_front_ends(&self) -> bool {
        self.defaults.has_front_ends
    }

    /// The object, other than a Plan, that wants or holds a node.
    pub(super) fn reserved_by(&self, node: &str) -> Option<&str> {
        let wants = || self.reservations.as_ref()?.get(node).map(|it| &*it.object);
        self.held_by(node).or_else(wants)
    }

    /// The object, other than a Plan, that is in the ledger of a node.
    fn held_by(&self, node: &str) -> Option<&str> {
        let ledger = self.nodes.get(node)?.ledger.as_ref()?;
        let mut holders = ledger.holders.iter().filter(|holder| holder.is_of_front_end());
        holders.next().map(|holder| holder.plan.as_str())
    }

    /// The nodes that objects want or hold.
    pub(super) fn reserved(&self) -> impl Iterator<Item = &NodeName> {
        let wanted = self.reservations.iter().flat_map(BTreeMap::keys);
        let held = self.ledgers.iter().filter(|name| self.held_by(name).is_some());
        wanted.chain(held)
    }

    /// Whether a node is down for an object other than a Plan, or may be at any moment.
    pub(super) fn is_taken(&self, node: &str) -> bool {
        self.held_by(node).is_some() || self.granted.contains_key(node)
    }

    /// The nodes that are down for objects other than Plans, or may be at any moment.
    pub(super) fn taken(&self) -> impl Iterator<Item = &NodeName> {
        self.reserved().filter(|node| self.is_taken(node))
    }

    pub(super) fn apply_reservations(&mut self, reservations: Reservations) -> bool {
        let wants = |node: &NodeName, uid: &Text| reservations.get(node).is_some_and(|it| it.uid == *uid);
        self.granted.retain(|node, uid| wants(node, uid));
        let known = self.reservations.replace(reservations);
        known != self.reservations
    }

    /// Notes which objects may take their nodes.
    pub fn note_grants(&mut self, grants: &Grants) {
        let granted = grants.iter().filter(|(_, grant)| grant.answer.is_ok());
        self.granted
            .extend(granted.map(|(node, grant)| (node.clone(), grant.uid.clone())));
    }

    /// Whether the object of a holder does not want the node any more. Nothing is known while no front end has reported.
    pub(super) fn is_over(&self, node: &str, holder: &Holder) -> bool {
        let wants = |all: &Reservations| all.get(node).is_some_and(|it| *it.uid == *holder.plan_uid);
        holder.is_of_front_end() && self.reservations.as_ref().is_some_and(|all| !wants(all))
    }
}

/// Which objects may take the nodes that they want. One that is in the ledger has taken its node, and one that was
/// granted it may be about to.
pub(super) fn grants(cluster: &ClusterState, locks: &mut DisruptionLocks<'_>) -> Grants {
    let mut grants = Grants::new();
    for (node, reservation) in cluster.reservations.iter().flatten() {
        let Some(facts) = cluster.nodes.get(node) else {
            continue;
        };
        let mut holders = facts.ledger.iter().flat_map(|ledger| &ledger.holders);
        let has_taken = holders.any(|holder| *holder.plan_uid == *reservation.uid)
            || cluster.granted.get(node) == Some(&reservation.uid);
        let answer = locks
            .reservation_blocker(node)
            .filter(|_| !has_taken)
            .map_or(Ok(()), Err);
        if answer.is_ok() {
            locks.take(node);
        }
        let uid = reservation.uid.clone();
        grants.insert(node.clone(), Grant { uid, answer });
    }
    // Only now: a node that waits leaves room for one that can be taken.
    for node in cluster.reserved() {
        locks.keep_room(node);
    }
    grants
}
