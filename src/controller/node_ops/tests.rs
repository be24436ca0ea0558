use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::child;
use super::status::next;
use super::traces::{skipped_because, without_traces};
use refit_api::Plan;
use refit_facts::objects::node_op::{AnyOp, OpKind, OpStatus};
use refit_formats::convert::op_plan;

const UID: &str = "0c9f1e7a-2b7b-4f0e-9c52-1d4f6f6b7f10";

fn op(kind: OpKind, name: &str, spec: Value) -> AnyOp {
    AnyOp {
        kind,
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some("apps".to_owned()),
            uid: Some(UID.to_owned()),
            generation: Some(1),
            ..ObjectMeta::default()
        },
        spec,
        status: OpStatus::default(),
    }
}

fn now() -> Timestamp {
    "2026-01-05T09:00:00Z".parse().unwrap()
}

/// The status that follows from nodes in progress, and from those that are done.
fn follows(op: &AnyOp, active: &Value, done: &[&str], complete: bool, may_reboot: bool) -> OpStatus {
    let when = if may_reboot { "Always" } else { "Never" };
    let plan: Plan = serde_json::from_value(json!({
        "apiVersion": "upgrade.cattle.io/v1", "kind": "Plan",
        "metadata": { "name": "p", "generation": 1 },
        "spec": { "preflight": { "image": "i" }, "reboot": { "when": when } },
        "status": {
            "active": active, "observedGeneration": 1,
            "conditions": [{ "type": "Complete", "status": if complete { "True" } else { "False" } }],
        },
    }))
    .unwrap();
    let done: Vec<String> = done.iter().map(|&name| name.to_owned()).collect();
    let skipped = complete.then(|| ("s".to_owned(), "it is new".to_owned()));
    next(op, &plan, &done, &skipped.into_iter().collect(), now())
}

#[test]
fn the_name_of_the_plan_is_that_of_a_label_and_belongs_to_one_object() {
    let name = op_plan::plan_name("NodeOp", "example-nodeop", UID);
    assert_eq!(name, "nodeop-example-nodeop-0c9f1e7a");
    let long = op_plan::plan_name("NodeOpUpgrade", &"a.b-".repeat(50), UID);
    assert!(
        long.len() <= 63 && long.starts_with("nodeopupgrade-a.b-a.b") && long.ends_with("-0c9f1e7a"),
        "{long}"
    );
    assert!(!long.contains("--"), "{long}");
    let of_file = op_plan::plan_name("NodeOp", "example-nodeop", "");
    assert_eq!(of_file, "nodeop-example-nodeop");
}

#[test]
fn each_phase_of_a_node_has_a_word_of_kairos_operator() {
    let op = op(OpKind::Op, "op", json!({}));
    for (phase, reboots, expected) in [
        ("Pending", true, ["Pending", "Job created", "pending"]),
        (
            "Preparing",
            true,
            ["Preflight", "Preflight in progress", "pending"],
        ),
        ("Draining", false, ["Running", "Job is running", "not-requested"]),
        ("Upgrading", true, ["Running", "Job is running", "pending"]),
        (
            "Rebooting",
            true,
            ["Completed", "Job completed successfully", "pending"],
        ),
        (
            "Verifying",
            false,
            ["Completed", "Job completed successfully", "not-requested"],
        ),
        ("Failed", true, ["Failed", "Job failed: exit code 3", "cancelled"]),
        (
            "Failed",
            false,
            ["Failed", "Job failed: exit code 3", "not-requested"],
        ),
    ] {
        let active = json!([{ "name": "a", "phase": phase, "job": "j", "message": "exit code 3" }, { "name": "b", "phase": "Waiting" }]);
        let status = follows(&op, &active, &[], false, reboots);
        assert_eq!(status.node_statuses.len(), 1, "{phase}");
        let entry = &status.node_statuses["a"];
        assert_eq!(
            [&*entry.phase, &*entry.message, &*entry.reboot_status],
            expected,
            "{phase}"
        );
        assert_eq!(entry.job_name, "j");
        assert_eq!(status.phase, if phase == "Failed" { "Failed" } else { "Running" });
    }
}

#[test]
fn a_node_that_is_done_keeps_its_job_and_times_change_only_with_what_they_are_of() {
    let mut op = op(OpKind::Op, "op", json!({}));
    op.status = follows(
        &op,
        &json!([{ "name": "a", "phase": "Upgrading", "job": "j" }]),
        &[],
        false,
        true,
    );
    let mut known = op.clone();
    known.status.last_updated = Some("before".to_owned());
    known.status.node_statuses.get_mut("a").unwrap().last_updated = Some("before".to_owned());
    let same = follows(
        &known,
        &json!([{ "name": "a", "phase": "Upgrading", "job": "j" }]),
        &[],
        false,
        true,
    );
    assert_eq!(same, known.status);
    let status = follows(&op, &json!([]), &["a"], true, true);
    let entry = &status.node_statuses["a"];
    assert_eq!(
        [
            &*entry.phase,
            &*entry.message,
            &*entry.job_name,
            &*entry.reboot_status
        ],
        [
            "Completed",
            "Job and reboot completed successfully",
            "j",
            "completed"
        ]
    );
    assert_eq!(
        status.node_statuses["s"].message,
        "Skipped by preflight: it is new"
    );
    assert_eq!(status.phase, "Completed");
    let text = json!(status);
    assert_eq!(text["nodeStatuses"]["s"].get("jobName"), None);
    assert_eq!(text["lastUpdated"], "2026-01-05T09:00:00Z");
}

