//! What `kubectl get plans`, `kubectl describe` and the events of a Plan say while it is held, without refit's commands.

use super::{BY, NAMESPACE, Rule, Scenario, draining, json, plan, plan_with};
use crate::tests::engine::scenario::Setup;
use refit_api::names;
use refit_facts::PodStage;
use refit_fixtures::plan_with as made;
use refit_rehearse::Kind;

/// Checks the column MESSAGE, the condition `Complete`, and that one event says it.
#[track_caller]
fn shows(scenario: &mut Scenario, message: &str, reason: &str, whole: &str) {
    let shown = scenario.status("p").message.clone().unwrap_or_default();
    assert!(
        shown.starts_with(message) && shown.chars().count() <= 80,
        "{shown:?}"
    );
    let complete = scenario.complete("p");
    assert!(complete[2].contains(whole), "{complete:?}");
    let events = scenario.events_of(reason);
    assert!(events.len() == 1 && events[0].contains(whole), "{events:?}");
}

#[test]
fn a_drain_that_a_budget_holds_is_reported_once_after_half_a_minute() {
    let mut scenario = Scenario::of_nodes(&["a"]);
    scenario.guard("a");
    scenario.apply(draining("p"));
    scenario.comes_to("a", PodStage::Drain);
    scenario.pass_secs(10);
    assert_eq!(scenario.events_of("DrainWaiting"), [""; 0]);
    assert_eq!(scenario.complete("p")[2], "");
    scenario.pass_secs(120);
    shows(&mut scenario, "a: ", "DrainWaiting", "guarded");
}

#[test]
fn an_image_that_cannot_be_pulled_is_reported_once() {
    let mut scenario = Scenario::of_nodes(&["a"]);
    scenario.steer("a", "start-delay", Some("1h"));
    scenario.apply_and_settle(plan("p"));
    let pod = scenario.pods().next().unwrap().facts.name.to_string();
    for (seconds, why) in [
        (20, "ErrImagePull"),
        (60, "ImagePullBackOff"),
        (60, "ErrImagePull"),
    ] {
        let waiting = json!({ "status": { "initContainerStatuses": [{
            "name": "cordon", "image": "x", "imageID": "", "ready": false, "restartCount": 0,
            "state": { "waiting": { "reason": why, "message": "no such image \"example.com/upgrade:v1\"" } },
        }] } });
        scenario
            .cluster
            .patch_status(Kind::Pod, NAMESPACE, &pod, &waiting)
            .unwrap();
        scenario.pass_secs(seconds);
    }
    shows(&mut scenario, "a: ", "PodWaiting", "example.com/upgrade:v1");
}

#[test]
fn a_pod_that_the_api_server_refuses_is_reported() {
    let mut scenario = Scenario::of_nodes(&["a"]);
    scenario.fault_always(Rule::on("create", "jobs").answer(422));
    scenario.apply(plan("p"));
    scenario.pass_secs(10);
    let shown = scenario.status("p").message.clone().unwrap_or_default();
    assert!(
        shown.starts_with("a: ") && shown.chars().count() <= 80,
        "{shown:?}"
    );
    assert!(scenario.complete("p")[2].contains("injected fault 422"));
    assert!(!scenario.events_of("JobRefused").is_empty());
}

#[test]
fn a_secret_that_is_missing_is_reported() {
    let mut scenario = Scenario::of_nodes(&["a"]);
    scenario.apply_and_settle(made("p", |spec| {
        spec.secrets = Some(vec![refit_api::plan::SecretSpec {
            name: "keys".to_owned(),
            path: "/keys".to_owned(),
            ..refit_api::plan::SecretSpec::default()
        }]);
    }));
    let shown = scenario.status("p").message.clone().unwrap_or_default();
    assert!(shown.contains("keys") && shown.chars().count() <= 80, "{shown:?}");
}

#[test]
fn an_abort_is_shown_with_its_author_while_the_last_nodes_are_in_progress() {
    let mut scenario = Scenario::new(&Setup::default());
    scenario.add_nodes(&["a", "b"]);
    scenario.apply_and_settle(plan_with("p", |spec| spec.concurrency = Some(1)));
    let first = scenario.slots("p").remove(0);
    scenario.comes_to(&first, PodStage::Upgrade);
    scenario.annotate(Kind::Plan, "p", names::ANNOTATION_ABORT, Some(BY));
    scenario.pass_secs(5);
    assert_eq!(scenario.slots("p"), [first.as_str()]);
    let message = "the annotation refit.rs/abort, set by alice";
    shows(&mut scenario, message, "Aborted", BY);
    // It is said once, although the condition has it as its reason when no node is in progress any more.
    scenario.succeed(&first);
    scenario.pass_secs(60);
    assert_eq!(scenario.complete("p")[1], "Aborted");
    shows(&mut scenario, message, "Aborted", BY);
}

#[test]
fn a_plan_that_is_complete_or_makes_progress_shows_no_message() {
    let mut scenario = Scenario::of_nodes(&["a", "b"]);
    scenario.apply(plan_with("p", |spec| spec.concurrency = Some(1)));
    scenario.comes_to("a", PodStage::Upgrade);
    assert_eq!(scenario.status("p").message, None);
    scenario.finish();
    assert_eq!(scenario.status("p").message, None);
}
