//! `spec.preflight` looks at a node before anything happens there, and may skip it.

use super::scenario::Scenario;
use refit_api::{ConditionType, ContainerSpec, NodePhase, Plan, names};
use refit_fixtures::plan_with;
use refit_rehearse::Kind;
use refit_rehearse::json::json;

fn with_preflight() -> Plan {
    plan_with("p", |spec| {
        spec.concurrency = Some(1);
        spec.cordon = Some(true);
        spec.preflight = Some(Box::new(ContainerSpec {
            image: "look".to_owned(),
            ..ContainerSpec::default()
        }));
    })
}

/// `b` has exit code and last words of `preflight`.
fn begin(code: &str, why: &str) -> Scenario {
    let mut scenario = Scenario::of_nodes(&["a", "b", "c"]);
    scenario.annotate(Kind::Node, "b", "fake-kubelet/preflight.exit-code", Some(code));
    scenario.annotate(Kind::Node, "b", "fake-kubelet/preflight.message", Some(why));
    scenario.apply(with_preflight());
    scenario
}

#[test]
fn a_node_that_preflight_skips_is_left_out_at_this_version_with_its_words_as_the_reason() {
    let mut scenario = begin("77", "the disk has only 1 GiB, which is too little");
    scenario.roll_out();
    let skip = "p@v1 preflight: the disk has only 1 GiB; which is too little";
    assert_eq!(scenario.node("b").skip.as_deref(), Some(skip));
    let entry = scenario.entry("p", "b");
    assert_eq!(entry.phase, NodePhase::Waiting);
    assert_eq!(entry.reason.as_deref(), Some("Skipped"));
    assert_eq!(
        entry.message.as_deref(),
        Some(
            "preflight skips the node at v1, as its annotation refit.rs/skip says: the disk has only 1 GiB; which is too little"
        )
    );
    assert_eq!(
        scenario.events_of("PreflightSkipped"),
        ["preflight skips Node b at v1: the disk has only 1 GiB, which is too little"]
    );
    assert_eq!(scenario.status("p").progress.as_deref(), Some("2/2"));
    assert_eq!(scenario.complete("p")[0], "True");
    assert!(scenario.events_of("JobFailed").is_empty());
    assert!(!scenario.is_cordoned("b"));
    // A person may want it nevertheless, and another version is another question.
    scenario.annotate(Kind::Node, "b", "fake-kubelet/preflight.exit-code", None);
    scenario.annotate(Kind::Node, "b", names::ANNOTATION_SKIP, None);
    scenario.roll_out();
    assert_eq!(scenario.status("p").progress.as_deref(), Some("3/3"));
    scenario.patch(Kind::Plan, "p", &json!({ "spec": { "version": "v2" } }));
    scenario.roll_out();
    assert_eq!(scenario.status("p").progress.as_deref(), Some("3/3"));
    scenario.assert_over();
}

#[test]
fn a_node_whose_preflight_fails_has_failed_and_is_not_cordoned() {
    let mut scenario = begin("1", "no such command");
    scenario.roll_out();
    let failed = scenario.entry("p", "b");
    assert_eq!(failed.phase, NodePhase::Failed);
    assert_eq!(failed.reason.as_deref(), Some("BackoffLimitExceeded"));
    let message = failed.message.unwrap();
    assert!(message.contains(": no such command; Job has "), "{message}");
    assert!(!scenario.is_cordoned("b"));
}

#[test]
fn a_restart_after_the_skip_neither_forgets_it_nor_reports_a_failure() {
    let mut scenario = begin("77", "");
    for _ in 0..6 {
        scenario.roll_out();
        scenario.restart();
    }
    assert_eq!(scenario.events_of("PreflightSkipped").len(), 1);
    assert!(scenario.events_of("JobFailed").is_empty());
    assert_eq!(scenario.status("p").progress.as_deref(), Some("2/2"));
}

#[test]
fn a_plan_that_relies_on_a_field_that_the_api_server_drops_is_degraded_and_goes_on() {
    let mut scenario = begin("0", "");
    scenario.settle();
    let degraded = |scenario: &Scenario| {
        let conditions = scenario.status("p").conditions.iter();
        let mut degraded = conditions.filter(|it| it.type_ == ConditionType::Degraded);
        degraded.next().map(|it| {
            (
                it.status.clone(),
                it.reason.clone().unwrap_or_default().to_string(),
            )
        })
    };
    assert_eq!(degraded(&scenario), None);
    let node = scenario.slots("p")[0].clone();
    let job = scenario.live_job(&node).name.to_string();
    scenario.patch(
        Kind::Job,
        &job,
        &json!({ "spec": { "podReplacementPolicy": null } }),
    );
    scenario.settle();
    let expected = Some(("True".to_owned(), "FeatureUnavailable".to_owned()));
    assert_eq!(degraded(&scenario), expected);
    scenario.restart();
    scenario.settle();
    assert_eq!(degraded(&scenario), expected);
    // The Job of the next node has the field.
    scenario.succeed(&node);
    scenario.settle();
    assert_eq!(degraded(&scenario), None);
    scenario.finish();
}
