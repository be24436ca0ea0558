//! API requests of the controller: their order, their concurrency, and missing permissions.

use std::time::Duration;

use super::scenario::{Scenario, Setup};
use crate::fault::{Effect, Moment, Rule};
use crate::invariants::CONTROLLER;
use refit_api::{Plan, SecretSpec};
use refit_facts::PodStage;
use refit_fixtures::{plan, plan_with};
use refit_rehearse::json::{Value, json};
use refit_rehearse::{Kind, State};

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
fn missing_permissions_are_reported_before_a_node_starts_until_they_are_granted() {
    let mut scenario = Scenario::without_controller(&Setup::default());
    scenario.fault_injector.allow("create", "jobs", false);
    scenario.fault_injector.allow("patch", "nodes", false);
    scenario.add_nodes(&["a"]);
    scenario.apply(plan("p"));
    scenario.start();
    scenario.settle();
    let text = "the controller may not create jobs.batch in namespace system-upgrade, patch nodes";
    assert_eq!(scenario.complete("p"), ["False", "MissingPermission", text]);
    assert!(scenario.requests("POST /jobs") == 0 && scenario.slots("p").is_empty());
    scenario.pass_secs(120);
    assert_eq!(
        scenario.events_of("MissingPermission").len(),
        1,
        "what is refused again is not said again"
    );
    scenario.fault_injector.allow("create", "jobs", true);
    scenario.fault_injector.allow("patch", "nodes", true);
    scenario.pass_secs(40);
    scenario.finish();
}

#[test]
fn a_permission_that_is_taken_away_in_mid_roll_out_stops_it_and_loses_nothing() {
    let mut scenario = Scenario::with(&["a", "b"], plan("p"));
    let first = scenario.slots("p")[0].clone();
    scenario.comes_to(&first, PodStage::Upgrade);
    scenario.fault_injector.allow("patch", "nodes", false);
    let asked = scenario.requests("POST selfsubjectaccessreviews");
    scenario.succeed(&first);
    assert!(
        scenario.requests("POST selfsubjectaccessreviews") > asked,
        "it asks what it may do"
    );
    scenario.pass_secs(60);
    assert_eq!(scenario.slots("p"), [first.as_str()]);
    assert!(
        scenario.complete("p")[2].contains("cannot be patched"),
        "{:?}",
        scenario.complete("p")
    );
    scenario.fault_injector.allow("patch", "nodes", true);
    scenario.pass_secs(60);
    scenario.finish();
    assert_eq!(scenario.invariants.upgrades, 2);
}

#[test]
fn without_the_permission_to_write_status_nodes_in_progress_finish_and_no_other_starts() {
    let mut scenario = Scenario::with(&["a", "b"], plan("p"));
    let first = scenario.slots("p")[0].clone();
    scenario.comes_to(&first, PodStage::Upgrade);
    scenario.fault_always(Rule::on("patch", "plans/status").answer(403));
    scenario.succeed(&first);
    scenario.pass_secs(60);
    assert!(scenario.is_done(&first, "p"));
    assert_eq!(scenario.requests("POST /jobs"), 1);
    scenario.mend();
    scenario.pass_secs(60);
    scenario.finish();
}

#[test]
fn without_the_permission_to_watch_nodes_or_secrets_no_node_starts_until_it_is_granted() {
    for resource in ["nodes", "secrets"] {
        let mut scenario = Scenario::of_nodes(&["a", "b"]);
        scenario.cluster.put(secret()).unwrap();
        scenario.apply_and_settle(with_secret("p"));
        let first = scenario.slots("p")[0].clone();
        let other = if first == "a" { "b" } else { "a" };
        scenario.comes_to(&first, PodStage::Upgrade);
        for verb in ["list", "watch"] {
            scenario.fault_injector.allow(verb, resource, false);
        }
        // The API server does not close an open watch.
        scenario.fault_injector.cut_watches(resource);
        scenario.settle();
        scenario.succeed(&first);
        scenario.pass_secs(120);
        let [status, reason, message] = scenario.complete("p");
        assert_eq!((&*status, &*reason), ("False", "MissingPermission"), "{message}");
        for verb in ["list", "watch"] {
            assert!(message.contains(&format!("{verb} {resource}")), "{message}");
        }
        assert!(scenario.jobs_for(other).is_empty(), "{resource}");
        for verb in ["list", "watch"] {
            scenario.fault_injector.allow(verb, resource, true);
        }
        scenario.pass_secs(120);
        scenario.finish();
        assert_eq!(scenario.invariants.upgrades, 2, "{resource}");
        assert_eq!(scenario.events_of("MissingPermission").len(), 1, "{resource}");
    }
}

