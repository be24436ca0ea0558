use k8s_openapi::api::core::v1::Taint;
use serde_json::{Value, json};

use super::super::PodBehaviour;
use super::{PodFixture, single};

/// The reason why a pod with these additions to its spec is refused, on a node with some labels and taints.
fn refusal(additions: &Value) -> Option<String> {
    let mut spec = single("Never");
    spec.as_object_mut()
        .unwrap()
        .extend(additions.as_object().unwrap().clone());
    let mut fixture = PodFixture::new(&spec, &[]);
    fixture.machine.name = "a.x".into();
    fixture.machine.labels = [("zone", "z1"), ("generation", "7")]
        .map(|(key, value)| (key.into(), value.into()))
        .into();
    let taint = |key: &str, effect: &str| Taint {
        key: key.into(),
        effect: effect.into(),
        ..Taint::default()
    };
    fixture.machine.taints = vec![taint("cordoned", "NoSchedule")];
    if additions.get("tolerations").is_some() {
        fixture.machine.taints.push(Taint {
            value: Some("v".into()),
            ..taint("gone", "NoExecute")
        });
    }
    fixture.run_until(0);
    (fixture.phase() == "Failed").then(|| fixture.status().reason.clone().unwrap())
}

fn affinity(terms: &Value) -> Value {
    json!({"affinity": {"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}})
}

#[test]
fn node_selectors_and_affinity_are_checked_again() {
    let requirement = |key: &str, operator: &str, values: &[&str]| json!({"key": key, "operator": operator, "values": values});
    let expression = |key: &str, operator: &str, values: &[&str]| {
        affinity(&json!([{"matchExpressions": [requirement(key, operator, values)]}]))
    };
    let field = |operator: &str, values: &[&str]| {
        affinity(&json!([{"matchFields": [requirement("metadata.name", operator, values)]}]))
    };
    for (spec, admitted) in [
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
        let expected = (!admitted).then(|| "NodeAffinity".to_owned());
        assert_eq!(refusal(&spec), expected, "{spec}");
    }
}

#[test]
fn only_taints_that_evict_refuse() {
    for (toleration, admitted) in [
        (json!([]), false),
        (json!([{"operator": "Exists"}]), true),
        (json!([{"key": "gone", "operator": "Exists"}]), true),
        (json!([{"key": "gone", "value": "v"}]), true),
        (json!([{"key": "gone", "operator": "Equal", "value": "w"}]), false),
        (
            json!([{"key": "gone", "operator": "Exists", "effect": "NoExecute"}]),
            true,
        ),
        (
            json!([{"key": "gone", "operator": "Exists", "effect": "NoSchedule"}]),
            false,
        ),
        (json!([{"key": "cordoned", "operator": "Exists"}]), false),
    ] {
        let expected = (!admitted).then(|| "TaintToleration".to_owned());
        let spec = json!({"tolerations": toleration});
        assert_eq!(refusal(&spec), expected, "{toleration}");
    }
}

#[test]
fn a_refusal_can_be_steered() {
    for (steered, reason, message) in [
        ("OutOfpods", "OutOfpods", "as the annotation says"),
        ("OutOfcpu: there is none left", "OutOfcpu", "there is none left"),
    ] {
        let mut fixture = PodFixture::new(&single("Never"), &[("reject", steered)]);
        fixture.run_until(60_000);
        let status = fixture.status();
        let reported = (status.phase.as_deref(), status.reason.as_deref());
        assert_eq!(reported, (Some("Failed"), Some(reason)));
        let message = format!("Pod was rejected: {message}");
        assert_eq!(status.message, Some(message));
        assert_eq!((fixture.reported.len(), fixture.started.len()), (1, 0));
        assert_eq!(status.container_statuses, None, "a refused pod has no containers");
    }
}

#[test]
fn a_pod_whose_steering_is_not_understood_is_refused() {
    let mut fixture = PodFixture::new(&single("Never"), &[]);
    let behaviour = PodBehaviour::rejecting(&fixture.pod, "InvalidSteering", "no such key");
    let _ = fixture
        .lifecycle
        .sync(&fixture.pod, &fixture.machine, &behaviour, fixture.now);
    assert_eq!(
        (fixture.phase(), fixture.status().reason.as_deref()),
        ("Failed", Some("InvalidSteering"))
    );
}
