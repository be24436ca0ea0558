//! A value as YAML that can be pasted.

use serde_json::Value;

use crate::gitops::yaml::{is_text_to_all, number};
use refit_base::go::GoDuration;

pub(super) fn quoted(text: String) -> String {
    Value::from(text).to_string()
}

/// A value as YAML on one line.
pub(in crate::gitops::check) fn yaml(value: &Value) -> String {
    match value {
        Value::String(text) if is_plain(text) => text.clone(),
        Value::Array(items) => {
            // If one item of a list needs quotes, quote them all for readability.
            let plain = items.iter().all(|item| item.as_str().is_none_or(is_plain));
            let item = |item: &Value| if plain { yaml(item) } else { json_or_yaml(item) };
            format!("[{}]", items.iter().map(item).collect::<Vec<_>>().join(", "))
        }
        Value::Object(fields) => {
            let field =
                |(key, value): (&String, &Value)| format!("{}: {}", yaml(&key.as_str().into()), yaml(value));
            format!("{{{}}}", fields.iter().map(field).collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

fn json_or_yaml(value: &Value) -> String {
    if value.is_string() {
        value.to_string()
    } else {
        yaml(value)
    }
}

/// Whether every YAML reader takes the unquoted text for a string, in any position.
fn is_plain(text: &str) -> bool {
    let is_path = text.starts_with('/')
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
    // A label key has a slash; the parts before and after it are checked separately.
    let is_key = text.split('/').all(is_text_to_all);
    let is_span = text.parse::<GoDuration>().is_ok() && text.ends_with(|c: char| c.is_ascii_alphabetic());
    is_path || is_key || (is_span && number(text).is_none())
}
