//! The turns of objects of the kind `NodeMaintenance`. A turn does what can be done now: the finalizer, the Lease, a drain of
//! half a minute, the status.

use jiff::Timestamp;

use super::decision::Decision;
use super::memory::turns::{Due, MaintenanceTask};
use super::state::ClusterState;
use super::step::{MaintenanceTurn, Step};

/// Requests the turns that are due. [`Decision::grants`] says which nodes may be taken.
pub(super) fn add_turns(cluster: &ClusterState, now: Timestamp, decision: &mut Decision) {
    let all = &cluster.world.maintenances;
    if all.reservations().is_none() {
        return;
    }
    for (id, object) in all.iter() {
        let node = object.spec.node_name.as_str();
        let grant = decision.grants.get(node);
        let task = MaintenanceTask {
            object: object.clone(),
            is_owner: cluster.is_reserved_for(object.uid()),
            grant: grant
                .filter(|grant| *grant.uid == *object.uid())
                .map(|grant| grant.answer.clone()),
        };
        match cluster.memory.turns.due(&id, &task, now) {
            Due::Now(progress) => {
                let turn = MaintenanceTurn { id, task, progress };
                decision.steps.push(Step::Maintain(Box::new(turn)));
            }
            Due::At(at) => decision.requeue(at),
            Due::WhenSomethingChanges => {}
        }
    }
}
