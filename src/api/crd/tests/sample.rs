//! A value for every field of the spec, so that tests need not list them.

use serde_json::{Map, Value};

use super::super::*;

/// A spec with every field, whether the values are compatible or not.
pub(crate) fn spec() -> Map<String, Value> {
    match value("spec", property(served_schema(&PLANS), "spec").unwrap()) {
        Value::Object(fields) => fields,
        other => panic!("{other}"),
    }
}

/// JSON pointers to all fields, also of nested objects, such as `/reboot/when`.
pub(crate) fn pointers(fields: &Map<String, Value>) -> Vec<String> {
    let each = fields.iter().flat_map(|(name, value)| {
        let below = value.as_object().map(pointers).unwrap_or_default();
        let below = below.into_iter().map(move |rest| format!("/{name}{rest}"));
        std::iter::once(format!("/{name}")).chain(below)
    });
    each.collect()
}

/// A value that differs from the default: the last word of an enum, true, a number, or a string that is a valid
/// duration, name and image.
fn value(name: &str, schema: &JSONSchemaProps) -> Value {
    if let Some(word) = schema.enum_.iter().flatten().next_back() {
        return word.0.clone();
    }
    if schema.x_kubernetes_int_or_string == Some(true) {
        // A quantity becomes a string when it is read.
        return if schema.pattern.is_some() {
            "1".into()
        } else {
            1.into()
        };
    }
    match schema.type_.as_deref() {
        Some("boolean") => true.into(),
        Some("integer") => 1.into(),
        Some("number") => 1.5.into(),
        // Selectors, which are parsed when a Job is created.
        Some("string") if name == "operator" => "In".into(),
        Some("string") => "1s".into(),
        Some("array") => items(schema).map(|item| value(name, item)).into_iter().collect(),
        Some("object") => {
            let named = schema.properties.iter().flatten();
            let mut fields: Map<String, Value> = named
                .map(|(name, schema)| (name.clone(), value(name, schema)))
                .collect();
            if let Some(JSONSchemaPropsOrBool::Schema(any)) = &schema.additional_properties {
                fields.insert("x".to_owned(), value("", any));
            }
            fields.into()
        }
        other => panic!("{other:?}"),
    }
}
