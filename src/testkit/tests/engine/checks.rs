//! `spec.checks`: servers are asked before a node starts, and during soaks.

use super::scenario::Scenario;
use refit_api::{CheckPhase, CheckSpec, HttpCheck, Plan, WaveSpec};
use refit_fixtures::plan_with;
use refit_rehearse::Kind;
use refit_rehearse::json::json;

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

fn fail(scenario: &Scenario, check: &str, why: &str) {
    let mut channels = scenario.channels.lock().unwrap();
    channels.failing_checks.insert(check.to_owned(), why.to_owned());
}

fn repair(scenario: &Scenario) {
    scenario.channels.lock().unwrap().failing_checks.clear();
}

/// How often a check was asked.
fn asked(scenario: &Scenario, check: &str) -> usize {
    let channels = scenario.channels.lock().unwrap();
    channels.asked.iter().filter(|(name, _)| name == check).count()
}

fn begin(failing: Option<(&str, &str)>, plan: Plan) -> Scenario {
    let mut scenario = Scenario::empty();
    if let Some((check, why)) = failing {
        fail(&scenario, check, why);
    }
    scenario.add_nodes(&NODES);
    scenario.apply_and_settle(plan);
    scenario
}

#[test]
fn no_node_starts_while_a_check_fails() {
    let why = "7 is more than max, 5";
    let mut scenario = begin(
        Some(("errors", why)),
        checked(vec![check("errors"), check("shop")]),
    );
    assert!(scenario.slots("p").is_empty());
    let since = scenario.status("p").checks.clone().unwrap()[0]
        .since
        .clone()
        .unwrap();
    let text = format!("spec.checks: no node starts, because check errors fails, since {since}: {why}");
    assert_eq!(scenario.complete("p"), ["False", "CheckFailing", text.as_str()]);
    assert_eq!(scenario.events_of("CheckFailing"), std::slice::from_ref(&text));
    assert_eq!(scenario.phase("p", "a")[1], "CheckFailing");
    // Another number is in status, and is no other event.
    fail(&scenario, "errors", "9.5 is more than max, 5");
    scenario.pass_secs(61);
    assert!(scenario.slots("p").is_empty());
    let status = scenario.status("p").checks.clone().unwrap();
    assert_eq!(status[0].phase, CheckPhase::Failing);
    assert_eq!(status[0].message.as_deref(), Some("9.5 is more than max, 5"));
    assert_eq!(status[0].since.as_deref(), Some(since.as_str()));
    assert_eq!(status[1].phase, CheckPhase::Passing);
    assert_eq!(scenario.events_of("CheckFailing"), [text]);
    repair(&scenario);
    scenario.pass_secs(31);
    assert_eq!(scenario.slots("p").len(), 1);
    scenario.finish();
}

#[test]
fn a_check_is_asked_before_each_node_and_at_no_other_time() {
    let mut scenario = begin(None, checked(vec![check("errors")]));
    assert_eq!((scenario.slots("p").len(), asked(&scenario, "errors")), (1, 1));
    scenario.pass_secs(300);
    assert_eq!(asked(&scenario, "errors"), 1, "no slot is free");
    let first = scenario.slots("p")[0].clone();
    scenario.succeed(&first);
    scenario.pass_secs(2);
    assert_eq!((scenario.slots("p").len(), asked(&scenario, "errors")), (1, 2));
    // The node that is upgraded may be what the next answer is about.
    fail(&scenario, "errors", "503 Service Unavailable");
    let second = scenario.slots("p")[0].clone();
    scenario.succeed(&second);
    scenario.pass_secs(2);
    assert!(scenario.slots("p").is_empty());
    assert_eq!(scenario.complete("p")[1], "CheckFailing");
    repair(&scenario);
    scenario.pass_secs(31);
    scenario.roll_out();
    let before = asked(&scenario, "errors");
    scenario.pass_secs(3_600);
    assert_eq!(asked(&scenario, "errors"), before, "no node is left");
    scenario.assert_over();
}

#[test]
fn so_many_answers_in_a_row_are_needed_as_the_check_says() {
    let mut patient = check("errors");
    patient.passes = Some(3);
    let mut scenario = begin(None, checked(vec![patient]));
    assert_eq!(scenario.complete("p")[1], "CheckPending");
    assert_eq!(
        scenario.complete("p")[2],
        "spec.checks: check errors has passed 1 times, and 3 times in a row are needed"
    );
    scenario.pass_secs(31);
    fail(&scenario, "errors", "no answer within 10s");
    scenario.pass_secs(30);
    assert_eq!(scenario.complete("p")[1], "CheckFailing");
    repair(&scenario);
    scenario.pass_secs(80);
    assert!(scenario.slots("p").is_empty(), "two in a row");
    scenario.pass_secs(15);
    assert_eq!(scenario.slots("p").len(), 1);
    for _ in 0..4 {
        scenario.roll_out();
        scenario.pass_secs(65);
    }
    scenario.assert_over();
}

