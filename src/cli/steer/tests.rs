//! What each command writes, and what it refuses.

mod start;

use std::collections::BTreeMap;

use serde_json::json;

use super::change::changes;
use super::edit::{Action, Changes, Edit, Request};
use super::wait::Goal;
use refit_api::{
    ChannelStatus, ConditionType, NodeCounts, NodePhase, NodeProgress, Plan, PlanCondition, PlanStatus,
    Reason, WavePhase, WaveStatus, names,
};
use refit_facts::NodeFacts;
use refit_facts::record::{Phase, Record};
use refit_fixtures::{labels, node, plan, read};
use refit_view::PlanOverview;
use refit_view::read::{NodeObject, Snapshot};

const BY: &str = "by alice at 2026-01-01T09:00:00Z";

fn condition(type_: ConditionType, status: &str, reason: Reason) -> PlanCondition {
    PlanCondition {
        type_: type_.into(),
        status: status.to_owned(),
        reason: Some(reason.into()),
        ..PlanCondition::default()
    }
}

fn entry(name: &str, phase: NodePhase, reason: Option<Reason>) -> NodeProgress {
    NodeProgress {
        name: name.to_owned(),
        phase: phase.into(),
        reason: reason.map(Into::into),
        attempt: Some(1),
        ..NodeProgress::default()
    }
}

/// A roll-out in which `failed` has failed, `upgrading` is at it, `waiting` waits, and `done` is done.
fn status() -> PlanStatus {
    PlanStatus {
        conditions: vec![condition(ConditionType::Complete, "False", Reason::JobFailed)],
        latest_version: Some("v1".to_owned()),
        latest_hash: Some("hash".to_owned()),
        observed_generation: Some(1),
        nodes: Some(NodeCounts {
            selected: 4,
            done: 1,
            applying: 1,
            waiting: 1,
            failed: 1,
            ..NodeCounts::default()
        }),
        active: Some(vec![
            entry("failed", NodePhase::Failed, Some(Reason::BackoffLimitExceeded)),
            entry("upgrading", NodePhase::Upgrading, None),
            entry("waiting", NodePhase::Waiting, Some(Reason::NoSlot)),
        ]),
        ..PlanStatus::default()
    }
}

fn object(facts: NodeFacts) -> (String, NodeObject) {
    let object = NodeObject { ready: None, facts };
    (object.facts.name.to_string(), object)
}

fn snapshot(change: impl FnOnce(&mut Plan)) -> Snapshot {
    let mut plan = plan("p");
    plan.status = Some(status());
    change(&mut plan);
    let mut nodes: BTreeMap<_, _> = ["failed", "upgrading", "waiting", "done", "skipped"]
        .map(|name| object(node(name, name)))
        .into();
    let done = nodes.get_mut("done").unwrap();
    done.facts.labels = labels([
        ("kubernetes.io/hostname", "done"),
        ("plan.upgrade.cattle.io/p", "hash"),
    ]);
    nodes.get_mut("skipped").unwrap().facts.skip = Some(format!("p@v1 {BY}").as_str().into());
    Snapshot {
        now: "2026-01-01T09:00:00Z".parse().unwrap(),
        plans: vec![read(plan)],
        nodes: Some(nodes),
        ..Snapshot::default()
    }
}

fn ask(snapshot: &Snapshot, action: &Action, nodes: &[&str]) -> Result<Changes, String> {
    let view = PlanOverview::new(snapshot, &snapshot.plans[0]);
    let nodes: Vec<_> = nodes.iter().map(ToString::to_string).collect();
    changes(&Request {
        view: &view,
        nodes: &nodes,
        action,
        signature: BY.to_owned(),
    })
}

fn annotated(key: &'static str, value: &'static str) -> impl FnOnce(&mut Plan) {
    move |plan| {
        let annotations = plan.metadata.annotations.get_or_insert_default();
        annotations.insert(key.to_owned(), value.to_owned());
    }
}

#[track_caller]
fn refuses(snapshot: &Snapshot, action: &Action, nodes: &[&str], why: &str) {
    let refusal = ask(snapshot, action, nodes).unwrap_err();
    assert!(refusal.contains(why), "{refusal}");
}

