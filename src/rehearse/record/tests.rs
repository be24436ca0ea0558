mod timeline;

use std::sync::Arc;

use super::*;
use crate::json::json;
use crate::upgrade_script::PrepareWait;
use refit_api::HookPhase;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_767_603_600 + second).unwrap()
}

/// A recorder, and changes for it.
struct RecorderFixture {
    recorder: Recorder,
    version: u64,
    effects: Vec<Effect>,
}

impl RecorderFixture {
    fn new() -> Self {
        Self {
            recorder: Recorder::new(at(0)),
            version: 0,
            effects: Vec::new(),
        }
    }

    fn observe(&mut self, second: i64, kind: Kind, old: Option<Value>, new: Value) {
        self.version += 1;
        let object = |value| Arc::new(Object::new(value, self.version));
        let change = Change {
            version: self.version,
            old: old.map(object),
            new: object(new),
            gone: false,
        };
        self.effects
            .extend(self.recorder.observe(kind, &change, at(second)));
    }

    fn plan(&mut self, second: i64, status: &Value) {
        let plan = json!({
            "metadata": { "name": "p", "generation": 1 },
            "spec": { "prepare": { "args": ["prepare", "servers"] } },
            "status": status,
        });
        self.observe(second, Kind::Plan, None, plan);
    }

    fn event_lines(&mut self) -> Vec<String> {
        let line = |one: RolloutEvent| {
            let seconds = one.at.duration_since(at(0)).as_secs();
            let node = one.node.as_deref().unwrap_or("-").to_owned();
            let what = match one.what {
                EventKind::Waits { reason, .. } => format!("waits {reason}"),
                EventKind::Failed { reason, .. } => format!("failed {reason}"),
                EventKind::Phase(phase) => phase.to_string(),
                other => format!("{other:?}"),
            };
            format!("{seconds} {node} {what}")
        };
        self.recorder.take_events().into_iter().map(line).collect()
    }
}

fn active(entries: &[(&str, &str, &str)]) -> Value {
    let entries = entries.iter().map(|(name, phase, reason)| {
        json!({ "name": name, "phase": phase, "reason": reason, "message": "because" })
    });
    json!({ "latestHash": "h", "active": entries.collect::<Vec<_>>() })
}

#[test]
fn a_node_goes_through_its_phases_until_its_label_says_that_it_is_done() {
    let mut fixture = RecorderFixture::new();
    for (second, phase) in [(1, "Pending"), (2, "Upgrading"), (3, "Upgrading")] {
        let nodes = [("one", phase, ""), ("two", "Waiting", "NoSlot")];
        fixture.plan(second, &active(&nodes));
    }
    let node = |labels: Value| json!({ "metadata": { "name": "one", "labels": labels } });
    let (before, after) = (node(json!({})), node(json!({ "plan.upgrade.cattle.io/p": "h" })));
    fixture.observe(9, Kind::Node, Some(before), after.clone());
    fixture.observe(10, Kind::Node, Some(after.clone()), after);
    let lines = [
        "1 one NodeStarted",
        "1 one Pending",
        "2 one Upgrading",
        "9 one Done",
    ];
    assert_eq!(fixture.event_lines(), lines);
    let (name, turn) = fixture.recorder.node_runs("p").next().unwrap();
    assert_eq!(name, "one");
    assert_eq!(
        (turn.since, turn.until, turn.state),
        (at(1), Some(at(9)), RowState::Done)
    );
    let phases: Vec<_> = turn
        .phases
        .iter()
        .map(|phase_span| (phase_span.phase.as_str(), phase_span.until))
        .collect();
    assert_eq!(phases, [("Pending", Some(at(2))), ("Upgrading", Some(at(9)))]);
    assert_eq!(fixture.recorder.progress(), at(9));
}

