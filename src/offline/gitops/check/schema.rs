//! What the API server does with a Plan: types, required fields, bounds and unknown fields.
//!
//! The fields come from the CustomResourceDefinition, so a field that is added there is known here. The messages are
//! refit's own, because they also suggest what to write.

mod hint;
mod unknown;
mod workload;

use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use regex::Regex;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use super::{Subject, instead};
use crate::gitops::Rule;
use crate::gitops::placeholder::{in_comment, is_placeholder, is_whole_placeholder, syntax};
use crate::gitops::yaml::{Entry, Kind, Node, Object, is_plain_bool};
use refit_api::crd;
use refit_base::nearest::nearest;

/// A spec to paste. It selects no node until someone labels one.
pub(super) const SPEC: &str = "{concurrency: 1, version: v1.33.4+k3s1, nodeSelector: {matchLabels: {k3s-upgrade: enabled}}, \
                               upgrade: {image: rancher/k3s-upgrade}}";

/// The schema of a Plan, with that of its metadata, which a CRD omits.
static PLAN: LazyLock<JSONSchemaProps> = LazyLock::new(|| {
    let mut versions = crd::plans().spec.versions.into_iter();
    let mut plan = versions
        .find_map(|version| version.schema?.open_api_v3_schema)
        .unwrap_or_default();
    let metadata = SchemaSettings::openapi3()
        .with(|settings| settings.inline_subschemas = true)
        .into_generator()
        .into_root_schema_for::<ObjectMeta>();
    let metadata = serde_json::to_value(metadata).and_then(serde_json::from_value);
    let properties = plan.properties.get_or_insert_default();
    if let Ok(metadata) = metadata {
        properties.insert("metadata".to_owned(), metadata);
    }
    // The API server drops this field, so its content does not matter.
    properties.insert(
        "status".to_owned(),
        JSONSchemaProps {
            x_kubernetes_preserve_unknown_fields: Some(true),
            ..JSONSchemaProps::default()
        },
    );
    plan
});

