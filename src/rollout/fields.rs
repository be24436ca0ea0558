//! The note on a Plan that says which of refit's own fields it uses. While another controller's CRD is served, our fields
//! are pruned when the Plan is read, and any write then stores it without them; the note tells such a loss from an edit:
//! an edit changes `metadata.generation`, pruning does not. What is read is pruned too, though nothing is lost yet: of two
//! readings of one version, the richer one counts.

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::facts::PlanFacts;
use crate::api::names::ANNOTATION_FIELDS;

/// The fields are not what they were when this generation was noted.
pub(super) fn are_pruned(plan: &PlanFacts) -> bool {
    let Some((generation, digest)) = noted(plan) else {
        return false;
    };
    generation == plan.generation() && Some(digest) != digest_of(plan).as_deref()
}

/// The note as it should be, where it is not: with `None` there should be none.
pub(super) fn note(plan: &PlanFacts) -> Result<(), Option<String>> {
    if plan.malformed.is_some() || are_pruned(plan) {
        return Ok(());
    }
    let wanted = digest_of(plan).map(|digest| format!("{}:{digest}", plan.generation()));
    let known = plan
        .object
        .metadata
        .annotations
        .as_ref()
        .and_then(|a| a.get(ANNOTATION_FIELDS));
    if known == wanted.as_ref() {
        Ok(())
    } else {
        Err(wanted)
    }
}

/// Whether a reading of a Plan has more fields than another reading of the same version. What is stored is the same, so
/// the other one was read through a definition that prunes more.
pub(super) fn is_richer(reading: &PlanFacts, than: &PlanFacts) -> bool {
    let size = |plan: &PlanFacts| {
        let (spec, status) = (&plan.object.spec, &plan.object.status);
        serde_json::to_value((spec, status)).map_or(0, |value| values(&value))
    };
    reading != than && size(reading) > size(than)
}

/// How many values there are in a value, null aside.
fn values(value: &Value) -> usize {
    match value {
        Value::Null => 0,
        Value::Array(items) => 1 + items.iter().map(values).sum::<usize>(),
        Value::Object(fields) => 1 + fields.values().map(values).sum::<usize>(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => 1,
    }
}

fn noted(plan: &PlanFacts) -> Option<(i64, &str)> {
    let note = plan
        .object
        .metadata
        .annotations
        .as_ref()?
        .get(ANNOTATION_FIELDS)?;
    let (generation, digest) = note.split_once(':')?;
    Some((generation.parse().ok()?, digest))
}

/// Digest of our own fields; nothing where the Plan uses none.
fn digest_of(plan: &PlanFacts) -> Option<String> {
    let spec = &plan.object.spec;
    if spec.max_concurrent.is_none() && spec.suspend.is_none() {
        return None;
    }
    let fields = serde_json::json!({ "maxConcurrent": spec.max_concurrent, "suspend": spec.suspend });
    let mut digest = hex::encode(Sha256::digest(fields.to_string()));
    digest.truncate(16);
    Some(digest)
}
