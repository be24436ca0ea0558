//! Placeholders in labels and in selectors. Kubernetes refuses most of them as they stand.

use serde_json::Value;

use super::read::name_for;
use super::subject::Subject;
use crate::gitops::placeholder::{is_placeholder, syntax};
use crate::gitops::yaml::Node;
use refit_api::complete_label;

struct Placeholder {
    field: String,
    offset: usize,
    text: String,
}

impl Subject<'_> {
    /// Reports the placeholders, and puts words in their place, so that what they become is not checked. Returns the
    /// fields and these words.
    pub(super) fn fill_label_values(&mut self, json: &mut Value) -> Vec<(String, String)> {
        let mut found = Vec::new();
        if let (Some(spec), Some(json)) = (self.node("spec"), json.get_mut("spec")) {
            fill(spec, json, "spec", &mut found);
        }
        let words = found.into_iter().map(|placeholder| {
            let Placeholder { field, offset, text } = placeholder;
            let syntax = syntax(&text).unwrap_or_default();
            self.report_placeholder_at(&field, offset, &format!("{text:?}"), syntax);
            (field, name_for(&text))
        });
        words.collect()
    }
}

fn fill(node: &Node, json: &mut Value, path: &str, found: &mut Vec<Placeholder>) {
    let field = path.rsplit('.').next().unwrap_or_default();
    let has_values = matches!(field, "matchLabels" | "postCompleteLabels")
        || (field == "values" && path.contains("matchExpressions["));
    let has_keys = matches!(field, "matchLabels" | "postCompleteLabels");
    let is_key = |child: &str| child.ends_with("].key") && child.contains("matchExpressions[");
    let children: Vec<(String, Option<&Node>, &mut Value)> = match json {
        Value::Object(entries) => entries
            .iter_mut()
            .map(|(key, value)| (format!("{path}.{key}"), node.get(key), value))
            .collect(),
        Value::Array(items) => items
            .iter_mut()
            .zip(node.items())
            .enumerate()
            .map(|(index, (item, node))| (format!("{path}[{index}]"), Some(node), item))
            .collect(),
        _ => return,
    };
    for (path, child, value) in children {
        let Some(child) = child else { continue };
        match value {
            Value::String(text) if (has_values || is_key(&path)) && is_filled_in(field, text) => {
                found.push(Placeholder {
                    field: path,
                    offset: child.offset(),
                    text: text.clone(),
                });
                *text = name_for(text);
            }
            value => fill(child, value, &path, found),
        }
    }
    if let (true, Value::Object(labels), Some(object)) = (has_keys, json, node.object()) {
        for key in object.entries.iter().map(|entry| &entry.key) {
            let value = is_filled_in(field, &key.name)
                .then(|| labels.remove(&key.name))
                .flatten();
            let Some(value) = value else { continue };
            labels.insert(name_for(&key.name), value);
            found.push(Placeholder {
                field: format!("{path}.{}", key.name),
                offset: key.span.start,
                text: key.name.clone(),
            });
        }
    }
}

/// Whether a program replaces the key or the value before refit sees it.
pub(super) fn is_filled_in(field: &str, value: &str) -> bool {
    if field != "postCompleteLabels" {
        return is_placeholder(value);
    }
    // refit expands two variables itself, and any other `$(X)` is a mistake for one of them.
    let expanded = complete_label::expand(value, "v", "a");
    is_placeholder(&expanded.replace("$(", "("))
}
