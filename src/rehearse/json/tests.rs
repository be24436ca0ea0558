use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use serde::Deserialize as _;

use super::{Map, Text, Value, json, to_value};

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
fn its_text_is_that_of_serde_json_whichever_way_it_came() {
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
fn a_change_copies_the_way_to_it_and_nothing_else() {
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
fn types_are_read_out_of_it_as_out_of_text() {
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
fn a_type_makes_what_it_makes_of_serde_json() {
    let pod: Pod = serde_json::from_value(pod()).unwrap();
    assert_eq!(to_value(&pod).unwrap(), serde_json::to_value(&pod).unwrap());
    let mixed = (1_u8, -2_i16, 2.5, 'c', Some("text"), None::<bool>, ());
    assert_eq!(to_value(&mixed).unwrap(), serde_json::to_value(mixed).unwrap());
    assert_eq!(to_value(&[3_u64]).unwrap()[0], 3);
    assert!(to_value(&BTreeMap::from([(1, "no name")])).is_err());
}

#[test]
fn a_text_is_written_as_serde_json_writes_it() {
    for text in [
        "plain",
        "",
        "quo\"te",
        "back\\slash",
        "line\nfeed",
        "\u{1}",
        "\u{7f}",
        "ü€😀",
        "tab\t",
    ] {
        let plain = serde_json::json!({ text: [text, 1.5e300, -7, u64::MAX, null, true, false, {}, []] });
        assert_eq!(Value::from(&plain).to_bytes(), plain.to_string(), "{text:?}");
    }
}

#[test]
fn numbers_texts_and_truths_are_compared_with_plain_ones() {
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
fn the_text_of_a_version_is_the_same_with_the_one_before_it_and_without() {
    let first = json!({
        "metadata": { "name": "a", "labels": { "b": "c" } },
        "spec": { "containers": [{ "name": "\"x\"" }], "nodeName": "" },
        "status": { "phase": "Pending" },
    });
    let mut second = first.clone();
    second["metadata"]["resourceVersion"] = "2".into();
    second["status"] = json!({ "phase": "Running", "podIP": "10.0.0.1" });
    let mut third = second.clone();
    third["data"] = json!({});
    third["kind"] = "Pod".into();
    third.as_object_mut().unwrap().remove("status");
    // Looks as before, and is another list.
    third["spec"]["containers"] = json!([{ "name": "\"x\"" }]);
    let fourth: Value = "no object".into();
    let mut before: Option<(Value, Text)> = None;
    for version in [first, second, third, fourth] {
        let text = version.to_text(before.as_ref().map(|(value, text)| (value, text)));
        assert_eq!(text.bytes, version.to_bytes());
        before = Some((version, text));
    }
}
