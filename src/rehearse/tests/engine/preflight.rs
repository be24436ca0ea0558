//! `spec.preflight` looks at a node before anything happens there, and may skip it.

use super::scenario::Scenario;
use crate::api::{ConditionType, ContainerSpec, NodePhase, Plan, names};
use crate::rehearse::Kind;
use crate::rehearse::json::json;
use crate::rollout::tests::build::plan_with;

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
    let mut story = Scenario::empty();
    story.add_nodes(&["a", "b", "c"]);
    story.annotate(Kind::Node, "b", "fake-kubelet/preflight.exit-code", Some(code));
    story.annotate(Kind::Node, "b", "fake-kubelet/preflight.message", Some(why));
    story.apply(with_preflight());
    story
}

#[test]
fn a_node_that_preflight_skips_is_left_out_at_this_version_with_its_words_as_the_reason() {
    let mut story = begin("77", "the disk has only 1 GiB, which is too little");
    story.roll_out();
    let skip = "p@v1 preflight: the disk has only 1 GiB; which is too little";
    assert_eq!(story.node("b").skip.as_deref(), Some(skip));
    let entry = story.entry("p", "b");
    assert_eq!(entry.phase, NodePhase::Waiting);
    assert_eq!(entry.reason.as_deref(), Some("Skipped"));
    assert_eq!(
        entry.message.as_deref(),
        Some(
            "preflight skips the node at v1, as its annotation refit.rs/skip says: the disk has only 1 GiB; which is too little"
        )
    );
    assert_eq!(
        story.events_of("PreflightSkipped"),
        ["preflight skips Node b at v1: the disk has only 1 GiB, which is too little"]
    );
    assert_eq!(story.status("p").progress.as_deref(), Some("2/2"));
    assert_eq!(story.complete("p").0, "True");
    assert!(story.events_of("JobFailed").is_empty());
    assert!(!story.is_cordoned("b"));
    // A person may want it nevertheless, and another version is another question.
    story.annotate(Kind::Node, "b", "fake-kubelet/preflight.exit-code", None);
    story.annotate(Kind::Node, "b", names::ANNOTATION_SKIP, None);
    story.roll_out();
    assert_eq!(story.status("p").progress.as_deref(), Some("3/3"));
    story.patch(Kind::Plan, "p", &json!({ "spec": { "version": "v2" } }));
    story.roll_out();
    assert_eq!(story.status("p").progress.as_deref(), Some("3/3"));
    story.assert_over();
}

#[test]
fn a_node_whose_preflight_fails_has_failed_and_is_not_cordoned() {
    let mut story = begin("1", "no such command");
    story.roll_out();
    let failed = story.entry("p", "b");
    assert_eq!(failed.phase, NodePhase::Failed);
    assert_eq!(failed.reason.as_deref(), Some("BackoffLimitExceeded"));
    assert!(failed.message.unwrap().ends_with("no such command"));
    assert!(!story.is_cordoned("b"));
}

#[test]
fn a_restart_after_the_skip_neither_forgets_it_nor_reports_a_failure() {
    let mut story = begin("77", "");
    for _ in 0..6 {
        story.roll_out();
        story.restart();
    }
    assert_eq!(story.events_of("PreflightSkipped").len(), 1);
    assert!(story.events_of("JobFailed").is_empty());
    assert_eq!(story.status("p").progress.as_deref(), Some("2/2"));
}

#[test]
fn a_plan_that_relies_on_a_field_that_the_api_server_drops_is_degraded_and_goes_on() {
    let mut story = begin("0", "");
    story.settle();
    let degraded = |story: &Scenario| {
        let conditions = story.status("p").conditions.iter();
        let mut degraded = conditions.filter(|it| it.type_ == ConditionType::Degraded);
        degraded.next().map(|it| {
            (
                it.status.clone(),
                it.reason.clone().unwrap_or_default().to_string(),
            )
        })
    };
    assert_eq!(degraded(&story), None);
    let node = story.slots("p")[0].clone();
    let job = story.live_job(&node).name.to_string();
    story.patch(
        Kind::Job,
        &job,
        &json!({ "spec": { "podReplacementPolicy": null } }),
    );
    story.settle();
    let expected = Some(("True".to_owned(), "FeatureUnavailable".to_owned()));
    assert_eq!(degraded(&story), expected);
    story.restart();
    story.settle();
    assert_eq!(degraded(&story), expected);
    // The Job of the next node has the field.
    story.succeed(&node);
    story.settle();
    assert_eq!(degraded(&story), None);
    story.roll_out();
    story.assert_over();
}
