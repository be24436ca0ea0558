//! The Plan that the controller makes of a `NodeOp` or a `NodeOpUpgrade`: that of `refit convert`, with the fields of
//! an annotation over it, under a name of its own.

use serde_json::{Map, Value, json};

use super::{Converted, Written, convert};
use refit_api::{Plan, PlanSpec};
use refit_facts::PlanFacts;

/// Annotation of an object, for users: fields of a Plan's spec as JSON, over those that its own fields become.
pub const ANNOTATION_SPEC: &str = "refit.rs/plan-spec";
/// Label of such a Plan: UID of its object.
pub const LABEL_OWNER: &str = "refit.rs/node-op";
/// Annotation of such a Plan: kind, namespace and name of its object.
pub const ANNOTATION_OWNER: &str = "refit.rs/node-op";

/// Kind, namespace and name of the `NodeOp` or `NodeOpUpgrade` that a Plan was made of.
pub fn owner(plan: &PlanFacts) -> Option<&str> {
    plan.annotation(ANNOTATION_OWNER)
}

/// The name of a Plan is the name of a node label.
const MAX_PLAN_NAME: usize = 63;
/// Characters of the UID in the name, which keep objects of a name in different namespaces, or at different times, apart.
const UID_PART: usize = 8;

/// The name of an object's Plan. An object that is only in a file has no UID.
pub fn plan_name(kind: &str, name: &str, uid: &str) -> String {
    let prefix = format!("{}-", kind.to_lowercase());
    let room = MAX_PLAN_NAME - prefix.len() - UID_PART - 1;
    let name: String = name.chars().take(room).collect();
    let uid: String = uid.chars().take(UID_PART).collect();
    let name = name.trim_end_matches(['-', '.']);
    format!("{prefix}{name}-{uid}").trim_end_matches('-').to_owned()
}

/// The Plan that the controller in `namespace` makes of an object.
///
/// # Errors
/// Fails if the object, or its annotation, cannot become a Plan. The text says what to correct.
pub fn plan(object: &Written, namespace: &str) -> Result<Converted, String> {
    named(convert(object, namespace), object)
}

/// The Plan without the fields of the annotation.
///
/// # Errors
/// Fails if the object cannot become a Plan.
pub fn before_annotation(object: &Written, namespace: &str) -> Result<Converted, String> {
    named(super::before_annotation(object, namespace), object)
}

/// The Plan under the name that the controller gives it.
fn named(converted: Option<Result<Converted, String>>, object: &Written) -> Result<Converted, String> {
    let mut converted =
        converted.unwrap_or_else(|| Err("the object is neither a NodeOp nor a NodeOpUpgrade".to_owned()))?;
    let text = |field: &str| object.value["metadata"][field].as_str().unwrap_or_default();
    let name = match text("name") {
        "" => text("generateName"),
        name => name,
    };
    converted.plan.metadata.name = Some(plan_name(&object.kind, name, text("uid")));
    // The others are about what to do with a Plan that was converted.
    converted.notes.retain(|note| note.field.is_some());
    Ok(converted)
}

/// The annotation of an object of kairos-operator.
pub fn annotation(object: &Written) -> Option<&str> {
    let is_op = matches!(object.kind.as_str(), "NodeOp" | "NodeOpUpgrade");
    let annotation = || object.value["metadata"]["annotations"][ANNOTATION_SPEC].as_str();
    is_op.then(annotation).flatten()
}

/// The Plan with the fields of the annotation over its own.
///
/// # Errors
/// Fails if the annotation is not a JSON object, or has a field that a Plan lacks.
pub(super) fn with_annotation(mut converted: Converted, text: &str) -> Result<Converted, String> {
    let fields = fields(text).map_err(|error| {
        format!("annotation {ANNOTATION_SPEC} must be a JSON object of fields of a Plan: {error}")
    })?;
    let plan = &mut converted.plan;
    plan.spec = read(&with_fields(json!(plan.spec), fields))
        .map_err(|why| format!("annotation {ANNOTATION_SPEC}: {why}"))?;
    Ok(converted)
}

/// The fields in the annotation.
///
/// # Errors
/// Fails if it is not a JSON object.
pub fn fields(annotation: &str) -> Result<Map<String, Value>, serde_json::Error> {
    serde_json::from_str(annotation)
}

/// A spec with the fields of the annotation over its own.
pub fn with_fields(mut spec: Value, fields: Map<String, Value>) -> Value {
    for (field, value) in fields {
        spec[field] = value;
    }
    spec
}

/// A spec all of whose fields a Plan has.
fn read(spec: &Value) -> Result<PlanSpec, String> {
    let plan: Plan =
        serde_json::from_value(json!({ "metadata": {}, "spec": spec })).map_err(|error| error.to_string())?;
    match first_unknown(spec, &json!(plan.spec), "spec") {
        Some(path) => Err(format!("a Plan has no field {path}")),
        None => Ok(plan.spec),
    }
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
