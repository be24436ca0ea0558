//! Which objects other than Plans may take the nodes that they want.

use super::remediation;
use super::reservation::reserved;
use super::start::locks::DisruptionLocks;
use super::state::ClusterState;
use super::world::maintenances::{ReservationDecision, ReservationDecisions};

/// Which objects may take the nodes that they want. One that is in the ledger has taken its node, and one that was
/// granted it may be about to.
pub(super) fn grants(cluster: &ClusterState, locks: &mut DisruptionLocks<'_>) -> ReservationDecisions {
    let mut grants = ReservationDecisions::new();
    let is_left = |node| remediation::is_paused(cluster, node);
    for (node, reservation) in cluster.world.maintenances.reservations().into_iter().flatten() {
        let Some(facts) = cluster.world.nodes.get(node) else {
            continue;
        };
        let mut holders = facts.ledger.iter().flat_map(|ledger| &ledger.holders);
        let has_taken = holders.any(|holder| *holder.plan_uid == *reservation.uid)
            || cluster.memory.granted.get(node) == Some(&reservation.uid);
        let answer = locks
            .reservation_blocker(node)
            // The label and the Lease of a Plan that has just ended there are still being taken back.
            .or_else(|| is_left(facts).then(|| "a Plan that has worked on the node is leaving it".to_owned()))
            .filter(|_| !has_taken)
            .map_or(Ok(()), Err);
        if answer.is_ok() {
            locks.take(node);
        }
        let uid = reservation.uid.clone();
        grants.insert(node.clone(), ReservationDecision { uid, answer });
    }
    // Only now: a node that waits leaves room for one that can be taken.
    for node in reserved(cluster) {
        locks.keep_room(node);
    }
    grants
}
