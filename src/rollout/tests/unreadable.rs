//! Nodes that cannot be read.

use super::build::{applying, cluster, decided, observe_job, observe_node, observe_plan, written};
use crate::{ClusterState, Decision, Kind, Observation, Step};
use refit_api::{NodePhase, PlanStatus, Reason};
use refit_facts::NodeFacts;
use refit_facts::record::{Phase, Record};
use refit_fixtures::{NAMESPACE, job, morning, node, plan, plan_with, read};

pub(super) fn unreadable(cluster: &mut ClusterState, name: &str, uid: &str) -> bool {
    let why = "invalid type: string".to_owned();
    cluster.apply(Observation::Unreadable {
        kind: Kind::Node,
        name: name.into(),
        uid: uid.into(),
        why,
    })
}

/// Steps that change something on the cluster besides statuses.
fn acts(decision: &Decision) -> Vec<&Step> {
    let acts = |step: &&Step| !matches!(step, Step::WriteStatus { .. } | Step::NoteFields { .. });
    decision.steps.iter().filter(acts).collect()
}

#[test]
fn a_node_that_cannot_be_read_is_not_started_and_the_others_are() {
    let both = plan_with("p", |spec| spec.concurrency = Some(2));
    let mut cluster = cluster([node("a", "n1"), node("b", "n2")], [both]);
    assert!(unreadable(&mut cluster, "a", "n1"));
    assert!(!unreadable(&mut cluster, "a", "n1"), "no news");
    let decision = decided(&mut cluster, morning());
    let status = written(&decision).unwrap();
    assert_eq!(status.applying, Some(vec!["b".to_owned()]));
    let active = status.active.as_ref().unwrap();
    let entry = active.iter().find(|entry| entry.name == "a").unwrap();
    assert_eq!(entry.reason, Some(Reason::ObjectUnreadable.into()));
    assert!(
        entry.message.as_ref().unwrap().contains("invalid type"),
        "{entry:?}"
    );
    // Once it can be read, it is started.
    observe_node(&mut cluster, 2, node("a", "n1"));
    let applying = written(&decided(&mut cluster, morning()))
        .unwrap()
        .applying
        .clone();
    assert_eq!(applying, Some(vec!["a".to_owned(), "b".to_owned()]));
}

#[test]
fn a_slot_of_a_node_that_cannot_be_read_is_kept_and_nothing_is_done_there() {
    let (mut cluster, stored, on) = applying();
    unreadable(&mut cluster, "a", "n1");
    let decision = decided(&mut cluster, morning());
    assert_eq!(acts(&decision), Vec::<&Step>::new(), "no Job is created");
    let status = written(&decision).unwrap();
    assert_eq!(status.applying, Some(vec!["a".to_owned()]));
    // Nor is its Job deleted, or its success recorded.
    let hash = stored.status().latest_hash.clone().unwrap();
    observe_job(&mut cluster, 3, job("j", &stored, &on, &hash));
    assert_eq!(acts(&decided(&mut cluster, morning())), Vec::<&Step>::new());
}

#[test]
fn a_new_controller_that_cannot_read_a_node_keeps_its_slot() {
    let (_, stored, on) = applying();
    let hash = stored.status().latest_hash.clone().unwrap();
    let mut successor = cluster([node("b", "n2")], []);
    unreadable(&mut successor, "a", "n1");
    observe_job(&mut successor, 3, job("j", &stored, &on, &hash));
    observe_plan(&mut successor, 4, stored);
    let decision = decided(&mut successor, morning());
    assert_eq!(acts(&decision), Vec::<&Step>::new());
    let status = written(&decision).unwrap();
    assert_eq!(
        status.applying,
        Some(vec!["a".to_owned()]),
        "b does not get the slot"
    );
    let entry = &status.active.as_ref().unwrap()[0];
    assert_eq!(
        (entry.uid.as_deref(), &entry.reason),
        (Some("n1"), &Some(Reason::ObjectUnreadable.into()))
    );
}

#[test]
fn a_node_that_cannot_be_read_keeps_the_slot_that_only_its_record_shows() {
    let decision = decided(&mut cluster([], [plan("p")]), morning());
    let hash = written(&decision).unwrap().latest_hash.clone().unwrap();
    let node = failed(1, &hash, "exited with 3");
    let mut cluster = cluster([node.clone()], [plan("p")]);
    unreadable(&mut cluster, &node.name, &node.uid);
    let decision = decided(&mut cluster, morning());
    let applying = written(&decision).unwrap().applying.clone();
    assert_eq!(applying, Some(vec!["node-0001".to_owned()]));
}

#[test]
fn a_node_that_cannot_be_read_and_is_deleted_is_forgotten() {
    let (mut cluster, ..) = applying();
    unreadable(&mut cluster, "a", "n1");
    assert!(cluster.apply(Observation::NodeDeleted("a".into(), "n1".into())));
    assert_eq!(written(&decided(&mut cluster, morning())).unwrap().applying, None);

    // A list says so, too.
    let (mut cluster, ..) = applying();
    unreadable(&mut cluster, "a", "n1");
    cluster.apply(Observation::ListStarted(Kind::Node));
    unreadable(&mut cluster, "a", "n1");
    cluster.apply(Observation::ListFinished(Kind::Node));
    let decision = decided(&mut cluster, morning());
    assert_eq!(
        written(&decision).unwrap().applying,
        Some(vec!["a".to_owned()]),
        "listed"
    );
    cluster.apply(Observation::ListStarted(Kind::Node));
    assert!(cluster.apply(Observation::ListFinished(Kind::Node)));
    assert_eq!(written(&decided(&mut cluster, morning())).unwrap().applying, None);
}

