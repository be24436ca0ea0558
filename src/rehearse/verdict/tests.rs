use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::api::Plan;
use crate::rehearse::record::Recorder;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// A Plan at the end of a rehearsal: its spec, its status, whether it is complete, and whom it waits for.
fn plan(name: &str, spec: &Value, status: &Value, complete: bool, depends: Option<&str>) -> PlanEnd {
    let plan = json!({
        "apiVersion": "upgrade.cattle.io/v1", "kind": "Plan", "metadata": { "name": name, "namespace": "n" },
        "spec": spec, "status": status,
    });
    PlanEnd {
        plan: serde_json::from_value::<Plan>(plan).unwrap(),
        rehearsed: true,
        complete,
        depends: depends.map(str::to_owned),
    }
}

fn outcome(ending: Ending, plans: Vec<PlanEnd>) -> Outcome {
    let start = at("2026-01-05T09:00:00Z");
    let node = |name: &str, labels: &[(&str, &str)]| {
        let labels = labels
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        (name.to_owned(), labels.collect::<BTreeMap<_, _>>())
    };
    Outcome {
        ending,
        start,
        end: at("2026-01-05T10:02:03Z"),
        seen: at("2026-01-05T12:00:00Z"),
        plans,
        record: Recorder::new(start),
        budgets: Vec::new(),
        nodes: [
            node("control-1", &[(CONTROL_PLANE, "true"), ("gpu", "no")]),
            node("node-1", &[]),
        ]
        .into(),
        kubelets: [
            ("control-1".to_owned(), "v1.33.5".to_owned()),
            ("node-1".to_owned(), "v1.33.5".to_owned()),
        ]
        .into(),
        cordoned: Vec::new(),
    }
}

const QUIET: Ending = Ending::Quiet(SignedDuration::from_hours(1));

fn line(plans: Vec<PlanEnd>) -> String {
    let verdict = judge(&outcome(QUIET, plans));
    assert!(!verdict.complete);
    verdict.line
}

fn waiting(reason: &str, message: &str) -> Value {
    json!({
        "nodes": { "selected": 2, "waiting": 2 },
        "active": [{ "name": "node-1", "phase": "Waiting", "reason": reason, "message": message }],
    })
}

#[test]
fn what_is_through_says_when() {
    let status = json!({ "nodes": { "selected": 2, "done": 2 } });
    let verdict = judge(&outcome(
        Ending::Complete,
        vec![plan("a", &json!({}), &status, true, None)],
    ));
    assert!(verdict.complete && verdict.reasons.is_empty());
    assert_eq!(
        verdict.line,
        "complete: 1 Plan, and nothing to do: all nodes are done already"
    );
}

#[test]
fn a_plan_that_is_not_looked_at_says_what_the_controller_says() {
    let condition =
        |type_: &str| json!({ "conditions": [{ "type": type_, "status": "False", "message": "no\nway" }] });
    let of = |status: &Value| line(vec![plan("a", &json!({}), status, false, None)]);
    assert_eq!(
        of(&condition("Validated")),
        "would fail: Plan a is not valid: no way"
    );
    assert_eq!(
        of(&condition("LatestResolved")),
        "would fail: Plan a has no version: no way"
    );
}

#[test]
fn a_plan_that_starts_no_node_says_why() {
    assert_eq!(
        line(vec![plan(
            "a",
            &json!({}),
            &waiting("Suspended", "spec.suspend is true"),
            false,
            None
        )]),
        "would stall: Plan a starts no node: Suspended: spec.suspend is true; 2 nodes are left waiting"
    );
    let spec = json!({ "window": { "startTime": "10:00", "endTime": "11:00" } });
    assert_eq!(
        line(vec![plan(
            "a",
            &spec,
            &waiting("WindowClosed", "spec.window is closed and never opens"),
            false,
            None
        )]),
        "would stall: Plan a starts no node: WindowClosed: spec.window is closed and never opens (never \
         10:00:00-11:00:00 UTC); 2 nodes are left waiting"
    );
}

#[test]
fn a_selector_that_finds_nothing_says_what_no_node_has() {
    let of = |selector: Value| {
        let spec = json!({ "nodeSelector": selector });
        let status = json!({ "nodes": { "selected": 0 } });
        line(vec![plan("a", &spec, &status, true, None)])
    };
    let begin = "would fail: Plan a selects no node: ";
    assert_eq!(
        of(json!({ "matchLabels": { "gpu": "yes" } })),
        format!("{begin}none of 2 nodes has the label gpu=yes")
    );
    let expression = |key: &str, operator: &str, values: &[&str]| json!({ "matchExpressions": [{ "key": key, "operator": operator, "values": values }] });
    assert_eq!(
        of(expression("gpu", "In", &["a", "b"])),
        format!("{begin}none of 2 nodes has the label gpu with one of a, b")
    );
    assert_eq!(
        of(expression("disk", "Exists", &[])),
        format!("{begin}none of 2 nodes has the label disk")
    );
    assert_eq!(of(Value::Null), format!("{begin}it has no spec.nodeSelector"));
    let both = json!({ "matchLabels": { "gpu": "no" }, "matchExpressions": [{ "key": CONTROL_PLANE, "operator": "DoesNotExist" }] });
    assert_eq!(
        of(both),
        format!("{begin}none of 2 nodes has all that spec.nodeSelector asks for")
    );
}

