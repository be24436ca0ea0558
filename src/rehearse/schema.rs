//! Plans as the served CRD has them: validated and pruned by its schema.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;

use super::resources::Kind;
use super::state::State;
use super::status_error::StatusError;
use super::store::{Key, Object};
use crate::json::Value;
use refit_api::crd;
use refit_api::schema::{Path, Problem, Shape, Step, Tree, Visitor, property, walk};

type Cause = (String, &'static str, String);

impl State {
    /// Presents Plans as the served CRD has them. Unknown fields are hidden, and return with a CRD that has them unless
    /// the Plan is written in between. Watches are restarted, as by a real server.
    pub(super) fn serve_plans(&mut self) {
        let definition = self.store.get(Kind::Definition, &Key::new("", crd::NAME));
        self.plan_schema = definition
            .and_then(|definition| served(&definition.value))
            .map(Arc::new);
        let Some(schema) = self.plan_schema.clone() else {
            return;
        };
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

fn served(definition: &Value) -> Option<JSONSchemaProps> {
    let mut versions = definition["spec"]["versions"].as_array()?.iter();
    let served = versions.find(|version| version["name"] == crd::VERSION)?;
    let schema = serde_json::to_value(&served["schema"]["openAPIV3Schema"]).ok()?;
    serde_json::from_value(schema).ok()
}

/// Removes fields that the schema does not know, and returns their paths.
pub(super) fn prune(schema: &JSONSchemaProps, plan: &mut Value) -> Vec<String> {
    let mut found = UnknownFields(Vec::new());
    for (part, schema) in parts(schema) {
        if let Some(value) = plan.get(part) {
            walk(schema, value, &Path::Field(&Path::Root, part), &mut found);
        }
    }
    for (_, way) in &found.0 {
        remove(plan, way);
    }
    found.0.into_iter().map(|(path, _)| path).collect()
}

fn parts(schema: &JSONSchemaProps) -> impl Iterator<Item = (&'static str, &JSONSchemaProps)> {
    let parts = ["spec", "status"].into_iter();
    parts.filter_map(|part| Some((part, property(schema, part)?)))
}

fn remove(value: &mut Value, way: &[Step]) {
    match way {
        [Step::Field(name)] => {
            if let Some(fields) = value.as_object_mut() {
                fields.remove(name);
            }
        }
        [Step::Field(name), rest @ ..] => {
            if let Some(value) = value.get_mut(name) {
                remove(value, rest);
            }
        }
        [Step::Item(at), rest @ ..] => {
            if let Some(value) = value.as_array_mut().and_then(|items| items.get_mut(*at)) {
                remove(value, rest);
            }
        }
        [] => {}
    }
}

struct UnknownFields(Vec<(String, Vec<Step>)>);

impl<'v> Visitor<'_, &'v Value> for UnknownFields {
    fn enters(&mut self, _: &Path<'_>, _: &JSONSchemaProps, _: &'v Value) -> bool {
        true
    }

    fn found(&mut self, path: &Path<'_>, _: &JSONSchemaProps, _: &'v Value, problem: Problem<'_>) {
        if let Problem::Unknown(name) = problem {
            let path = Path::Field(path, name);
            self.0.push((path.to_string(), path.steps()));
        }
    }
}

/// Fails if the schema does not allow the Plan. Unchanged values are not validated again (CRD ratcheting, KEP-4008).
pub(super) fn validate(
    schema: &JSONSchemaProps,
    name: &str,
    old: Option<&Value>,
    plan: &Value,
) -> Result<(), StatusError> {
    let mut causes = Causes(Vec::new());
    let old = old.unwrap_or(&Value::Null);
    for part in schema.required.iter().flatten() {
        if plan.get(part).is_none() {
            causes.add(part, "FieldValueRequired", "Required value");
        }
    }
    for (part, schema) in parts(schema) {
        if let Some(value) = plan.get(part).filter(|value| **value != old[part]) {
            walk(schema, value, &Path::Field(&Path::Root, part), &mut causes);
        }
    }
    if causes.0.is_empty() {
        Ok(())
    } else {
        Err(StatusError::invalid(Kind::Plan, name, &causes.0))
    }
}

struct Causes(Vec<Cause>);

impl Causes {
    fn add(&mut self, path: &impl ToString, reason: &'static str, why: impl Into<String>) {
        self.0.push((path.to_string(), reason, why.into()));
    }
}

impl<'v> Visitor<'_, &'v Value> for Causes {
    fn enters(&mut self, _: &Path<'_>, schema: &JSONSchemaProps, value: &'v Value) -> bool {
        !(value.is_null() && schema.nullable == Some(true))
    }

    fn found(&mut self, path: &Path<'_>, _: &JSONSchemaProps, value: &'v Value, problem: Problem<'_>) {
        let invalid = |why: String| format!("Invalid value: {value}: {path} in body {why}");
        let (reason, why) = match problem {
            Problem::Unknown(_) => return,
            Problem::Missing(name) => {
                return self.add(&Path::Field(path, name), "FieldValueRequired", "Required value");
            }
            Problem::NoAlternative => {
                let why =
                    format!("Invalid value: \"\": \"{path}\" must validate at least one schema (anyOf)");
                return self.add(&"<nil>", "FieldValueInvalid", why);
            }
            Problem::Type(wanted) => {
                let found = value.shape().name();
                let why =
                    format!("Invalid value: {found:?}: {path} in body must be of type {wanted}: {found:?}");
                ("FieldValueTypeInvalid", why)
            }
            Problem::NotIn(allowed) => {
                let list: Vec<String> = allowed.iter().map(|one| one.0.to_string()).collect();
                let list = list.join(", ");
                let why = format!("Unsupported value: {value}: supported values: {list}");
                ("FieldValueNotSupported", why)
            }
            Problem::Outside(least, most) => {
                let why = match value.as_i64() {
                    Some(number) if number > most => format!("should be less than or equal to {most}"),
                    _ => format!("should be greater than or equal to {least}"),
                };
                ("FieldValueInvalid", invalid(why))
            }
            Problem::Pattern(pattern) => ("FieldValueInvalid", invalid(format!("should match '{pattern}'"))),
            Problem::TooFew(least) => {
                let why = format!("should have at least {least} items");
                ("FieldValueInvalid", invalid(why))
            }
            Problem::TooLong(most) => {
                let why = format!("Too long: may not be more than {most} bytes");
                ("FieldValueTooLong", why)
            }
            Problem::TooMany(most) => {
                let count = value.items().count();
                let why = format!("Too many: {count}: must have at most {most} items");
                ("FieldValueTooMany", why)
            }
        };
        self.add(path, reason, why);
    }
}

impl<'v> Tree<'v> for &'v Value {
    fn shape(self) -> Shape<'v> {
        match self {
            Value::Null => Shape::Null,
            Value::Bool(_) => Shape::Bool,
            Value::Number(number) => Shape::Number(number),
            Value::String(text) => Shape::Text(text),
            Value::Array(_) => Shape::List,
            Value::Object(_) => Shape::Object,
        }
    }

    fn items(self) -> impl Iterator<Item = Self> {
        self.as_array().into_iter().flat_map(|items| items.iter())
    }

    fn fields(self) -> impl Iterator<Item = (&'v str, Self)> {
        self.as_object().into_iter().flatten()
    }

    fn has(self, name: &str) -> bool {
        self.get(name).is_some()
    }
}