#[test]
fn a_plan_without_secrets_needs_no_permission_for_them() {
    let mut scenario = Scenario::without_controller(&Setup::default());
    scenario.fault_injector.allow("watch", "secrets", false);
    scenario.fault_injector.allow("list", "secrets", false);
    scenario.cluster.put(secret()).unwrap();
    scenario.add_nodes(&["a"]);
    scenario.apply(with_secret("minds"));
    scenario.apply(plan("without"));
    scenario.start();
    scenario.settle();
    assert_eq!(scenario.complete("minds")[1], "MissingPermission");
    assert!(
        scenario.complete("minds")[2].contains("secrets"),
        "{:?}",
        scenario.complete("minds")
    );
    let plans = |scenario: &Scenario| {
        scenario
            .jobs_for("a")
            .iter()
            .map(|job| job.plan.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(plans(&scenario), ["without"]);
    scenario.fault_injector.allow("watch", "secrets", true);
    scenario.fault_injector.allow("list", "secrets", true);
    scenario.pass_secs(120);
    scenario.finish();
}

#[test]
fn only_secrets_that_plans_have_in_their_hash_are_listed_watched_and_read() {
    let mut scenario = Scenario::of_nodes(&["a"]);
    scenario.cluster.put(secret()).unwrap();
    let other = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "other", "namespace": "system-upgrade" } });
    scenario.cluster.put(other).unwrap();
    scenario.apply_and_settle(plan("without"));
    let requests = |scenario: &Scenario| {
        let of_secrets = |state: &State| {
            let lines = state.trace().iter().filter(|line| line.contains("/secrets"));
            lines.cloned().collect::<Vec<_>>()
        };
        scenario.cluster.with(|state| of_secrets(state))
    };
    assert!(requests(&scenario).is_empty(), "{:?}", requests(&scenario));
    scenario.apply(with_secret("p"));
    scenario.roll_out();
    let of_plan = requests(&scenario);
    let is_named =
        |line: &String| line.contains("/secrets/s ") || line.contains("fieldSelector=metadata.name%3Ds");
    assert!(of_plan.len() >= 3 && of_plan.iter().all(is_named), "{of_plan:?}");
    // Its watch ends with the last Plan that names it.
    scenario.edit("p", |spec| spec.secrets = None);
    scenario.pass_secs(3600);
    let later = requests(&scenario);
    assert!(later.len() <= of_plan.len() + 1, "{later:?}");
}

#[test]
fn many_secrets_are_watched_in_turn_and_a_change_of_each_is_seen() {
    let mut scenario = Scenario::of_nodes(&["a"]);
    let named = |number: usize| format!("s{number}");
    let content = |number: usize, value: &str| {
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": named(number), "namespace": "system-upgrade" },
            "data": { "key": value } })
    };
    for number in 0..100 {
        scenario.cluster.put(content(number, "eA==")).unwrap();
    }
    let all = (0..100).map(|number| SecretSpec {
        name: named(number),
        ..SecretSpec::default()
    });
    let all: Vec<_> = all.collect();
    scenario.apply_and_settle(plan_with("p", |spec| spec.secrets = Some(all)));
    scenario.roll_out();
    assert!(scenario.is_done("a", "p"));
    for number in [0, 50, 99] {
        let before = scenario.hash("p");
        scenario.patch(Kind::Secret, &named(number), &content(number, "eQ=="));
        scenario.pass_secs(30);
        assert_ne!(scenario.hash("p"), before, "{number}");
    }
    // More than any Plan needs would take the places of others.
    let more = (0..101).map(|number| SecretSpec {
        name: named(number),
        ..SecretSpec::default()
    });
    let more: Vec<_> = more.collect();
    let hash = scenario.hash("p");
    scenario.edit_and_settle("p", |spec| spec.secrets = Some(more));
    let [status, _, why] = scenario.condition("p", "Validated");
    assert_eq!(status, "False");
    assert!(why.contains("names 101 secrets"), "{why}");
    assert_eq!(scenario.hash("p"), hash, "it stays what nodes are done with");
}

