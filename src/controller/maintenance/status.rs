//! The status of a `NodeMaintenance`, in node-maintenance-operator's words. Pure.

use serde_json::{Value, json};

use refit_cluster::drain::pods::PodId;
use refit_facts::objects::maintenance::{MaintenancePhase, MaintenanceStatus, PodRef};

pub(super) const LEASE_LOST: &str = "maintenance failed: lease could not be extended after 4 attempts";

/// Pods that are named. The others are counted by `drainProgress`.
const MAX_NAMED: usize = 200;

/// Before the drain: these pods are to be evicted, of all on the node.
pub(super) fn begin(status: &mut MaintenanceStatus, pending: &[PodId], total: usize) {
    status.phase = Some(MaintenancePhase::Running.into());
    status.eviction_pods = count(pending.len());
    status.total_pods = count(total);
    set_pending(status, pending);
}

/// A drain has failed, and these pods are left.
pub(super) fn fall_short(status: &mut MaintenanceStatus, pending: &[PodId], why: String) {
    status.phase = Some(MaintenancePhase::Running.into());
    status.last_error = Some(why);
    set_pending(status, pending);
    // Pods that have landed since would make it negative.
    if status.eviction_pods > 0 {
        let gone = (status.eviction_pods - count(pending.len())).max(0);
        status.drain_progress = gone * 100 / status.eviction_pods;
    }
}

pub(super) fn succeed(status: &mut MaintenanceStatus) {
    status.phase = Some(MaintenancePhase::Succeeded.into());
    status.drain_progress = 100;
    status.last_error = None;
    status.error_on_lease_count = 0;
    set_pending(status, &[]);
}

fn set_pending(status: &mut MaintenanceStatus, pending: &[PodId]) {
    let named = || pending.iter().take(MAX_NAMED);
    status.pending_pods = named().map(|pod| pod.name.clone()).collect();
    let to_ref = |pod: &PodId| PodRef {
        namespace: pod.namespace.clone(),
        name: pod.name.clone(),
    };
    status.pending_pods_refs = named().map(to_ref).collect();
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A merge patch to this status. What is zero is removed, as node-maintenance-operator does.
pub(super) fn patch(status: &MaintenanceStatus) -> Value {
    let mut fields = json!(status);
    for value in fields
        .as_object_mut()
        .into_iter()
        .flat_map(|all| all.values_mut())
    {
        let is_zero = value.as_i64() == Some(0) || value.as_array().is_some_and(Vec::is_empty);
        if is_zero {
            *value = Value::Null;
        }
    }
    json!({ "status": fields })
}