/// Nothing is written, because it is as requested already.
#[track_caller]
fn says(snapshot: &Snapshot, action: &Action, nodes: &[&str], note: &str) {
    let changes = ask(snapshot, action, nodes).unwrap();
    assert_eq!((&changes.plan, &changes.nodes), (&None, &Vec::new()));
    assert!(changes.notes[0].contains(note), "{changes:?}");
}

#[test]
fn suspend_notes_who_when_and_why_and_leaves_a_plan_that_is_suspended() {
    let reason = Some("storage is rebalanced".to_owned());
    let suspend = Action::Suspend { reason };
    let changes = ask(&snapshot(|_| ()), &suspend, &[]).unwrap().plan.unwrap();
    let note = format!("{BY}: storage is rebalanced");
    assert_eq!(
        changes.patch,
        json!({ "metadata": { "annotations": { "refit.rs/suspended": note } }, "spec": { "suspend": true } })
    );
    assert_eq!(changes.says, "suspended; 1 nodes in progress finish");
    let is = snapshot(|plan| {
        plan.spec.suspend = Some(true);
        annotated(names::ANNOTATION_SUSPENDED, "by bob at 2025-01-01T00:00:00Z")(plan);
    });
    says(
        &is,
        &suspend,
        &[],
        "is suspended already (by bob at 2025-01-01T00:00:00Z)",
    );
}

#[test]
fn resume_removes_what_suspend_and_abort_have_written_and_nothing_else() {
    let suspended = snapshot(|plan| plan.spec.suspend = Some(true));
    let nulls = json!({ "refit.rs/suspended": null, "refit.rs/abort": null });
    let patch = ask(&suspended, &Action::Resume, &[]).unwrap().plan.unwrap().patch;
    assert_eq!(
        patch,
        json!({ "metadata": { "annotations": nulls }, "spec": { "suspend": null } })
    );
    let aborted = snapshot(annotated(names::ANNOTATION_ABORT, BY));
    let patch = ask(&aborted, &Action::Resume, &[]).unwrap().plan.unwrap().patch;
    assert_eq!(patch, json!({ "metadata": { "annotations": nulls } }));
    says(
        &snapshot(|_| ()),
        &Action::Resume,
        &[],
        "neither suspended nor aborted; it is held by BackoffLimitExceeded",
    );
}

#[test]
fn abort_refuses_a_plan_that_is_complete_and_leaves_one_that_is_aborted() {
    let abort = Action::Abort { reason: None };
    let patch = ask(&snapshot(|_| ()), &abort, &[]).unwrap().plan.unwrap().patch;
    assert_eq!(
        patch,
        json!({ "metadata": { "annotations": { "refit.rs/abort": BY } } })
    );
    says(
        &snapshot(annotated(names::ANNOTATION_ABORT, BY)),
        &abort,
        &[],
        "is aborted already (by alice",
    );
    let complete = snapshot(|plan| {
        let status = plan.status.as_mut().unwrap();
        status.conditions = vec![condition(ConditionType::Complete, "True", Reason::Complete)];
        status.nodes = Some(NodeCounts::default());
        status.active = Some(Vec::new());
    });
    refuses(&complete, &abort, &[], "nothing to abort; refit suspend keeps it");
}

#[test]
fn approve_takes_the_version_that_waits_and_no_other() {
    let waits = |reason| {
        snapshot(move |plan| {
            plan.status.as_mut().unwrap().channel = Some(ChannelStatus {
                candidate: Some("v2+k3s1".to_owned()),
                reason: Some(Reason::into(reason)),
                message: Some("its message".to_owned()),
                ..ChannelStatus::default()
            });
        })
    };
    let approve = |version: Option<&str>| Action::Approve {
        version: version.map(str::to_owned),
        wave: None,
    };
    let proposed = waits(Reason::NotApproved);
    for version in [None, Some("v2-k3s1")] {
        let change = ask(&proposed, &approve(version), &[]).unwrap().plan.unwrap();
        let value = format!("v2+k3s1 {BY}");
        assert_eq!(
            change.patch,
            json!({ "metadata": { "annotations": { "refit.rs/approve": value } } })
        );
    }
    refuses(
        &proposed,
        &approve(Some("v3")),
        &[],
        "version v2+k3s1 waits for approval",
    );
    refuses(
        &waits(Reason::TooYoung),
        &approve(None),
        &[],
        "held back by TooYoung: its message",
    );
    refuses(
        &snapshot(|_| ()),
        &approve(None),
        &[],
        "nothing waits for approval",
    );
}

