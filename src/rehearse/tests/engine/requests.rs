//! API requests of the controller: their order, their concurrency, and missing permissions.

use std::time::Duration;

use super::scenario::{Scenario, Setup};
use crate::api::{Plan, SecretSpec};
use crate::rehearse::fault::{Effect, Moment, Rule};
use crate::rehearse::json::{Value, json};
use crate::rehearse::{Kind, State};
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
fn only_secrets_that_plans_have_in_their_hash_are_listed_watched_and_read() {
    let mut story = Scenario::empty();
    story.add_nodes(&["a"]);
    story.cluster.put(secret()).unwrap();
    let other = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "other", "namespace": "system-upgrade" } });
    story.cluster.put(other).unwrap();
    story.apply(plan("without"));
    story.settle();
    let requests = |story: &Scenario| {
        let of_secrets = |state: &State| {
            let lines = state.trace().iter().filter(|line| line.contains("/secrets"));
            lines.cloned().collect::<Vec<_>>()
        };
        story.cluster.with(|state| of_secrets(state))
    };
    assert!(requests(&story).is_empty(), "{:?}", requests(&story));
    story.apply(with_secret("p"));
    story.roll_out();
    let of_plan = requests(&story);
    let is_named =
        |line: &String| line.contains("/secrets/s ") || line.contains("fieldSelector=metadata.name%3Ds");
    assert!(of_plan.len() >= 3 && of_plan.iter().all(is_named), "{of_plan:?}");
    // Its watch ends with the last Plan that names it.
    story.edit("p", |spec| spec.secrets = None);
    story.pass_secs(3600);
    let later = requests(&story);
    assert!(later.len() <= of_plan.len() + 1, "{later:?}");
}

#[test]
fn many_secrets_are_watched_in_turn_and_a_change_of_each_is_seen() {
    let mut story = Scenario::empty();
    story.add_nodes(&["a"]);
    let named = |number: usize| format!("s{number}");
    let content = |number: usize, value: &str| {
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": named(number), "namespace": "system-upgrade" },
            "data": { "key": value } })
    };
    for number in 0..100 {
        story.cluster.put(content(number, "eA==")).unwrap();
    }
    let all = (0..100).map(|number| SecretSpec {
        name: named(number),
        ..SecretSpec::default()
    });
    let all: Vec<_> = all.collect();
    story.apply(plan_with("p", |spec| spec.secrets = Some(all)));
    story.settle();
    story.roll_out();
    assert!(story.is_done("a", "p"));
    for number in [0, 50, 99] {
        let before = story.hash("p");
        story.patch(Kind::Secret, &named(number), &content(number, "eQ=="));
        story.pass_secs(30);
        assert_ne!(story.hash("p"), before, "{number}");
    }
    // More than any Plan needs would take the places of others.
    let more = (0..101).map(|number| SecretSpec {
        name: named(number),
        ..SecretSpec::default()
    });
    let more: Vec<_> = more.collect();
    let hash = story.hash("p");
    story.edit("p", |spec| spec.secrets = Some(more));
    story.settle();
    let (status, _, why) = story.condition("p", "Validated");
    assert_eq!(status, "False");
    assert!(why.contains("names 101 secrets"), "{why}");
    assert_eq!(story.hash("p"), hash, "it stays what nodes are done with");
}

#[test]
fn a_secret_that_may_not_be_watched_holds_up_only_the_plans_that_name_it() {
    let mut story = Scenario::empty();
    story.add_nodes(&["a", "b"]);
    story.cluster.put(secret()).unwrap();
    let other = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "t", "namespace": "system-upgrade" } });
    story.cluster.put(other).unwrap();
    story.fault_always(Rule::on("list", "secrets").named("s").answer(403));
    story.apply(with_secret("p"));
    story.apply(plan_with("q", |spec| {
        spec.secrets = Some(vec![SecretSpec {
            name: "t".to_owned(),
            ..SecretSpec::default()
        }]);
    }));
    story.settle();
    assert_eq!(story.complete("p").1, "MissingPermission");
    let why = story.complete("p").2;
    assert!(
        why.contains("list secrets \"s\"") && why.contains("watch secrets \"s\""),
        "{why}"
    );
    for node in ["a", "b"] {
        assert!(story.jobs_for(node).iter().all(|job| &*job.plan == "q"));
    }
    story.roll_out();
    assert!(story.is_done("a", "q") && story.is_done("b", "q"));
    story.mend();
    story.pass_secs(60);
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
    story.fault_injector.allow("watch", "jobs", false);
    story.fault_always(Rule::on("list", "nodes").answer(500));
    story.add_nodes(&["a"]);
    story.apply(plan("p"));
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

/// The loop waits for the first list, so it must not depend on a Job that runs.
#[test]
fn pods_that_may_not_be_watched_are_listed_again_until_a_list_succeeds() {
    let mut story = Scenario::without_controller(&Setup::default());
    story.fault_injector.allow("watch", "pods", false);
    story.fault_always(Rule::on("list", "pods").answer(500));
    story.add_nodes(&["a"]);
    story.apply(plan("p"));
    story.start();
    story.pass_secs(30);
    assert!(story.invariants.jobs.is_empty());
    story.mend();
    story.pass_secs(30);
    story.roll_out();
    story.assert_over();
}

#[test]
fn without_permission_to_list_pods_each_plan_has_an_event_and_no_node_starts() {
    let mut story = Scenario::without_controller(&Setup::default());
    for verb in ["list", "watch"] {
        story.fault_injector.allow(verb, "pods", false);
    }
    story.add_nodes(&["a"]);
    story.apply(plan("p"));
    story.start();
    story.pass_secs(60);
    assert!(story.invariants.jobs.is_empty());
    let events = story.events_of("MissingPermission");
    assert_eq!(events.len(), 1, "{:?}", story.events());
    story.fault_injector.allow("list", "pods", true);
    story.pass_secs(120);
    story.roll_out();
    story.assert_over();
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
fn a_node_whose_job_is_being_made_keeps_its_slot_whatever_happens_to_it() {
    let mut story = Scenario::empty();
    story.add_nodes(&["a", "b"]);
    story.fault(Rule::on("create", "jobs").late(Duration::from_secs(8)));
    story.fault_injector.hold_watch("jobs", true);
    story.apply(plan("p"));
    story.pass_secs(1);
    let first = story.slots("p")[0].clone();
    story.ready(&first, false);
    story.pass_secs(3);
    assert_eq!(story.slots("p"), [first.as_str()]);
    assert_eq!(story.phase("p", &first).1, "NodeNotReady");
    assert_eq!(story.jobs_for(&first).len(), 1);
    story.fault_injector.hold_watch("jobs", false);
    story.ready(&first, true);
    story.roll_out();
    story.assert_over();
    assert_eq!(story.invariants.upgrades, 2);
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
    let order = [first("/jobs?"), first("/nodes?"), first("/plans?")];
    assert!(order.is_sorted(), "{order:?}");
    assert!(first("/pods?") < first("/nodes?"));
}