pub(super) fn failed(number: usize, hash: &str, message: &str) -> NodeFacts {
    let (name, uid) = (
        format!("node-{number:04}"),
        format!("8b7f5d3c-5f0e-4a57-9d8c-1f5f5a6b{number:04}"),
    );
    let record = Record {
        namespace: NAMESPACE.to_owned(),
        plan_uid: "p-uid".into(),
        node_uid: uid.clone().into(),
        hash: hash.into(),
        version: "v1".to_owned(),
        phase: Phase::Failed,
        attempt: 1,
        retries: 0,
        started: None,
        job_uid: "u".into(),
        job: "j".repeat(63).into(),
        inputs: None,
        at: morning(),
        uncordon: false,
        reboot: None,
        settling: None,
        verify: None,
        workloads: Vec::new(),
        reason: Some(Reason::BackoffLimitExceeded.into()),
        message: Some(message.to_owned()),
    };
    let mut facts = node(&name, &uid);
    // As it is read from the annotation.
    facts.records = [("p".into(), Record::parse(&record.to_text()).unwrap())].into();
    facts
}

/// What an API server would store of a Plan, besides `managedFields`.
fn bytes(status: &PlanStatus) -> usize {
    serde_json::to_vec(status).unwrap().len()
}

/// etcd stores 1.5 MiB; a part of it is for the spec.
const STORABLE: usize = 1_400_000;

#[test]
fn five_thousand_nodes_that_failed_with_long_messages_fit_into_the_status() {
    let all = plan_with("p", |spec| spec.concurrency = Some(5_000));
    let mut state = cluster([node("node-0000", "u")], [all]);
    let hash = written(&decided(&mut state, morning()))
        .unwrap()
        .latest_hash
        .clone()
        .unwrap();
    let (message, longest) = ("<&>\"\n".repeat(4_096 / 5), "<&>\"\n".repeat(32 * 1_024 / 5));
    for number in 0..5_000 {
        let message = if number % 100 == 0 { &longest } else { &message };
        observe_node(&mut state, 2, failed(number, &hash, message));
    }
    let decision = decided(&mut state, morning());
    let status = written(&decision).unwrap();
    assert!(bytes(status) < 700_000, "{}", bytes(status));
    assert_eq!(status.nodes.unwrap().failed, 5_000);
    assert_eq!(status.applying.as_ref().unwrap().len(), 5_000);
    let entries = i64::try_from(status.active.as_ref().unwrap().len()).unwrap();
    assert_eq!(entries + status.active_omitted.unwrap(), 5_000);
    // The next decision keeps every slot, and finds nothing to write.
    let mut stored = read(plan_with("p", |spec| spec.concurrency = Some(5_000)));
    stored.object.status = Some(status.clone());
    observe_plan(&mut state, 3, stored);
    assert_eq!(acts(&decided(&mut state, morning())), Vec::<&Step>::new());
    assert_eq!(written(&decided(&mut state, morning())), None);
}

#[test]
fn as_many_nodes_start_at_a_time_as_fit_into_the_status_and_the_rest_says_so() {
    let hostname = |number: usize| format!("{number:04}{}", "h".repeat(59));
    for (count, long, fits) in [(5_000, false, true), (8_000, true, false)] {
        let all = plan_with("p", |spec| spec.concurrency = Some(10_000));
        let nodes = (0..count).map(|number| {
            let name = if long {
                hostname(number)
            } else {
                format!("node-{number:04}")
            };
            node(&name, &format!("8b7f5d3c-5f0e-4a57-9d8c-1f5f5a6b{number:04}"))
        });
        let mut state = cluster(nodes, [all]);
        let decision = decided(&mut state, morning());
        let status = written(&decision).unwrap();
        let counts = status.nodes.unwrap();
        assert_eq!(counts.applying + counts.waiting, i64::try_from(count).unwrap());
        assert_eq!(counts.waiting == 0, fits, "{counts:?}");
        assert!(counts.applying > 3_000, "{counts:?}");
        let slots = status.active.as_ref().unwrap().iter();
        let slots = slots.filter(|entry| entry.phase != NodePhase::Waiting).count();
        assert_eq!(
            i64::try_from(slots).unwrap(),
            counts.applying,
            "no slot is omitted"
        );
        // With the names of their Jobs.
        let mut with_jobs = status.clone();
        for entry in with_jobs.active.as_mut().unwrap() {
            entry.job = Some("j".repeat(63));
        }
        assert!(bytes(&with_jobs) < STORABLE, "{}", bytes(&with_jobs));
        let blocker = &decision.pictures["p"].blocker;
        assert_eq!(
            blocker.as_ref().map(super::super::blocker::Blocker::reason),
            (!fits).then_some(Reason::StatusFull)
        );
    }
}
