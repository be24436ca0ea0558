//! The note on a Plan that says which of refit's own fields it uses. While another controller's CRD is served, our fields
//! are pruned when the Plan is read, and any write then stores it without them; the note tells such a loss from an edit:
//! an edit changes `metadata.generation`, pruning does not. What is read is pruned too, though nothing is lost yet: of two
//! readings of one version, the richer one counts.

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::facts::PlanFacts;
use crate::api::crd;
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
    let Ok(Value::Object(mut spec)) = serde_json::to_value(&plan.object.spec) else {
        return None; // a spec is an object, and has no keys that are not strings
    };
    let own = crd::OWN_FIELDS.iter().filter(|[part, _]| *part == "spec");
    let mut fields: Map<String, Value> = own.filter_map(|[_, field]| spec.remove_entry(*field)).collect();
    if fields.is_empty() {
        return None;
    }
    // The first two there were are noted when they are absent, too. Fields that come later must not be: a Plan that uses
    // none of them keeps its digest.
    for field in ["maxConcurrent", "suspend"] {
        fields.entry(field).or_insert(Value::Null);
    }
    let mut fields = Value::Object(fields);
    fields.sort_all_objects(); // whatever order serde_json was built to keep
    let mut digest = hex::encode(Sha256::digest(fields.to_string()));
    digest.truncate(16);
    Some(digest)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::{Plan, PlanSpec};

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
        let whole = json!({
            "channelCASecretRef": {"name": "a"}, "channelSecretRef": {"name": "b"}, "hostAccess": "Root", "maxConcurrent": 2, "suspend": false,
            "versionPolicy": {"range": "1.x", "allowDowngrade": true, "maxMinorSkip": 1, "minimumAge": "1h", "pinDigest": true, "propose": true},
            "settle": {"minReady": "1m", "workloads": true},
            "reboot": {"when": "IfRequired", "timeout": "20m", "command": ["reboot"], "requiredFiles": ["/a"]},
        });
        let mut seen = vec![digest(whole.clone())];
        let mut without = |pointer: &str, field: &str| {
            let mut less = whole.clone();
            let part = less.pointer_mut(pointer).and_then(Value::as_object_mut).unwrap();
            assert!(part.remove(field).is_some(), "{pointer}/{field}");
            let digest = digest(less);
            assert!(digest.is_some() && !seen.contains(&digest), "{pointer}/{field}");
            seen.push(digest);
        };
        for [part, field] in crd::OWN_FIELDS {
            if part == "spec" {
                without("", field);
            }
        }
        for field in ["when", "timeout", "command", "requiredFiles"] {
            without("/reboot", field);
        }
        for field in ["minReady", "workloads"] {
            without("/settle", field);
        }
        for field in [
            "range",
            "allowDowngrade",
            "maxMinorSkip",
            "minimumAge",
            "pinDigest",
            "propose",
        ] {
            without("/versionPolicy", field);
        }
    }
}