#[test]
fn a_node_that_failed_or_is_held_up_is_named() {
    let status = |phase: &str, reason: &str| {
        json!({
            "nodes": { "selected": 3, "waiting": 1 },
            "active": [{ "name": "node-1", "phase": phase, "reason": reason, "message": "why" }],
        })
    };
    let of = |phase, reason| line(vec![plan("a", &json!({}), &status(phase, reason), false, None)]);
    assert_eq!(
        of("Failed", "BackoffLimitExceeded"),
        "would fail: Plan a failed on node-1: BackoffLimitExceeded: why; 1 node is left waiting"
    );
    assert_eq!(
        of("Draining", "DrainWaiting"),
        "would stall: Plan a gets no further on node-1: DrainWaiting: why; 1 node is left waiting"
    );
}

#[test]
fn the_cause_comes_before_those_who_wait_for_it() {
    let preparing = json!({
        "latestVersion": "v1.34.1", "nodes": { "selected": 2 },
        "active": [{ "name": "node-1", "phase": "Preparing" }],
    });
    let agents = || plan("agents", &json!({}), &preparing, false, Some("servers"));
    let servers = |complete| {
        let status = waiting("Suspended", "spec.suspend is true");
        plan("servers", &json!({}), &status, complete, None)
    };
    let verdict = judge(&outcome(QUIET, vec![agents(), servers(false)]));
    let reasons: Vec<_> = verdict
        .reasons
        .iter()
        .map(|reason| reason.plan.as_str())
        .collect();
    assert_eq!(reasons, ["servers", "agents"]);
    assert_eq!(
        verdict.line,
        "would stall: Plan servers starts no node: Suspended: spec.suspend is true; 2 nodes are left waiting"
    );
    assert_eq!(
        line(vec![agents()]),
        "would stall: Plan agents gets no further: node-1 waits in `prepare` for Plan servers, which is neither in the \
         files nor on the cluster"
    );
    assert_eq!(
        line(vec![agents(), servers(true)]),
        "would stall: Plan agents gets no further: node-1 waits in `prepare` for control-plane nodes of version v1.34.1, \
         and control-1 runs v1.33.5"
    );
}

#[test]
fn an_end_beyond_what_was_looked_at_is_told() {
    let ending = Ending::Limit(SignedDuration::from_hours(24 * 90));
    let plans = vec![plan(
        "a",
        &json!({}),
        &waiting("WindowClosed", "later"),
        false,
        None,
    )];
    assert_eq!(
        judge(&outcome(ending, plans)).line,
        "would not be through within 90d: Plan a starts no node: WindowClosed: later; 2 nodes are left waiting"
    );
}

#[test]
fn durations_have_their_two_largest_units() {
    for (seconds, told) in [
        (0, "0s"),
        (59, "59s"),
        (60, "1m"),
        (250, "4m10s"),
        (3_600, "1h"),
        (3_661, "1h1m"),
        (86_400, "1d"),
        (100_000, "1d3h"),
    ] {
        assert_eq!(duration(SignedDuration::from_secs(seconds)), told);
    }
}

#[test]
fn a_budget_is_named_where_the_upgrade_never_began() {
    use crate::rehearse::resources::Kind;
    use crate::rehearse::store::{Change, Object};
    use std::sync::Arc;

    let start = at("2026-01-05T09:00:00Z");
    let told = |phases: &[&str]| {
        let mut outcome = outcome(QUIET, Vec::new());
        let see = |outcome: &mut Outcome, kind, value: Value, minute: i64| {
            let change = Change {
                version: 1,
                old: None,
                new: Arc::new(Object::new(value.into(), 1)),
                gone: false,
            };
            let now = start.checked_add(SignedDuration::from_mins(minute)).unwrap();
            outcome.record.see(kind, &change, now);
        };
        let note = json!({
            "evicted": 0, "total": 1,
            "waiting": [{ "pod": "shop/web-1", "pdb": "web", "since": "2026-01-05T09:00:00Z", "why": "no" }],
        });
        let pod = json!({
            "metadata": {
                "name": "pod", "labels": { "upgrade.cattle.io/controller": "c", "upgrade.cattle.io/plan": "a" },
                "annotations": { "refit.rs/drain": note.to_string() },
            },
            "spec": { "nodeName": "node-1" }, "status": { "phase": "Running" },
        });
        for (minute, phase) in (0..).zip(phases) {
            let active = json!([{ "name": "node-1", "phase": phase }]);
            let plan = json!({ "metadata": { "name": "a" }, "status": { "active": active } });
            see(&mut outcome, Kind::Plan, plan, minute);
            if minute == 0 {
                see(&mut outcome, Kind::Pod, pod.clone(), minute);
            }
        }
        waited("a", "node-1", &outcome)
    };
    assert_eq!(
        told(&["Draining", "Finishing", "Failed"]),
        "; it waited 2m for PodDisruptionBudget shop/web"
    );
    assert_eq!(told(&["Draining", "Upgrading", "Failed"]), "");
}
