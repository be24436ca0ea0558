//! `status.latestHash`: what runs a Plan again when it changes (S40–S44).
//!
//! Byte for byte what system-upgrade-controller computes: a node is done when its label equals this hash, whoever wrote
//! the label, so that a roll-out that it finished is not run again (F68). It must not depend on anything else.

mod shape;
mod text;

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use serde::Serialize;
use sha2::{Digest, Sha224, Sha256};

use crate::api::names::ANNOTATION_DIGEST;
use crate::api::{Plan, PlanSpec};

pub(super) use shape::go_spec;

/// The hash of a Plan at a version: 56 hex digits. `latest_version` has `-` for `+` already; `secret_hashes` are those of
/// [`hashed_secrets`], in that order, by [`secret_hash`].
pub fn plan_hash<H: AsRef<[u8]>>(
    plan: &Plan,
    latest_version: &str,
    secret_hashes: impl IntoIterator<Item = H>,
) -> String {
    let mut digest = Sha224::new();
    digest.update(latest_version);
    digest.update(plan.spec.service_account_name.as_deref().unwrap_or_default());
    digest.update(annotated(plan, latest_version));
    for hash in secret_hashes {
        digest.update(hash);
    }
    hex::encode(digest.finalize())
}

/// Names of the secrets that take part in the hash, in the order of the spec. One that is listed twice is here twice.
pub fn hashed_secrets(spec: &PlanSpec) -> impl Iterator<Item = &str> {
    spec.secrets
        .iter()
        .flatten()
        .filter(|secret| !secret.ignore_updates.unwrap_or_default())
        .map(|secret| secret.name.as_str())
}

/// The values of the fields that the annotation `upgrade.cattle.io/digest` names, one after the other (S41).
fn annotated(plan: &Plan, latest_version: &str) -> String {
    let paths = plan
        .metadata
        .annotations
        .as_ref()
        .and_then(|all| all.get(ANNOTATION_DIGEST));
    let Some(paths) = paths.filter(|paths| !paths.is_empty()) else {
        return String::new();
    };
    let plan = shape::go_plan(plan, latest_version).to_string();
    // Neither side is trimmed: ` spec.cordon` names no field.
    paths.split(',').map(|path| text::lookup(&plan, path)).collect()
}

/// The hash of a Secret: ten characters, as `kubectl create secret --append-hash` appends them (S42). Its name, type, data
/// and immutability are in it, its namespace and labels are not.
pub fn secret_hash(secret: &Secret) -> String {
    /// Fields in the order of the alphabet, as Go writes a map.
    #[derive(Serialize)]
    struct Hashed<'a> {
        data: &'a Option<BTreeMap<String, ByteString>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        immutable: Option<bool>,
        kind: &'a str,
        name: &'a str,
        r#type: &'a str,
    }
    let hashed = Hashed {
        data: &secret.data,
        immutable: secret.immutable,
        kind: "Secret",
        name: secret.metadata.name.as_deref().unwrap_or_default(),
        r#type: secret.type_.as_deref().unwrap_or_default(),
    };
    // Plain strings and maps of strings: there is nothing in it that JSON cannot hold.
    let json = serde_json::to_string(&hashed).unwrap_or_default();
    let digest = hex::encode(Sha256::digest(go_escaped(&json)));
    // Without vowels there are no words, and so no bad words.
    let consonant = |c| match c {
        '0' => 'g',
        '1' => 'h',
        '3' => 'k',
        'a' => 'm',
        'e' => 't',
        c => c,
    };
    digest.chars().take(10).map(consonant).collect()
}

/// JSON as Go writes it: what means something in HTML or ends a line in JavaScript is escaped. None of it can stand
/// outside of strings.
fn go_escaped(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                escaped.extend(format!("\\u{:04x}", u32::from(c)).chars());
            }
            _ => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests;