#[test]
fn approve_takes_the_wave_that_waits_and_keeps_other_approvals_that_count() {
    const HASH: &str = "21c75c607087495cc7f2c945";
    let at = |phase: WavePhase, approvals: &'static str| {
        snapshot(move |plan| {
            annotated(names::ANNOTATION_APPROVE, approvals)(plan);
            let status = plan.status.as_mut().unwrap();
            status.latest_hash = Some(HASH.to_owned());
            status.wave = Some(WaveStatus {
                name: "tenth".to_owned(),
                hash: HASH.to_owned(),
                phase: phase.into(),
                ..WaveStatus::default()
            });
        })
    };
    let approve = |wave: Option<&str>| Action::Approve {
        version: None,
        wave: wave.map(str::to_owned),
    };
    let known = "v1 by bob, canary@21c75c607087, tenth@ffffffffffff, canary@eeeeeeeeeeee";
    let waits = at(WavePhase::AwaitingApproval, known);
    for wave in [None, Some("tenth")] {
        let changes = ask(&waits, &approve(wave), &[]).unwrap();
        let value = format!("v1 by bob, canary@21c75c607087, tenth@21c75c607087 {BY}");
        let change = changes.plan.clone().unwrap();
        assert_eq!(
            change.patch,
            json!({ "metadata": { "annotations": { "refit.rs/approve": value } } })
        );
        assert_eq!(change.says, "approved wave tenth at version v1");
        let view = PlanOverview::new(&waits, &waits.plans[0]);
        assert_eq!(
            Goal::of(&approve(wave), &[], &view, &changes),
            Goal::Wave("tenth".to_owned())
        );
    }
    refuses(
        &waits,
        &approve(Some("canary")),
        &[],
        "wave tenth waits for approval in Plan system-upgrade/p, not canary",
    );
    let done = at(WavePhase::AwaitingApproval, "tenth@21c75c607087 by bob at noon");
    says(&done, &approve(None), &[], "is approved already (by bob at noon)");
    let soaks = at(WavePhase::Soaking, "");
    refuses(&soaks, &approve(Some("tenth")), &[], "wave tenth is Soaking");
    refuses(&soaks, &approve(None), &[], "nothing waits for approval");
    let mut both = at(WavePhase::AwaitingApproval, known);
    let mut plan = both.plans[0].object.clone();
    plan.status.as_mut().unwrap().channel = Some(ChannelStatus {
        candidate: Some("v2".to_owned()),
        reason: Some(Reason::NotApproved.into()),
        ..ChannelStatus::default()
    });
    both.plans[0] = read(plan);
    refuses(&both, &approve(None), &[], "use --wave or --version");
    let version = Action::Approve {
        version: Some("v2".to_owned()),
        wave: None,
    };
    let change = ask(&both, &version, &[]).unwrap().plan.unwrap();
    let value = format!("v2 {BY}, canary@21c75c607087");
    assert_eq!(
        change.patch["metadata"]["annotations"]["refit.rs/approve"], value,
        "the waves of the present roll-out stay approved"
    );
    assert!(ask(&both, &approve(Some("tenth")), &[]).is_ok());
}

