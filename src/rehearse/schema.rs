//! Validates and prunes Plans by the schema of their CRD. Only keywords that this CRD uses are implemented.

use std::fmt;
use std::sync::Arc;

use super::resources::Kind;
use super::state::State;
use super::status_error::StatusError;
use super::store::{Key, Object};
use crate::json::Value;
use refit_api::crd;

impl State {
    /// The schema of the served CRD of Plans.
    pub(super) fn plan_schema(&self) -> Option<PlanSchema> {
        let definition = self.store.get(Kind::Definition, &Key::new("", crd::NAME))?;
        let schema = PlanSchema(Arc::clone(definition));
        schema.root().is_object().then_some(schema)
    }

    /// Presents Plans as the served CRD has them. Unknown fields are hidden, and return with a CRD that has them unless
    /// the Plan is written in between. Watches are restarted, as by a real server.
    pub(super) fn serve_plans(&mut self) {
        let Some(schema) = self.plan_schema() else { return };
        let plans: Vec<Arc<Object>> = self.store.all(Kind::Plan).cloned().collect();
        let mut changed = false;
        for plan in plans {
            let key = plan.key();
            let rest = self.stored_plans.remove(&key);
            let rest = rest.unwrap_or_else(|| plan.value.clone());
            let mut shown = rest.clone();
            if !prune(&schema, &mut shown).is_empty() {
                self.stored_plans.insert(key.clone(), rest);
            }
            if shown != plan.value {
                changed = true;
                self.store.replace_in_place(Kind::Plan, &key, shown);
            }
        }
        if changed {
            self.store.expire_watches(Kind::Plan);
        }
    }
}

pub(super) struct PlanSchema(Arc<Object>);

impl PlanSchema {
    fn root(&self) -> &Value {
        let versions = self.0.value["spec"]["versions"].as_array();
        let mut versions = versions.into_iter().flatten();
        let served = versions.find(|version| version["name"] == crd::VERSION);
        served.map_or(&Value::Null, |version| &version["schema"]["openAPIV3Schema"])
    }
}

/// A path that is only rendered for an error, because most values are valid.
#[derive(Clone, Copy)]
enum Path<'a> {
    Root,
    Field(&'a Self, &'a str),
    Item(&'a Self, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Field(Self::Root, name) => f.write_str(name),
            Self::Field(of, name) => write!(f, "{of}.{name}"),
            Self::Item(of, at) => write!(f, "{of}[{at}]"),
        }
    }
}

/// Removes fields that the schema does not know, and returns their paths.
pub(super) fn prune(schema: &PlanSchema, plan: &mut Value) -> Vec<String> {
    let mut unknown = Vec::new();
    for part in ["spec", "status"] {
        let known = &schema.root()["properties"][part];
        if known.is_null() {
            continue;
        }
        // Checked without a copy, because there is rarely anything to remove.
        if plan.get(part).is_some_and(|value| !knows(known, value))
            && let Some(value) = plan.get_mut(part)
        {
            walk(known, value, &Path::Field(&Path::Root, part), &mut unknown);
        }
    }
    unknown
}

/// Whether the schema knows all fields of a value.
fn knows(schema: &Value, value: &Value) -> bool {
    if schema["x-kubernetes-preserve-unknown-fields"] == true {
        return true;
    }
    let (properties, more) = (&schema["properties"], &schema["additionalProperties"]);
    match value {
        Value::Object(fields) => fields.iter().all(|(name, value)| match properties.get(name) {
            Some(schema) => knows(schema, value),
            None => more.is_object() && knows(more, value),
        }),
        Value::Array(items) => items.iter().all(|item| knows(&schema["items"], item)),
        _ => true,
    }
}

fn walk(schema: &Value, value: &mut Value, path: &Path<'_>, unknown: &mut Vec<String>) {
    if schema["x-kubernetes-preserve-unknown-fields"] == true {
        return;
    }
    match value {
        Value::Object(fields) => {
            let (properties, more) = (&schema["properties"], &schema["additionalProperties"]);
            if properties.is_object() || !more.is_object() {
                fields.retain(|name| {
                    let known = properties.get(name).is_some() || more.is_object();
                    if !known {
                        unknown.push(Path::Field(path, name).to_string());
                    }
                    known
                });
            }
            for (name, value) in fields.iter_mut() {
                let schema = properties.get(name).unwrap_or(more);
                walk(schema, value, &Path::Field(path, name), unknown);
            }
        }
        Value::Array(items) => {
            for (at, item) in Arc::make_mut(items).iter_mut().enumerate() {
                walk(&schema["items"], item, &Path::Item(path, at), unknown);
            }
        }
        _ => {}
    }
}

