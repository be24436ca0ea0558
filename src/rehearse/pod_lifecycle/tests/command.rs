use serde_json::json;

use super::super::ContainerStart;
use super::PodFixture;

fn start(container: &serde_json::Value) -> ContainerStart {
    let mut container = container.clone();
    container["name"] = json!("drain");
    container["image"] = json!("rancher/kubectl:v1.30.3");
    let spec = json!({"nodeName": "a.x", "serviceAccountName": "system-upgrade", "initContainers": [container], "containers": []});
    let fixture = PodFixture::new(&spec, &[]);
    ContainerStart::render(&fixture.pod, "drain", 2).unwrap()
}

#[test]
fn a_container_gets_its_image_command_and_arguments() {
    let started = start(&json!({"command": ["kubectl"], "args": ["drain", "a.x", "--force"]}));
    assert_eq!(
        (started.name.as_str(), started.attempt, started.image.as_str()),
        ("drain", 2, "rancher/kubectl:v1.30.3")
    );
    assert_eq!(
        (started.command, started.args),
        (
            vec!["kubectl".to_owned()],
            vec!["drain".into(), "a.x".into(), "--force".into()]
        )
    );
}

#[test]
fn references_are_replaced_as_the_kubelet_replaces_them() {
    let env = json!([{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)2"}, {"name": "C", "value": "$(D)"}, {"name": "D", "value": "4"}]);
    for (argument, expected) in [
        ("$(A)", "1"),
        ("x$(B)y", "x12y"),
        ("$(C)", "$(D)"), // only earlier variables are known
        ("$(NONE)", "$(NONE)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$A", "$A"),
        ("cost: 5$", "cost: 5$"),
        ("$(A", "$(A"),
        ("", ""),
    ] {
        let started = start(&json!({"env": env, "args": [argument]}));
        assert_eq!(started.args, [expected], "{argument}");
    }
}

#[test]
fn fields_of_the_pod_become_variables() {
    let field =
        |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let started = start(&json!({"env": [
        field("NODE", "spec.nodeName"),
        field("POD", "metadata.name"),
        field("NAMESPACE", "metadata.namespace"),
        field("UID", "metadata.uid"),
        field("ACCOUNT", "spec.serviceAccountName"),
        {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
    ]}));
    let env: Vec<_> = started
        .env
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let expected = [
        ("ACCOUNT", "system-upgrade"),
        ("NAMESPACE", "ns"),
        ("NODE", "a.x"),
        ("POD", "p"),
        ("UID", "UID"),
    ];
    assert_eq!(env, expected);
}

#[test]
fn a_container_that_the_pod_does_not_have_cannot_be_started() {
    let fixture = PodFixture::new(&super::job(), &[]);
    assert_eq!(ContainerStart::render(&fixture.pod, "verify", 0), None);
}
