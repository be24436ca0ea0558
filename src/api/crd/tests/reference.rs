//! Generates `docs/plan.md`: every field of the Plan, from the doc comments of the types.

use std::fmt::Write as _;

use schemars::{JsonSchema, SchemaGenerator};
use serde_json::Value;

use super::super::{OWN_FIELDS, join_lines};
use crate::{PlanSpec, PlanStatus};

const INTRODUCTION: &str = "# The fields of a Plan

What `kubectl explain plans.spec --recursive` says of each field. No field has a default in the schema: what its absence means is in the text. Fields of refit's own
are marked; system-upgrade-controller's CRD does not have them, and drops them from a Plan that is written while it is served.
Types of Kubernetes' own, such as `Toleration`, are described in [its reference](https://kubernetes.io/docs/reference/kubernetes-api/).

This file is generated from the comments in `src/api`; `just generate` rewrites it.
";

/// A type of the Plan, and its users: `prepare` and `upgrade` share one.
struct Section {
    type_: String,
    paths: Vec<String>,
}

/// The types of a part of the Plan, in the order of their first use.
struct Reference {
    root: Value,
    sections: Vec<Section>,
}

impl Reference {
    fn of<T: JsonSchema>(part: &str) -> Self {
        let schema = SchemaGenerator::default().into_root_schema_for::<T>();
        let mut reference = Self {
            root: schema.to_value(),
            sections: Vec::new(),
        };
        reference.visit("", part);
        reference
    }

    /// The schema of a type by name; the part itself has no name.
    fn schema(&self, type_: &str) -> &Value {
        if type_.is_empty() {
            &self.root
        } else {
            &self.root["$defs"][type_]
        }
    }

    fn visit(&mut self, type_: &str, path: &str) {
        match self.sections.iter_mut().find(|section| section.type_ == type_) {
            Some(section) => section.paths.push(path.to_owned()),
            None => self.sections.push(Section {
                type_: type_.to_owned(),
                paths: vec![path.to_owned()],
            }),
        }
        let fields = self.schema(type_)["properties"].as_object().cloned();
        for (name, schema) in fields.into_iter().flatten() {
            let (schema, list) = match schema["items"].as_object() {
                Some(_) => (schema["items"].clone(), "[]"),
                None => (schema, ""),
            };
            if let Some(type_) = self.own_type(&schema) {
                self.visit(&type_, &format!("{path}.{name}{list}"));
            }
        }
    }

    /// The name of refit's own type that a schema refers to, if it has fields.
    fn own_type(&self, schema: &Value) -> Option<String> {
        let name = reference(schema)?;
        self.schema(&name)["properties"]
            .is_object()
            .then_some(name)
            .filter(|name| !name.contains('.'))
    }

    /// The type of a field in words.
    fn type_of(&self, schema: &Value) -> String {
        if let Some(type_) = self.own_type(schema) {
            let section = self.sections.iter().find(|section| section.type_ == type_);
            return format!("[object](#{})", slug(&heading(section.unwrap())));
        }
        if let Some(name) = reference(schema) {
            return match name.rsplit_once('.') {
                Some((_, name)) => format!("`{name}`"),
                None => self.type_of(self.schema(&name)),
            };
        }
        let words = schema["enum"].as_array().into_iter().flatten();
        let words: Vec<_> = words
            .filter_map(Value::as_str)
            .map(|word| format!("`{word}`"))
            .collect();
        if (1..6).contains(&words.len()) {
            return words.join(", ");
        }
        if schema["x-kubernetes-int-or-string"] == true {
            return "integer or string".to_owned();
        }
        let or_null = schema["type"].as_array().and_then(|either| either.first());
        match or_null.unwrap_or(&schema["type"]).as_str() {
            Some("array") => format!("list of {}", self.type_of(&schema["items"])),
            Some("object") if schema["additionalProperties"].is_object() => {
                format!("map of {}", self.type_of(&schema["additionalProperties"]))
            }
            Some(type_) => type_.to_owned(),
            None => panic!("{schema}"),
        }
    }

    fn write(&self, out: &mut String) {
        for section in &self.sections {
            let schema = self.schema(&section.type_);
            let _ = writeln!(out, "\n## {}\n", heading(section));
            let _ = writeln!(out, "{}\n", text(schema));
            let _ = writeln!(out, "| field | takes | what it says |\n|---|---|---|");
            for (name, field) in schema["properties"].as_object().unwrap() {
                let is_own = OWN_FIELDS.contains(&[section.paths[0].as_str(), name]);
                let own = if is_own { " *refit*" } else { "" };
                let mut required = schema["required"].as_array().into_iter().flatten();
                let required = if required.any(|required| required == name) {
                    ", required"
                } else {
                    ""
                };
                let (type_, text) = (self.type_of(field), text(field));
                let _ = writeln!(out, "| `{name}`{own} | {type_}{required} | {text} |");
            }
        }
    }
}

fn heading(section: &Section) -> String {
    section.paths.join(", ")
}

/// The anchor of a heading.
fn slug(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || *c == ' ');
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

fn reference(schema: &Value) -> Option<String> {
    let or_null = schema["anyOf"].as_array().and_then(|either| either.first());
    let path = or_null.unwrap_or(schema)["$ref"].as_str()?;
    path.strip_prefix("#/$defs/").map(str::to_owned)
}

fn text(schema: &Value) -> String {
    let text = join_lines(schema["description"].as_str().unwrap_or_default());
    text.replace('|', "\\|").replace("\n\n", " ").replace('\n', " ")
}

pub(super) fn markdown() -> String {
    let mut out = INTRODUCTION.to_owned();
    Reference::of::<PlanSpec>("spec").write(&mut out);
    Reference::of::<PlanStatus>("status").write(&mut out);
    out
}
