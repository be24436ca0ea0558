//! Verdicts that the tests of the command (`tests/rehearse_cli/stalls.rs`) do not reach.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::judge as judge_with;
use super::*;
use crate::record::Recorder;
use crate::resources;
use crate::store::{Change, Object};
use refit_view::Snapshot;
use refit_view::read::ObjectKind;

const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";

fn judge(outcome: &Outcome) -> Verdict {
    judge_with(outcome, &TimeFormat::since(outcome.start))
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// A Plan at the end of a rehearsal.
fn plan(name: &str, spec: &Value, status: &Value, complete: bool) -> PlanFacts {
    let mut plan = json!({
        "apiVersion": "upgrade.cattle.io/v1", "kind": "Plan",
        "metadata": { "name": name, "namespace": "n", "uid": name, "generation": 1 }, "spec": spec, "status": status,
    });
    plan["status"]["observedGeneration"] = json!(1);
    if complete {
        plan["status"]["conditions"] = json!([{ "type": "Complete", "status": "True" }]);
    }
    serde_json::from_value(plan).unwrap()
}

fn outcome(ending: Ending, plans: Vec<PlanFacts>) -> Outcome {
    let start = at("2026-01-05T09:00:00Z");
    let mut snapshot = Snapshot::default();
    let mut put = |kind, uid: &str, object: Value| {
        let raw = serde_json::value::to_raw_value(&object).unwrap();
        snapshot.put(kind, uid, &raw).unwrap();
    };
    for plan in &plans {
        let object = serde_json::to_value(&plan.object).unwrap();
        put(ObjectKind::Plan, &plan.name, object);
    }
    for (name, labels) in [
        ("control-1", json!({ CONTROL_PLANE: "true", "gpu": "no" })),
        ("node-1", json!({})),
    ] {
        let node = json!({
            "metadata": { "name": name, "uid": name, "labels": labels },
            "status": { "nodeInfo": { "kubeletVersion": "v1.33.5" } },
        });
        put(ObjectKind::Node, name, node);
    }
    Outcome {
        ending,
        start,
        end: at("2026-01-05T10:02:03Z"),
        seen: at("2026-01-05T12:00:00Z"),
        rehearsed: plans.len(),
        complete: plans
            .iter()
            .filter(|plan| plan.status().is_true(ConditionType::Complete))
            .map(|plan| plan.name.clone())
            .collect(),
        plans,
        record: Recorder::new(start),
        budgets: Vec::new(),
        not_ready: std::collections::BTreeSet::new(),
        snapshot,
        cordoned: Vec::new(),
        absent: BTreeMap::new(),
        blackouts: Vec::new(),
        faults: Vec::new(),
    }
}

const QUIET: Ending = Ending::Quiet(SignedDuration::from_hours(1));

fn line(plans: Vec<PlanFacts>) -> String {
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
    let status = json!({ "nodes": { "selected": 2, "done": 2 }, "active": [] });
    let verdict = judge(&outcome(
        Ending::Complete,
        vec![plan("a", &json!({}), &status, true)],
    ));
    assert!(verdict.complete && verdict.reasons.is_empty());
    assert_eq!(
        verdict.line,
        "complete: 1 Plan, and nothing to do: all nodes are done already"
    );
}

#[test]
fn done_nodes_whose_kubelets_have_another_version_are_named() {
    let status = json!({
        "nodes": { "selected": 2, "done": 2 },
        "active": [],
        "versionDiffers": [{ "name": "node-1", "uid": "node-1", "kubeletVersion": "v1.33.5", "since": "2026-01-05T09:00:00Z" }],
    });
    let verdict = judge(&outcome(
        Ending::Complete,
        vec![plan("a", &json!({}), &status, true)],
    ));
    assert_eq!(
        verdict.line,
        "complete: 1 Plan, and nothing to do: all nodes are done already, though the kubelets of done nodes have another version \
         (VersionDiffers): node-1 v1.33.5"
    );
}

#[test]
fn a_plan_of_which_some_nodes_are_done_starts_no_further_node() {
    let mut status = waiting("Suspended", "because");
    status["nodes"] = json!({ "selected": 3, "done": 2, "waiting": 1 });
    assert_eq!(
        line(vec![plan("a", &json!({}), &status, false)]),
        "would stall: Plan a starts no further node: Suspended: because; 1 node is left waiting"
    );
}

#[test]
fn a_plan_that_is_not_resolved_says_what_the_controller_says() {
    let condition =
        |type_: &str| json!({ "conditions": [{ "type": type_, "status": "False", "message": "no\nway" }] });
    let of = |status: &Value| line(vec![plan("a", &json!({}), status, false)]);
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
        (
            json!({ "matchLabels": { "node-role.kubernetes.io/master": "true" } }),
            "none of 2 nodes has the label node-role.kubernetes.io/master=true; control-1 (v1.33.5) has \
             node-role.kubernetes.io/control-plane instead",
        ),
        (
            json!({ "matchExpressions": [
                { "key": "node-role.kubernetes.io/master", "operator": "DoesNotExist" }, { "key": "disk", "operator": "Exists" },
            ] }),
            "none of 2 nodes has the label disk",
        ),
        (Value::Null, "it has no spec.nodeSelector"),
        (
            json!({ "matchLabels": { "gpu": "no" }, "matchExpressions": [control_plane] }),
            "none of 2 nodes meets all requirements of spec.nodeSelector",
        ),
    ] {
        let spec = json!({ "nodeSelector": selector });
        let line = line(vec![plan("a", &spec, &status, true)]);
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
    let of = |phase, reason| line(vec![plan("a", &json!({}), &status(phase, reason), false)]);
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
    let prepare = json!({ "prepare": { "image": "i", "args": ["prepare", "servers"] } });
    let agents = || plan("agents", &prepare, &preparing, false);
    let servers = |complete| {
        let done = json!({ "nodes": { "selected": 1, "done": 1 }, "active": [] });
        let status = if complete {
            done
        } else {
            waiting("Suspended", "spec.suspend is true")
        };
        plan("servers", &json!({}), &status, complete)
    };
    let judged = |plans: Vec<PlanFacts>| judge(&outcome(QUIET, plans));
    let verdict = judged(vec![agents(), servers(false)]);
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
    let begin = "makes no progress on node-1: Prepare: `prepare` waits for ";
    assert_eq!(
        verdict.reasons[1].why,
        format!("{begin}Plan servers, which is not complete")
    );
    assert_eq!(
        judged(vec![agents(), servers(true)]).line,
        format!(
            "would stall: Plan agents {begin}control-plane nodes of version v1.34.1, and control-1 runs v1.33.5"
        )
    );
    let left_out = "is left out; add it";
    let mut one = outcome(QUIET, vec![agents()]);
    one.absent.insert("servers".to_owned(), left_out.to_owned());
    assert_eq!(
        judge(&one).line,
        format!("would stall: Plan agents {begin}Plan servers, which {left_out}")
    );
    let mut without = outcome(QUIET, vec![agents(), servers(true)]);
    without.snapshot.nodes.as_mut().unwrap().remove("control-1");
    assert_eq!(
        judge(&without).line,
        format!(
            "would stall: Plan agents {begin}a control-plane node, but no node has the label \
             node-role.kubernetes.io/control-plane"
        )
    );
}

#[test]
fn a_node_at_work_is_the_stall_and_not_what_others_wait_for() {
    let status = json!({
        "nodes": { "selected": 2, "waiting": 1 },
        "active": [
            { "name": "node-1", "phase": "Upgrading" },
            { "name": "node-2", "phase": "Waiting", "reason": "NodeNotReady", "message": "why" },
        ],
        "obstacle": { "node": "node-2", "reason": "NodeNotReady", "message": "why" },
    });
    let verdict = judge(&outcome(QUIET, vec![plan("a", &json!({}), &status, false)]));
    assert_eq!(
        verdict.line,
        "would stall: Plan a makes no progress on node-1: it stays Upgrading; 1 node is left waiting"
    );
    let json = serde_json::to_value(&verdict.reasons[0]).unwrap();
    assert_eq!(json.get("reason"), None);
}

#[test]
fn only_prepare_of_a_plan_was_waiting_for_one() {
    let timed_out = |spec: &Value, message: &str| {
        let held = json!({ "reason": "PrepareTimedOut", "message": message });
        let mut node = held.clone();
        node["name"] = json!("node-1");
        node["phase"] = json!("Failed");
        let mut obstacle = held;
        obstacle["node"] = json!("node-1");
        let status = json!({ "nodes": { "selected": 1 }, "active": [node], "obstacle": obstacle });
        line(vec![plan("a", spec, &status, false)])
    };
    let own = json!({ "prepare": { "image": "i", "command": ["sleep", "9"] } });
    let failed = "would fail: Plan a failed on node-1: PrepareTimedOut: ";
    assert_eq!(timed_out(&own, "late"), format!("{failed}late"));
    let script = json!({ "prepare": { "image": "i", "args": ["prepare", "servers"] } });
    assert!(timed_out(&script, "late").contains("; it waited for Plan servers, which does not exist"));
    let preflight = "container preflight exited with 137";
    let mut both = script;
    both["preflight"] = json!({ "image": "i" });
    assert_eq!(timed_out(&both, preflight), format!("{failed}{preflight}"));
}

#[test]
fn a_plan_that_is_complete_after_the_deadline_of_a_job_is_named_with_both_times() {
    let late = |deadline: Value| {
        let node =
            json!({ "name": "node-1", "phase": "Failed", "reason": "PrepareTimedOut", "message": "late" });
        let status = json!({ "nodes": { "selected": 1 }, "active": [node], "obstacle": {
            "node": "node-1", "reason": "PrepareTimedOut", "message": "late",
        } });
        let prepare = json!({ "image": "i", "args": ["prepare", "servers"] });
        let spec = json!({ "prepare": prepare, "jobActiveDeadlineSecs": deadline });
        let servers = plan("servers", &json!({}), &json!({}), true);
        let mut outcome = outcome(QUIET, vec![plan("a", &spec, &status, false), servers]);
        let complete = crate::json::json!({
            "metadata": { "name": "servers", "generation": 1 },
            "status": { "observedGeneration": 1, "latestHash": "h", "conditions": [
                { "type": "Complete", "status": "True" }, { "type": "Validated", "status": "True" },
            ] },
        });
        let change = Change {
            version: 1,
            old: None,
            new: Arc::new(Object::new(complete, 1)),
            gone: false,
        };
        let at = at("2026-01-05T10:01:00Z");
        outcome.record.observe(resources::Kind::Plan, &change, at);
        judge(&outcome).line
    };
    let says = |line: &str, deadline: &str| {
        let begin = "late; it waited for Plan servers, which was complete at +1:01:00, too late for the Job's deadline of ";
        assert!(line.ends_with(&format!("{begin}{deadline}")), "{line}");
    };
    says(
        &late(json!(1_800)),
        "30m (spec.jobActiveDeadlineSecs): wait by spec.dependsOn instead, or raise it",
    );
    says(
        &late(Value::Null),
        "the controller (SYSTEM_UPGRADE_JOB_ACTIVE_DEADLINE_SECONDS): wait by spec.dependsOn instead, or set \
         spec.jobActiveDeadlineSecs",
    );
}

#[test]
fn an_incomplete_plan_that_cannot_be_read_is_a_failure_and_windows_are_of_a_plan_at_rest() {
    let window = json!({ "window": { "startTime": "22:00", "endTime": "23:00" } });
    let invalid = json!({ "conditions": [{ "type": "Validated", "status": "False", "message": "no" }] });
    let line = line(vec![plan("a", &window, &invalid, false)]);
    assert_eq!(line, "would fail: Plan a is not valid: no");
    for complete in [false, true] {
        let unread = plan("a", &json!({ "concurrency": [] }), &json!({}), complete);
        assert!(unread.malformed.is_some());
        assert_eq!(judge(&outcome(QUIET, vec![unread])).complete, complete);
    }
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
