use std::sync::Arc;

use super::*;
use crate::rehearse::json::json;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_767_603_600 + second).unwrap()
}

/// What a recorder sees, one change after the other.
struct Story {
    recorder: Recorder,
    version: u64,
    effects: Vec<Effect>,
}

impl Story {
    fn new() -> Self {
        Self {
            recorder: Recorder::new(at(0)),
            version: 0,
            effects: Vec::new(),
        }
    }

    fn see(&mut self, second: i64, kind: Kind, old: Option<Value>, new: Value) {
        self.version += 1;
        let object = |value| Arc::new(Object::new(value, self.version));
        let change = Change {
            version: self.version,
            old: old.map(object),
            new: object(new),
            gone: false,
        };
        self.effects.extend(self.recorder.see(kind, &change, at(second)));
    }

    fn plan(&mut self, second: i64, status: &Value) {
        let plan = json!({
            "metadata": { "name": "p", "generation": 1 },
            "spec": { "prepare": { "args": ["prepare", "servers"] } },
            "status": status,
        });
        self.see(second, Kind::Plan, None, plan);
    }

    fn told(&mut self) -> Vec<String> {
        let told = |one: Happening| {
            let seconds = one.at.duration_since(at(0)).as_secs();
            let node = one.node.as_deref().unwrap_or("-").to_owned();
            let what = match one.what {
                What::Waits { reason, .. } => format!("waits {reason}"),
                What::Failed { reason, .. } => format!("failed {reason}"),
                What::Phase(phase) => phase,
                other => format!("{other:?}"),
            };
            format!("{seconds} {node} {what}")
        };
        self.recorder.news().into_iter().map(told).collect()
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
    let mut story = Story::new();
    story.plan(
        1,
        &active(&[("one", "Pending", ""), ("two", "Waiting", "NoSlot")]),
    );
    story.plan(
        2,
        &active(&[("one", "Upgrading", ""), ("two", "Waiting", "NoSlot")]),
    );
    story.plan(
        3,
        &active(&[("one", "Upgrading", ""), ("two", "Waiting", "NoSlot")]),
    );
    let node = |labels: Value| json!({ "metadata": { "name": "one", "labels": labels } });
    let (before, after) = (node(json!({})), node(json!({ "plan.upgrade.cattle.io/p": "h" })));
    story.see(9, Kind::Node, Some(before), after.clone());
    story.see(10, Kind::Node, Some(after.clone()), after);
    assert_eq!(
        story.told(),
        ["1 one Begins", "1 one Pending", "2 one Upgrading", "9 one Done"]
    );
    let (name, turn) = story.recorder.turns("p").next().unwrap();
    assert_eq!(name, "one");
    assert_eq!(
        (turn.since, turn.until, turn.standing),
        (at(1), Some(at(9)), Standing::Done)
    );
    let stays: Vec<_> = turn
        .stays
        .iter()
        .map(|stay| (stay.phase.as_str(), stay.until))
        .collect();
    assert_eq!(stays, [("Pending", Some(at(2))), ("Upgrading", Some(at(9)))]);
    assert_eq!(story.recorder.progress(), at(9));
}

#[test]
fn what_is_waited_for_has_a_beginning_and_an_end() {
    let mut story = Story::new();
    story.plan(
        1,
        &active(&[
            ("one", "Waiting", "WindowClosed"),
            ("two", "Waiting", "WindowClosed"),
        ]),
    );
    assert_eq!(story.recorder.progress(), at(0), "to wait is no progress");
    story.plan(5, &active(&[("one", "Preparing", "")]));
    story.plan(7, &active(&[("one", "Upgrading", "")]));
    let waits: Vec<_> = story
        .recorder
        .waits()
        .into_iter()
        .map(|wait| (wait.node, wait.blocker, wait.since, wait.until))
        .collect();
    assert_eq!(
        waits,
        [
            (None, "WindowClosed".to_owned(), at(1), Some(at(5))),
            (
                Some("one".to_owned()),
                "Plan servers".to_owned(),
                at(5),
                Some(at(7))
            ),
        ]
    );
}

#[test]
fn a_failure_is_told_with_its_reason() {
    let mut story = Story::new();
    story.plan(1, &active(&[("one", "Upgrading", "")]));
    story.plan(4, &active(&[("one", "Failed", "BackoffLimitExceeded")]));
    story.plan(5, &active(&[("one", "Failed", "BackoffLimitExceeded")]));
    assert_eq!(story.told().last().unwrap(), "4 one failed BackoffLimitExceeded");
    let turn = story.recorder.turns("p").next().unwrap().1;
    assert_eq!((turn.standing, turn.until), (Standing::Failed, Some(at(4))));
    assert_eq!(turn.reason.as_deref(), Some("BackoffLimitExceeded"));
}

#[test]
fn a_slot_that_is_given_back_unused_was_none() {
    let mut story = Story::new();
    story.plan(1, &active(&[("one", "Pending", "")]));
    story.plan(2, &active(&[("one", "Waiting", "WindowClosed")]));
    assert_eq!(story.recorder.turns("p").count(), 0);
}

#[test]
fn a_drain_says_for_which_budget_it_waits_and_an_upgrade_what_it_brought() {
    let pod = |note: Option<Value>, ended: bool| {
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
        if let Some(note) = note {
            pod["metadata"]["annotations"][ANNOTATION_DRAIN] = note.to_string().into();
        }
        if ended {
            pod["status"]["initContainerStatuses"] =
                json!([{ "name": "drain", "state": { "terminated": { "exitCode": 0 } } }]);
            pod["status"]["containerStatuses"] =
                json!([{ "name": "upgrade", "state": { "terminated": { "exitCode": 0 } } }]);
        }
        pod
    };
    let note = json!({
        "evicted": 1, "total": 2,
        "waiting": [{ "pod": "shop/web-1", "pdb": "web", "since": "2026-01-05T09:00:02Z", "why": "no" }],
    });
    let mut story = Story::new();
    story.see(6, Kind::Pod, None, pod(Some(note.clone()), false));
    story.see(
        9,
        Kind::Pod,
        Some(pod(Some(note.clone()), false)),
        pod(Some(note), true),
    );
    let wait = story.recorder.waits().remove(0);
    assert_eq!(wait.blocker, "PodDisruptionBudget shop/web");
    assert_eq!((wait.since, wait.until), (at(2), Some(at(9))));
    assert_eq!(
        story.effects,
        [Effect::Upgraded {
            node: "one".to_owned(),
            version: "v1.34.1".to_owned(),
        }]
    );
}

#[test]
fn a_prepare_that_waits_is_known_by_its_arguments() {
    let of = |prepare: Value| dependency(&prepare);
    assert_eq!(
        of(json!({ "args": ["prepare", "servers"] })).as_deref(),
        Some("servers")
    );
    assert_eq!(of(json!({ "args": ["prepare"] })), None);
    assert_eq!(
        of(json!({ "command": ["sh"], "args": ["prepare", "servers"] })),
        None
    );
    assert_eq!(of(Value::Null), None);
}
