//! `drain.waitFor`: a cordoned node is drained once pods on it have ended by themselves.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::scenario::{Scenario, Setup};
use super::sweep::{KILLS, sweep};
use crate::fault::Rule;
use refit_api::{AfterWait, DrainSpec, FailurePolicy, FailureSpec, OrderSpec, Plan, WaitForSpec, names};
use refit_facts::PodStage;
use refit_facts::record::Phase;
use refit_fixtures::plan_with;
use refit_rehearse::Kind;
use refit_rehearse::json::{Value, json};
use refit_view::{PlanOverview, explain_node};

pub(super) fn waiting(after: AfterWait) -> Plan {
    let labels = BTreeMap::from([("app".to_owned(), "runner".to_owned())]);
    plan_with("p", |spec| {
        spec.concurrency = Some(1);
        spec.cordon = None;
        spec.job_active_deadline_secs = Some(600);
        spec.order = Some(vec![OrderSpec {
            label_number: Some("rank".to_owned()),
            ..OrderSpec::default()
        }]);
        spec.drain = Some(DrainSpec {
            exclude_from_load_balancers: Some(true),
            wait_for: Some(vec![WaitForSpec {
                pod_selector: Some(LabelSelector {
                    match_labels: Some(labels),
                    ..LabelSelector::default()
                }),
                namespace: Some("ci".to_owned()),
                timeout: Some("30m".to_owned()),
                after_timeout: Some(after),
            }]),
            ..DrainSpec::default()
        });
    })
}

/// A pod without a controller, which a drain without `force` refuses.
fn runner(namespace: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "runner-7", "namespace": namespace, "labels": { "app": "runner" } },
        "spec": { "nodeName": node, "containers": [{ "name": "c", "image": "i" }] },
        "status": { "phase": "Running" },
    })
}

fn begin(scenario: &mut Scenario, after: AfterWait) {
    scenario.cluster.put(runner("ci", "a")).unwrap();
    scenario.label("a", "rank", Some("1"));
    scenario.apply(waiting(after));
    scenario.comes_to("a", PodStage::Drain);
    scenario.pass_secs(20);
}

fn end_of_runner(scenario: &Scenario) {
    let ended = json!({ "status": { "phase": "Succeeded" } });
    scenario
        .cluster
        .patch_status(Kind::Pod, "ci", "runner-7", &ended)
        .unwrap();
}

/// Events about a node that was released; another one says why the Plan waits.
fn releases(scenario: &Scenario) -> usize {
    let events = scenario.events_of("DrainSkipped").into_iter();
    events
        .filter(|event| {
            event.starts_with("Node a was released as it was: ci/runner-7 had not ended within 30m0s")
        })
        .count()
}

#[test]
fn a_cordoned_node_is_drained_once_such_a_pod_has_ended() {
    let mut scenario = Scenario::of_nodes(&["a", "b"]);
    begin(&mut scenario, AfterWait::Evict);
    assert!(scenario.is_cordoned("a"));
    let entry = scenario.entry("p", "a");
    assert_eq!(entry.reason.as_deref(), Some("PodsRunning"));
    let message = entry.message.unwrap();
    let times = message.strip_prefix("waits for ci/runner-7 to end since 2026-01-01T09:00:");
    let times = times.and_then(|times| times.split_once("Z, until 2026-01-01T09:30:"));
    assert!(
        times.is_some_and(|(since, until)| until == format!("{since}Z")),
        "{message}"
    );
    // Longer than the deadline of the Job without the wait.
    scenario.pass_secs(900);
    assert_eq!(scenario.phase("p", "a"), ["Draining", "PodsRunning"]);
    scenario.restart();
    end_of_runner(&scenario);
    scenario.comes_to("a", PodStage::Upgrade);
    scenario.finish();
    assert_eq!(scenario.invariants.upgrades, 2);
}

#[test]
fn pods_of_other_labels_and_namespaces_are_not_waited_for() {
    let mut scenario = Scenario::of_nodes(&["a"]);
    scenario.cluster.put(runner("shop", "a")).unwrap();
    let mut plan = waiting(AfterWait::Fail);
    plan.spec.drain.as_mut().unwrap().force = Some(true);
    scenario.apply(plan);
    scenario.comes_to("a", PodStage::Upgrade);
    scenario.finish();
}