#[test]
fn a_secret_that_may_not_be_watched_holds_up_only_the_plans_that_name_it() {
    let mut scenario = Scenario::of_nodes(&["a", "b"]);
    scenario.cluster.put(secret()).unwrap();
    let other = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "t", "namespace": "system-upgrade" } });
    scenario.cluster.put(other).unwrap();
    scenario.fault_always(Rule::on("list", "secrets").named("s").answer(403));
    scenario.apply(with_secret("p"));
    scenario.apply_and_settle(plan_with("q", |spec| {
        spec.secrets = Some(vec![SecretSpec {
            name: "t".to_owned(),
            ..SecretSpec::default()
        }]);
    }));
    assert_eq!(scenario.complete("p")[1], "MissingPermission");
    let [.., why] = scenario.complete("p");
    assert!(
        why.contains("list secrets \"s\"") && why.contains("watch secrets \"s\""),
        "{why}"
    );
    for node in ["a", "b"] {
        assert!(scenario.jobs_for(node).iter().all(|job| &*job.plan == "q"));
    }
    scenario.roll_out();
    assert!(scenario.is_done("a", "q") && scenario.is_done("b", "q"));
    scenario.mend();
    scenario.pass_secs(60);
    scenario.finish();
}

#[test]
fn without_permission_to_list_nodes_or_pods_each_plan_has_an_event_and_no_node_starts() {
    for (kind, verbs) in [("nodes", &["list"][..]), ("pods", &["list", "watch"][..])] {
        let mut scenario = Scenario::without_controller(&Setup::default());
        for verb in verbs {
            scenario.fault_injector.allow(verb, kind, false);
        }
        scenario.add_nodes(&["a"]);
        scenario.apply(plan("p"));
        scenario.start();
        scenario.pass_secs(60);
        assert!(scenario.invariants.jobs.is_empty(), "{kind}");
        let events = scenario.events_of("MissingPermission");
        assert_eq!(events.len(), 1, "{kind}: {:?}", scenario.events());
        scenario.fault_injector.allow("list", kind, true);
        scenario.pass_secs(120);
        scenario.finish();
    }
}

#[test]
fn a_missing_permission_that_an_event_named_before_all_lists_were_read_is_not_named_again() {
    let mut scenario = Scenario::without_controller(&Setup::default());
    scenario.fault_injector.allow("watch", "jobs", false);
    scenario.fault_always(Rule::on("list", "nodes").answer(500));
    scenario.add_nodes(&["a"]);
    scenario.apply(plan("p"));
    scenario.start();
    scenario.pass_secs(5);
    assert_eq!(
        scenario.events_of("MissingPermission").len(),
        1,
        "{:?}",
        scenario.events()
    );
    scenario.mend();
    scenario.pass_secs(60);
    assert_eq!(scenario.complete("p")[1], "MissingPermission");
    assert_eq!(
        scenario.events_of("MissingPermission").len(),
        1,
        "{:?}",
        scenario.events()
    );
}

#[test]
fn an_event_that_may_not_be_written_keeps_no_node_from_being_finished() {
    let mut scenario = Scenario::with(&["a"], plan("p"));
    scenario.comes_to("a", PodStage::Upgrade);
    scenario.fault_injector.allow("create", "events", false);
    scenario.succeed("a");
    assert!(scenario.is_done("a", "p") && !scenario.is_cordoned("a"));
    scenario.fault_injector.allow("create", "events", true);
    scenario.pass_secs(60);
    scenario.assert_over();
}

#[test]
fn events_come_before_the_write_that_they_tell_of_and_each_is_written_once() {
    // The response to an event is lost, and the controller dies before it writes the status.
    for effect in [Effect::Hang(Moment::After), Effect::Kill(Moment::After)] {
        let mut scenario = Scenario::of_nodes(&["a"]);
        scenario
            .fault_injector
            .add(Rule::on("create", "events").after(1).times(2).effect(effect));
        scenario.apply(plan("p"));
        scenario.pass_secs(40);
        scenario.finish();
        for reason in ["Validated", "Resolved", "SyncJob", "JobComplete", "Complete"] {
            assert_eq!(scenario.events_of(reason).len(), 1, "{effect:?} {reason}");
        }
    }
    let scenario = Scenario::with(&["a"], plan("p"));
    let first =
        |state: &State, part: &str| state.trace().iter().position(|line| line.contains(part)).unwrap();
    let [events, status] = ["POST /api/v1/namespaces/system-upgrade/events", "/plans/p/status"]
        .map(|part| scenario.cluster.with(|state| first(state, part)));
    assert!(events < status);
}

