//! The digest of the user's part of a Job. If an edit changes it, the controller replaces a Job that has not reached
//! its upgrade.
//!
//! It is computed from the Plan's fields, not from the rendered manifest: it must not depend on refit's version, image or
//! environment, because an upgrade or a new setting of refit must not replace Jobs. The inputs of the hash
//! ([`digest`](super::digest)) are not part of it, because a Job of another hash is another Job. The types mark fields with
//! `x-in-job`: those of `PlanSpec` that are in the Job, and those of `DrainSpec` that are not.

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::digest::go_spec;
use refit_api::crd::{DRAIN_FIELDS_NOT_IN_JOB, FIELDS_IN_JOB, OWN_FIELDS};
use refit_api::{Hook, HostAccess, PlanSpec, RebootWhen};

/// Digest of what a Plan says about the pods of its Jobs, at a version: 32 hex digits. It is the same for all nodes, so
/// compute it once per change of the Plan.
///
/// An absent optional field and one with its zero value (`cordon: false`) give the same digest.
pub fn inputs(spec: &PlanSpec, latest_version: &str) -> String {
    let of = spec;
    let mut spec = go_spec(spec);
    let mut parts: Map<String, Value> = FIELDS_IN_JOB
        .iter()
        .filter_map(|field| spec.remove_entry(field))
        .collect();
    // The default written out is the same as none, so that to write it into a Plan replaces no Job.
    if of.host_access() == HostAccess::Full {
        parts.remove("hostAccess");
    }
    match used_reboot(of) {
        Some(reboot) => parts.insert("reboot".to_owned(), reboot),
        None => parts.remove("reboot"),
    };
    if let Some(drain) = parts.get_mut("drain").and_then(Value::as_object_mut) {
        drain.retain(|field, value| {
            // Only for fields of refit does `false` mean the same as none: `ignoreDaemonSets: false` changes the
            // arguments.
            let is_own = || OWN_FIELDS.contains(&["spec.drain", field.as_str()]);
            !DRAIN_FIELDS_NOT_IN_JOB.contains(field) && (*value != Value::Bool(false) || !is_own())
        });
    }
    if !of.prepulls() {
        parts.remove("prepull");
    }
    parts.insert("latestVersion".to_owned(), latest_version.into());
    let mut parts = Value::Object(parts);
    parts.sort_all_objects(); // independent of the order that serde_json keeps
    hex::encode(&Sha256::digest(parts.to_string())[..16])
}

/// Digest of what a Plan says about the Job of a hook, at a version; `None` if it has no such hook.
pub fn hook_inputs(spec: &PlanSpec, hook: Hook, latest_version: &str) -> Option<String> {
    let of = hook.spec(spec)?;
    let fields = [
        "apiAccess",
        "imagePullSecrets",
        "jobActiveDeadlineSecs",
        "priorityClassName",
        "secrets",
        "serviceAccountName",
        "tolerations",
    ];
    let mut spec = go_spec(spec);
    let of_pod: Map<String, Value> = fields
        .iter()
        .filter_map(|field| spec.remove_entry(*field))
        .collect();
    let mut parts = json!({ "hook": of, "pod": of_pod, "latestVersion": latest_version });
    parts.sort_all_objects();
    Some(hex::encode(&Sha256::digest(parts.to_string())[..16]))
}

/// The parts of `spec.reboot` that are in the Job: how the sentinel decides, and which files it looks for. The timeout
/// is not, and equivalent values give the same result.
fn used_reboot(spec: &PlanSpec) -> Option<Value> {
    let reboot = spec.reboot_or_default();
    let when = spec.reboot_when();
    let files = match when {
        RebootWhen::Never => return None,
        RebootWhen::Always => Vec::new(),
        RebootWhen::IfRequired => reboot.required_files(),
    };
    Some(json!({ "when": when, "requiredFiles": files, "commands": reboot.commands() }))
}

#[cfg(test)]
mod tests;
