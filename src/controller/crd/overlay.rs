//! Merges two CRDs: refit's values win, and everything else stays. Pure, on JSON.

use serde_json::{Map, Value};

/// `ours` merged over `live`. Equals `live` if no write is needed, because fields that the API server has added are in
/// both.
pub(super) fn crd(live: &Value, ours: &Value) -> Value {
    let mut merged = live.clone();
    for key in ["annotations", "labels"] {
        if let Some(ours) = ours["metadata"].get(key) {
            over(&mut merged["metadata"][key], ours);
        }
    }
    let versions = versions(&live["spec"]["versions"], &ours["spec"]["versions"]);
    over(&mut merged["spec"], &without(&ours["spec"], "versions"));
    merged["spec"]["versions"] = versions;
    merged
}

/// Keeps other versions, and which version is stored.
fn versions(live: &Value, ours: &Value) -> Value {
    let mut merged = live.as_array().cloned().unwrap_or_default();
    for ours in ours.as_array().into_iter().flatten() {
        let several = merged.len() > 1;
        let Some(version) = merged.iter_mut().find(|version| version["name"] == ours["name"]) else {
            let mut ours = ours.clone();
            if !merged.is_empty() {
                // The API server admits exactly one stored version, and objects are stored in the one that exists.
                ours["storage"] = Value::Bool(false);
            }
            merged.push(ours);
            continue;
        };
        let schema = schema(
            &version["schema"]["openAPIV3Schema"],
            &ours["schema"]["openAPIV3Schema"],
        );
        let stored = version["storage"].clone();
        over(version, &without(ours, "schema"));
        version["schema"]["openAPIV3Schema"] = schema;
        if several {
            version["storage"] = stored;
        }
    }
    Value::Array(merged)
}

/// refit's schema, plus existing properties that refit does not know, because a removed property would be pruned from
/// objects. Constraints and everything else are refit's.
fn schema(live: &Value, ours: &Value) -> Value {
    let mut merged = ours.clone();
    for key in ["items", "additionalProperties"] {
        if live[key].is_object() && ours[key].is_object() {
            merged[key] = schema(&live[key], &ours[key]);
        }
    }
    let properties = merged.get_mut("properties").and_then(Value::as_object_mut);
    if let (Some(live), Some(properties)) = (live["properties"].as_object(), properties) {
        for (name, live) in live {
            let merged = properties
                .get(name)
                .map_or_else(|| live.clone(), |ours| schema(live, ours));
            properties.insert(name.clone(), merged);
        }
    }
    merged
}

/// Merges maps, and replaces all other values.
fn over(live: &mut Value, ours: &Value) {
    match (live, ours) {
        (Value::Object(live), Value::Object(ours)) => {
            for (key, ours) in ours {
                over(live.entry(key.clone()).or_insert(Value::Null), ours);
            }
        }
        (live, ours) => *live = ours.clone(),
    }
}

fn without(value: &Value, key: &str) -> Value {
    let mut map = value.as_object().cloned().unwrap_or_default();
    map.remove(key);
    Value::Object(map)
}

/// Integers as integers: refit's types write `0.0` where the API server writes `0`.
pub(super) fn canonical(value: Value) -> Value {
    match value {
        Value::Number(number) if number.is_f64() => {
            // Every integer up to 2^53 is exact as a float.
            let whole = number
                .as_f64()
                .filter(|n| n.fract() == 0.0 && n.abs() < 9_007_199_254_740_992.0);
            #[expect(
                clippy::cast_possible_truncation,
                reason = "whole and in range, as just checked"
            )]
            whole.map_or(Value::Number(number), |n| Value::from(n as i64))
        }
        Value::Array(values) => values.into_iter().map(canonical).collect(),
        Value::Object(map) => Value::Object(
            map.into_iter()
                .map(|(key, value)| (key, canonical(value)))
                .collect::<Map<_, _>>(),
        ),
        other => other,
    }
}
