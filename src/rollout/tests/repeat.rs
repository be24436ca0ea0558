//! When a repetition begins, in a single decision.

use jiff::{SignedDuration, Timestamp};

use super::build::{cluster, decided, observe_node, observe_plan, written};
use crate::{ClusterState, Query, Step};
use refit_api::{PlanSpec, RepeatSpec, RepeatStatus, names};
use refit_facts::NodeFacts;
use refit_fixtures::{labels, morning, node, plan_with, read};
use refit_job::digest::{plan_hash, repeated_hash};

const DAY: SignedDuration = SignedDuration::from_hours(24);

fn daily(spec: &mut PlanSpec) {
    spec.repeat = Some(RepeatSpec {
        every: Some("24h".to_owned()),
        ..RepeatSpec::default()
    });
}

fn done(hash: &str) -> NodeFacts {
    let label = names::plan_label("p");
    NodeFacts {
        labels: labels([(names::LABEL_HOSTNAME, "a"), (&*label, hash)]),
        ..node("a", "n1")
    }
}

/// A complete Plan that repeats, whose status is stored, and its hash.
fn complete(spec: impl Fn(&mut PlanSpec)) -> (ClusterState, String) {
    let plan = plan_with("p", &spec);
    let hash = plan_hash(&plan, "v1", [""; 0]);
    let mut cluster = cluster([done(&hash)], [plan.clone()]);
    store(&mut cluster, 2, &plan, morning());
    (cluster, hash)
}

/// Stores the status that the decision writes.
fn store(cluster: &mut ClusterState, version: u64, plan: &refit_api::Plan, now: Timestamp) {
    let decision = decided(cluster, now);
    let mut stored = read(plan.clone());
    stored.object.status = Some(written(&decision).unwrap().clone());
    observe_plan(cluster, version, stored);
}

#[test]
fn the_next_decision_is_due_with_the_next_repetition() {
    let (mut cluster, hash) = complete(daily);
    let decision = decided(&mut cluster, morning());
    assert_eq!(written(&decision), None);
    assert_eq!(decision.requeue_at, Some(morning() + DAY));
    assert_eq!(cluster.plan("p").unwrap().status().latest_hash, Some(hash));
}

#[test]
fn the_write_that_begins_a_repetition_starts_no_node_and_the_next_one_does_at_another_hash() {
    let (mut cluster, hash) = complete(daily);
    let due = morning() + DAY;
    let decision = decided(&mut cluster, due);
    let status = written(&decision).unwrap();
    let repeat = RepeatStatus {
        since: Some(due.to_string()),
        next: Some((due + DAY).to_string()),
        schedule: Some("every 24h".to_owned()),
    };
    assert_eq!(status.repeat, Some(repeat));
    assert_eq!(
        (status.latest_hash.as_ref(), &status.applying),
        (Some(&hash), &None)
    );
    store(&mut cluster, 3, &plan_with("p", daily), due);
    let decision = decided(&mut cluster, due);
    let status = written(&decision).unwrap();
    assert_eq!(
        status.latest_hash,
        Some(repeated_hash(&hash, &due.to_string())),
        "of the hash before and the time"
    );
    assert_eq!(status.applying, Some(vec!["a".to_owned()]));
    assert_eq!(status.latest_version.as_deref(), Some("v1"));
}

#[test]
fn a_time_that_is_stored_in_whole_seconds_is_stable() {
    let now = morning() + SignedDuration::from_millis(700);
    let plan = plan_with("p", daily);
    let mut cluster = cluster([], [plan.clone()]);
    store(&mut cluster, 2, &plan, now);
    for passed in [0, 1, 900, 86_000_000] {
        let decision = decided(&mut cluster, now + SignedDuration::from_millis(passed));
        assert_eq!(written(&decision), None, "after {passed} ms");
    }
}

#[test]
fn a_clock_that_was_set_back_brings_the_next_time_forward() {
    let (mut cluster, _) = complete(daily);
    let now = morning() - SignedDuration::from_hours(24 * 365);
    let decision = decided(&mut cluster, now);
    let status = written(&decision).unwrap();
    let next = status.repeat.as_ref().unwrap().next.clone();
    assert_eq!(next, Some((now + DAY).to_string()));
}

#[test]
fn a_plan_that_may_start_no_node_begins_no_repetition() {
    let changes: [fn(&mut PlanSpec); 3] = [
        |spec| spec.suspend = Some(true),
        |spec| spec.concurrency = Some(0),
        |spec| spec.post_complete_delay = Some("tomorrow".to_owned()),
    ];
    for change in changes {
        let (mut cluster, _) = complete(|spec| {
            daily(spec);
            change(spec);
        });
        let decision = decided(&mut cluster, morning() + DAY * 3);
        assert_eq!(written(&decision), None);
    }
}

#[test]
fn a_node_that_is_yet_to_start_comes_before_the_next_repetition() {
    let (mut cluster, hash) = complete(daily);
    observe_node(&mut cluster, 1, node("b", "n2"));
    let decision = decided(&mut cluster, morning() + DAY);
    let status = written(&decision).unwrap();
    assert_eq!(status.applying, Some(vec!["b".to_owned()]));
    assert_eq!(status.latest_hash, Some(hash));
    assert_eq!(status.repeat.as_ref().unwrap().since, None);
}

#[test]
fn a_repetition_begins_although_this_controller_has_asked_no_registry_for_the_finished_plan() {
    let (mut cluster, _) = complete(daily);
    cluster.defaults.checks_images = true;
    for plan in cluster.plans.values_mut() {
        plan.settings_changed();
    }
    let due = morning() + DAY;
    let decision = decided(&mut cluster, due);
    let since = written(&decision).unwrap().repeat.clone().unwrap().since;
    assert_eq!(since, Some(due.to_string()));
    store(&mut cluster, 3, &plan_with("p", daily), due);
    let decision = decided(&mut cluster, due);
    let asks = |step: &Step| matches!(step, Step::Query(Query::ReadDigest { .. }));
    assert!(decision.steps.iter().any(asks), "before a node starts");
    assert_eq!(written(&decision).unwrap().applying, None);
}
