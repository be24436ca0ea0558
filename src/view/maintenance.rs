//! Nodes in maintenance: what their objects say, and what they wait for.

use serde_json::{Value, json};

use super::read::Snapshot;
use super::time;
use refit_api::OpenEnum;
use refit_api::open_enum::closed_enum;
use refit_facts::objects::maintenance::{Maintenance, MaintenancePhase, PLURAL};

closed_enum! {
    /// Where a maintenance is: its phase, or what the object does not say in its phase.
    MaintenanceState {
        Pending "No controller has begun with it."
        Running "Its node is not drained yet."
        Succeeded "Its node is drained."
        Failed "Its node is not in maintenance."
        Deleting "Its node is yet to be released."
    }
}

pub(super) fn stage(object: &Maintenance) -> OpenEnum<MaintenanceState> {
    if object.is_being_deleted() {
        return MaintenanceState::Deleting.into();
    }
    match object.status.phase.as_ref().filter(|phase| !phase.is_empty()) {
        None => MaintenanceState::Pending.into(),
        Some(OpenEnum::Known(MaintenancePhase::Running)) => MaintenanceState::Running.into(),
        Some(OpenEnum::Known(MaintenancePhase::Succeeded)) => MaintenanceState::Succeeded.into(),
        Some(OpenEnum::Known(MaintenancePhase::Failed)) => MaintenanceState::Failed.into(),
        Some(OpenEnum::Other(other)) => OpenEnum::Other(other.clone()),
    }
}

/// How long the object is there.
pub(super) fn age(snapshot: &Snapshot, object: &Maintenance) -> Option<String> {
    let created = object.metadata.creation_timestamp.as_ref()?.0;
    Some(time::short(snapshot.now.duration_since(created)))
}

/// The parts of a line of `refit status`: name, node, phase, age, and what blocks it.
pub(super) fn parts(snapshot: &Snapshot, object: &Maintenance) -> [String; 5] {
    [
        object.title(),
        object.spec.node_name.clone(),
        stage(object).to_string(),
        age(snapshot, object).unwrap_or_default(),
        object.status.last_error.clone().unwrap_or_default(),
    ]
}

/// What it says, in a chain.
pub(super) fn says(snapshot: &Snapshot, object: &Maintenance) -> String {
    let age = age(snapshot, object).map_or_else(String::new, |age| format!(" for {age}"));
    match object.status.last_error.as_deref() {
        Some(why) if !why.is_empty() => format!("{}{age}: {why}", stage(object)),
        _ => format!("{}{age}", stage(object)),
    }
}

/// The command that ends it.
pub(super) fn delete(object: &Maintenance) -> String {
    format!("kubectl delete {} {}", resource(object), object.name())
}

pub(super) fn resource(object: &Maintenance) -> String {
    format!("{PLURAL}.{}", object.group.name())
}

/// As `kubectl -o name` prints it.
pub fn full_name(object: &Maintenance) -> String {
    format!("nodemaintenance.{}/{}", object.group.name(), object.name())
}

pub fn to_json(object: &Maintenance) -> Value {
    let created = object.metadata.creation_timestamp.as_ref();
    json!({
        "group": object.group.name(), "name": object.name(), "node": object.spec.node_name, "phase": stage(object),
        "since": created.map(|at| at.0.to_string()), "reason": object.spec.reason, "lastError": object.status.last_error,
        "drainProgress": object.status.drain_progress, "pendingPods": object.status.pending_pods.len(),
    })
}