#[test]
fn a_node_that_gets_one_version_after_another_has_a_run_for_each() {
    let mut fixture = RecorderFixture::new();
    let status = |hash: &str, version: &str, nodes: &[(&str, &str, &str)]| {
        let mut status = active(nodes);
        (status["latestHash"], status["latestVersion"]) = (json!(hash), json!(version));
        status
    };
    let upgrading = [("one", "Upgrading", "")];
    let labelled = |hash: &str| labelled("one", Some(hash));
    let job = |hash: &str, failed: i64| {
        json!({
            "metadata": {
                "labels": {
                    "upgrade.cattle.io/controller": "system-upgrade-controller", "upgrade.cattle.io/plan": "p",
                    "plan.upgrade.cattle.io/p": hash,
                },
                "annotations": { "upgrade.cattle.io/node": "one" },
            },
            "status": { "failed": failed },
        })
    };
    fixture.plan(1, &status("h", "v1.35.3", &upgrading));
    fixture.observe(2, Kind::Job, None, job("h", 0));
    fixture.observe(5, Kind::Node, Some(labelled("")), labelled("h"));
    fixture.plan(20, &status("h2", "v1.36.3", &[]));
    // The Job of the version before has not been deleted yet.
    fixture.observe(21, Kind::Job, Some(job("h", 0)), job("h", 1));
    fixture.plan(25, &status("h2", "v1.36.3", &upgrading));
    fixture.observe(26, Kind::Job, None, job("h2", 0));
    fixture.observe(29, Kind::Node, Some(labelled("h")), labelled("h2"));
    let runs: Vec<_> = fixture
        .recorder
        .node_runs("p")
        .map(|(_, run)| {
            (
                run.version.as_deref().unwrap(),
                run.since,
                run.until,
                run.failures,
            )
        })
        .collect();
    let expected = [
        ("v1.35.3", at(1), Some(at(5)), 0),
        ("v1.36.3", at(25), Some(at(29)), 0),
    ];
    assert_eq!(runs, expected);
    let lines = fixture.event_lines();
    let lines: Vec<&str> = lines
        .iter()
        .map(String::as_str)
        .filter(|it| it.contains("one"))
        .collect();
    let expected = [
        "1 one NodeStarted",
        "1 one Upgrading",
        "5 one Done",
        "25 one NodeStarted",
        "25 one Upgrading",
        "29 one Done",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn nodes_that_share_a_wait_are_known() {
    let mut fixture = RecorderFixture::new();
    let taint = |node| (node, "Waiting", "TaintNotTolerated");
    fixture.plan(
        1,
        &active(&[("one", "Upgrading", ""), taint("three"), taint("two")]),
    );
    fixture.plan(5, &active(&[("one", "Waiting", "WindowClosed")]));
    let sharing = |reason: &str| fixture.recorder.sharing("p", &reason.into());
    let nodes = sharing("TaintNotTolerated").unwrap();
    assert!(nodes.iter().eq(["three", "two"]));
    assert_eq!(sharing("WindowClosed"), None, "the whole Plan waits");
    assert_eq!(fixture.recorder.waits().len(), 2);
}

#[test]
fn a_wait_has_a_beginning_and_an_end() {
    let mut fixture = RecorderFixture::new();
    let closed = ["one", "two"].map(|node| (node, "Waiting", "WindowClosed"));
    fixture.plan(1, &active(&closed));
    assert_eq!(fixture.recorder.progress(), at(0), "to wait is no progress");
    fixture.plan(5, &active(&[("one", "Preparing", "")]));
    let applying = PrepareWait::PlanApplying {
        plan: "servers".to_owned(),
    };
    fixture.recorder.see_prepare("p", "one", Some(&applying), at(5));
    fixture.plan(6, &active(&[("one", "Preparing", "")]));
    fixture.plan(7, &active(&[("one", "Upgrading", "")]));
    let waits = fixture.recorder.waits();
    let waits = waits.iter().map(|wait| {
        (
            wait.node.as_deref(),
            wait.blocker.as_str(),
            wait.since,
            wait.until,
        )
    });
    let expected = [
        (None, "WindowClosed", at(1), Some(at(5))),
        (Some("one"), "Plan servers", at(5), Some(at(7))),
    ];
    assert_eq!(waits.collect::<Vec<_>>(), expected);
}

#[test]
fn a_failure_is_an_event_with_its_reason() {
    let mut fixture = RecorderFixture::new();
    fixture.plan(1, &active(&[("one", "Upgrading", "")]));
    fixture.plan(4, &active(&[("one", "Failed", "BackoffLimitExceeded")]));
    fixture.plan(5, &active(&[("one", "Failed", "BackoffLimitExceeded")]));
    assert_eq!(
        fixture.event_lines().last().unwrap(),
        "4 one failed BackoffLimitExceeded"
    );
    let turn = fixture.recorder.node_runs("p").next().unwrap().1;
    assert_eq!((turn.state, turn.until), (RowState::Failed, Some(at(4))));
    assert_eq!(turn.reason.as_deref(), Some("BackoffLimitExceeded"));
}

#[test]
fn a_slot_that_is_released_unused_leaves_no_record() {
    let mut fixture = RecorderFixture::new();
    fixture.plan(1, &active(&[("one", "Pending", "")]));
    fixture.plan(2, &active(&[("one", "Waiting", "WindowClosed")]));
    assert_eq!(fixture.recorder.node_runs("p").count(), 0);
}

#[test]
fn a_drain_reports_its_budget_and_an_upgrade_its_version() {
    let pod = |ended: bool| {
        let mut pod = json!({
            "metadata": {
                "name": "pod", "namespace": "n", "annotations": {},
                "labels": { LABEL_CONTROLLER: "c", LABEL_PLAN: "p" },
            },
            "spec": {
                "nodeName": "one",
                "containers": [{ "name": "upgrade", "env": [{ "name": ENV_PLAN_LATEST_VERSION, "value": "v1.34.1" }] }],
            },
            "status": { "phase": "Running" },
        });
        if ended {
            pod["status"]["initContainerStatuses"] =
                json!([{ "name": "drain", "state": { "terminated": { "exitCode": 0 } } }]);
            pod["status"]["containerStatuses"] =
                json!([{ "name": "upgrade", "state": { "terminated": { "exitCode": 0 } } }]);
        }
        pod
    };
    let drain = json!({
        "plan": "p", "pod": "u", "evicted": 1, "total": 2,
        "waiting": [{ "pod": "shop/web-1", "pdb": "web", "since": "2026-01-05T09:00:02Z", "why": "no" }],
    });
    let mut fixture = RecorderFixture::new();
    fixture.observe(5, Kind::Pod, None, pod(false));
    let node =
        json!({ "metadata": { "name": "one", "annotations": { ANNOTATION_DRAIN: drain.to_string() } } });
    fixture.observe(6, Kind::Node, None, node);
    fixture.observe(9, Kind::Pod, Some(pod(false)), pod(true));
    let wait = fixture.recorder.waits().remove(0);
    assert_eq!(wait.blocker, "PodDisruptionBudget shop/web");
    assert_eq!((wait.since, wait.until), (at(2), Some(at(9))));
    assert_eq!(
        fixture.effects,
        [Effect::Upgraded {
            plan: "p".to_owned(),
            node: "one".to_owned(),
            version: "v1.34.1".to_owned(),
        }]
    );
}

/// A recorder of a real cluster.
fn live() -> RecorderFixture {
    RecorderFixture {
        recorder: Recorder::live(at(0)),
        ..RecorderFixture::new()
    }
}

/// Phase, start and end of each span of the node, and its state.
fn spans(fixture: &RecorderFixture, node: &str) -> Vec<(String, Timestamp, Option<Timestamp>)> {
    let runs = fixture.recorder.node_runs("p");
    let run = runs.filter(|(name, _)| *name == node).map(|(_, run)| run);
    let phases = run.flat_map(|run| &run.phases);
    phases
        .map(|phase| (phase.phase.to_string(), phase.since, phase.until))
        .collect()
}

fn labelled(node: &str, hash: Option<&str>) -> Value {
    let labels = match hash {
        Some(hash) => json!({ "plan.upgrade.cattle.io/p": hash }),
        None => json!({}),
    };
    json!({ "metadata": { "name": node, "labels": labels } })
}

#[test]
fn on_a_real_cluster_a_phase_begins_when_status_says() {
    let mut fixture = live();
    let since = |second: i64, phase: &str| {
        let entry = json!({ "name": "one", "phase": phase, "since": at(second).to_string() });
        json!({ "latestHash": "h", "active": [entry] })
    };
    fixture.plan(100, &since(-300, "Upgrading"));
    fixture.plan(200, &since(150, "Settling"));
    // A clock that differs.
    fixture.plan(300, &since(500, "Verifying"));
    let expected = [
        ("Upgrading".to_owned(), at(-300), Some(at(150))),
        ("Settling".to_owned(), at(150), Some(at(300))),
        ("Verifying".to_owned(), at(300), None),
    ];
    assert_eq!(spans(&fixture, "one"), expected);
}

#[test]
fn on_a_real_cluster_a_node_that_loses_its_slot_keeps_its_timeline() {
    let mut fixture = live();
    fixture.plan(1, &active(&[("one", "Upgrading", ""), ("two", "Draining", "")]));
    fixture.plan(5, &active(&[("two", "Draining", "")]));
    assert_eq!(
        spans(&fixture, "one"),
        [("Upgrading".to_owned(), at(1), Some(at(5)))]
    );
    fixture.plan(7, &active(&[("one", "Upgrading", "")]));
    assert_eq!(spans(&fixture, "one").len(), 2, "it has started again");
    let mut full = active(&[]);
    full["activeOmitted"] = json!(1);
    fixture.plan(9, &full);
    assert_eq!(spans(&fixture, "one")[1].2, None, "the list is full");
}

#[test]
fn on_a_real_cluster_only_a_label_that_is_written_while_it_is_watched_makes_a_run() {
    let mut fixture = live();
    fixture.plan(1, &active(&[("one", "Upgrading", "")]));
    fixture.observe(2, Kind::Node, None, labelled("old", Some("h")));
    // Of a Plan of this name in another namespace.
    fixture.observe(
        2,
        Kind::Node,
        Some(labelled("other", None)),
        labelled("other", Some("h")),
    );
    assert_eq!(fixture.recorder.node_runs("p").count(), 1);
    fixture.observe(
        3,
        Kind::Node,
        Some(labelled("one", None)),
        labelled("one", Some("h")),
    );
    // The last status before the label comes later, from another watch.
    fixture.plan(4, &active(&[("one", "Settling", "")]));
    assert_eq!(
        spans(&fixture, "one"),
        [("Upgrading".to_owned(), at(1), Some(at(3)))]
    );
    fixture.observe(
        5,
        Kind::Node,
        Some(labelled("one", Some("h"))),
        labelled("one", None),
    );
    let state = |fixture: &RecorderFixture| fixture.recorder.node_runs("p").next().unwrap().1.state;
    assert_eq!(
        state(&fixture),
        RowState::Done,
        "a request of a reboot that is void"
    );
    fixture.plan(6, &active(&[("one", "Pending", "")]));
    assert_eq!(spans(&fixture, "one").len(), 2, "refit rerun");
    assert_eq!(state(&fixture), RowState::Applying);
}

#[test]
fn on_a_real_cluster_the_timeline_is_that_of_the_current_roll_out() {
    let mut fixture = live();
    let held = ("two", "Draining", "PodWaiting");
    fixture.plan(1, &active(&[("one", "Upgrading", ""), held]));
    assert_eq!(fixture.recorder.waits().len(), 1);
    fixture.plan(
        5,
        &json!({ "latestHash": "next", "active": [{ "name": "one", "phase": "Pending" }] }),
    );
    assert_eq!(spans(&fixture, "one"), [("Pending".to_owned(), at(5), None)]);
    assert_eq!(fixture.recorder.waits(), []);
    let plan = json!({ "metadata": { "name": "p" } });
    let object = Arc::new(Object::new(plan, 9));
    let deleted = Change {
        version: 9,
        old: None,
        new: object,
        gone: true,
    };
    fixture.recorder.observe(Kind::Plan, &deleted, at(6));
    assert_eq!(fixture.recorder.node_runs("p").count(), 0);
}

#[test]
fn what_is_kept_of_a_real_cluster_has_a_limit() {
    let mut fixture = live();
    for second in 0..2_000 {
        let phase = if second % 2 == 0 { "Draining" } else { "Failed" };
        let reason = if second % 2 == 0 { "PodWaiting" } else { "" };
        fixture.plan(second, &active(&[("one", phase, reason)]));
    }
    let kept = spans(&fixture, "one").len();
    assert!((500..=1_000).contains(&kept), "{kept}");
    let waits = fixture.recorder.waits().len();
    assert!((500..=1_000).contains(&waits), "{waits}");
    assert_eq!(fixture.recorder.take_events(), []);
}

#[test]
fn a_job_of_a_hook_has_its_times_and_ends_also_if_another_one_takes_its_place() {
    let mut fixture = RecorderFixture::new();
    let mut before = |second: i64, phase: &str, job: &str| {
        let since = at(second).to_string();
        let of = json!({ "hash": "h", "phase": phase, "since": since, "job": job, "attempt": 1, "message": "disk full" });
        fixture.plan(second, &json!({ "latestHash": "h", "before": of }));
    };
    // One that ended before the recording began.
    before(1, "Succeeded", "zero");
    before(2, "Running", "one");
    before(3, "Running", "one");
    before(5, "Running", "two");
    before(9, "Failed", "two");
    before(9, "Failed", "two");
    let runs = fixture.recorder.hook_runs("p");
    let seen = runs.iter().map(|run| {
        let [since, until] =
            [Some(run.since), run.until].map(|time| time.map(|it| it.duration_since(at(0)).as_secs()));
        (run.job.as_str(), run.phase, since, until, run.message.as_deref())
    });
    assert_eq!(
        seen.collect::<Vec<_>>(),
        [
            ("one", HookPhase::Running, Some(2), Some(5), None),
            ("two", HookPhase::Failed, Some(5), Some(9), Some("disk full")),
        ]
    );
    let lines = [
        "2 - Hook(Before, Running)",
        "5 - Hook(Before, Running)",
        "9 - Hook(Before, Failed)",
    ];
    assert_eq!(fixture.event_lines(), lines);
}
