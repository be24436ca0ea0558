//! Lifecycle conditions of nodes, in some of the seeds: the controllers write them, and so do other clients.

use super::super::rng::Rng;
use super::users::Users;
use refit_rehearse::Kind;
use refit_rehearse::json::json;
use refit_rehearse::store::Key;
use refit_rehearse::write::WriteTarget;

const TYPES: [&str; 4] = [
    "MaintenancePlanned",
    "DrainInProgress",
    "Drained",
    "MaintenanceInProgress",
];
/// The reason of another client's condition.
const REASON: &str = "AdminRequested";

/// Where they are in use.
pub(super) fn used(seed: u64) -> Option<Rng> {
    Some(Rng::new(seed ^ 0x5683)).filter(|rng| rng.clone().chance(40))
}

impl Users {
    /// Another client sets a condition, or removes its own.
    pub(super) fn change_condition(&mut self, node: &str) {
        let Some(rng) = &mut self.lifecycle else {
            return;
        };
        if !rng.chance(30) {
            return;
        }
        if rng.chance(60) {
            let type_ = *rng.pick(&TYPES).unwrap();
            let status = if rng.chance(80) { "True" } else { "False" };
            self.count("condition set", &format!("{type_} {status} of {node}"));
            self.write_conditions(node, Some((type_, status)));
        } else {
            self.count("condition removed", node);
            self.write_conditions(node, None);
        }
    }

    /// No node waits for another client any more.
    pub(super) fn remove_conditions(&mut self) {
        if self.lifecycle.is_none() {
            return;
        }
        for node in self.names(Kind::Node) {
            self.write_conditions(&node, None);
        }
    }

    /// Sets a condition, or removes those of other clients.
    fn write_conditions(&self, node: &str, set: Option<(&str, &str)>) {
        self.cluster.with(|state| {
            let key = Key::new("", node);
            let _ = state.update(Kind::Node, &key, WriteTarget::Status, false, |old| {
                let mut new = old.clone();
                let known = old["status"]["conditions"].as_array();
                let mut conditions = known.cloned().unwrap_or_default();
                conditions.retain(|one| match set {
                    Some((type_, _)) => one["type"] != *type_,
                    None => one["reason"] != *REASON,
                });
                if let Some((type_, status)) = set {
                    conditions.push(json!({ "type": type_, "status": status, "reason": REASON }));
                }
                new["status"]["conditions"] = conditions.into();
                Ok(new)
            });
        });
    }
}