#[test]
fn after_the_timeout_the_pods_are_evicted_or_the_node_fails() {
    for (after, force, reason) in [
        (AfterWait::Evict, true, ""),
        // It would be evicted, and must not be without `force`.
        (AfterWait::Evict, false, "BackoffLimitExceeded"),
        (AfterWait::Fail, true, "PodFailurePolicy"),
    ] {
        let mut scenario = Scenario::of_nodes(&["a"]);
        scenario.cluster.put(runner("ci", "a")).unwrap();
        let mut plan = waiting(after);
        plan.spec.drain.as_mut().unwrap().force = Some(force);
        scenario.apply(plan);
        scenario.pass_secs(1900);
        if reason.is_empty() {
            scenario.finish();
            continue;
        }
        assert_eq!(scenario.phase("p", "a"), ["Failed", reason], "{after:?}");
        let message = scenario.entry("p", "a").message.unwrap();
        let says = if after == AfterWait::Fail {
            "ci/runner-7 had not ended within 30m0s"
        } else {
            "ci/runner-7"
        };
        assert!(message.contains(says), "{message}");
        assert!(scenario.is_cordoned("a"));
    }
}

#[test]
fn a_node_that_is_skipped_is_released_as_it_was_and_has_its_turn_after_the_others() {
    let mut scenario = Scenario::of_nodes(&["a", "b", "c"]);
    begin(&mut scenario, AfterWait::Skip);
    assert_eq!(scenario.slots("p"), ["a"]);
    let label = "node.kubernetes.io/exclude-from-external-load-balancers";
    let is_marked = |scenario: &Scenario| {
        let node = scenario
            .cluster
            .with(|state| state.get(Kind::Node, "", "a").cloned());
        !node.unwrap()["metadata"]["labels"][label].is_null()
    };
    assert!(is_marked(&scenario));
    scenario.pass_secs(1790);
    assert!(!scenario.is_cordoned("a") && !is_marked(&scenario));
    scenario.roll_out();
    assert!(scenario.is_done("b", "p") && scenario.is_done("c", "p") && !scenario.is_done("a", "p"));
    let entry = scenario.entry("p", "a");
    assert_eq!(entry.reason.as_deref(), Some("DrainSkipped"));
    let message = entry.message.unwrap();
    assert!(
        message.starts_with(
            "spec.drain.waitFor: ci/runner-7 had not ended within 30m0s, so the node was released as it was; its turn comes again at \
             2026-01-01T09:35:"
        ),
        "{message}"
    );
    assert_eq!(releases(&scenario), 1);
    assert!(scenario.events_of("JobFailed").is_empty());
    assert_eq!(scenario.complete("p")[1], "DrainSkipped");
    // Its turn comes again, and the pause is twice as long after the next time.
    scenario.pass_secs(300);
    assert_eq!(scenario.slots("p"), ["a"]);
    assert_eq!(scenario.entry("p", "a").attempt, Some(2));
    scenario.comes_to("a", PodStage::Drain);
    scenario.pass_secs(20);
    let entry = scenario.entry("p", "a");
    assert_eq!(entry.reason.as_deref(), Some("DrainSkipped"));
    let message = entry.message.unwrap();
    for part in [
        "spec.drain.waitFor: the node was released once, last at 2026-01-01T09:30:",
        "because ci/runner-7 had not ended within 30m0s; now the drain waits for ci/runner-7 to end since 2026-01-01T09:35:",
        ", until 2026-01-01T10:05:",
        "if it is released again, its turn comes 10m later",
    ] {
        assert!(message.contains(part), "{message}");
    }
    let snapshot = scenario.snapshot();
    let explained = explain_node(&PlanOverview::new(&snapshot, &snapshot.plans[0]), "a").to_text();
    assert!(explained.contains(&message), "{explained}");
    scenario.pass_secs(1800);
    scenario.restart();
    assert!(!scenario.is_cordoned("a"));
    assert_eq!(scenario.record("a", "p").retries, 2);
    scenario.pass_secs(500);
    assert_eq!(scenario.slots("p"), [""; 0]);
    end_of_runner(&scenario);
    scenario.pass_secs(150);
    scenario.finish();
    assert_eq!(scenario.invariants.upgrades, 3);
}

#[test]
fn releases_use_up_no_retries_of_a_node_that_fails_later() {
    let mut scenario = Scenario::of_nodes(&["a", "b", "c"]);
    begin(&mut scenario, AfterWait::Skip);
    scenario.edit("p", |spec| {
        spec.failure = Some(FailureSpec {
            policy: Some(FailurePolicy::Stop),
            retries: Some(1),
            backoff: Some("1m".to_owned()),
            ..FailureSpec::default()
        });
    });
    scenario.pass_secs(1800);
    assert_eq!(scenario.record("a", "p").retries, 1);
    let other = scenario.live_nodes("p")[0].clone();
    let last = if other == "b" { "c" } else { "b" };
    end_of_runner(&scenario);
    scenario.pass_secs(300);
    scenario.edit("p", |spec| spec.concurrency = Some(2));
    scenario.comes_to("a", PodStage::Upgrade);
    // The failure is not recorded yet, and must not seem to be the last that the Plan allows.
    let record = Rule::on("patch", "nodes")
        .named("a")
        .delay(Duration::from_secs(30));
    scenario.fault(record);
    scenario.fail("a");
    scenario.succeed(&other);
    assert_eq!(scenario.record("a", "p").phase, Phase::Skipped);
    assert!(scenario.live_nodes("p").iter().any(|node| node == last));
    scenario.pass_secs(30);
    assert_eq!(scenario.record("a", "p").retries, 0);
    let message = scenario.entry("p", "a").message.unwrap();
    assert!(message.contains("(retry 1 of 1)"), "{message}");
    scenario.pass_secs(60);
    assert_eq!(scenario.live_job("a").attempt, 3);
    scenario.finish();
}

