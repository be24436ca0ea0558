//! Custom resources against the schema of their definition: fields that it does not know are dropped or refused, values that
//! it does not allow are refused. As far as the Plan's definition goes; a keyword that it does not use is not looked at.

use serde_json::Value;

use super::fault::Fault;
use super::resources::Kind;
use super::state::State;
use crate::api::crd;

impl State {
    /// The schema of Plans, as the definition on the cluster has it.
    pub(super) fn plan_schema(&self) -> Option<&Value> {
        let definition = self.get(Kind::Definition, "", crd::NAME)?;
        let versions = definition["spec"]["versions"].as_array()?;
        let served = versions.iter().find(|version| version["name"] == crd::VERSION)?;
        Some(&served["schema"]["openAPIV3Schema"])
    }
}

/// Fields of a Plan that the schema does not know, by their paths. They are taken out.
pub(super) fn prune(schema: &Value, plan: &mut Value) -> Vec<String> {
    let mut unknown = Vec::new();
    for part in ["spec", "status"] {
        let known = &schema["properties"][part];
        if known.is_null() {
            continue;
        }
        if let Some(value) = plan.get_mut(part) {
            walk(known, value, part, &mut unknown);
        }
    }
    unknown
}

fn walk(schema: &Value, value: &mut Value, path: &str, unknown: &mut Vec<String>) {
    if schema["x-kubernetes-preserve-unknown-fields"] == true {
        return;
    }
    match value {
        Value::Object(fields) => {
            let (properties, more) = (&schema["properties"], &schema["additionalProperties"]);
            if properties.is_object() || !more.is_object() {
                fields.retain(|name, _| {
                    let known = properties.get(name).is_some() || more.is_object();
                    if !known {
                        unknown.push(format!("{path}.{name}"));
                    }
                    known
                });
            }
            for (name, value) in fields {
                let schema = properties.get(name).unwrap_or(more);
                walk(schema, value, &format!("{path}.{name}"), unknown);
            }
        }
        Value::Array(items) => {
            for (at, item) in items.iter_mut().enumerate() {
                walk(&schema["items"], item, &format!("{path}[{at}]"), unknown);
            }
        }
        _ => {}
    }
}

/// Refuses a Plan that the schema does not allow.
pub(super) fn validate(schema: &Value, name: &str, plan: &Value) -> Result<(), Fault> {
    let mut causes = Vec::new();
    look(schema, plan, "", &mut causes);
    if causes.is_empty() {
        Ok(())
    } else {
        Err(Fault::invalid(Kind::Plan, name, &causes))
    }
}

type Causes = Vec<(String, &'static str, String)>;

fn look(schema: &Value, value: &Value, path: &str, causes: &mut Causes) {
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
        return causes.push((path.to_owned(), "FieldValueTypeInvalid", why));
    }
    if schema["x-kubernetes-int-or-string"] == true
        && !(value.is_i64() || value.is_u64() || value.is_string())
    {
        let why = format!(
            "Invalid value: {:?}: {path} in body must be of type integer,string: {:?}",
            type_of(value),
            type_of(value)
        );
        return causes.push((path.to_owned(), "FieldValueTypeInvalid", why));
    }
    if let Some(allowed) = schema["enum"].as_array()
        && !allowed.contains(value)
    {
        let list: Vec<String> = allowed.iter().map(ToString::to_string).collect();
        let why = format!(
            "Unsupported value: {value}: supported values: {}",
            list.join(", ")
        );
        causes.push((path.to_owned(), "FieldValueNotSupported", why));
    }
    if let (Some(least), Some(number)) = (schema["minimum"].as_f64(), value.as_f64())
        && number < least
    {
        let why =
            format!("Invalid value: {value}: {path} in body should be greater than or equal to {least}");
        causes.push((path.to_owned(), "FieldValueInvalid", why));
    }
    let join = |name: &str| match path {
        "" => name.to_owned(),
        path => format!("{path}.{name}"),
    };
    match value {
        Value::Object(fields) => {
            for name in schema["required"].as_array().into_iter().flatten() {
                let name = name.as_str().unwrap_or_default();
                if !fields.contains_key(name) {
                    causes.push((join(name), "FieldValueRequired", "Required value".to_owned()));
                }
            }
            for (name, value) in fields {
                let schema = schema["properties"]
                    .get(name)
                    .unwrap_or(&schema["additionalProperties"]);
                if schema.is_object() {
                    look(schema, value, &join(name), causes);
                }
            }
        }
        Value::Array(items) if schema["items"].is_object() => {
            for (at, item) in items.iter().enumerate() {
                look(&schema["items"], item, &format!("{path}[{at}]"), causes);
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