#[test]
fn a_node_that_leaves_before_it_is_done_leaves_no_open_entry() {
    let mut op = op(OpKind::Op, "op", json!({}));
    for phase in ["Upgrading", "Rebooting", "Failed"] {
        let at_work = json!([{ "name": "gone", "phase": phase }, { "name": "a", "phase": "Upgrading" }]);
        op.status = follows(&op, &at_work, &[], false, true);
        let failed = json!([{ "name": "gone", "phase": "Failed" }]);
        let status = follows(&op, &failed, &["a"], true, true);
        assert_eq!(
            status.node_statuses["gone"].phase, "Failed",
            "it has a slot still"
        );
        let status = follows(&op, &json!([]), &["a"], true, true);
        let names: Vec<_> = status.node_statuses.keys().map(String::as_str).collect();
        assert_eq!((names, &*status.phase), (vec!["a", "s"], "Completed"), "{phase}");
    }
}

#[test]
fn an_upgrade_says_how_it_goes() {
    let op = op(OpKind::Upgrade, "op", json!({}));
    let said = |active: Value, done: &[&str], complete: bool| {
        let status = follows(&op, &active, done, complete, true);
        (status.phase.to_string(), status.message)
    };
    let of = |phase: &str, message: &str| (phase.to_owned(), message.to_owned());
    assert_eq!(said(json!([]), &[], false), of("Initializing", "NodeOp created"));
    let at_work = json!([{ "name": "a", "phase": "Upgrading" }]);
    assert_eq!(
        said(at_work, &[], false),
        of("Running", "Upgrade operation is running")
    );
    let failed = json!([{ "name": "a", "phase": "Failed" }]);
    assert_eq!(said(failed, &[], false), of("Failed", "Upgrade operation failed"));
    assert_eq!(
        said(json!([]), &["a"], true),
        of("Completed", "Upgrade operation completed successfully")
    );
}

#[test]
fn fields_of_the_annotation_come_over_those_of_the_object_and_mistakes_are_named() {
    let mut op = op(OpKind::Op, "op", json!({ "command": ["true"], "concurrency": 2 }));
    let with = |op: &mut AnyOp, text: &str| {
        let annotations = [(op_plan::ANNOTATION_SPEC.to_owned(), text.to_owned())];
        op.metadata.annotations = Some(annotations.into());
        child::plan(op, "system-upgrade")
    };
    let plan = with(&mut op, r#"{"concurrency":1,"windows":[{"days":["mon"]}]}"#).unwrap();
    assert_eq!(plan["spec"]["concurrency"], 1);
    assert_eq!(plan["spec"]["windows"], json!([{ "days": ["mon"] }]));
    assert_eq!(plan["metadata"]["labels"], json!({ "refit.rs/node-op": UID }));
    assert_eq!(
        plan["metadata"]["annotations"]["refit.rs/node-op"],
        "NodeOp apps/op"
    );
    let why = with(&mut op, r#"{"windowss":[]}"#).unwrap_err();
    assert_eq!(
        why,
        "annotation refit.rs/plan-spec: a Plan has no field spec.windowss"
    );
    let why = with(&mut op, r#"{"waves":[{"nodes":1},{"maxNodes":2}]}"#).unwrap_err();
    assert_eq!(
        why,
        "annotation refit.rs/plan-spec: a Plan has no field spec.waves[1].maxNodes"
    );
    let why = with(&mut op, "windows: []").unwrap_err();
    assert!(
        why.starts_with("annotation refit.rs/plan-spec must be a JSON object of fields of a Plan: "),
        "{why}"
    );
    let why = with(&mut op, r#"{"concurrency":"two"}"#).unwrap_err();
    assert!(
        why.starts_with("annotation refit.rs/plan-spec: ") && why.contains("two"),
        "{why}"
    );
}

#[test]
fn marks_of_a_deleted_plan_are_removed_from_a_node_and_those_of_others_stay() {
    let (label, plan) = ("plan.upgrade.cattle.io/p", "p");
    let node = |labels: Value, annotations: Value| -> ObjectMeta {
        serde_json::from_value(
            json!({ "uid": "u", "resourceVersion": "7", "labels": labels, "annotations": annotations }),
        )
        .unwrap()
    };
    assert_eq!(
        without_traces(&node(json!({ "other": "x" }), json!({})), label, plan),
        None
    );
    let patch = without_traces(
        &node(json!({ label: "x" }), json!({ "refit.rs/skip": "q@1" })),
        label,
        plan,
    );
    assert_eq!(
        patch,
        Some(json!({ "metadata": { "uid": "u", "labels": { label: null } } }))
    );
    let skip = "q@1 by alice at 2026-01-01T09:00:00Z, p@1 preflight: it is new";
    let patch = without_traces(&node(json!({}), json!({ "refit.rs/skip": skip })), label, plan);
    let left = json!({ "refit.rs/skip": "q@1 by alice at 2026-01-01T09:00:00Z" });
    assert_eq!(
        patch,
        Some(json!({ "metadata": { "uid": "u", "resourceVersion": "7", "annotations": left } }))
    );
    assert_eq!(skipped_because(skip, plan).as_deref(), Some("it is new"));
    assert_eq!(skipped_because(skip, "q"), None);
}