#[test]
fn a_controller_that_has_just_started_asks_again() {
    let mut scenario = begin(Some(("errors", "it is down")), checked(vec![check("errors")]));
    let since = scenario.status("p").checks.clone().unwrap()[0].since.clone();
    scenario.stop();
    scenario.pass_secs(600);
    scenario.start();
    scenario.settle();
    assert!(scenario.slots("p").is_empty());
    let status = scenario.status("p").checks.clone().unwrap();
    assert_eq!(
        (&status[0].phase, &status[0].since),
        (&CheckPhase::Failing.into(), &since)
    );
    scenario.stop();
    repair(&scenario);
    let before = asked(&scenario, "errors");
    scenario.start();
    scenario.settle();
    scenario.pass_secs(2);
    assert_eq!(scenario.slots("p").len(), 1);
    assert_eq!(asked(&scenario, "errors"), before + 1);
    // A node in progress finishes whatever the check says.
    fail(&scenario, "errors", "it is down");
    let first = scenario.slots("p")[0].clone();
    scenario.restart();
    scenario.succeed(&first);
    scenario.pass_secs(2);
    assert!(scenario.slots("p").is_empty());
    assert_eq!(scenario.status("p").progress.as_deref(), Some("1/3"));
}

#[test]
fn an_edited_check_is_asked_at_once() {
    let mut scenario = begin(Some(("errors", "it is down")), checked(vec![check("errors")]));
    assert!(scenario.slots("p").is_empty());
    scenario.patch(
        Kind::Plan,
        "p",
        &json!({ "spec": { "checks": [{ "name": "other", "http": { "url": "https://other.example.com" } }] } }),
    );
    scenario.settle();
    scenario.pass_secs(2);
    assert_eq!(scenario.slots("p").len(), 1);
    scenario.finish();
}

#[test]
fn a_suspended_plan_asks_nothing() {
    let mut scenario = Scenario::of_nodes(&NODES);
    let mut plan = checked(vec![check("errors")]);
    plan.spec.suspend = Some(true);
    scenario.apply_and_settle(plan);
    scenario.pass_secs(300);
    assert_eq!(asked(&scenario, "errors"), 0);
    scenario.patch(Kind::Plan, "p", &json!({ "spec": { "suspend": false } }));
    scenario.settle();
    scenario.finish();
}

/// A Plan whose first wave, of one node, soaks for ten minutes.
fn soaking() -> Scenario {
    let canary = WaveSpec {
        name: Some("canary".to_owned()),
        nodes: Some(k8s_openapi::apimachinery::pkg::util::intstr::IntOrString::Int(1)),
        soak: Some("10m".to_owned()),
        ..WaveSpec::default()
    };
    let mut plan = checked(vec![check("errors")]);
    plan.spec.concurrency = Some(10);
    plan.spec.waves = Some(vec![canary]);
    let mut scenario = begin(None, plan);
    let first = scenario.slots("p");
    assert_eq!(first.len(), 1);
    scenario.succeed(&first[0]);
    scenario.settle();
    assert_eq!(scenario.complete("p")[1], "WaveSoaking");
    scenario
}

#[test]
fn a_plan_that_is_suspended_during_a_soak_asks_on_and_the_soak_goes_on() {
    let mut scenario = soaking();
    scenario.patch(Kind::Plan, "p", &json!({ "spec": { "suspend": true } }));
    scenario.settle();
    let before = asked(&scenario, "errors");
    scenario.pass_secs(8 * 60);
    assert!(asked(&scenario, "errors") >= before + 15, "its answers count");
    assert_eq!(scenario.complete("p")[1], "Suspended");
    scenario.patch(Kind::Plan, "p", &json!({ "spec": { "suspend": false } }));
    scenario.pass_secs(3 * 60);
    assert_eq!(scenario.slots("p").len(), 2);
    scenario.finish();
}

#[test]
fn a_check_that_fails_begins_a_soak_again() {
    let mut scenario = soaking();
    let before = asked(&scenario, "errors");
    scenario.pass_secs(8 * 60);
    assert!(asked(&scenario, "errors") >= before + 15, "asked all the time");
    fail(&scenario, "errors", "it is down");
    scenario.pass_secs(31);
    assert_eq!(scenario.complete("p")[1], "CheckFailing");
    // Another controller does not know it from the answers.
    scenario.stop();
    repair(&scenario);
    scenario.pass_secs(300);
    scenario.start();
    scenario.settle();
    scenario.pass_secs(9 * 60);
    assert!(scenario.slots("p").is_empty());
    scenario.pass_secs(90);
    assert_eq!(scenario.slots("p").len(), 2);
    scenario.finish();
}
