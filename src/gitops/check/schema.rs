//! What the API server makes of a Plan: types, required fields, bounds, and fields that nobody knows.
//!
//! The fields come from the CustomResourceDefinition itself, so that one which is added there is known here. The words
//! are ours: a person reads them, and they say what to write.

use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use regex::Regex;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use super::nearest::nearest;
use super::{Subject, is_placeholder};
use crate::api::crd;
use crate::gitops::Rule;
use crate::gitops::yaml::{Entry, Kind, Node, Object, Style, is_plain_bool};

/// The schema of a Plan, with that of its metadata, which definitions leave out.
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
    // What it says, nobody asks: the API server drops it.
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
    /// The Plan as JSON, without what is refused: that is told.
    pub(super) fn read_by_schema(&mut self) -> Value {
        let node = self.object.node;
        let read = self.read("", &PLAN, node, node.offset());
        read.unwrap_or_else(|| Value::Object(Map::new()))
    }

    /// The value of a field, if it is one that the field takes. `key` is where the field begins.
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
            self.wrong_type(field, "an object", node, key, None);
            return None;
        };
        let mut read = Map::new();
        for entry in &object.entries {
            let path = below(field, &entry.key.name);
            let Some(schema) = schema_of(schema, &entry.key.name) else {
                self.unknown(&path, schema, entry);
                continue;
            };
            let at = entry.key.span.start;
            if entry.value.is_null() {
                // The API server drops it before it looks at anything.
                self.null(&path, schema, &entry.value, at);
                continue;
            }
            let value = self.read(&path, schema, &entry.value, at);
            read.extend(value.map(|value| (entry.key.name.clone(), value)));
        }
        self.missing(field, schema, object, key);
        Some(Value::Object(read))
    }

    fn missing(&mut self, field: &str, schema: &JSONSchemaProps, object: &Object, key: usize) {
        for name in schema.required.iter().flatten() {
            let is_there = object.entry(name).is_some_and(|entry| !entry.value.is_null());
            if !is_there {
                let path = below(field, name);
                self.tell_at(
                    Rule::MissingField,
                    key,
                    Some(&path),
                    format!("{path} is missing"),
                    about(schema_of(schema, name)),
                );
            }
        }
    }

    fn null(&mut self, field: &str, schema: &JSONSchemaProps, node: &Node, key: usize) {
        // Quiet about what means the same either way.
        if field == "status" || field == "metadata.creationTimestamp" {
            return;
        }
        let how = match schema.type_.as_deref() {
            Some("object") => "`{}`",
            Some("array") => "`[]`",
            Some("string") => "`\"\"`",
            _ => "a value",
        };
        let written = if self.written(node).is_empty() {
            "empty"
        } else {
            "null"
        };
        self.tell_at(
            Rule::NullField,
            key,
            Some(field),
            format!("{field} is {written}, which is as if it were not there"),
            Some(format!("remove it, or write {how}")),
        );
    }

    fn unknown(&mut self, field: &str, schema: &JSONSchemaProps, entry: &Entry) {
        let name = entry.key.name.as_str();
        let names = schema.properties.iter().flatten().map(|(name, _)| name.as_str());
        let near = nearest(name, names);
        let elsewhere = || places_of(name).into_iter().find(|place| place != field);
        // An exact name in another place is meant rather than a similar name in this one.
        let hint = match (near, elsewhere()) {
            (Some(near), _) if near.eq_ignore_ascii_case(name) => format!("did you mean `{near}`?"),
            (_, Some(place)) => format!("did you mean `{place}`?"),
            (Some(near), None) => format!("did you mean `{near}`?"),
            (None, None) => {
                let parent = field.rsplit_once('.').map_or("", |(parent, _)| parent);
                let explain = if parent.is_empty() {
                    "plan".to_owned()
                } else {
                    format!("plan.{}", no_indices(parent))
                };
                format!("`kubectl explain {explain}` lists what there is")
            }
        };
        self.tell_at(
            Rule::UnknownField,
            entry.key.span.start,
            Some(field),
            format!("a Plan has no field {field}"),
            Some(hint),
        );
    }

    fn read_list(&mut self, field: &str, schema: &JSONSchemaProps, node: &Node, key: usize) -> Option<Value> {
        let Kind::List(items) = &node.kind else {
            let hint = node
                .object()
                .is_none()
                .then(|| format!("write `[{}]`", self.written(node)));
            self.wrong_type(field, "a list", node, key, hint);
            return None;
        };
        let least = usize::try_from(schema.min_items.unwrap_or_default()).unwrap_or_default();
        if items.len() < least {
            let message = format!(
                "{field} has {} items, and must have at least {least}",
                items.len()
            );
            self.tell_at(Rule::NotAllowed, key, Some(field), message, about(Some(schema)));
        }
        let Some(JSONSchemaPropsOrArray::Schema(of_item)) = &schema.items else {
            return Some(node.to_json());
        };
        let mut read = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let path = format!("{field}[{index}]");
            let value = self.read(&path, of_item, item, item.offset());
            // The others keep their places, by which they are told.
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
        if node.text().is_some_and(is_placeholder) && schema.type_.as_deref() != Some("string") {
            self.placeholder(field, node);
            return None;
        }
        if !fits(node) {
            let hint = self.type_hint(wanted, node);
            self.wrong_type(field, wanted, node, node.offset(), hint);
            return None;
        }
        let value = node.to_json();
        if let Some(allowed) = &schema.enum_
            && !allowed.iter().any(|one| one.0 == value)
        {
            let words: Vec<_> = allowed.iter().filter_map(|one| one.0.as_str()).collect();
            let text = value.as_str().unwrap_or_default();
            let hint = nearest(text, words.iter().copied()).map(|near| format!("did you mean `{near}`?"));
            let message = format!("{field} is {value}; it must be one of {}", words.join(", "));
            self.tell_at(Rule::NotAllowed, node.offset(), Some(field), message, hint);
            return None;
        }
        if let (Some(pattern), Some(text)) = (&schema.pattern, node.text())
            && Regex::new(pattern).is_ok_and(|pattern| !pattern.is_match(text))
        {
            let message = format!("{field} is {text:?}, which is not of the form that it takes");
            self.tell_at(
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
                self.tell_at(
                    Rule::NotAllowed,
                    node.offset(),
                    Some(field),
                    message,
                    about(Some(schema)),
                );
                return None;
            }
        }
        Some(value)
    }

    pub(super) fn placeholder(&mut self, field: &str, node: &Node) {
        let message = format!(
            "{field} is {}, which somebody else has to fill in",
            node.to_json()
        );
        let hint =
            "validate what comes out, as in `kustomize build | flux envsubst | refit validate -`".to_owned();
        self.tell_at(Rule::Placeholder, node.offset(), Some(field), message, Some(hint));
    }

    fn wrong_type(&mut self, field: &str, wanted: &str, node: &Node, offset: usize, hint: Option<String>) {
        let found = match &node.kind {
            Kind::Null => "nothing".to_owned(),
            Kind::Bool(value) => format!("the bool {value}"),
            Kind::Number(number) => format!("the number {number}"),
            Kind::Text(_) => "text".to_owned(),
            Kind::List(_) => "a list".to_owned(),
            Kind::Map(_) => "an object".to_owned(),
        };
        let field = if field.is_empty() { "the Plan" } else { field };
        let message = format!("{field} is {found}, and must be {wanted}");
        self.tell_at(Rule::WrongType, offset, Some(field), message, hint);
    }

    fn type_hint(&self, wanted: &str, node: &Node) -> Option<String> {
        let written = self.written(node);
        match &node.kind {
            Kind::Number(_) | Kind::Bool(_) if wanted == "text" => {
                Some(format!("put it in quotes: `\"{written}\"`"))
            }
            Kind::Text(text) if matches!(node.style, Style::Single | Style::Double) => {
                let bare = (wanted == "true or false" && is_plain_bool(text))
                    || (wanted == "a whole number" && text.parse::<i64>().is_ok());
                bare.then(|| format!("take off the quotes: `{text}`"))
            }
            Kind::Number(_) | Kind::Text(_) if wanted == "true or false" => {
                Some("write `true` or `false`".to_owned())
            }
            _ => None,
        }
    }

    fn check_bool(&mut self, field: &str, node: &Node) {
        if matches!(node.kind, Kind::Bool(_)) && !is_plain_bool(self.written(node)) {
            let (written, node) = (self.written(node).to_owned(), node.to_json());
            self.tell(
                Rule::PlainBool,
                field,
                format!("{field} is `{written}`, a bool by YAML 1.1 and text by YAML 1.2"),
                Some(format!("write `{node}`")),
            );
        }
    }
}

