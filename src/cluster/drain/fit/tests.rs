use serde_json::{Value, json};

use super::*;

fn pod(requests: &Value, spec: &Value) -> PlacedPod {
    let mut all = json!({ "containers": [{ "resources": { "requests": requests } }] });
    for (key, value) in spec.as_object().unwrap() {
        all[key] = value.clone();
    }
    serde_json::from_value(json!({ "spec": all })).unwrap()
}

fn place(spec: &Value) -> Place {
    let allocatable = json!({ "cpu": "2", "memory": "4Gi", "pods": "3" });
    serde_json::from_value(json!({
        "metadata": { "name": "b", "labels": { "zone": "z1" } }, "spec": spec, "status": { "allocatable": allocatable },
    }))
    .unwrap()
}

#[test]
fn quantities_have_the_suffixes_of_kubernetes() {
    for (text, number) in [
        ("2", 2 * NANOS),
        ("250m", NANOS / 4),
        ("1n", 1),
        ("1k", 1_000 * NANOS),
        ("1Ki", 1024 * NANOS),
        ("1.5Gi", 1536 * (NANOS << 20)),
        ("2E", 2 * NANOS.pow(3)),
        ("1e3", 1_000 * NANOS),
        ("1E-3", NANOS / 1_000),
        ("-1.5", -3 * NANOS / 2),
        ("33567891234", 33_567_891_234 * NANOS),
        ("1e999999999", i128::MAX),
        ("x", 0),
        ("1Zi", 0),
        ("1e-20", 0),
        ("", 0),
    ] {
        assert_eq!(quantity(text), number, "{text}");
    }
}

#[test]
fn a_pod_fits_if_what_is_left_is_enough_for_its_requests() {
    let node = place(&json!({}));
    let half = pod(&json!({ "cpu": "1", "memory": "2Gi" }), &json!({}));
    let small = pod(&json!({}), &json!({}));
    let mut free = node.free();
    free.take(&half);
    assert!(free.has(&half));
    free.take(&half);
    assert!(!free.has(&half), "the first two have taken all");
    assert!(free.has(&small));
    free.take(&small);
    assert!(!free.has(&small), "three pods are all");
    assert!(!node.suits(&pod(&json!({ "example.com/gpu": "1" }), &json!({}))));
    let init = json!({ "initContainers": [{ "resources": { "requests": { "cpu": "3" } } }] });
    assert!(!node.suits(&pod(&json!({}), &init)));
    assert_eq!(half.describe(), " cpu 1000m memory 2048Mi");
    let silent: Place = serde_json::from_value(json!({ "metadata": { "name": "c" } })).unwrap();
    assert!(silent.suits(&half));
}

#[test]
fn a_pod_fits_if_it_takes_exactly_what_is_left() {
    let of = |cpu: &str| pod(&json!({ "cpu": cpu }), &json!({}));
    let mut free = place(&json!({})).free();
    free.take(&of("1"));
    free.take(&of("900m"));
    assert!(free.has(&of("100m")));
    assert!(!free.has(&of("101m")));
}

#[test]
fn a_pod_is_bound_to_a_node_whose_name_it_selects() {
    let node: Place = serde_json::from_value(json!({
        "metadata": { "name": "b", "labels": { "kubernetes.io/hostname": "b", "gpu": "yes" } },
    }))
    .unwrap();
    let requires = |selector: &str, key: &str, value: &str| {
        let term = json!({ selector: [{ "key": key, "operator": "In", "values": [value] }] });
        let required = json!({ "nodeSelectorTerms": [term] });
        json!({ "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": required } } })
    };
    for (spec, is_bound) in [
        (json!({ "nodeSelector": { "kubernetes.io/hostname": "b" } }), true),
        (requires("matchExpressions", "kubernetes.io/hostname", "b"), true),
        (requires("matchFields", "metadata.name", "b"), true),
        (
            json!({ "nodeSelector": { "kubernetes.io/hostname": "c" } }),
            false,
        ),
        (json!({ "nodeSelector": { "gpu": "yes" } }), false),
        (json!({}), false),
    ] {
        assert_eq!(node.binds(&pod(&json!({}), &spec)), is_bound, "{spec}");
    }
}

#[test]
fn a_pod_fits_only_where_selectors_and_taints_let_it() {
    let none = json!({});
    assert!(place(&none).suits(&pod(&none, &json!({ "nodeSelector": { "zone": "z1" } }))));
    assert!(!place(&none).suits(&pod(&none, &json!({ "nodeSelector": { "zone": "z2" } }))));
    assert!(!place(&json!({ "unschedulable": true })).suits(&pod(&none, &none)));
    let tainted = place(&json!({ "taints": [{ "key": "gpu", "effect": "NoSchedule" }] }));
    assert!(!tainted.suits(&pod(&none, &none)));
    assert!(tainted.suits(&pod(
        &none,
        &json!({ "tolerations": [{ "key": "gpu", "operator": "Exists" }] })
    )));
}
