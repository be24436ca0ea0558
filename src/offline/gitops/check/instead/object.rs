//! Objects that someone wrote as text: `key=value`, `/source:/destination`, `22:00-04:00`.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use serde_json::{Map, Value, json};

use super::command::is_variable;
use super::time::{seconds, time_of_day};
use super::{days_of_text, has, node_limit};
use crate::gitops::check::schedule::blackout;
use crate::gitops::yaml::{Kind, Node};
use refit_api::selector::{label_key_problems, label_value_problems};

/// An object from text; `last` is the last part of its field.
pub(super) fn item_of_text(last: &str, schema: &JSONSchemaProps, text: &str) -> Option<Value> {
    let has = |name: &str| has(schema, name);
    if last.starts_with("tolerations[") {
        return toleration(text);
    }
    if last.starts_with("matchExpressions[") {
        return None;
    }
    if has("value") && has("name") {
        let pair = text.split_once('=').filter(|(name, _)| is_variable(name));
        let (name, value) = pair.or_else(|| text.split_once(": "))?;
        return variable(name, value);
    }
    if has("source") && has("destination") {
        return volume(text);
    }
    if last.starts_with("blackouts[") {
        return blackout(text);
    }
    if last.starts_with("windows[") {
        return window(text);
    }
    if last.starts_with("order[") {
        return criterion(text);
    }
    if let Some(index) = last
        .strip_prefix("waves[")
        .and_then(|rest| rest.strip_suffix(']'))
    {
        let nodes = node_limit(text)?;
        let nodes = nodes
            .parse::<u32>()
            .map_or_else(|_| Value::from(nodes), Value::from);
        let number = index.parse::<usize>().ok()? + 1;
        return Some(json!({ "name": format!("wave-{number}"), "nodes": nodes }));
    }
    if last == "secretRef" || (last == "configMapRef" && has("name")) {
        let is_name = !text.is_empty() && !text.contains([',', ' ', ':', '=', '/']);
        return is_name.then(|| json!({ "name": text }));
    }
    if has("name") && text.contains([',', ' ', ':', '=', '/']) {
        return None;
    }
    if has("name") && has("path") {
        return Some(json!({ "name": text, "path": format!("/host/run/system-upgrade/secrets/{text}") }));
    }
    (has("name") && schema.properties.as_ref().is_some_and(|all| all.len() == 1))
        .then(|| json!({ "name": text }))
}

pub(super) fn variable(name: &str, value: &str) -> Option<Value> {
    is_variable(name).then(|| json!({ "name": name, "value": value.trim() }))
}

/// The value that enables a field for which the author wrote `true`.
pub(super) fn switch(field: &str, on: bool) -> Option<Value> {
    match (field, on) {
        ("spec.drain", true) => Some(json!({})),
        ("spec.reboot", true) => Some(json!({ "when": "Always" })),
        ("spec.reboot", false) => Some(json!({ "when": "Never" })),
        _ => None,
    }
}

/// The flags that someone lists instead of setting them to `true`.
pub(super) fn switches(schema: &JSONSchemaProps, words: &[&str]) -> Option<Value> {
    let is_flag = |word: &&str| {
        let property = schema.properties.as_ref().and_then(|all| all.get(*word));
        property.is_some_and(|property| property.type_.as_deref() == Some("boolean"))
    };
    let on = words.iter().map(|word| ((*word).to_owned(), Value::from(true)));
    (!words.is_empty() && words.iter().all(is_flag)).then(|| Value::Object(on.collect()))
}

/// The fields from kubectl's flags: `--force --timeout=5m`.
pub(super) fn flags(schema: &JSONSchemaProps, words: &[&str]) -> Option<Value> {
    let properties = schema.properties.as_ref()?;
    let mut fields = Map::new();
    for word in words {
        let flag = word.strip_prefix("--")?;
        let (name, value) = flag
            .split_once('=')
            .map_or((flag, None), |(name, value)| (name, Some(value)));
        let plain = name.replace('-', "");
        let (name, property) = properties
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(&plain))?;
        let value = match (property.type_.as_deref(), value) {
            (Some("boolean"), value) => value.unwrap_or("true").parse::<bool>().ok()?.into(),
            (Some("integer"), Some(value)) => seconds(value)?.into(),
            (Some("object"), Some(value)) => selector(value)?,
            (None, Some(value)) => value.into(),
            _ => return None,
        };
        fields.insert(name.clone(), value);
    }
    (!fields.is_empty()).then_some(Value::Object(fields))
}

/// Labels from a list: `[a=b]`, `[{a: b}]`, `[{key: a, value: b}]`.
pub(super) fn labels_of_items(items: &[Node]) -> Option<Value> {
    let scalar = |node: &Node| match &node.kind {
        Kind::Text(text) => Some(text.clone()),
        Kind::Bool(value) => Some(value.to_string()),
        _ => None,
    };
    let mut pairs = Vec::new();
    for item in items {
        if let Some(text) = item.text() {
            let (key, value) = text.split_once(['=', ':'])?;
            pairs.push((key.to_owned(), value.to_owned()));
            continue;
        }
        let label = item.get("key").or_else(|| item.get("name"));
        match (label, item.get("value"), item.object()?.entries.len()) {
            (Some(key), Some(value), 2) => pairs.push((scalar(key)?, scalar(value)?)),
            _ => {
                for entry in &item.object()?.entries {
                    pairs.push((entry.key.name.clone(), scalar(&entry.value)?));
                }
            }
        }
    }
    labels(
        pairs
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .collect(),
    )
}

