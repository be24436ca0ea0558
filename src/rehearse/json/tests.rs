use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use serde::Deserialize as _;

use super::{Map, Value, json, within_memory};

fn pod() -> serde_json::Value {
    serde_json::json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "p", "labels": { "b": "2", "a": "1", "a/b~c": "3" }, "generation": 3 },
        "spec": { "containers": [{ "name": "c", "ports": [{ "containerPort": 80 }] }], "hostNetwork": true },
        "status": { "conditions": [{ "type": "Ready", "status": "True", "lastProbeTime": null }] },
    })
}

fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => Arc::ptr_eq(&one.0, &other.0),
        (Value::Array(one), Value::Array(other)) => Arc::ptr_eq(one, other),
        _ => false,
    }
}

#[test]
fn the_text_of_a_value_is_that_of_serde_json_however_it_was_made() {
    let plain = pod();
    let text = plain.to_string();
    let read: Value = serde_json::from_str(&text).unwrap();
    for value in [Value::from(&plain), Value::from(plain.clone()), read] {
        assert_eq!(value.to_string(), text);
        assert_eq!(value.to_bytes(), text);
        assert_eq!(value, plain);
    }
}

#[test]
fn a_change_copies_the_maps_above_it_and_nothing_else() {
    let old = Value::from(pod());
    let mut new = old.clone();
    assert!(is_same(&old, &new));
    new["metadata"]["labels"]["a"] = "9".into();
    assert_eq!(old["metadata"]["labels"]["a"], "1");
    assert_eq!(new["metadata"]["labels"]["a"], "9");
    assert_ne!(old, new);
    for part in ["spec", "status"] {
        assert!(is_same(&old[part], &new[part]), "{part}");
    }
    assert!(!is_same(&old["metadata"], &new["metadata"]));
    new["metadata"]["labels"]["a"] = "1".into();
    assert_eq!(old, new, "it is compared by what is in it");
}

#[test]
fn a_field_that_is_not_there_is_null_and_is_made_by_writing_it() {
    let mut value = Value::from(pod());
    assert!(value["no"]["such"]["field"].is_null());
    assert!(value["spec"]["containers"][7].is_null());
    assert!(value.get_mut("no").is_none());
    value["metadata"]["annotations"]["key"] = 7.into();
    assert_eq!(value.pointer("/metadata/annotations/key"), Some(&7.into()));
    assert_eq!(
        value.pointer("/metadata/labels/a~1b~0c").and_then(Value::as_str),
        Some("3")
    );
    assert_eq!(
        value.pointer("/spec/containers/0/name").and_then(Value::as_str),
        Some("c")
    );
    assert_eq!(value.pointer("/spec/containers/x"), None);
    assert_eq!(value.pointer("spec"), None);
    assert_eq!(value.pointer(""), Some(&value));
}

#[test]
fn fields_are_in_the_order_of_their_names_and_the_later_of_two_counts() {
    let value: Value = serde_json::from_str(r#"{"b":1,"a":2,"b":3,"B":4}"#).unwrap();
    assert_eq!(value.to_string(), r#"{"B":4,"a":2,"b":3}"#);
    let mut map = Map::new();
    for key in ["m", "z", "a", "m"] {
        map.insert(key, key.into());
    }
    assert_eq!(map.remove("z"), Some("z".into()));
    assert_eq!(map.remove("z"), None);
    assert_eq!(Value::from(map).to_string(), r#"{"a":"a","m":"m"}"#);
}

#[test]
fn types_deserialize_from_a_value_as_from_text() {
    let shared = Value::from(pod());
    let read = Pod::deserialize(&shared).unwrap();
    assert_eq!(read, serde_json::from_value::<Pod>(pod()).unwrap());
    let labels = BTreeMap::<String, String>::deserialize(&shared["metadata"]["labels"]).unwrap();
    assert_eq!(labels.len(), 3);
    let wrong = Pod::deserialize(&json!({ "spec": { "containers": "none" } }));
    assert!(
        wrong
            .unwrap_err()
            .to_string()
            .contains("invalid type: string \"none\"")
    );
}

#[test]
fn values_compare_with_plain_numbers_strings_and_bools() {
    let value = json!({ "number": 3, "less": -3, "text": "three", "truth": true, "list": ["a"] });
    assert_eq!(value["number"], 3);
    assert_eq!(value["less"], -3_i64);
    assert_eq!(
        (value["number"].as_u64(), value["less"].as_u64()),
        (Some(3), None)
    );
    assert_eq!(value["text"], "three");
    assert_eq!(value["text"], "three".to_owned());
    assert_eq!(value["truth"], true);
    assert_eq!(value["list"], serde_json::json!(["a"]));
    assert_ne!(value["number"], "3");
    assert_ne!(value["less"], 3);
}

#[test]
fn a_patch_of_many_fields_copies_the_map_once_and_not_for_each_field() {
    // With a copy for each field this takes hours.
    let fields = |value: fn(usize) -> Value| -> Value {
        let fields = (0..300_000).map(|number| (format!("f{number:07}"), value(number)));
        fields.collect::<Map>().into()
    };
    let mut target = json!({ "a": 1, "f0000003": "old", "z": { "b": 1 } });
    crate::write::merge(&mut target, &fields(Value::from));
    assert_eq!(target["f0000003"], 3);
    assert_eq!(
        (target["a"].as_i64(), target["z"]["b"].as_i64()),
        (Some(1), Some(1))
    );
    assert_eq!(target.as_object().unwrap().iter().len(), 300_002);
    crate::write::merge(&mut target, &fields(|_| Value::Null));
    assert_eq!(target, json!({ "a": 1, "z": { "b": 1 } }));
    crate::write::merge(
        &mut target,
        &json!({ "z": { "b": null, "c": { "d": null } }, "e": [] }),
    );
    assert_eq!(target, json!({ "a": 1, "z": { "c": {} }, "e": [] }));
}

#[test]
fn values_that_take_more_memory_than_they_may_are_not_read() {
    let list = format!("[{}]", vec!["0"; 100_000].join(","));
    let read = |bytes: usize| within_memory(bytes, || serde_json::from_str::<Value>(&list).is_ok());
    assert_eq!(read(10 << 20), (true, true));
    assert_eq!(read(1 << 20), (false, false));
    let text = format!("{:?}", "a".repeat(2 << 20));
    let read = |bytes: usize| within_memory(bytes, || serde_json::from_str::<Value>(&text).is_ok());
    assert_eq!((read(3 << 20), read(1 << 20)), ((true, true), (false, false)));
    assert!(
        serde_json::from_str::<Value>(&list).is_ok(),
        "no limit is left behind"
    );
}
