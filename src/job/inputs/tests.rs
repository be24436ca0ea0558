use std::collections::BTreeSet;

use schemars::JsonSchema;

use super::*;

/// Fields that say when and where Jobs are made, not what is in them.
const OTHER_FIELDS: &[&str] = &[
    "channel",
    "channelCASecretRef",
    "channelSecretRef",
    "concurrency",
    "maxConcurrent",
    "nodeSelector",
    "postCompleteDelay",
    "postCompleteLabels",
    "settle",
    "suspend",
    "version",
    "versionPolicy",
    "window",
];

fn spec(yaml: &str) -> PlanSpec {
    serde_saphyr::from_str(yaml).unwrap()
}

#[test]
fn every_field_of_the_spec_is_known_to_be_in_the_job_or_not() {
    let schema = PlanSpec::json_schema(&mut schemars::SchemaGenerator::default());
    let fields: BTreeSet<&str> = schema
        .get("properties")
        .unwrap()
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    let known: BTreeSet<&str> = FIELDS.iter().chain(OTHER_FIELDS).copied().collect();
    assert_eq!(
        fields, known,
        "say in FIELDS or in OTHER_FIELDS whether a new field is in the Job"
    );
    assert_eq!(known.len(), FIELDS.len() + OTHER_FIELDS.len());
}

#[test]
fn an_edit_of_what_is_in_the_job_changes_the_digest() {
    let base = "upgrade: {image: x}";
    let mut seen = BTreeSet::from([inputs(&spec(base), "v1")]);
    let edits = [
        "{upgrade: {image: y}}",
        "{upgrade: {image: x, args: [exit 0]}}",
        "{upgrade: {image: x, args: [exit, '0']}}",
        "{upgrade: {image: x, command: [exit 0]}}",
        "{upgrade: {image: x, envs: [{name: A, value: b}]}}",
        "{upgrade: {image: x, securityContext: {}}}",
        "{upgrade: {image: x, volumes: [{name: a, source: /a, destination: /b}]}}",
        "{upgrade: {image: x}, prepare: {image: x}}",
        "{upgrade: {image: x}, cordon: true}",
        "{upgrade: {image: x}, drain: {}}",
        "{upgrade: {image: x}, drain: {force: true}}",
        "{upgrade: {image: x}, exclusive: true}",
        "{upgrade: {image: x}, secrets: [{name: a, path: b}]}",
        "{upgrade: {image: x}, secrets: [{name: a, path: b, ignoreUpdates: true}]}",
        "{upgrade: {image: x}, tolerations: [{operator: Exists}]}",
        "{upgrade: {image: x}, serviceAccountName: a}",
        "{upgrade: {image: x}, priorityClassName: a}",
        "{upgrade: {image: x}, imagePullSecrets: [{name: a}]}",
        "{upgrade: {image: x}, jobActiveDeadlineSecs: 0}",
        "{upgrade: {image: x}, jobActiveDeadlineSecs: 15}",
        "{upgrade: {image: x}, hostAccess: Root}",
        "{upgrade: {image: x}, hostAccess: None}",
        "{upgrade: {image: x}, reboot: {when: Always}}",
        "{upgrade: {image: x}, reboot: {when: Always, command: [reboot]}}",
        "{upgrade: {image: x}, reboot: {when: Always, command: [reboot, -f]}}",
        "{upgrade: {image: x}, reboot: {when: IfRequired}}",
        "{upgrade: {image: x}, reboot: {when: IfRequired, requiredFiles: [/a]}}",
    ];
    for edit in edits {
        assert!(seen.insert(inputs(&spec(edit), "v1")), "{edit}");
    }
    assert!(seen.insert(inputs(&spec(base), "v2")));
    assert!(seen.iter().all(|digest| digest.len() == 32));
}

#[test]
fn an_edit_of_anything_else_changes_nothing() {
    let base = spec("{upgrade: {image: x}, drain: {}}");
    let other = spec(
        "{upgrade: {image: x}, drain: {force: false}, cordon: false, exclusive: false, serviceAccountName: '',
          concurrency: 5, maxConcurrent: 25%, suspend: true, nodeSelector: {}, channel: 'https://example.com',
          version: v2, window: {days: [mo]}, postCompleteDelay: 30s, postCompleteLabels: {a: b}, secrets: [],
          hostAccess: Full, settle: {minReady: 1m}, reboot: {when: Never, command: [reboot], timeout: 1h}}",
    );
    assert_eq!(inputs(&base, "v1"), inputs(&other, "v1"));
    let base = spec("{upgrade: {image: x}, reboot: {when: Always}}");
    let other = spec("{upgrade: {image: x}, reboot: {when: Always, timeout: 1h, requiredFiles: [/unused]}}");
    assert_eq!(inputs(&base, "v1"), inputs(&other, "v1"));
    let base = spec("{upgrade: {image: x}, reboot: {when: IfRequired}}");
    let other = spec(
        "{upgrade: {image: x}, reboot: {when: IfRequired,
          requiredFiles: [/run/reboot-required, /var/run/reboot-required]}}",
    );
    assert_eq!(
        inputs(&base, "v1"),
        inputs(&other, "v1"),
        "what is written out is what is absent"
    );
}

#[test]
fn the_digest_is_the_same_in_every_build() {
    let spec = spec(
        "{upgrade: {image: x, envs: [{name: B, value: '1'}, {name: A}], args: [a b]}, drain: {timeout: 60, gracePeriod: 5},
          secrets: [{name: s, path: p}], jobActiveDeadlineSecs: 900}",
    );
    assert_eq!(inputs(&spec, "v1.2.3-k3s1"), "2898917ca36d8f21c1a999dbf1f62992");
}