impl Subject<'_> {
    /// The Plan as JSON, without the refused fields, which are reported.
    pub(super) fn read_by_schema(&mut self) -> Value {
        let node = self.object.node;
        let read = self.read("", &PLAN, node, node.offset());
        read.unwrap_or_else(|| Value::Object(Map::new()))
    }

    /// The value of a field, if the field accepts it. `key` is the offset of the field.
    fn read(&mut self, field: &str, schema: &JSONSchemaProps, node: &Node, key: usize) -> Option<Value> {
        if schema.x_kubernetes_preserve_unknown_fields == Some(true) {
            return Some(node.to_json());
        }
        if schema.x_kubernetes_int_or_string == Some(true) {
            return self.read_scalar(field, schema, "a number or text", node, |node| match &node.kind {
                Kind::Text(_) => true,
                Kind::Number(_) => integer(node).is_some(),
                _ => false,
            });
        }
        match schema.type_.as_deref() {
            Some("object") => self.read_object(field, schema, node, key),
            Some("array") => self.read_list(field, schema, node, key),
            Some("string") => self.read_scalar(field, schema, "text", node, |node| node.text().is_some()),
            Some("boolean") => {
                let read = self.read_scalar(field, schema, "true or false", node, |node| {
                    matches!(node.kind, Kind::Bool(_))
                });
                self.check_bool(field, node);
                read
            }
            Some("integer") => {
                let number = integer(node);
                self.read_scalar(field, schema, "a whole number", node, |_| number.is_some())
                    .and(number)
                    .map(Value::from)
            }
            Some("number") => self.read_scalar(field, schema, "a number", node, |node| {
                matches!(node.kind, Kind::Number(_))
            }),
            _ => Some(node.to_json()),
        }
    }

    fn read_object(
        &mut self,
        field: &str,
        schema: &JSONSchemaProps,
        node: &Node,
        key: usize,
    ) -> Option<Value> {
        let Some(object) = node.object() else {
            if node.text().is_some_and(is_whole_placeholder) {
                self.report_placeholder(field, node);
                return None;
            }
            let hint = if matches!(node.kind, Kind::Bool(false)) {
                Some("remove it".to_owned())
            } else {
                self.write_instead(field, schema, node)
            };
            self.report_wrong_type(field, "an object", node, key, hint);
            return None;
        };
        let mut read = Map::new();
        let mut labels = self.labels_of_a_pod(field, schema, object, key);
        labels.extend(self.value_of_a_requirement(field, object, key));
        labels.extend(self.variable_as_a_key(field, schema, object, key));
        labels.extend(self.fields_of_a_workload(field, object, key));
        labels.extend(self.cron_of_a_window(field, object, key));
        for entry in &object.entries {
            let path = below(field, &entry.key.name);
            let Some(schema) = schema_of(schema, &entry.key.name) else {
                if path == "sops" && entry.value.get("mac").is_some() {
                    self.report_sops(&path, entry);
                } else if !labels.contains(&entry.key.name.as_str()) {
                    self.report_unknown(&path, schema, object, entry);
                }
                continue;
            };
            let at = entry.key.span.start;
            if entry.value.is_null() {
                match in_comment(self.source, entry) {
                    Some((comment, syntax)) => self.report_placeholder_at(&path, at, &comment, syntax),
                    // The API server drops nulls before it validates.
                    None => self.report_null(&path, &entry.value, at),
                }
                continue;
            }
            let value = self.read(&path, schema, &entry.value, at);
            read.extend(value.map(|value| (entry.key.name.clone(), value)));
        }
        self.report_missing(field, schema, object, key);
        Some(Value::Object(read))
    }

    /// Reports the metadata that SOPS adds to the file, and removes when it decrypts the file.
    fn report_sops(&mut self, field: &str, entry: &Entry) {
        let message = "sops is the metadata of SOPS; refit does not check encrypted values".to_owned();
        let hint =
            "validate the decrypted file, as in `sops decrypt plan.yaml | refit validate -`".to_owned();
        self.report_at(
            Rule::Placeholder,
            entry.key.span.start,
            Some(field),
            message,
            Some(hint),
        );
    }

    fn report_missing(&mut self, field: &str, schema: &JSONSchemaProps, object: &Object, key: usize) {
        let is_given = |name: &String| object.entry(name).is_some_and(|entry| self.is_given(entry));
        let alternatives = schema.any_of.as_deref().unwrap_or_default();
        let is_met = alternatives.iter().any(|one| required(one).all(is_given));
        // If none of the alternatives is met, the first is what most users want.
        let alternative = alternatives.first().filter(|_| !is_met);
        for name in required(schema).chain(alternative.into_iter().flat_map(required)) {
            let entry = object.entry(name);
            if !entry.is_some_and(|entry| self.is_given(entry)) {
                let path = below(field, name);
                let hint = if path == "spec.upgrade" && self.object.is_part_of_plan() {
                    let first = "if this is a patch of Kustomize, validate what `kustomize build` prints";
                    Some(format!(
                        "{first}; otherwise the Plan needs {path} and spec.nodeSelector"
                    ))
                } else {
                    self.line_for(&path, object)
                        .or_else(|| about(schema_of(schema, name)))
                };
                self.report_at(
                    Rule::MissingField,
                    entry.map_or(key, |entry| entry.key.span.start),
                    Some(&path),
                    format!("{path} is missing"),
                    hint,
                );
            }
        }
    }

    fn report_null(&mut self, field: &str, node: &Node, key: usize) {
        // Not reported: the result is the same without these fields.
        if field == "status" || field == "metadata.creationTimestamp" {
            return;
        }
        let is_label = ["matchLabels", "labels", "annotations", "postCompleteLabels"]
            .iter()
            .any(|map| {
                field
                    .split_once(&format!("{map}."))
                    .is_some_and(|(_, key)| !key.is_empty())
            });
        // This is the one field whose mere presence has an effect.
        let hint = if is_label {
            // Without its label, a selector may select every node.
            "write `\"\"` for the empty value, or remove it"
        } else if field == "spec.drain" {
            "write `{}` to drain with the defaults, or remove it"
        } else {
            "remove it, or give it a value"
        };
        let written = if self.written(node).is_empty() {
            "empty"
        } else {
            "null"
        };
        self.report_at(
            Rule::NullField,
            key,
            Some(field),
            format!("{field} is {written}, which is the same as leaving it out"),
            Some(hint.to_owned()),
        );
    }

    fn read_list(&mut self, field: &str, schema: &JSONSchemaProps, node: &Node, key: usize) -> Option<Value> {
        let Kind::List(items) = &node.kind else {
            if node.text().is_some_and(is_whole_placeholder) {
                self.report_placeholder(field, node);
                return None;
            }
            let hint = self.write_instead(field, schema, node);
            let is_arguments =
                node.text().is_some() && matches!(field, "spec.upgrade.args" | "spec.prepare.args");
            let hint = hint.or_else(|| {
                is_arguments.then(|| {
                    "make it a list with one item per argument; a script also needs a shell as its command".to_owned()
                })
            });
            self.report_wrong_type(field, "a list", node, key, hint);
            return None;
        };
        let least = usize::try_from(schema.min_items.unwrap_or_default()).unwrap_or_default();
        // Of empty windows the controller says more.
        if items.len() < least && field != "spec.windows" {
            let message = format!("{field} has {} items; it needs at least {least}", items.len());
            self.report_at(Rule::NotAllowed, key, Some(field), message, about(Some(schema)));
        }
        let Some(JSONSchemaPropsOrArray::Schema(of_item)) = &schema.items else {
            return Some(node.to_json());
        };
        let mut read = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let path = format!("{field}[{index}]");
            let value = self.read(&path, of_item, item, item.offset());
            // The other items keep their indices, which the findings name.
            let refused = || (of_item.type_.as_deref() == Some("string")).then(|| Value::from(""));
            read.extend(value.or_else(refused));
        }
        Some(Value::Array(read))
    }

    fn read_scalar(
        &mut self,
        field: &str,
        schema: &JSONSchemaProps,
        wanted: &str,
        node: &Node,
        fits: impl Fn(&Node) -> bool,
    ) -> Option<Value> {
        let is_word = |text: &str| !text.trim().contains(char::is_whitespace);
        if node
            .text()
            .is_some_and(|text| is_whole_placeholder(text) || (is_placeholder(text) && is_word(text)))
            && schema.type_.as_deref() != Some("string")
        {
            self.report_placeholder(field, node);
            return None;
        }
        if !fits(node) {
            let hint = self.type_hint(field, schema, wanted, node);
            self.report_wrong_type(field, wanted, node, node.offset(), hint);
            return None;
        }
        let value = node.to_json();
        if let Some(allowed) = &schema.enum_
            && !allowed.iter().any(|one| one.0 == value)
        {
            let words: Vec<_> = allowed.iter().filter_map(|one| one.0.as_str()).collect();
            let text = value.as_str().unwrap_or_default();
            let days = instead::days(schema, text).filter(|days| days.len() > 1);
            let hint = match days {
                Some(days) => Some(format!("each item is one day: {}", days.join(", "))),
                None => instead::word(schema, text).map(|near| format!("did you mean `{near}`?")),
            };
            let message = format!("{field} is {value}; it must be one of {}", words.join(", "));
            self.report_at(Rule::NotAllowed, node.offset(), Some(field), message, hint);
            return None;
        }
        if let (Some(pattern), Some(text)) = (&schema.pattern, node.text())
            && Regex::new(pattern).is_ok_and(|pattern| !pattern.is_match(text))
        {
            let message =
                format!("{field} is {text:?}, which does not have the form that the field requires");
            self.report_at(
                Rule::NotAllowed,
                node.offset(),
                Some(field),
                message,
                about(Some(schema)),
            );
            return None;
        }
        if let Some(number) = integer(node) {
            let (least, most) = bounds(schema);
            if i128::from(number) < least || i128::from(number) > most {
                let message = format!("{field} is {number}; it must be from {least} to {most}");
                let is_limit = schema.x_kubernetes_int_or_string == Some(true);
                let hint = is_limit.then(|| instead::ANY_LIMIT.to_owned());
                self.report_at(
                    Rule::NotAllowed,
                    node.offset(),
                    Some(field),
                    message,
                    hint.or_else(|| about(Some(schema))),
                );
                return None;
            }
        }
        Some(value)
    }

    pub(super) fn report_placeholder(&mut self, field: &str, node: &Node) {
        let syntax = node.text().and_then(syntax).unwrap_or("which a program replaces");
        self.report_placeholder_at(field, node.offset(), &node.to_json().to_string(), syntax);
    }

    pub(super) fn report_placeholder_at(&mut self, field: &str, offset: usize, shown: &str, syntax: &str) {
        let message =
            format!("{field} is the placeholder {shown} ({syntax}); refit does not check what it becomes");
        let hint = if shown.contains("${") {
            "validate the result, as in `kustomize build | flux envsubst | refit validate -`"
        } else {
            "validate the file that has the values"
        };
        self.report_at(
            Rule::Placeholder,
            offset,
            Some(field),
            message,
            Some(hint.to_owned()),
        );
    }

    pub(super) fn report_wrong_type(
        &mut self,
        field: &str,
        wanted: &str,
        node: &Node,
        offset: usize,
        hint: Option<String>,
    ) {
        let found = match &node.kind {
            Kind::Null => "nothing".to_owned(),
            Kind::Bool(value) => format!("the bool {value}"),
            // As written, so that the author finds 1.30, which is 1.3 as a number.
            Kind::Number(number) => match self.written(node) {
                "" => format!("the number {number}"),
                written => format!("the number {written}"),
            },
            Kind::Text(_) => "text".to_owned(),
            Kind::List(_) => "a list".to_owned(),
            Kind::Map(_) => "an object".to_owned(),
        };
        let field = if field.is_empty() { "the Plan" } else { field };
        let message = format!("{field} must be {wanted}, but is {found}");
        self.report_at(Rule::WrongType, offset, Some(field), message, hint);
    }

    fn check_bool(&mut self, field: &str, node: &Node) {
        if matches!(node.kind, Kind::Bool(_)) && !is_plain_bool(self.written(node)) {
            let (written, node) = (self.written(node).to_owned(), node.to_json());
            self.report(
                Rule::PlainBool,
                field,
                format!("{field} is `{written}`, which is a bool in YAML 1.1 and text in YAML 1.2"),
                Some(format!("write `{node}`")),
            );
        }
    }
}