#[test]
fn an_edit_of_the_wait_ends_the_pause() {
    let mut scenario = Scenario::of_nodes(&["a"]);
    begin(&mut scenario, AfterWait::Skip);
    scenario.pass_secs(1800);
    assert_eq!(scenario.entry("p", "a").reason.as_deref(), Some("DrainSkipped"));
    scenario.edit("p", |spec| {
        let drain = spec.drain.as_mut().unwrap();
        drain.wait_for = None;
        drain.force = Some(true);
    });
    scenario.finish();
}

#[test]
fn a_request_to_retry_ends_the_pause_once() {
    let mut scenario = Scenario::of_nodes(&["a"]);
    begin(&mut scenario, AfterWait::Skip);
    scenario.pass_secs(1800);
    assert_eq!(scenario.phase("p", "a"), ["Waiting", "DrainSkipped"]);
    let snapshot = scenario.snapshot();
    let explained = explain_node(&PlanOverview::new(&snapshot, &snapshot.plans[0]), "a").to_text();
    assert!(
        explained.contains("refit retry -n system-upgrade p a"),
        "{explained}"
    );
    scenario.retry("a", "other, p by ann");
    scenario.pass_secs(20);
    assert_eq!(scenario.slots("p"), ["a"]);
    assert_eq!(scenario.node("a").retry.as_deref(), Some("other"));
    // The next pause is the first one again.
    scenario.pass_secs(1800);
    assert_eq!(
        (scenario.slots("p").len(), scenario.record("a", "p").retries),
        (0, 1)
    );
    end_of_runner(&scenario);
    scenario.retry("a", "*");
    scenario.finish();
}

#[test]
fn a_request_to_retry_that_meets_the_next_turn_retries_no_later_failure() {
    let mut scenario = Scenario::of_nodes(&["a"]);
    begin(&mut scenario, AfterWait::Skip);
    scenario.pass_secs(1800);
    scenario.pass_secs(310);
    assert_eq!(scenario.slots("p"), ["a"]);
    scenario.retry("a", "p,other");
    end_of_runner(&scenario);
    scenario.finish();
    assert_eq!(scenario.node("a").retry.as_deref(), Some("other"));
}

#[test]
fn a_record_that_anybody_wrote_delays_no_node_for_long() {
    let mut scenario = Scenario::of_nodes(&["a"]);
    begin(&mut scenario, AfterWait::Skip);
    scenario.pass_secs(1800);
    let mut record = scenario.record("a", "p").clone();
    record.at = "2099-01-01T00:00:00Z".parse().unwrap();
    record.retries = i64::MAX;
    let key = format!("{}p", names::ANNOTATION_RECORD_PREFIX);
    scenario.annotate(Kind::Node, "a", &key, Some(&record.to_text()));
    end_of_runner(&scenario);
    scenario.finish();
}

#[test]
fn a_skip_meets_a_kill_at_any_write() {
    let begin = || {
        let mut scenario = Scenario::without_controller(&Setup {
            held: false,
            ..Setup::default()
        });
        scenario.add_nodes(&["a", "b"]);
        scenario.cluster.put(runner("ci", "a")).unwrap();
        scenario.apply(waiting(AfterWait::Skip));
        scenario.start();
        scenario
    };
    let run = |scenario: &mut Scenario, at: &str| {
        scenario.pass_secs(1900);
        scenario.rest();
        assert!(scenario.is_done("b", "p"), "{at}");
        assert!(!scenario.is_cordoned("a"), "{at}");
        end_of_runner(scenario);
        scenario.pass_secs(300);
        scenario.rest();
    };
    sweep(8..60, &KILLS, begin, run, |scenario, at| {
        scenario.assert_over();
        assert_eq!(scenario.invariants.upgrades, 2, "{at}: each node once");
        assert_eq!(releases(scenario), 1, "{at}: sent once");
        assert!(scenario.events_of("JobFailed").is_empty());
    });
}