#[test]
fn retry_takes_a_node_that_its_drain_has_released() {
    let mut there = snapshot(|_| ());
    let record = Record {
        namespace: "system-upgrade".to_owned(),
        plan_uid: "p".into(),
        node_uid: "waiting".into(),
        hash: "hash".into(),
        version: "v1".to_owned(),
        phase: Phase::Skipped,
        attempt: 2,
        retries: 2,
        job_uid: "job".into(),
        job: "job".into(),
        inputs: None,
        at: there.now,
        started: None,
        uncordon: false,
        reboot: None,
        settling: None,
        verify: None,
        workloads: Vec::new(),
        reason: None,
        message: None,
    };
    let node = there.nodes.as_mut().unwrap().get_mut("waiting").unwrap();
    node.facts.records.insert("p".into(), record);
    let changes = ask(&there, &Action::Retry, &["waiting"]).unwrap();
    assert_eq!(changes.nodes[0].says, "to be retried, attempt 3");
    assert_eq!(ask(&there, &Action::Retry, &[]).unwrap().nodes.len(), 2);
    // Of an earlier version it says nothing.
    let node = there.nodes.as_mut().unwrap().get_mut("waiting").unwrap();
    node.facts.records.get_mut("p").unwrap().hash = "other".into();
    refuses(&there, &Action::Retry, &["waiting"], "only a failed node");
}

#[test]
fn retry_takes_failed_nodes_all_of_them_if_none_is_named() {
    let there = snapshot(|_| ());
    for nodes in [&[][..], &["failed"]] {
        let changes = ask(&there, &Action::Retry, nodes).unwrap();
        assert_eq!(changes.nodes.len(), 1);
        assert_eq!(
            (changes.nodes[0].name.as_str(), changes.nodes[0].says.as_str()),
            ("failed", "to be retried, attempt 2")
        );
    }
    refuses(
        &there,
        &Action::Retry,
        &["failed", "waiting"],
        "Node waiting is Waiting (NoSlot): only a failed node",
    );
    refuses(&there, &Action::Retry, &["done"], "Node done is done");
    let none = snapshot(|plan| plan.status.as_mut().unwrap().active = Some(Vec::new()));
    refuses(
        &none,
        &Action::Retry,
        &[],
        "no node has failed in Plan system-upgrade/p",
    );
    let suspended = snapshot(|plan| plan.spec.suspend = Some(true));
    let notes = ask(&suspended, &Action::Retry, &[]).unwrap().notes;
    assert_eq!(
        notes,
        ["Plan system-upgrade/p is suspended: nodes start after refit resume"]
    );
}

#[test]
fn skip_names_the_version_unless_it_is_for_always_and_undo_takes_it_back() {
    let there = snapshot(|_| ());
    for (always, entry) in [(false, format!("p@v1 {BY}")), (true, format!("p {BY}"))] {
        let change = ask(&there, &Action::Skip { always }, &["waiting"])
            .unwrap()
            .nodes
            .remove(0);
        let patch = change.edit.patch(&BTreeMap::new(), &BTreeMap::new()).unwrap();
        assert_eq!(
            patch,
            json!({ "metadata": { "annotations": { "refit.rs/skip": entry } } })
        );
    }
    let skip = Action::Skip { always: false };
    says(&there, &skip, &["skipped"], "is skipped already (by alice");
    let both = ask(&there, &skip, &["skipped", "waiting"]).unwrap();
    assert_eq!(both.nodes.len(), 1);
    let view = PlanOverview::new(&there, &there.plans[0]);
    let goal = Goal::Without(vec!["waiting".to_owned(), "skipped".to_owned()]);
    assert_eq!(Goal::of(&skip, &[], &view, &both), goal);
    refuses(&there, &skip, &["done"], "is done: there is nothing to skip");
    let failed = ask(&there, &skip, &["failed"]).unwrap();
    assert!(failed.nodes[0].says.contains("its failure is dropped"));
    says(&there, &Action::Unskip, &["waiting"], "is not skipped");
    let undo = ask(&there, &Action::Unskip, &["skipped"])
        .unwrap()
        .nodes
        .remove(0);
    let known = [(names::ANNOTATION_SKIP.to_owned(), format!("other, p@v1 {BY}"))].into();
    let patch = undo.edit.patch(&known, &BTreeMap::new()).unwrap();
    assert_eq!(
        patch,
        json!({ "metadata": { "annotations": { "refit.rs/skip": "other" } } })
    );
    let known = [(names::ANNOTATION_SKIP.to_owned(), "p".to_owned())].into();
    let patch = undo.edit.patch(&known, &BTreeMap::new()).unwrap();
    assert_eq!(
        patch,
        json!({ "metadata": { "annotations": { "refit.rs/skip": null } } })
    );
    let versionless = snapshot(|plan| plan.status.as_mut().unwrap().latest_version = None);
    refuses(&versionless, &skip, &["waiting"], "has no version yet");
}

