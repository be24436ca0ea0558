//! One CRD laid over another: ours wins, and what we say nothing about stays. Pure, on JSON.

use serde_json::{Map, Value};

/// `ours` laid over `live`. Equal to `live` when nothing need be written: what the API server has added is in both.
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

/// Versions that we do not have stay, and with them the one that is stored.
fn versions(live: &Value, ours: &Value) -> Value {
    let mut merged = live.as_array().cloned().unwrap_or_default();
    for ours in ours.as_array().into_iter().flatten() {
        let several = merged.len() > 1;
        let Some(version) = merged.iter_mut().find(|version| version["name"] == ours["name"]) else {
            let mut ours = ours.clone();
            if !merged.is_empty() {
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

/// A schema of ours, with the properties beside ours that are there already: what is taken out is pruned from the
/// objects. All else, constraints above all, is as we say.
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

/// Maps are merged, anything else is replaced.
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

/// Whole numbers as such: our types write `0.0` where the API server writes `0`.
pub(super) fn canonical(value: Value) -> Value {
    match value {
        Value::Number(number) if number.is_f64() => {
            // Up to 2^53 every whole number is itself as a float.
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
