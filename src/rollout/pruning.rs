//! The annotation `refit.rs/fields` of a Plan: a digest of refit's own fields in its spec. While another controller's
//! CRD is served, the API server prunes these fields when a Plan is read, and any write then stores the Plan without
//! them. The annotation distinguishes such a loss from an edit, because an edit changes `metadata.generation` and
//! pruning does not. Reads are pruned even while nothing is lost; of two readings of one version, the one with more
//! fields is right.

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::plan::DerivedPlan;
use refit_api::crd;
use refit_api::names::ANNOTATION_FIELDS;
use refit_facts::PlanFacts;

/// Whether the fields differ from those at the generation in the annotation.
pub(super) fn are_pruned(plan: &DerivedPlan) -> bool {
    let Some((generation, digest)) = noted(&plan.facts) else {
        return false;
    };
    generation == plan.facts.generation() && Some(digest) != own_fields(plan)
}

/// `Err` with the value that the annotation should have, if it differs; `None` means that it should be absent.
pub(super) fn note(plan: &DerivedPlan) -> Result<(), Option<String>> {
    let facts = &plan.facts;
    if facts.malformed.is_some() || are_pruned(plan) {
        return Ok(());
    }
    let wanted = own_fields(plan).map(|digest| format!("{}:{digest}", facts.generation()));
    let known = facts
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

/// Whether a reading of a Plan has more fields than another reading of the same version. The stored object is the same,
/// so the other reading went through a definition that prunes more.
pub(super) fn is_richer(reading: &PlanFacts, than: &PlanFacts) -> bool {
    let size = |plan: &PlanFacts| {
        let (spec, status) = (&plan.object.spec, &plan.object.status);
        serde_json::to_value((spec, status)).map_or(0, |value| values(&value))
    };
    reading != than && size(reading) > size(than)
}

/// Number of non-null values in a value.
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

fn own_fields(plan: &DerivedPlan) -> Option<&str> {
    let digest = plan.own_fields.get_or_init(|| digest_of(&plan.facts));
    digest.as_deref()
}

/// Digest of refit's own fields; `None` if the Plan uses none.
fn digest_of(plan: &PlanFacts) -> Option<String> {
    let Ok(Value::Object(mut spec)) = serde_json::to_value(&plan.object.spec) else {
        return None; // a spec is an object with string keys
    };
    let mut fields = Map::new();
    for [part, field] in crd::OWN_FIELDS.iter() {
        if *part == "spec" {
            fields.extend(spec.remove_entry(*field));
        // Those of nested objects have their path as key.
        } else if let Some(part) = part.strip_prefix("spec.")
            && let Some(value) = spec
                .get_mut(part)
                .and_then(|part| part.as_object_mut()?.remove(*field))
        {
            fields.insert(format!("{part}.{field}"), value);
        }
    }
    if fields.is_empty() {
        return None;
    }
    // The first two fields are part of the digest even if absent. Later fields must not be, so that Plans without them
    // keep their digest.
    for field in ["maxConcurrent", "suspend"] {
        fields.entry(field).or_insert(Value::Null);
    }
    let mut fields = Value::Object(fields);
    fields.sort_all_objects(); // independent of the order that serde_json keeps
    let mut digest = hex::encode(Sha256::digest(fields.to_string()));
    digest.truncate(16);
    Some(digest)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use refit_api::{Plan, PlanSpec};
    use refit_fixtures::sample;

    fn digest(spec: Value) -> Option<String> {
        let spec: PlanSpec = serde_json::from_value(spec).unwrap();
        digest_of(&PlanFacts {
            name: "plan".into(),
            uid: "uid".into(),
            object: Plan::new("plan", spec),
            malformed: None,
        })
    }

    #[test]
    fn a_plan_without_newer_fields_keeps_the_digest_that_it_has() {
        assert_eq!(digest(json!({"concurrency": 1})), None);
        assert_eq!(
            digest(json!({"suspend": true})).as_deref(),
            Some("8e9d85f2990cee93")
        );
        assert_eq!(
            digest(json!({"maxConcurrent": "25%"})).as_deref(),
            Some("0a8a65cd73298931")
        );
    }

    #[test]
    fn the_loss_of_any_field_of_ours_changes_the_digest() {
        let mut whole = sample::spec();
        let is_own = |path: [&str; 2]| crd::OWN_FIELDS.contains(&path);
        whole.retain(|field, _| is_own(["spec", field]) || field == "drain");
        let drain = whole["drain"].as_object_mut().unwrap();
        drain.retain(|field, _| is_own(["spec.drain", field]));
        let mut fields = sample::pointers(&whole);
        fields.retain(|pointer| pointer != "/drain");
        for known in ["/reboot/requiredFiles", "/drain/blockedBy", "/verify/image"] {
            assert!(fields.contains(&known.to_owned()), "{fields:?}");
        }
        let mut seen = vec![digest(whole.clone().into())];
        for pointer in fields {
            let (parent, field) = pointer.rsplit_once('/').unwrap();
            let mut less = Value::Object(whole.clone());
            let part = less.pointer_mut(parent).and_then(Value::as_object_mut).unwrap();
            part.remove(field).unwrap();
            let digest = digest(less);
            assert!(digest.is_some() && !seen.contains(&digest), "{pointer}");
            seen.push(digest);
        }
    }
}
