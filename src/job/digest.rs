//! `status.latestHash`: what runs a Plan again when it changes (S40–S43), byte for byte as system-upgrade-controller
//! computes it, because a node is done when its label equals this hash, whoever wrote the label (F68).

use k8s_openapi::api::core::v1::Secret;

use crate::api::{Plan, PlanSpec};

/// The hash of a Plan at a version. `secret_hashes` are those of [`hashed_secrets`], in that order, by [`secret_hash`].
pub fn plan_hash<H: AsRef<str>>(
    plan: &Plan,
    latest_version: &str,
    secret_hashes: impl IntoIterator<Item = H>,
) -> String {
    let _ = (plan, latest_version, secret_hashes.into_iter().count());
    String::new()
}

/// Names of the secrets that take part in the hash, in the order of the spec. One that is listed twice is here twice.
pub fn hashed_secrets(spec: &PlanSpec) -> impl Iterator<Item = &str> {
    spec.secrets
        .iter()
        .flatten()
        .filter(|secret| !secret.ignore_updates.unwrap_or_default())
        .map(|secret| secret.name.as_str())
}

/// The hash of a Secret: ten characters, as `kubectl create secret --append-hash` appends them (S42).
pub fn secret_hash(secret: &Secret) -> String {
    let _ = secret;
    String::new()
}