/// Fails if the schema does not allow the Plan. Unchanged values are not validated again (CRD ratcheting, KEP-4008).
pub(super) fn validate(
    schema: &PlanSchema,
    name: &str,
    old: Option<&Value>,
    plan: &Value,
) -> Result<(), StatusError> {
    let mut causes = Vec::new();
    let (root, old) = (schema.root(), old.unwrap_or(&Value::Null));
    for part in ["spec", "status"] {
        if plan[part] != old[part] || plan.get(part).is_none() {
            look_at(root, plan, part, &mut causes);
        }
    }
    if causes.is_empty() {
        Ok(())
    } else {
        Err(StatusError::invalid(Kind::Plan, name, &causes))
    }
}

fn look_at(root: &Value, plan: &Value, part: &'static str, causes: &mut Causes) {
    let path = Path::Field(&Path::Root, part);
    let required = root["required"].as_array();
    match plan.get(part) {
        Some(value) => look(&root["properties"][part], value, &path, causes),
        None if required.is_some_and(|required| required.iter().any(|one| one == part)) => {
            causes.push((
                path.to_string(),
                "FieldValueRequired",
                "Required value".to_owned(),
            ));
        }
        None => {}
    }
}

type Causes = Vec<(String, &'static str, String)>;

fn look(schema: &Value, value: &Value, path: &Path<'_>, causes: &mut Causes) {
    if value.is_null() && schema["nullable"] == true {
        return;
    }
    if let Some(wanted) = schema["type"].as_str()
        && !is_of(wanted, value)
    {
        let why = format!(
            "Invalid value: {:?}: {path} in body must be of type {wanted}: {:?}",
            type_of(value),
            type_of(value)
        );
        return causes.push((path.to_string(), "FieldValueTypeInvalid", why));
    }
    if schema["x-kubernetes-int-or-string"] == true && !(value.is_integer() || value.is_string()) {
        let why = format!(
            "Invalid value: {:?}: {path} in body must be of type integer,string: {:?}",
            type_of(value),
            type_of(value)
        );
        return causes.push((path.to_string(), "FieldValueTypeInvalid", why));
    }
    if let Some(allowed) = schema["enum"].as_array()
        && !allowed.contains(value)
    {
        let list: Vec<String> = allowed.iter().map(ToString::to_string).collect();
        let why = format!(
            "Unsupported value: {value}: supported values: {}",
            list.join(", ")
        );
        causes.push((path.to_string(), "FieldValueNotSupported", why));
    }
    if let (Some(least), Some(number)) = (schema["minimum"].as_f64(), value.as_f64())
        && number < least
    {
        let why =
            format!("Invalid value: {value}: {path} in body should be greater than or equal to {least}");
        causes.push((path.to_string(), "FieldValueInvalid", why));
    }
    match value {
        Value::Object(fields) => {
            let missing = |schema: &Value| {
                let required = schema["required"].as_array().into_iter().flatten();
                let names = required.map(|name| name.as_str().unwrap_or_default());
                let missing = names.filter(|name| !fields.contains_key(name));
                let cause = |name| {
                    let path = Path::Field(path, name).to_string();
                    (path, "FieldValueRequired", "Required value".to_owned())
                };
                missing.map(cause).collect::<Causes>()
            };
            causes.extend(missing(schema));
            let mut alternatives = schema["anyOf"].as_array().into_iter().flatten().map(missing);
            if let Some(first) = alternatives.next().filter(|first| !first.is_empty())
                && alternatives.all(|other| !other.is_empty())
            {
                let why =
                    format!("Invalid value: \"\": \"{path}\" must validate at least one schema (anyOf)");
                causes.push(("<nil>".to_owned(), "FieldValueInvalid", why));
                causes.extend(first);
            }
            for (name, value) in fields {
                let schema = schema["properties"]
                    .get(name)
                    .unwrap_or(&schema["additionalProperties"]);
                if schema.is_object() {
                    look(schema, value, &Path::Field(path, name), causes);
                }
            }
        }
        Value::Array(items) if schema["items"].is_object() => {
            for (at, item) in items.iter().enumerate() {
                look(&schema["items"], item, &Path::Item(path, at), causes);
            }
        }
        _ => {}
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn is_of(wanted: &str, value: &Value) -> bool {
    let found = type_of(value);
    found == wanted || wanted == "number" && found == "integer"
}