/// A selector from a list of its requirements, or of labels.
pub(super) fn selector_of_items(items: &[Node]) -> Option<Value> {
    let is_requirement = |item: &Node| item.get("key").is_some() && item.get("operator").is_some();
    if items.iter().all(is_requirement) {
        let items: Vec<_> = items.iter().map(Node::to_json).collect();
        return (!items.is_empty()).then(|| json!({ "matchExpressions": items }));
    }
    labels_of_items(items).map(|labels| json!({ "matchLabels": labels }))
}

pub(super) fn labels(pairs: Vec<(&str, &str)>) -> Option<Value> {
    let pairs = pairs
        .into_iter()
        .map(|(key, value)| (key.trim().to_owned(), Value::from(value.trim())));
    let labels: Map<_, _> = pairs.collect();
    let is_complete = !labels.is_empty() && labels.keys().all(|key| !key.is_empty() && !key.contains(' '));
    is_complete.then(|| labels.into())
}

/// A selector from `a=b,c=d` as in kubectl, or from a label key that must exist.
pub(super) fn selector(text: &str) -> Option<Value> {
    if text.contains([' ', '!', '(']) {
        return None;
    }
    let pairs: Option<Vec<_>> = text
        .split(',')
        .map(|pair| pair.split_once("==").or_else(|| pair.split_once('=')))
        .collect();
    let is_label = |(key, value): &(&str, &str)| {
        label_key_problems(key).is_empty() && label_value_problems(value).is_empty()
    };
    match pairs {
        Some(pairs) => labels(
            pairs
                .into_iter()
                .map(|pair| is_label(&pair).then_some(pair))
                .collect::<Option<_>>()?,
        )
        .map(|labels| json!({ "matchLabels": labels })),
        None if text.contains(['=', ',']) || !label_key_problems(text).is_empty() => None,
        // Whether every node is meant is unclear.
        None if ["all", "any", "every", "everything", "none"].contains(&text) => None,
        None => Some(json!({ "matchExpressions": [{ "key": text, "operator": "Exists" }] })),
    }
}

/// A window from `22:00-04:00`, which is daily, or from `Mon-Fri 22:00-04:00`.
pub(super) fn window(text: &str) -> Option<Value> {
    let (days, times) = text.split_at(text.find(|c: char| c.is_ascii_digit())?);
    let days = match days.trim() {
        "" => "daily",
        days => days,
    };
    let (start, end) = times
        .split_once(['-', '–'])
        .or_else(|| times.split_once(" to "))?;
    let (start, end) = (time_of_day(start)?, time_of_day(end)?);
    Some(json!({ "days": days_of_text(days)?, "startTime": start, "endTime": end }))
}

/// A criterion of an order from its name, or from the label of a zone.
fn criterion(text: &str) -> Option<Value> {
    let plain = text.replace(['-', '_', ' ', ':'], "").to_lowercase();
    match plain.as_str() {
        "controlplane" | "controlplanefirst" | "workerslast" => Some(json!({ "controlPlane": "First" })),
        "controlplanelast" | "workersfirst" => Some(json!({ "controlPlane": "Last" })),
        "zone" | "zones" | "byzone" => Some(json!({ "topologyKey": "topology.kubernetes.io/zone" })),
        "region" | "regions" | "byregion" => Some(json!({ "topologyKey": "topology.kubernetes.io/region" })),
        _ => {
            let is_label = text.contains('/') && label_key_problems(text).is_empty();
            is_label.then(|| json!({ "topologyKey": text }))
        }
    }
}

/// A toleration from `key=value:Effect`, as in `kubectl taint`; `Exists` tolerates all taints.
fn toleration(text: &str) -> Option<Value> {
    if text.eq_ignore_ascii_case("exists") || text == "*" || text.eq_ignore_ascii_case("all") {
        return Some(json!({ "operator": "Exists" }));
    }
    let (taint, effect) = text
        .split_once(':')
        .map_or((text, None), |(taint, effect)| (taint, Some(effect)));
    if taint.contains(' ') || effect.is_some_and(|effect| !EFFECTS.contains(&effect)) {
        return None;
    }
    let mut toleration = match taint.split_once('=') {
        Some((key, value)) => json!({ "key": key, "operator": "Equal", "value": value }),
        None => json!({ "key": taint, "operator": "Exists" }),
    };
    if let Some(effect) = effect {
        toleration["effect"] = effect.into();
    }
    Some(toleration)
}

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// Maximum length of a volume's name, with room for the number of a second one.
const MAX_VOLUME_NAME: usize = 60;

/// A volume from `/source:/destination`, as in container runtimes.
pub(in crate::gitops::check) fn volume(text: &str) -> Option<Value> {
    if text.contains([',', ' ']) {
        return None;
    }
    let mut parts = text.split(':');
    let source = parts.next().filter(|path| path.starts_with('/'))?;
    let destination = parts.next().unwrap_or(source);
    let name: String = source
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() {
                c.to_ascii_lowercase()
            } else {
                '-'
            }
        })
        .collect();
    // The end of a path says more than its beginning.
    let name = name
        .get(name.len().saturating_sub(MAX_VOLUME_NAME)..)
        .unwrap_or(&name);
    let name = name.trim_matches('-');
    let name = if name.is_empty() { "root" } else { name };
    destination
        .starts_with('/')
        .then(|| json!({ "name": name, "source": source, "destination": destination }))
}