pub(super) fn below(field: &str, name: &str) -> String {
    if field.is_empty() {
        name.to_owned()
    } else {
        format!("{field}.{name}")
    }
}

/// The schema of a field, or of the values of a map; `None` for an unknown field.
fn schema_of<'s>(schema: &'s JSONSchemaProps, name: &str) -> Option<&'s JSONSchemaProps> {
    let property = schema
        .properties
        .as_ref()
        .and_then(|properties| properties.get(name));
    property.or(match &schema.additional_properties {
        Some(JSONSchemaPropsOrBool::Schema(values)) => Some(values),
        _ => None,
    })
}

/// The first sentence of the field's description in the CRD.
fn about(schema: Option<&JSONSchemaProps>) -> Option<String> {
    let text = schema?.description.as_deref()?;
    let sentence = text.split_once(". ").map_or(text, |(first, _)| first);
    Some(sentence.trim_end_matches('.').to_owned()).filter(|text| !text.is_empty())
}

/// The number if it is an integer. The API server also accepts an integer written as a fraction, such as `2.0`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::float_cmp,
    reason = "a number without fraction, less than 2^53"
)]
pub(super) fn integer(node: &Node) -> Option<i64> {
    let Kind::Number(number) = &node.kind else {
        return None;
    };
    number.as_i64().or_else(|| {
        let value = number.as_f64().filter(|_| number.is_f64())?;
        (value.trunc() == value && value.abs() < 9_007_199_254_740_992.0).then_some(value as i64)
    })
}