/// The path of a field below another.
fn below(field: &str, name: &str) -> String {
    if field.is_empty() {
        name.to_owned()
    } else {
        format!("{field}.{name}")
    }
}

/// The schema of a field, or of the values of a map; nothing for a field that nobody knows.
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

/// What the definition says of a field: its first sentence.
fn about(schema: Option<&JSONSchemaProps>) -> Option<String> {
    let text = schema?.description.as_deref()?;
    let sentence = text.split_once(". ").map_or(text, |(first, _)| first);
    Some(sentence.trim_end_matches('.').to_owned()).filter(|text| !text.is_empty())
}

/// The number, if it is whole. One that is written as a fraction, such as `2.0`, is whole to the API server too.
#[expect(
    clippy::cast_possible_truncation,
    clippy::float_cmp,
    reason = "a number without fraction, less than 2^53"
)]
fn integer(node: &Node) -> Option<i64> {
    let Kind::Number(number) = &node.kind else {
        return None;
    };
    number.as_i64().or_else(|| {
        let value = number.as_f64().filter(|_| number.is_f64())?;
        (value.trunc() == value && value.abs() < 9_007_199_254_740_992.0).then_some(value as i64)
    })
}

/// The least and the greatest number.
#[expect(
    clippy::cast_possible_truncation,
    reason = "bounds in the definition are whole numbers"
)]
fn bounds(schema: &JSONSchemaProps) -> (i128, i128) {
    let (least, most) = match schema.format.as_deref() {
        Some("int32") => (i128::from(i32::MIN), i128::from(i32::MAX)),
        _ => (i128::from(i64::MIN), i128::from(i64::MAX)),
    };
    (
        schema.minimum.map_or(least, |bound| bound as i128),
        schema.maximum.map_or(most, |bound| bound as i128),
    )
}

