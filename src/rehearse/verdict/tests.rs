//! Verdicts that the tests of the command (`tests/rehearse_cli/stalls.rs`) do not reach.

use jiff::SignedDuration;
use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::judge as judge_with;
use super::*;
use crate::record::Recorder;
use crate::upgrade_script::PrepareWait;
use refit_api::Plan;

fn judge(outcome: &Outcome) -> Verdict {
    judge_with(outcome, &TimeFormat::since(outcome.start))
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// A Plan at the end of a rehearsal. `depends` is the Plan that it waits for.
fn plan(name: &str, spec: &Value, status: &Value, complete: bool, depends: Option<&str>) -> PlanOutcome {
    let plan = json!({
        "apiVersion": "upgrade.cattle.io/v1", "kind": "Plan", "metadata": { "name": name, "namespace": "n" },
        "spec": spec, "status": status,
    });
    PlanOutcome {
        plan: serde_json::from_value::<Plan>(plan).unwrap(),
        rehearsed: true,
        complete,
        depends: depends.map(str::to_owned),
    }
}

fn outcome(ending: Ending, plans: Vec<PlanOutcome>) -> Outcome {
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
        not_ready: std::collections::BTreeSet::new(),
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
        absent: BTreeMap::new(),
        blackouts: Vec::new(),
        faults: Vec::new(),
    }
}

const QUIET: Ending = Ending::Quiet(SignedDuration::from_hours(1));

fn line(plans: Vec<PlanOutcome>) -> String {
    let verdict = judge(&outcome(QUIET, plans));
    assert!(!verdict.complete);
    verdict.line
}

fn waiting(reason: &str, message: &str) -> Value {
    json!({
        "nodes": { "selected": 2, "waiting": 2 },
        "active": [{ "name": "node-1", "phase": "Waiting", "reason": reason, "message": message }],
        "obstacle": { "reason": reason, "message": message },
    })
}