#[test]
fn an_entry_is_replaced_and_those_of_other_plans_stay() {
    let edit = Edit::Entry {
        annotation: names::ANNOTATION_RETRY,
        plan: "p".to_owned(),
        entry: Some("p by alice".to_owned()),
    };
    let of = |value: &str| {
        let known = [(names::ANNOTATION_RETRY.to_owned(), value.to_owned())].into();
        edit.patch(&known, &BTreeMap::new())
    };
    let patch = of("a by bob,p, b").unwrap();
    let value = &patch["metadata"]["annotations"]["refit.rs/retry"];
    assert_eq!(value, "a by bob, b, p by alice");
    assert_eq!(of("p by alice"), None, "nothing is to be written");
}

#[test]
fn rerun_removes_the_labels_of_nodes_that_are_done_and_only_these() {
    let there = snapshot(|_| ());
    let changes = ask(&there, &Action::Rerun, &[]).unwrap();
    assert_eq!(changes.nodes.len(), 1);
    let key = "plan.upgrade.cattle.io/p";
    let labels = |value: &str| [(key.to_owned(), value.to_owned())].into();
    let patch = changes.nodes[0].edit.patch(&BTreeMap::new(), &labels("hash"));
    assert_eq!(patch, Some(json!({ "metadata": { "labels": { key: null } } })));
    for value in ["other", "disabled"] {
        assert_eq!(
            changes.nodes[0].edit.patch(&BTreeMap::new(), &labels(value)),
            None
        );
    }
    assert_eq!(
        changes.plan.unwrap().patch,
        json!({ "metadata": { "annotations": { "refit.rs/rerun": BY } } })
    );
    refuses(
        &there,
        &Action::Rerun,
        &["failed"],
        "Node failed is Failed (BackoffLimitExceeded): only a node that is done",
    );
    let unreadable = Snapshot {
        nodes: None,
        ..snapshot(|_| ())
    };
    refuses(&unreadable, &Action::Rerun, &[], "Nodes cannot be read");
}

#[test]
fn a_plan_of_another_controller_is_not_steered() {
    let foreign = snapshot(|plan| {
        let status = plan.status.as_mut().unwrap();
        (status.observed_generation, status.active, status.nodes) = (None, None, None);
    });
    refuses(
        &foreign,
        &Action::Suspend { reason: None },
        &[],
        "of another controller than refit",
    );
}

#[test]
fn a_wait_ends_with_the_effect_or_with_a_new_failure() {
    let there = snapshot(|_| ());
    let view = PlanOverview::new(&there, &there.plans[0]);
    let check = |action: &Action, nodes: &[&str], done: &[&str]| {
        let changes = ask(&there, action, nodes).unwrap();
        let done = done.iter().map(ToString::to_string).collect();
        Goal::of(action, &[], &view, &changes).check(&view, &done)
    };
    assert!(
        !check(&Action::Suspend { reason: None }, &[], &[]).unwrap(),
        "a node is in progress"
    );
    assert!(
        !check(&Action::Retry, &["failed"], &[]).unwrap(),
        "that failure is the old one"
    );
    assert!(check(&Action::Retry, &["failed"], &["failed"]).unwrap());
    assert!(!check(&Action::Skip { always: false }, &["upgrading"], &[]).unwrap());
    assert!(check(&Action::Skip { always: false }, &["waiting"], &[]).unwrap());
    let again = snapshot(|plan| {
        let active = plan.status.as_mut().unwrap().active.as_mut().unwrap();
        active[0].attempt = Some(2);
    });
    let goal = Goal::Done(vec![("failed".to_owned(), Some(1))]);
    let error = goal
        .check(&PlanOverview::new(&again, &again.plans[0]), &[].into())
        .unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("Node failed failed: BackoffLimitExceeded"),
        "{error}"
    );
}