#[test]
fn sixteen_requests_are_under_way_at_most_and_each_of_them_makes_room() {
    let names: Vec<String> = (10..50).map(|number| format!("n{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut scenario = Scenario::of_nodes(&names);
    scenario.fault_always(Rule::on("create", "jobs").late(Duration::from_secs(4)));
    // Otherwise the watch would deliver the Jobs before the responses.
    scenario.fault_injector.hold_watch("jobs", true);
    scenario.apply(plan_with("p", |spec| spec.concurrency = Some(40)));
    let mut made = Vec::new();
    for _ in 0..3 {
        scenario.pass_secs(4);
        made.push(scenario.requests("POST /jobs"));
    }
    assert_eq!(made, [16, 32, 40]);
    scenario.fault_injector.hold_watch("jobs", false);
    scenario.mend();
    scenario.finish();
}

#[test]
fn a_request_that_is_never_answered_is_reported_until_it_is() {
    let mut scenario = Scenario::of_nodes(&["a"]);
    scenario.fault_always(Rule::on("create", "jobs").hang());
    scenario.apply(plan("p"));
    scenario.pass_secs(20);
    assert_eq!(scenario.phase("p", "a")[1], "", "an outage of seconds is no news");
    scenario.pass_secs(120);
    assert_eq!(scenario.phase("p", "a")[1], "JobRefused");
    assert!(scenario.entry("p", "a").message.is_some());
    scenario.mend();
    scenario.pass_secs(60);
    assert_eq!(scenario.phase("p", "a")[1], "");
    scenario.finish();
}

#[test]
fn a_request_that_keeps_failing_is_repeated_less_and_less_often_and_reported() {
    let mut scenario = Scenario::of_nodes(&["a"]);
    scenario.fault_always(Rule::on("create", "jobs").answer(500));
    scenario.apply(plan("p"));
    scenario.pass_secs(1);
    let first = scenario.cluster.with(|state| {
        state
            .trace()
            .iter()
            .filter(|line| line.contains("Answer(Before, 500)"))
            .count()
    });
    assert!((3..=5).contains(&first), "{first}");
    assert_eq!(
        scenario.phase("p", "a")[1],
        "",
        "a server that stumbles is no news"
    );
    scenario.pass_secs(300);
    let all = scenario.cluster.with(|state| {
        state
            .trace()
            .iter()
            .filter(|line| line.contains("Answer(Before, 500)"))
            .count()
    });
    assert!((15..=25).contains(&all), "{all}");
    assert_eq!(scenario.phase("p", "a")[1], "JobRefused", "one that is down is");
    scenario.mend();
    scenario.pass_secs(31);
    scenario.finish();
}

/// On a real control plane the Job controller may write a Job just before refit does, which then reads it and writes again.
#[test]
fn a_job_takes_one_request_to_make_and_one_to_record_and_is_not_read() {
    let mut scenario = Scenario::with(&["a"], plan("p"));
    scenario.finish();
    let requests = [
        "GET /jobs?",
        "GET /jobs/",
        "POST /jobs",
        "PATCH /jobs/",
        "DELETE /jobs/",
    ];
    let counts = requests.map(|of| scenario.requests(of));
    assert_eq!(counts, [2, 0, 1, 1, 0], "a list, a watch, and {requests:?}");
}

#[test]
fn a_reboot_takes_nine_requests_per_node_at_most_and_reads_no_object() {
    const NODES: usize = 10;
    let names: Vec<String> = (0..NODES).map(|number| format!("n{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut scenario = Scenario::of_nodes(&names);
    scenario.settle();
    let before = scenario.cluster.with(|state| state.trace().len());
    scenario.apply(plan_with("p", |spec| {
        spec.concurrency = Some(i64::try_from(NODES).unwrap());
        spec.reboot = Some(refit_fixtures::reboot(refit_api::RebootWhen::Always));
    }));
    scenario.finish();
    assert_eq!(scenario.invariants.reboots, 10);
    let aside = ["/events", "/selfsubjectaccessreviews", "/leases"];
    let asked: Vec<String> = scenario.cluster.with(|state| {
        let lines = state.trace()[before..]
            .iter()
            .filter(|line| line.contains(&format!(" {CONTROLLER} ")));
        lines
            .filter(|line| !aside.iter().any(|part| line.contains(part)))
            .cloned()
            .collect()
    });
    let reads: Vec<_> = asked
        .iter()
        .filter(|line| line.contains(" GET ") && !line.contains('?'))
        .collect();
    assert!(reads.is_empty(), "{reads:?}");
    let writes = asked.iter().filter(|line| !line.contains(" GET ")).count();
    assert!(writes <= 9 * NODES, "{writes}: {asked:#?}");
}

#[test]
fn pods_that_may_not_be_watched_are_listed_while_there_is_work() {
    let mut scenario = Scenario::without_controller(&Setup::default());
    scenario.fault_injector.allow("watch", "pods", false);
    scenario.add_nodes(&["a"]);
    scenario.start();
    scenario.pass_secs(60);
    assert_eq!(scenario.requests("GET /pods?"), 1, "nothing to look for");
    scenario.apply(plan("p"));
    scenario.pass_secs(20);
    assert_eq!(scenario.phase("p", "a")[0], "Upgrading");
    let listed = scenario.requests("GET /pods?");
    assert!((5..=12).contains(&listed), "{listed}");
    scenario.finish();
    let listed = scenario.requests("GET /pods?");
    scenario.pass_secs(60);
    assert!(scenario.requests("GET /pods?") <= listed + 1);
}

/// The loop waits for the first list, so it must not depend on a Job that runs.
#[test]
fn pods_that_may_not_be_watched_are_listed_again_until_a_list_succeeds() {
    let mut scenario = Scenario::without_controller(&Setup::default());
    scenario.fault_injector.allow("watch", "pods", false);
    scenario.fault_always(Rule::on("list", "pods").answer(500));
    scenario.add_nodes(&["a"]);
    scenario.apply(plan("p"));
    scenario.start();
    scenario.pass_secs(30);
    assert!(scenario.invariants.jobs.is_empty());
    scenario.mend();
    scenario.pass_secs(30);
    scenario.finish();
}

#[test]
fn a_controller_that_dies_at_every_job_that_it_makes_makes_each_once() {
    for moment in [Moment::Before, Moment::After] {
        let mut scenario = Scenario::new(&Setup {
            held: false,
            ..Setup::default()
        });
        let names: Vec<String> = (10..22).map(|number| format!("n{number}")).collect();
        scenario.add_nodes(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let kills = if moment == Moment::Before { 2 } else { 1 };
        scenario.fault_always(Rule::on("create", "jobs").every(kills).kill(moment));
        scenario.apply(plan_with("p", |spec| spec.concurrency = Some(6)));
        scenario.rest();
        scenario.assert_over();
        assert_eq!(scenario.invariants.upgrades, 12, "{moment:?}");
        assert_eq!(scenario.events_of("SyncJob").len(), 12, "{moment:?}");
    }
}

#[test]
fn a_watch_that_is_behind_starts_no_second_job_and_gives_no_second_slot() {
    for resource in ["nodes", "jobs", "pods", "plans"] {
        let mut scenario = Scenario::with(&["a", "b", "c"], plan("p"));
        let first = scenario.slots("p")[0].clone();
        scenario.comes_to(&first, PodStage::Upgrade);
        scenario.fault_injector.hold_watch(resource, true);
        scenario.succeed(&first);
        scenario.pass_secs(30);
        scenario.fault_injector.hold_watch(resource, false);
        scenario.finish();
        assert_eq!(scenario.invariants.upgrades, 3, "{resource}");
    }
}

#[test]
fn a_node_whose_job_is_being_made_keeps_its_slot_whatever_happens_to_it() {
    let mut scenario = Scenario::of_nodes(&["a", "b"]);
    scenario.fault(Rule::on("create", "jobs").late(Duration::from_secs(8)));
    scenario.fault_injector.hold_watch("jobs", true);
    scenario.apply(plan("p"));
    scenario.pass_secs(1);
    let first = scenario.slots("p")[0].clone();
    scenario.ready(&first, false);
    scenario.pass_secs(3);
    assert_eq!(scenario.slots("p"), [first.as_str()]);
    assert_eq!(scenario.phase("p", &first)[1], "NodeNotReady");
    assert_eq!(scenario.jobs_for(&first).len(), 1);
    scenario.fault_injector.hold_watch("jobs", false);
    scenario.ready(&first, true);
    scenario.finish();
    assert_eq!(scenario.invariants.upgrades, 2);
}

#[test]
fn whoever_takes_over_lists_jobs_before_nodes_before_plans() {
    let scenario = Scenario::with(&["a"], plan("p"));
    let first = |part: &str| {
        scenario
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