/// Where else in a Plan's spec there is a field of that name, the nearest to the top first. Inside of Kubernetes' own
/// types nobody looks.
fn places_of(name: &str) -> Vec<String> {
    fn collect(
        schema: &JSONSchemaProps,
        path: &str,
        depth: usize,
        name: &str,
        found: &mut Vec<(usize, String)>,
    ) {
        for (property, schema) in schema.properties.iter().flatten() {
            let path = below(path, property);
            if property == name {
                found.push((depth, path.clone()));
            }
            if depth < 2 {
                collect(schema, &path, depth + 1, name, found);
            }
        }
    }
    let mut found = Vec::new();
    if let Some(spec) = schema_of(&PLAN, "spec") {
        collect(spec, "spec", 0, name, &mut found);
    }
    // `upgrade` before `prepare`: every Plan has one.
    found.sort_by_key(|(depth, path)| (*depth, path.contains(".prepare"), path.clone()));
    found.into_iter().map(|(_, path)| path).collect()
}

fn no_indices(field: &str) -> String {
    let without = |part: &str| part.split('[').next().unwrap_or_default().to_owned();
    field.split('.').map(without).collect::<Vec<_>>().join(".")
}

/// What is wrong with a path of the annotation `upgrade.cattle.io/digest`, and what to write instead. It leads through
/// objects only, and nothing in it is trimmed (S41).
pub(super) fn digest_problem(path: &str) -> Option<(String, String)> {
    if path.trim() != path {
        return Some((
            "blanks count, and no field begins or ends with one".to_owned(),
            format!("write `{}`, with no blank beside the comma", path.trim()),
        ));
    }
    let mut schema = &*PLAN;
    let mut way = String::new();
    for part in path.split('.') {
        if schema.type_.as_deref() == Some("array") {
            return Some((
                format!("{way} is a list, and a path does not lead through a list"),
                format!("write `{way}`, of which the first item counts"),
            ));
        }
        let Some(next) = schema_of(schema, part) else {
            let names = schema.properties.iter().flatten().map(|(name, _)| name.as_str());
            let hint = nearest(part, names).map_or_else(
                || "write a field of the Plan, such as `spec.upgrade.args`".to_owned(),
                |near| format!("did you mean `{}`?", below(&way, near)),
            );
            return Some(("a Plan has no such field".to_owned(), hint));
        };
        way = below(&way, part);
        schema = next;
    }
    None
}
