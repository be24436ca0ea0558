//! `spec.checks`: servers are asked before a node starts, and during soaks.

use super::scenario::Scenario;
use crate::api::{CheckPhase, CheckSpec, HttpCheck, Plan, WaveSpec};
use crate::rehearse::Kind;
use crate::rehearse::json::json;
use crate::rollout::tests::build::plan_with;

const NODES: [&str; 3] = ["a", "b", "c"];

fn check(name: &str) -> CheckSpec {
    CheckSpec {
        name: name.to_owned(),
        http: Some(HttpCheck {
            url: format!("https://{name}.example.com"),
            contains: None,
        }),
        interval: Some("30s".to_owned()),
        ..CheckSpec::default()
    }
}

fn checked(checks: Vec<CheckSpec>) -> Plan {
    plan_with("p", |spec| {
        spec.concurrency = Some(1);
        spec.checks = Some(checks);
    })
}

fn fail(story: &Scenario, check: &str, why: &str) {
    let mut channels = story.channels.lock().unwrap();
    channels.failing_checks.insert(check.to_owned(), why.to_owned());
}

fn repair(story: &Scenario) {
    story.channels.lock().unwrap().failing_checks.clear();
}

/// How often a check was asked.
fn asked(story: &Scenario, check: &str) -> usize {
    let channels = story.channels.lock().unwrap();
    channels.asked.iter().filter(|(name, _)| name == check).count()
}

fn begin(failing: Option<(&str, &str)>, plan: Plan) -> Scenario {
    let mut story = Scenario::empty();
    if let Some((check, why)) = failing {
        fail(&story, check, why);
    }
    story.add_nodes(&NODES);
    story.apply(plan);
    story.settle();
    story
}

#[test]
fn no_node_starts_while_a_check_fails() {
    let why = "7 is more than max, 5";
    let mut story = begin(
        Some(("errors", why)),
        checked(vec![check("errors"), check("shop")]),
    );
    assert!(story.slots("p").is_empty());
    let since = story.status("p").checks.clone().unwrap()[0]
        .since
        .clone()
        .unwrap();
    let text = format!("spec.checks: no node starts, because check errors fails, since {since}: {why}");
    assert_eq!(
        story.complete("p"),
        ("False".to_owned(), "CheckFailing".to_owned(), text.clone())
    );
    assert_eq!(story.events_of("CheckFailing"), std::slice::from_ref(&text));
    assert_eq!(story.phase("p", "a").1, "CheckFailing");
    // Another number is in status, and is no other event.
    fail(&story, "errors", "9.5 is more than max, 5");
    story.pass_secs(61);
    assert!(story.slots("p").is_empty());
    let status = story.status("p").checks.clone().unwrap();
    assert_eq!(status[0].phase, CheckPhase::Failing);
    assert_eq!(status[0].message.as_deref(), Some("9.5 is more than max, 5"));
    assert_eq!(status[0].since.as_deref(), Some(since.as_str()));
    assert_eq!(status[1].phase, CheckPhase::Passing);
    assert_eq!(story.events_of("CheckFailing"), [text]);
    repair(&story);
    story.pass_secs(31);
    assert_eq!(story.slots("p").len(), 1);
    story.roll_out();
    story.assert_over();
}

#[test]
fn a_check_is_asked_before_each_node_and_at_no_other_time() {
    let mut story = begin(None, checked(vec![check("errors")]));
    assert_eq!((story.slots("p").len(), asked(&story, "errors")), (1, 1));
    story.pass_secs(300);
    assert_eq!(asked(&story, "errors"), 1, "no slot is free");
    let first = story.slots("p")[0].clone();
    story.succeed(&first);
    story.pass_secs(2);
    assert_eq!((story.slots("p").len(), asked(&story, "errors")), (1, 2));
    // The node that is upgraded may be what the next answer is about.
    fail(&story, "errors", "503 Service Unavailable");
    let second = story.slots("p")[0].clone();
    story.succeed(&second);
    story.pass_secs(2);
    assert!(story.slots("p").is_empty());
    assert_eq!(story.complete("p").1, "CheckFailing");
    repair(&story);
    story.pass_secs(31);
    story.roll_out();
    let before = asked(&story, "errors");
    story.pass_secs(3_600);
    assert_eq!(asked(&story, "errors"), before, "no node is left");
    story.assert_over();
}

