//! The Plan that does what a `NodeOp` or a `NodeOpUpgrade` asks for. Pure.

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::api::{Plan, names};
use crate::convert::{self, Written};
use crate::kube::objects::node_op::{AnyOp, GROUP, OpKind, VERSION};

/// Label of such a Plan: UID of its object.
pub(super) const LABEL_OWNER: &str = "refit.rs/node-op";
/// Annotation of such a Plan: kind, namespace and name of its object.
pub(super) const ANNOTATION_OWNER: &str = "refit.rs/node-op";
/// Annotation of such a Plan: digest of the spec that its object has become. What people change in the Plan beside it stays.
pub(super) const ANNOTATION_DIGEST: &str = "refit.rs/node-op-digest";
/// Annotation of an object, for users: fields of a Plan's spec as JSON, over those that its own fields become.
pub(super) const ANNOTATION_SPEC: &str = "refit.rs/plan-spec";
/// Finalizer of such a Plan: labels that it has left on nodes are removed before it goes.
pub(super) const FINALIZER: &str = "refit.rs/node-op";

const DIGEST_LENGTH: usize = 16;

/// The name of a Plan is the name of a node label.
const MAX_PLAN_NAME: usize = 63;
/// Characters of the UID in the name, which keep objects of a name in different namespaces, or at different times, apart.
const UID_PART: usize = 8;

/// The name of the object's Plan.
pub(super) fn plan_name(op: &AnyOp) -> String {
    let prefix = match op.kind {
        OpKind::Op => "nodeop-",
        OpKind::Upgrade => "nodeopupgrade-",
    };
    let room = MAX_PLAN_NAME - prefix.len() - UID_PART - 1;
    let name: String = op.name().chars().take(room).collect();
    let uid: String = op.uid().chars().take(UID_PART).collect();
    let name = name.trim_end_matches(['-', '.']);
    format!("{prefix}{name}-{uid}")
}

/// Whether an edit of the object changes its Plan. kairos-operator acts on a `NodeOpUpgrade` once, as it was created: an image
/// that is edited later would upgrade all nodes again.
pub(super) fn follows_edits(op: &AnyOp) -> bool {
    op.kind == OpKind::Op
}

/// The Plan of the object, for server-side apply.
///
/// # Errors
/// Fails if the object, or its annotation, cannot become a Plan. The text says what to correct.
pub(super) fn plan(op: &AnyOp, namespace: &str) -> Result<Value, String> {
    let written = Written {
        api_version: format!("{GROUP}/{VERSION}"),
        kind: op.kind.name().to_owned(),
        value: json!({ "metadata": { "name": op.name() }, "spec": op.spec }),
    };
    let converted = convert::convert(&written, namespace)
        .unwrap_or_else(|| Err("the object is neither a NodeOp nor a NodeOpUpgrade".to_owned()))?;
    let mut spec = json!(converted.plan.spec);
    let annotations = op.metadata.annotations.as_ref();
    if let Some(text) = annotations.and_then(|all| all.get(ANNOTATION_SPEC)) {
        let more: serde_json::Map<String, Value> = serde_json::from_str(text).map_err(|error| {
            format!("annotation {ANNOTATION_SPEC} must be a JSON object of fields of a Plan: {error}")
        })?;
        for (field, value) in more {
            spec[field] = value;
        }
        let read: Plan = serde_json::from_value(json!({ "metadata": {}, "spec": spec }))
            .map_err(|error| format!("annotation {ANNOTATION_SPEC}: {error}"))?;
        let known = json!(read.spec);
        if let Some(path) = first_unknown(&spec, &known, "spec") {
            return Err(format!(
                "annotation {ANNOTATION_SPEC}: a Plan has no field {path}"
            ));
        }
        spec = known;
    }
    let digest = Sha256::digest(spec.to_string());
    Ok(json!({
        "apiVersion": format!("{}/v1", names::GROUP),
        "kind": "Plan",
        "metadata": {
            "name": plan_name(op),
            "namespace": namespace,
            "labels": { LABEL_OWNER: op.uid() },
            "annotations": {
                ANNOTATION_OWNER: op.title(),
                ANNOTATION_DIGEST: &hex::encode(digest)[..DIGEST_LENGTH],
            },
            "finalizers": [FINALIZER],
        },
        "spec": spec,
    }))
}

/// The path of the first field that was not read.
fn first_unknown(given: &Value, read: &Value, path: &str) -> Option<String> {
    match (given, read) {
        (Value::Object(given), _) => {
            given
                .iter()
                .filter(|(_, value)| !value.is_null())
                .find_map(|(field, value)| {
                    let path = format!("{path}.{field}");
                    match read.get(field) {
                        Some(read) => first_unknown(value, read, &path),
                        None => Some(path),
                    }
                })
        }
        (Value::Array(given), Value::Array(read)) => {
            let mut pairs = given.iter().zip(read).enumerate();
            pairs.find_map(|(index, (given, read))| first_unknown(given, read, &format!("{path}[{index}]")))
        }
        _ => None,
    }
}
