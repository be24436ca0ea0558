use k8s_openapi::api::core::v1::PodSpec;
use serde_json::{Value, json};

use super::*;

fn is_selected(spec: &Value) -> bool {
    let pod = json!({"spec": {"containers": []}});
    let mut pod: Value = pod;
    pod["spec"]
        .as_object_mut()
        .unwrap()
        .extend(spec.as_object().unwrap().clone());
    let labels = [("zone", "z1"), ("generation", "7")].map(|(key, value)| (key.into(), value.into()));
    let spec: PodSpec = serde_json::from_value(pod["spec"].clone()).unwrap();
    selects(
        spec.node_selector.as_ref(),
        spec.affinity.as_ref(),
        "a.x",
        &labels.into(),
    )
}

fn affinity(terms: &Value) -> Value {
    json!({"affinity": {"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}})
}

#[test]
fn node_selectors_and_required_affinity_select_nodes() {
    let requirement = |key: &str, operator: &str, values: &[&str]| json!({"key": key, "operator": operator, "values": values});
    let expression = |key: &str, operator: &str, values: &[&str]| {
        affinity(&json!([{"matchExpressions": [requirement(key, operator, values)]}]))
    };
    let field = |operator: &str, values: &[&str]| {
        affinity(&json!([{"matchFields": [requirement("metadata.name", operator, values)]}]))
    };
    for (spec, selected) in [
        (json!({}), true),
        (json!({"nodeSelector": {"zone": "z1"}}), true),
        (json!({"nodeSelector": {"zone": "z1", "generation": "8"}}), false),
        (field("In", &["a.x"]), true),
        (field("In", &["a.y", "a"]), false),
        (field("NotIn", &["a.x"]), false),
        (expression("zone", "In", &["z2", "z1"]), true),
        (expression("zone", "NotIn", &["z1"]), false),
        (expression("rack", "NotIn", &["r1"]), true),
        (expression("rack", "Exists", &[]), false),
        (expression("rack", "DoesNotExist", &[]), true),
        (expression("generation", "Gt", &["6"]), true),
        (expression("generation", "Gt", &["7"]), false),
        (expression("generation", "Lt", &["8"]), true),
        (expression("zone", "Gt", &["6"]), false),
        (affinity(&json!([])), false),
        (affinity(&json!([{}])), false),
        (
            affinity(&json!([{}, {"matchExpressions": [requirement("zone", "Exists", &[])]}])),
            true,
        ),
    ] {
        assert_eq!(is_selected(&spec), selected, "{spec}");
    }
}

#[test]
fn a_toleration_is_for_a_key_a_value_and_an_effect() {
    let taint: Taint =
        serde_json::from_value(json!({"key": "gone", "value": "v", "effect": "NoExecute"})).unwrap();
    for (toleration, tolerated) in [
        (json!({"operator": "Exists"}), true),
        (json!({"key": "gone", "operator": "Exists"}), true),
        (json!({"key": "gone", "value": "v"}), true),
        (json!({"key": "gone", "operator": "Equal", "value": "w"}), false),
        (
            json!({"key": "gone", "operator": "Exists", "effect": "NoExecute"}),
            true,
        ),
        (
            json!({"key": "gone", "operator": "Exists", "effect": "NoSchedule"}),
            false,
        ),
        (json!({"key": "cordoned", "operator": "Exists"}), false),
    ] {
        let parsed: Toleration = serde_json::from_value(toleration.clone()).unwrap();
        assert_eq!(tolerates(&parsed, &taint), tolerated, "{toleration}");
    }
}
