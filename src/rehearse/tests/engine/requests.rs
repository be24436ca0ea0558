//! API requests of the controller: their order, their concurrency, and missing permissions.

use std::time::Duration;

use super::scenario::{Scenario, Setup};
use crate::api::{Plan, SecretSpec};
use crate::rehearse::State;
use crate::rehearse::fault::{Effect, Moment, Rule};
use crate::rehearse::json::{Value, json};
use crate::rollout::PodStage;
use crate::rollout::tests::build::{plan, plan_with};

fn says(status: &str, reason: &str, message: &str) -> (String, String, String) {
    (status.to_owned(), reason.to_owned(), message.to_owned())
}

fn secret() -> Value {
    json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s", "namespace": "system-upgrade" } })
}

/// A Plan whose hash includes a Secret.
fn with_secret(name: &str) -> Plan {
    plan_with(name, |spec| {
        spec.cordon = None;
        spec.secrets = Some(vec![SecretSpec {
            name: "s".to_owned(),
            ..SecretSpec::default()
        }]);
    })
}

#[test]
fn what_the_controller_may_not_do_is_said_before_a_node_is_begun_with_until_it_is_granted() {
    let mut story = Scenario::without_controller(&Setup::default());
    story.fault_injector.allow("create", "jobs", false);
    story.fault_injector.allow("patch", "nodes", false);
    story.add_nodes(&["a"]);
    story.apply(plan("p"));
    story.start();
    story.settle();
    let text = "the controller may not create jobs.batch in namespace system-upgrade, patch nodes";
    assert_eq!(story.complete("p"), says("False", "MissingPermission", text));
    assert!(story.requests("POST /jobs") == 0 && story.slots("p").is_empty());
    story.pass_secs(120);
    assert_eq!(
        story.events_of("MissingPermission").len(),
        1,
        "what is refused again is not said again"
    );
    story.fault_injector.allow("create", "jobs", true);
    story.fault_injector.allow("patch", "nodes", true);
    story.pass_secs(40);
    story.roll_out();
    story.assert_over();
}

#[test]
fn a_permission_that_is_taken_away_in_mid_roll_out_stops_it_and_loses_nothing() {
    let mut story = Scenario::with(&["a", "b"], plan("p"));
    let first = story.slots("p")[0].clone();
    story.comes_to(&first, PodStage::Upgrade);
    story.fault_injector.allow("patch", "nodes", false);
    let asked = story.requests("POST selfsubjectaccessreviews");
    story.succeed(&first);
    assert!(
        story.requests("POST selfsubjectaccessreviews") > asked,
        "it asks what it may do"
    );
    story.pass_secs(60);
    assert_eq!(story.slots("p"), [first.as_str()]);
    assert!(
        story.complete("p").2.contains("cannot be patched"),
        "{:?}",
        story.complete("p")
    );
    story.fault_injector.allow("patch", "nodes", true);
    story.pass_secs(60);
    story.roll_out();
    story.assert_over();
    assert_eq!(story.invariants.upgrades, 2);
}

