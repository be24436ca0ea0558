//! `status.latestHash`: a change of it runs a Plan again (S40–S44).
//!
//! It equals byte for byte what system-upgrade-controller computes. A node is done if its label equals this hash,
//! whichever controller set the label, so refit does not repeat a roll-out that system-upgrade-controller finished. The
//! hash must not depend on anything else.

mod shape;
mod text;

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use serde::Serialize;
use sha2::{Digest, Sha224, Sha256};

use refit_api::names::ANNOTATION_DIGEST;
use refit_api::{FieldPath, Invalid, Plan, PlanSpec};

pub(super) use shape::go_spec;

/// The hash of a Plan at a version: 56 hex digits. `latest_version` has `-` instead of `+`. `secret_hashes` are the
/// [`secret_hash`] of each of the [`hashed_secrets`], in that order.
pub fn plan_hash<H: AsRef<[u8]>>(
    plan: &Plan,
    latest_version: &str,
    secret_hashes: impl IntoIterator<Item = H>,
) -> String {
    let mut digest = Sha224::new();
    // No separators, although that lets two different Plans collide: the hash must equal that of system-upgrade-
    // controller (S40).
    digest.update(latest_version);
    digest.update(plan.spec.service_account_name.as_deref().unwrap_or_default());
    digest.update(annotated(plan, latest_version));
    for hash in secret_hashes {
        digest.update(hash);
    }
    hex::encode(digest.finalize())
}

/// The hash of a repetition (`spec.repeat`), which was due at this time: 56 hex digits, too. system-upgrade-controller has
/// no repetitions, and computes the hash of the Plan.
pub fn repeated_hash(plan_hash: &str, since: &str) -> String {
    let digest = Sha224::new().chain_update(plan_hash).chain_update(since);
    hex::encode(digest.finalize())
}

/// Names of the Secrets that are part of the hash, in the order of the spec, with duplicates.
pub fn hashed_secrets(spec: &PlanSpec) -> impl Iterator<Item = &str> {
    spec.secrets
        .iter()
        .flatten()
        .filter(|secret| !secret.ignore_updates.unwrap_or_default())
        .map(|secret| secret.name.as_str())
}

/// Maximum length of the annotation `upgrade.cattle.io/digest`, in bytes. A Plan has some hundred fields, and a list of
/// a few is common.
pub const MAX_FIELDS_LEN: usize = 4 << 10;
/// Maximum length of the values that it names, together: a Plan has at most 1.5 MiB, but a field may be named repeatedly.
const MAX_VALUES_LEN: usize = 4 << 20;

/// A refusal of the annotation `upgrade.cattle.io/digest`. A hash of a part of it would be another one than that of
/// system-upgrade-controller, so no node starts.
fn refused(problem: impl std::fmt::Display) -> Invalid {
    FieldPath::root(&format!("metadata.annotations[{ANNOTATION_DIGEST}]")).invalid(problem)
}

/// Checks the annotation `upgrade.cattle.io/digest`.
///
/// # Errors
/// Fails if the annotation or the values that it names are too long.
pub fn check_fields(plan: &Plan) -> Result<(), Invalid> {
    fields(plan)?.map_or(Ok(()), |paths| values(plan, paths, "").map(drop))
}

/// Whether the hash depends on the spec only, and not on the rest of the Plan, whose status changes often.
pub fn is_of_spec(plan: &Plan) -> bool {
    // A refused annotation adds nothing to the hash.
    let Ok(paths) = fields(plan) else { return true };
    paths.is_none_or(|paths| {
        let mut paths = paths.split(',');
        paths.all(|path| path == "spec" || path.starts_with("spec."))
    })
}

/// The annotation `upgrade.cattle.io/digest`, if it names fields.
fn fields(plan: &Plan) -> Result<Option<&str>, Invalid> {
    let annotations = plan.metadata.annotations.as_ref();
    let paths = annotations.and_then(|all| all.get(ANNOTATION_DIGEST));
    match paths.filter(|paths| !paths.is_empty()) {
        Some(paths) if paths.len() > MAX_FIELDS_LEN => Err(refused(format_args!(
            "has {} bytes, and at most {MAX_FIELDS_LEN} are read: name fewer fields, or one that contains them",
            paths.len()
        ))),
        paths => Ok(paths.map(String::as_str)),
    }
}

/// The concatenated values of the fields that the annotation `upgrade.cattle.io/digest` names (S41); nothing if they are
/// refused, because [`check_fields`] keeps the Plan from starting a node then.
fn annotated(plan: &Plan, latest_version: &str) -> String {
    let paths = fields(plan).ok().flatten();
    let values = paths.and_then(|paths| values(plan, paths, latest_version).ok());
    values.unwrap_or_default()
}

fn values(plan: &Plan, paths: &str, latest_version: &str) -> Result<String, Invalid> {
    let plan = shape::go_plan(plan, latest_version).to_string();
    let mut document = text::Document::new(&plan);
    let mut known: BTreeMap<&str, String> = BTreeMap::new();
    let mut values = String::new();
    // Not trimmed: ` spec.cordon` names no field.
    for path in paths.split(',') {
        // A field that is named twice counts twice in the hash, and is looked up once: an annotation of many commas
        // must not take the time of all Plans.
        let value = known.entry(path).or_insert_with(|| document.lookup(path));
        if values.len() + value.len() > MAX_VALUES_LEN {
            let problem =
                "names fields of more than 4 MiB: name each field once, and not the field that contains it";
            return Err(refused(problem));
        }
        values.push_str(value);
    }
    Ok(values)
}

/// The hash of a Secret: ten characters, as `kubectl create secret --append-hash` appends them (S42). It covers name,
/// type, data and immutability, but neither namespace nor labels.
pub fn secret_hash(secret: &Secret) -> String {
    /// Fields in alphabetical order, as Go prints a map.
    #[derive(Serialize)]
    struct Hashed<'a> {
        /// `null` if there is none, as Go prints a nil map.
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
    // Cannot fail: it contains only strings and maps of strings.
    let json = serde_json::to_string(&hashed).unwrap_or_default();
    let digest = hex::encode(Sha256::digest(go_escaped(&json)));
    // Without vowels the hash cannot contain words (kubectl's `hash` package).
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

/// JSON as Go prints it: with escapes for characters that are special in HTML, or line ends in JavaScript. They occur
/// only inside strings.
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