#[test]
fn so_many_answers_in_a_row_are_needed_as_the_check_says() {
    let mut patient = check("errors");
    patient.passes = Some(3);
    let mut story = begin(None, checked(vec![patient]));
    assert_eq!(story.complete("p").1, "CheckPending");
    assert_eq!(
        story.complete("p").2,
        "spec.checks: check errors has passed 1 times, and 3 times in a row are needed"
    );
    story.pass_secs(31);
    fail(&story, "errors", "no answer within 10s");
    story.pass_secs(30);
    assert_eq!(story.complete("p").1, "CheckFailing");
    repair(&story);
    story.pass_secs(80);
    assert!(story.slots("p").is_empty(), "two in a row");
    story.pass_secs(15);
    assert_eq!(story.slots("p").len(), 1);
    for _ in 0..4 {
        story.roll_out();
        story.pass_secs(65);
    }
    story.assert_over();
}

#[test]
fn a_controller_that_has_just_started_asks_again() {
    let mut story = begin(Some(("errors", "it is down")), checked(vec![check("errors")]));
    let since = story.status("p").checks.clone().unwrap()[0].since.clone();
    story.stop();
    story.pass_secs(600);
    story.start();
    story.settle();
    assert!(story.slots("p").is_empty());
    let status = story.status("p").checks.clone().unwrap();
    assert_eq!(
        (&status[0].phase, &status[0].since),
        (&CheckPhase::Failing.into(), &since)
    );
    story.stop();
    repair(&story);
    let before = asked(&story, "errors");
    story.start();
    story.settle();
    story.pass_secs(2);
    assert_eq!(story.slots("p").len(), 1);
    assert_eq!(asked(&story, "errors"), before + 1);
    // A node in progress finishes whatever the check says.
    fail(&story, "errors", "it is down");
    let first = story.slots("p")[0].clone();
    story.restart();
    story.succeed(&first);
    story.pass_secs(2);
    assert!(story.slots("p").is_empty());
    assert_eq!(story.status("p").progress.as_deref(), Some("1/3"));
}

#[test]
fn an_edited_check_is_asked_at_once() {
    let mut story = begin(Some(("errors", "it is down")), checked(vec![check("errors")]));
    assert!(story.slots("p").is_empty());
    story.patch(
        Kind::Plan,
        "p",
        &json!({ "spec": { "checks": [{ "name": "other", "http": { "url": "https://other.example.com" } }] } }),
    );
    story.settle();
    story.pass_secs(2);
    assert_eq!(story.slots("p").len(), 1);
    story.roll_out();
    story.assert_over();
}

#[test]
fn a_suspended_plan_asks_nothing() {
    let mut story = Scenario::empty();
    story.add_nodes(&NODES);
    let mut plan = checked(vec![check("errors")]);
    plan.spec.suspend = Some(true);
    story.apply(plan);
    story.settle();
    story.pass_secs(300);
    assert_eq!(asked(&story, "errors"), 0);
    story.patch(Kind::Plan, "p", &json!({ "spec": { "suspend": false } }));
    story.settle();
    story.roll_out();
    story.assert_over();
}

#[test]
fn a_check_that_fails_begins_a_soak_again() {
    let canary = WaveSpec {
        name: Some("canary".to_owned()),
        nodes: Some(k8s_openapi::apimachinery::pkg::util::intstr::IntOrString::Int(1)),
        soak: Some("10m".to_owned()),
        ..WaveSpec::default()
    };
    let mut plan = checked(vec![check("errors")]);
    plan.spec.concurrency = Some(10);
    plan.spec.waves = Some(vec![canary]);
    let mut story = begin(None, plan);
    let first = story.slots("p");
    assert_eq!(first.len(), 1);
    story.succeed(&first[0]);
    story.settle();
    let before = asked(&story, "errors");
    assert_eq!(story.complete("p").1, "WaveSoaking");
    story.pass_secs(8 * 60);
    assert!(asked(&story, "errors") >= before + 15, "asked all the time");
    fail(&story, "errors", "it is down");
    story.pass_secs(31);
    assert_eq!(story.complete("p").1, "CheckFailing");
    // Another controller does not know it from the answers.
    story.stop();
    repair(&story);
    story.pass_secs(300);
    story.start();
    story.settle();
    story.pass_secs(9 * 60);
    assert!(story.slots("p").is_empty());
    story.pass_secs(90);
    assert_eq!(story.slots("p").len(), 2);
    story.roll_out();
    story.assert_over();
}
