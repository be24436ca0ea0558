use std::collections::BTreeSet;

use serde_json::Map;

use super::*;
use crate::render;
use crate::render::tests::{LINUX, job_input, plan_input, settings};
use refit_fixtures::sample;

fn spec(yaml: &str) -> PlanSpec {
    serde_saphyr::from_str(yaml).unwrap()
}

/// The Job of a spec, apart from its digest.
fn job(spec: &Map<String, Value>) -> Value {
    let spec: PlanSpec = serde_json::from_value(spec.clone().into()).unwrap();
    let job = render(&job_input(plan_input(&spec), LINUX), &settings()).unwrap();
    serde_json::to_value(job).unwrap()
}

#[test]
fn a_field_is_in_the_digest_if_and_only_if_it_changes_the_job() {
    let base = Map::from_iter([("upgrade".to_owned(), json!({"image": "i"}))]);
    for (field, value) in sample::spec() {
        let mut base = base.clone();
        if field == "prepull" {
            // It concerns only nodes that are disturbed.
            base.insert("cordon".to_owned(), true.into());
        }
        let mut edited = base.clone();
        edited.insert(field.clone(), value);
        assert_eq!(
            FIELDS_IN_JOB.contains(&field),
            job(&edited) != job(&base),
            "mark spec.{field} as x-in-job, or do not"
        );
        let spec = |spec: Map<String, Value>| serde_json::from_value::<PlanSpec>(spec.into()).unwrap();
        assert_eq!(
            inputs(&spec(edited), "v1") != inputs(&spec(base.clone()), "v1"),
            FIELDS_IN_JOB.contains(&field),
            "spec.{field}"
        );
    }
}

#[test]
fn each_field_of_a_drain_that_changes_the_job_is_in_the_digest_and_no_other_one_of_refit() {
    let with = |drain: Map<String, Value>| {
        let upgrade = ("upgrade".to_owned(), json!({"image": "i"}));
        Map::from_iter([upgrade, ("drain".to_owned(), drain.into())])
    };
    let digest = |spec: Map<String, Value>| inputs(&serde_json::from_value(spec.into()).unwrap(), "v1");
    let drain = sample::spec()["drain"].as_object().unwrap().clone();
    assert!(drain.len() > 10, "{drain:?}");
    for (field, value) in drain {
        let edited = with(Map::from_iter([(field.clone(), value)]));
        let is_own = OWN_FIELDS.contains(&["spec.drain", field.as_str()]);
        let is_in_job = job(&edited) != job(&with(Map::new()));
        let is_in_digest = digest(edited) != digest(with(Map::new()));
        assert!(
            is_in_job == is_in_digest || is_in_digest && !is_own,
            "mark spec.drain.{field} with x-in-job = false, or do not"
        );
    }
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
        "{upgrade: {image: x}, drain: {waitForDetach: true}}",
        "{upgrade: {image: x}, drain: {excludeFromLoadBalancers: true}}",
        "{upgrade: {image: x}, drain: {preventScaleDown: true}}",
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
        "{upgrade: {image: x}, apiAccess: All}",
        "{upgrade: {image: x}, apiAccess: None}",
        "{upgrade: {image: x}, apiAccess: PrepareOnly}",
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
    for (base, other) in [
        (
            "{upgrade: {image: x}, drain: {}}",
            "{upgrade: {image: x}, drain: {force: false, waitForDetach: false, avoidPendingNodes: true}, cordon: false, exclusive: false, serviceAccountName: '',
              concurrency: 5, maxConcurrent: 25%, suspend: true, nodeSelector: {}, channel: 'https://example.com',
              version: v2, window: {days: [mo]}, postCompleteDelay: 30s, postCompleteLabels: {a: b}, secrets: [],
              hostAccess: Full, settle: {minReady: 1m}, reboot: {when: Never, command: [reboot], timeout: 1h}}",
        ),
        (
            "{upgrade: {image: x}, reboot: {when: Always}}",
            "{upgrade: {image: x}, reboot: {when: Always, timeout: 1h, requiredFiles: [/unused]}}",
        ),
        // The default, written out.
        (
            "{upgrade: {image: x}, reboot: {when: IfRequired}}",
            "{upgrade: {image: x}, reboot: {when: IfRequired,
              requiredFiles: [/run/reboot-required, /var/run/reboot-required]}}",
        ),
    ] {
        assert_eq!(inputs(&spec(base), "v1"), inputs(&spec(other), "v1"), "{other}");
    }
}

#[test]
fn the_digest_is_the_same_in_every_build() {
    let spec = spec(
        "{upgrade: {image: x, envs: [{name: B, value: '1'}, {name: A}], args: [a b]}, drain: {timeout: 60, gracePeriod: 5},
          secrets: [{name: s, path: p}], jobActiveDeadlineSecs: 900}",
    );
    assert_eq!(inputs(&spec, "v1.2.3-k3s1"), "2898917ca36d8f21c1a999dbf1f62992");
}
