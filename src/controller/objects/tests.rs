use serde_json::{Value, json};

use super::*;

fn job(more: &Value) -> JobFacts {
    let mut job = json!({ "metadata": { "name": "j", "uid": "u" }, "spec": {}, "status": {} });
    for (part, fields) in more.as_object().unwrap() {
        job[part]
            .as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
    }
    serde_json::from_value::<SlimJob>(job)
        .unwrap()
        .facts(&Intern::default(), 900)
}

#[test]
fn failures_of_a_job_are_those_counted_and_those_about_to_be() {
    assert_eq!(job(&json!({})).failures, 0);
    assert_eq!(job(&json!({ "status": { "failed": 2 } })).failures, 2);
    let uncounted = json!({ "status": { "failed": 2, "uncountedTerminatedPods": { "failed": ["a"], "succeeded": ["b"] } } });
    assert_eq!(job(&uncounted).failures, 3);
}

#[test]
fn a_job_fails_as_often_as_it_says_or_kubernetes_says_for_it() {
    assert_eq!(job(&json!({})).backoff_limit, 6);
    assert_eq!(job(&json!({ "spec": { "backoffLimit": 0 } })).backoff_limit, 0);
}

#[test]
fn a_job_keeps_a_ledger_if_refit_made_it_for_a_node_that_is_not_windows() {
    let keeps =
        |annotations: Value| job(&json!({ "metadata": { "annotations": annotations } })).keeps_ledger();
    assert!(keeps(json!({ names::ANNOTATION_NODE_UID: "n" })));
    assert!(!keeps(json!({})));
    assert!(!keeps(
        json!({ names::ANNOTATION_NODE_UID: "n", names::ANNOTATION_UNSCHEDULABLE_BEFORE: "false" })
    ));
}