/// Minimum and maximum.
#[expect(
    clippy::cast_possible_truncation,
    reason = "bounds in the definition are whole numbers"
)]
pub(super) fn bounds(schema: &JSONSchemaProps) -> (i128, i128) {
    let (least, most) = match schema.format.as_deref() {
        Some("int32") => (i128::from(i32::MIN), i128::from(i32::MAX)),
        _ => (i128::from(i64::MIN), i128::from(i64::MAX)),
    };
    (
        schema.minimum.map_or(least, |bound| bound as i128),
        schema.maximum.map_or(most, |bound| bound as i128),
    )
}

/// The path of a field without list indices.
pub(super) fn no_indices(field: &str) -> String {
    let without = |part: &str| part.split('[').next().unwrap_or_default().to_owned();
    field.split('.').map(without).collect::<Vec<_>>().join(".")
}

/// The problem with a path in the annotation `upgrade.cattle.io/digest`, and the intended path if it is clear. A path
/// goes through objects only and is not trimmed (S41).
pub(super) fn digest_problem(path: &str) -> Option<(String, String)> {
    if path.trim() != path {
        return Some((
            "spaces count, and no field begins or ends with one".to_owned(),
            path.trim().to_owned(),
        ));
    }
    let mut schema = &*PLAN;
    let mut way = String::new();
    for part in path.split('.') {
        if schema.type_.as_deref() == Some("array") {
            return Some((
                format!(
                    "{way} is a list, and a path cannot continue into a list; of {way} itself, the first item counts"
                ),
                way,
            ));
        }
        let Some(next) = schema_of(schema, part) else {
            let names = schema.properties.iter().flatten().map(|(name, _)| name.as_str());
            let near = nearest(part, names).map(|near| below(&way, near));
            return Some(("a Plan has no such field".to_owned(), near.unwrap_or_default()));
        };
        way = below(&way, part);
        schema = next;
    }
    None
}

fn required(schema: &JSONSchemaProps) -> impl Iterator<Item = &String> {
    schema.required.iter().flatten()
}