#[test]
fn a_plan_without_secrets_needs_no_permission_for_them() {
    let mut story = Scenario::without_controller(&Setup::default());
    story.fault_injector.allow("watch", "secrets", false);
    story.fault_injector.allow("list", "secrets", false);
    story.cluster.put(secret()).unwrap();
    story.add_nodes(&["a"]);
    story.apply(with_secret("minds"));
    story.apply(plan("without"));
    story.start();
    story.settle();
    assert_eq!(story.complete("minds").1, "MissingPermission");
    assert!(
        story.complete("minds").2.contains("secrets"),
        "{:?}",
        story.complete("minds")
    );
    let plans = |story: &Scenario| {
        story
            .jobs_for("a")
            .iter()
            .map(|job| job.plan.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(plans(&story), ["without"]);
    story.fault_injector.allow("watch", "secrets", true);
    story.fault_injector.allow("list", "secrets", true);
    story.pass_secs(120);
    story.roll_out();
    story.assert_over();
}

#[test]
fn without_permission_to_list_each_plan_has_an_event_and_no_node_starts() {
    let mut story = Scenario::without_controller(&Setup::default());
    story.fault_injector.allow("list", "nodes", false);
    story.add_nodes(&["a"]);
    story.apply(plan("p"));
    story.start();
    story.pass_secs(60);
    assert!(story.invariants.jobs.is_empty());
    assert_eq!(
        story.events_of("MissingPermission").len(),
        1,
        "{:?}",
        story.events()
    );
    story.fault_injector.allow("list", "nodes", true);
    story.pass_secs(120);
    story.roll_out();
    story.assert_over();
}

#[test]
fn a_missing_permission_that_an_event_named_before_all_lists_were_read_is_not_named_again() {
    let mut story = Scenario::without_controller(&Setup::default());
    story.fault_injector.allow("watch", "secrets", false);
    story.fault_injector.allow("list", "secrets", false);
    story.cluster.put(secret()).unwrap();
    story.fault_always(Rule::on("list", "nodes").answer(500));
    story.add_nodes(&["a"]);
    story.apply(with_secret("p"));
    story.start();
    story.pass_secs(5);
    assert_eq!(
        story.events_of("MissingPermission").len(),
        1,
        "{:?}",
        story.events()
    );
    story.mend();
    story.pass_secs(60);
    assert_eq!(story.complete("p").1, "MissingPermission");
    assert_eq!(
        story.events_of("MissingPermission").len(),
        1,
        "{:?}",
        story.events()
    );
}

#[test]
fn an_event_that_may_not_be_written_keeps_no_node_from_being_finished() {
    let mut story = Scenario::with(&["a"], plan("p"));
    story.comes_to("a", PodStage::Upgrade);
    story.fault_injector.allow("create", "events", false);
    story.succeed("a");
    assert!(story.is_done("a", "p") && !story.is_cordoned("a"));
    story.fault_injector.allow("create", "events", true);
    story.pass_secs(60);
    story.assert_over();
}

#[test]
fn events_come_before_the_write_that_they_tell_of_and_each_is_written_once() {
    // The response to an event is lost, and the controller dies before it writes the status.
    for effect in [Effect::Hang(Moment::After), Effect::Kill(Moment::After)] {
        let mut story = Scenario::empty();
        story.add_nodes(&["a"]);
        story
            .fault_injector
            .add(Rule::on("create", "events").after(1).times(2).effect(effect));
        story.apply(plan("p"));
        story.pass_secs(40);
        story.roll_out();
        story.assert_over();
        for reason in ["Validated", "Resolved", "SyncJob", "JobComplete", "Complete"] {
            assert_eq!(story.events_of(reason).len(), 1, "{effect:?} {reason}");
        }
    }
    let mut story = Scenario::empty();
    story.add_nodes(&["a"]);
    story.apply(plan("p"));
    story.settle();
    let first =
        |state: &State, part: &str| state.trace().iter().position(|line| line.contains(part)).unwrap();
    let [events, status] = ["POST /api/v1/namespaces/system-upgrade/events", "/plans/p/status"]
        .map(|part| story.cluster.with(|state| first(state, part)));
    assert!(events < status);
}

#[test]
fn sixteen_requests_are_under_way_at_most_and_each_of_them_makes_room() {
    let names: Vec<String> = (10..50).map(|number| format!("n{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut story = Scenario::empty();
    story.add_nodes(&names);
    story.fault_always(Rule::on("create", "jobs").late(Duration::from_secs(4)));
    // Otherwise the watch would deliver the Jobs before the responses.
    story.fault_injector.hold_watch("jobs", true);
    story.apply(plan_with("p", |spec| spec.concurrency = Some(40)));
    let mut made = Vec::new();
    for _ in 0..3 {
        story.pass_secs(4);
        made.push(story.requests("POST /jobs"));
    }
    assert_eq!(made, [16, 32, 40]);
    story.fault_injector.hold_watch("jobs", false);
    story.mend();
    story.roll_out();
    story.assert_over();
}

#[test]
fn a_request_that_keeps_failing_is_repeated_less_and_less_often_and_reported() {
    let mut story = Scenario::empty();
    story.add_nodes(&["a"]);
    story.fault_always(Rule::on("create", "jobs").answer(500));
    story.apply(plan("p"));
    story.pass_secs(1);
    let first = story.cluster.with(|state| {
        state
            .trace()
            .iter()
            .filter(|line| line.contains("Answer(Before, 500)"))
            .count()
    });
    assert!((3..=5).contains(&first), "{first}");
    assert_eq!(story.phase("p", "a").1, "", "a server that stumbles is no news");
    story.pass_secs(300);
    let all = story.cluster.with(|state| {
        state
            .trace()
            .iter()
            .filter(|line| line.contains("Answer(Before, 500)"))
            .count()
    });
    assert!((15..=25).contains(&all), "{all}");
    assert_eq!(story.phase("p", "a").1, "JobRefused", "one that is down is");
    story.mend();
    story.pass_secs(31);
    story.roll_out();
    story.assert_over();
}

#[test]
fn pods_that_may_not_be_watched_are_listed_while_there_is_work() {
    let mut story = Scenario::without_controller(&Setup::default());
    story.fault_injector.allow("watch", "pods", false);
    story.add_nodes(&["a"]);
    story.start();
    story.pass_secs(60);
    assert_eq!(story.requests("GET /pods?"), 1, "nothing to look for");
    story.apply(plan("p"));
    story.pass_secs(20);
    assert_eq!(story.phase("p", "a").0, "Upgrading");
    let listed = story.requests("GET /pods?");
    assert!((5..=12).contains(&listed), "{listed}");
    story.roll_out();
    story.assert_over();
    let listed = story.requests("GET /pods?");
    story.pass_secs(60);
    assert!(story.requests("GET /pods?") <= listed + 1);
}

#[test]
fn a_watch_that_is_behind_starts_no_second_job_and_gives_no_second_slot() {
    for resource in ["nodes", "jobs", "pods", "plans"] {
        let mut story = Scenario::with(&["a", "b", "c"], plan("p"));
        let first = story.slots("p")[0].clone();
        story.comes_to(&first, PodStage::Upgrade);
        story.fault_injector.hold_watch(resource, true);
        story.succeed(&first);
        story.pass_secs(30);
        story.fault_injector.hold_watch(resource, false);
        story.roll_out();
        story.assert_over();
        assert_eq!(story.invariants.upgrades, 3, "{resource}");
    }
}

#[test]
fn whoever_takes_over_lists_jobs_before_nodes_before_plans() {
    let story = Scenario::with(&["a"], plan("p"));
    let first = |part: &str| {
        story
            .cluster
            .with(|state| {
                state
                    .trace()
                    .iter()
                    .position(|line| line.contains(" GET ") && line.contains(part))
            })
            .unwrap()
    };
    let order = [
        first("/secrets"),
        first("/jobs?"),
        first("/nodes?"),
        first("/plans?"),
    ];
    assert!(order.is_sorted(), "{order:?}");
    assert!(first("/pods?") < first("/nodes?"));
}
