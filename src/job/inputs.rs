//! The digest of the user's part of a Job: what replaces a Job that has not reached its upgrade when it is edited.
//!
//! It is made of the Plan's fields, not of the manifest that comes out of them: nothing of it comes from refit's version,
//! image or environment, so that upgrading or configuring refit runs nothing again. What the hash is made of
//! ([`digest`](super::digest)) is not needed here; a Job of another hash is another Job.

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::digest::go_spec;
use crate::api::{HostAccess, PlanSpec, RebootWhen};

/// Fields of the spec that end up in the pods of a Job, or in how long it may take.
const FIELDS: &[&str] = &[
    "cordon",
    "drain",
    "exclusive",
    "hostAccess",
    "imagePullSecrets",
    "jobActiveDeadlineSecs",
    "prepare",
    "priorityClassName",
    "reboot",
    "secrets",
    "serviceAccountName",
    "tolerations",
    "upgrade",
];

/// Digest of all that a Plan says about the pods of its Jobs, at a version: 32 hex digits. The same for all nodes: compute
/// it once for each change of the Plan.
///
/// An optional field that is absent and one that is written out as its zero (`cordon: false`) are the same.
pub fn inputs(spec: &PlanSpec, latest_version: &str) -> String {
    let of = spec;
    let mut spec = go_spec(spec);
    let mut parts: Map<String, Value> = FIELDS
        .iter()
        .filter_map(|field| spec.remove_entry(*field))
        .collect();
    if !used_access(of) {
        parts.remove("hostAccess");
    }
    match used_reboot(of) {
        Some(reboot) => parts.insert("reboot".to_owned(), reboot),
        None => parts.remove("reboot"),
    };
    parts.insert("latestVersion".to_owned(), latest_version.into());
    let mut parts = Value::Object(parts);
    parts.sort_all_objects(); // whatever order serde_json was built to keep
    hex::encode(&Sha256::digest(parts.to_string())[..16])
}

/// Whether it differs from what system-upgrade-controller gives.
fn used_access(spec: &PlanSpec) -> bool {
    spec.host_access() != HostAccess::Full
}

/// What of the reboot is in the Job: how its end is told, what is looked for on the host. Its timeout is not, and what means
/// the same is the same.
fn used_reboot(spec: &PlanSpec) -> Option<Value> {
    let reboot = spec.reboot_or_default();
    let files = match reboot.when() {
        RebootWhen::Never => return None,
        RebootWhen::Always => Vec::new(),
        RebootWhen::IfRequired => reboot.required_files(),
    };
    Some(json!({ "when": reboot.when(), "requiredFiles": files, "commands": reboot.commands() }))
}

#[cfg(test)]
mod tests;