#[test]
fn a_complete_rehearsal_says_when() {
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
fn a_plan_that_is_not_resolved_says_what_the_controller_says() {
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
fn a_selector_that_finds_nothing_says_what_no_node_has() {
    let status = json!({ "nodes": { "selected": 0 } });
    let control_plane = json!({ "key": CONTROL_PLANE, "operator": "DoesNotExist" });
    for (selector, why) in [
        (
            json!({ "matchLabels": { "gpu": "yes" } }),
            "none of 2 nodes has the label gpu=yes",
        ),
        (
            json!({ "matchExpressions": [{ "key": "gpu", "operator": "In", "values": ["a", "b"] }] }),
            "none of 2 nodes has the label gpu with one of a, b",
        ),
        (
            json!({ "matchExpressions": [{ "key": "disk", "operator": "Exists" }] }),
            "none of 2 nodes has the label disk",
        ),
        (Value::Null, "it has no spec.nodeSelector"),
        (
            json!({ "matchLabels": { "gpu": "no" }, "matchExpressions": [control_plane] }),
            "none of 2 nodes meets all requirements of spec.nodeSelector",
        ),
    ] {
        let spec = json!({ "nodeSelector": selector });
        let line = line(vec![plan("a", &spec, &status, true, None)]);
        assert_eq!(line, format!("would fail: Plan a selects no node: {why}"));
    }
}

#[test]
fn a_node_that_failed_or_is_held_up_is_named() {
    let status = |phase: &str, reason: &str| {
        json!({
            "nodes": { "selected": 3, "waiting": 1 },
            "active": [{ "name": "node-1", "phase": phase, "reason": reason, "message": "why" }],
            "obstacle": { "node": "node-1", "reason": reason, "message": "why" },
        })
    };
    let of = |phase, reason| line(vec![plan("a", &json!({}), &status(phase, reason), false, None)]);
    assert_eq!(
        of("Failed", "BackoffLimitExceeded"),
        "would fail: Plan a failed on node-1: BackoffLimitExceeded: why; 1 node is left waiting"
    );
    assert_eq!(
        of("Draining", "DrainWaiting"),
        "would stall: Plan a makes no progress on node-1: DrainWaiting: why; 1 node is left waiting"
    );
}

#[test]
fn the_cause_comes_before_the_plans_that_wait_for_it() {
    let preparing = json!({
        "latestVersion": "v1.34.1", "nodes": { "selected": 2 },
        "active": [{ "name": "node-1", "phase": "Preparing" }],
    });
    let agents = || plan("agents", &json!({}), &preparing, false, Some("servers"));
    let servers = |complete| {
        let status = waiting("Suspended", "spec.suspend is true");
        plan("servers", &json!({}), &status, complete, None)
    };
    let differs = PrepareWait::VersionDiffers {
        wanted: "v1.34.1".to_owned(),
        node: "control-1".to_owned(),
        kubelet: "v1.33.5".to_owned(),
    };
    let judged = |plans: Vec<PlanOutcome>, wait: &PrepareWait| {
        let mut outcome = outcome(QUIET, plans);
        let start = outcome.start;
        outcome.record.see_prepare("agents", "node-1", Some(wait), start);
        judge(&outcome)
    };
    let verdict = judged(vec![agents(), servers(false)], &differs);
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
        verdict.reasons[1].why,
        "makes no progress: node-1 waits in `prepare` for Plan servers, which does not complete"
    );
    let begin = "would stall: Plan agents makes no progress: node-1 waits in `prepare` for ";
    assert_eq!(
        judged(vec![agents(), servers(true)], &differs).line,
        format!("{begin}control-plane nodes of version v1.34.1, and control-1 runs v1.33.5")
    );
    assert_eq!(
        judged(vec![agents()], &PrepareWait::NoControlPlane).line,
        format!(
            "{begin}a control-plane node, but no node has the label \
             node-role.kubernetes.io/control-plane"
        )
    );
}

#[test]
fn durations_have_their_two_largest_units() {
    for (seconds, text) in [
        (0, "0s"),
        (59, "59s"),
        (60, "1m"),
        (250, "4m10s"),
        (3_600, "1h"),
        (3_661, "1h1m"),
        (86_400, "1d"),
        (100_000, "1d3h"),
    ] {
        assert_eq!(duration(SignedDuration::from_secs(seconds)), text);
    }
}

#[test]
fn a_budget_is_named_where_the_upgrade_never_began() {
    use crate::resources::Kind;
    use crate::store::{Change, Object};
    use std::sync::Arc;

    let start = at("2026-01-05T09:00:00Z");
    let waited = |phases: &[&str]| {
        let mut outcome = outcome(QUIET, Vec::new());
        let see = |outcome: &mut Outcome, kind, value: Value, minute: i64| {
            let change = Change {
                version: 1,
                old: None,
                new: Arc::new(Object::new(value.into(), 1)),
                gone: false,
            };
            let now = start.checked_add(SignedDuration::from_mins(minute)).unwrap();
            outcome.record.observe(kind, &change, now);
        };
        let drain = json!({
            "plan": "a", "pod": "u", "evicted": 0, "total": 1,
            "waiting": [{ "pod": "shop/web-1", "pdb": "web", "since": "2026-01-05T09:00:00Z", "why": "no" }],
        });
        let pod = json!({
            "metadata": {
                "name": "pod", "labels": { "upgrade.cattle.io/controller": "c", "upgrade.cattle.io/plan": "a" },
            },
            "spec": { "nodeName": "node-1" }, "status": { "phase": "Running" },
        });
        let node = json!({ "metadata": { "name": "node-1", "annotations": { "refit.rs/drain": drain.to_string() } } });
        for (minute, phase) in (0..).zip(phases) {
            let active = json!([{ "name": "node-1", "phase": phase }]);
            let plan = json!({ "metadata": { "name": "a" }, "status": { "active": active } });
            see(&mut outcome, Kind::Plan, plan, minute);
            if minute == 0 {
                see(&mut outcome, Kind::Pod, pod.clone(), minute);
                see(&mut outcome, Kind::Node, node.clone(), minute);
            }
        }
        let end = plan("a", &json!({}), &json!({}), false, None);
        waits::waited(&end, "node-1", &outcome).map(|(text, _)| text)
    };
    assert_eq!(
        waited(&["Draining", "Finishing", "Failed"]).as_deref(),
        Some("it waited 2m for PodDisruptionBudget shop/web")
    );
    assert_eq!(waited(&["Draining", "Upgrading", "Failed"]), None);
}
