//! Mistakes of objects that people write or edit by hand. The controller leaves out an object that it cannot read, and a
//! rehearsal without it would end well for the wrong reason.

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use refit_facts::objects::SlimNode;
use refit_facts::read::read;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::json::Value;
use crate::resources::Kind;

/// What is wrong with a Node, a pod or a disruption budget, and what is allowed; `None` for other kinds.
pub fn mistake(api_version: &str, kind: &str, object: &Value) -> Option<String> {
    let kind = Kind::of_object(api_version, kind)?;
    if !matches!(kind, Kind::Node | Kind::Pod | Kind::Budget) {
        return None;
    }
    let metadata = &object["metadata"];
    match &metadata["name"] {
        Value::String(name) if !name.is_empty() => {}
        Value::Null | Value::String(_) => return Some("metadata.name is missing".to_owned()),
        other => return Some(not_text("metadata.name", other)),
    }
    let fields = ["labels", "annotations"].map(|field| (format!("metadata.{field}"), &metadata[field]));
    if let Some(why) = fields.iter().find_map(|(field, value)| not_texts(field, value)) {
        return Some(why);
    }
    match kind {
        Kind::Node => unread::<SlimNode>(object),
        Kind::Budget => unread::<PodDisruptionBudget>(object),
        _ => None,
    }
}

fn not_texts(field: &str, value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::Object(_) => {
            let mut entries = value.as_object()?.iter();
            let (key, value) = entries.find(|(_, value)| !value.is_string())?;
            Some(not_text(&format!("{field}.{key}"), value))
        }
        other => Some(format!("{field} must be an object of texts, but is {other}")),
    }
}

fn not_text(field: &str, value: &Value) -> String {
    let remedy = match value {
        Value::Null => "; write \"\"".to_owned(),
        Value::Bool(_) | Value::Number(_) => format!("; write \"{value}\""),
        _ => String::new(),
    };
    format!("{field} must be text, but is {value}{remedy}")
}

/// Why an object cannot be read as the controller reads it.
fn unread<K: DeserializeOwned>(object: &Value) -> Option<String> {
    // In lines, because the error names the line.
    let text = serde_json::to_string_pretty(object).ok()?;
    let raw = RawValue::from_string(text).ok()?;
    let error = read::<K>(&raw).err()?.why;
    let (why, place) = error.split_once(" at line ").unwrap_or((&error, ""));
    let number = place.split(' ').next().and_then(|number| number.parse().ok());
    // The line of an item has no field.
    let lines = raw.get().lines().take(number.unwrap_or_default());
    let field = lines
        .filter_map(|line| Some(line.split_once(':')?.0.trim().trim_matches('"')))
        .last();
    Some(match field {
        Some(field) => format!("the field {field} cannot be read: {why}"),
        None => format!("it cannot be read: {why}"),
    })
}
