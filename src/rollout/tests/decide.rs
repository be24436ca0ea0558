//! Single decisions.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::build::{
    apply_effect, applying, cluster, decided, observe_job, observe_node, observe_plan, pod, written,
};
use crate::{ClusterState, Decision, Event, GlobalLimits, Observation, Query, Step, StepEffect};
use refit_api::{ChannelRef, DrainNote, DrainWait, NodeDrain, PlanSpec, Reason, SecretSpec, names};
use refit_base::version::Offer;
use refit_facts::objects::maintenance::{Maintenance, MaintenanceGroup, MedikMaintenance};
use refit_facts::store::Change;
use refit_facts::{NodeFacts, PlanFacts, PodFacts, Schema};
use refit_fixtures::{job, labels, morning, node, plan, plan_with, read};

const URL: &str = "https://example.com/stable";

fn count(decision: &Decision, is_one: impl Fn(&Step) -> bool) -> usize {
    decision.steps.iter().filter(|step| is_one(step)).count()
}

fn secrets(names: &[&str]) -> Vec<SecretSpec> {
    let secret = |name: &&str| SecretSpec {
        name: (*name).to_owned(),
        ..SecretSpec::default()
    };
    names.iter().map(secret).collect()
}

#[test]
fn nodes_start_in_the_order_of_their_digests() {
    let hash = "21c75c607087495cc7f2c945c508a36de1f8661ce8c6b4d5989a883c";
    let done = names::plan_label("p");
    for (already, next) in [(&[][..], "c"), (&["c"][..], "b"), (&["b", "c"][..], "a")] {
        let nodes = [("a", "node-uid-1"), ("b", "node-uid-2"), ("c", "node-uid-3")].map(|(name, uid)| {
            let mut node = node(name, uid);
            if already.contains(&name) {
                node.labels = labels([(names::LABEL_HOSTNAME, name), (done.as_str(), hash)]);
            }
            node
        });
        let mut plan = plan_with("p", |spec| {
            spec.version = Some("v1.20.11+k3s1".to_owned());
            spec.service_account_name = Some("system-upgrade".to_owned());
        });
        plan.metadata.uid = Some("plan-uid".to_owned());
        let decision = decided(&mut cluster(nodes, [plan]), morning());
        let status = written(&decision).unwrap();
        assert_eq!(status.latest_hash.as_deref(), Some(hash));
        assert_eq!(status.applying, Some(vec![next.to_owned()]));
    }
}

#[test]
fn no_job_is_created_before_stored_status_names_the_node() {
    let is_create = |step: &Step| matches!(step, Step::CreateJob { .. });
    let mut unnamed = cluster([node("a", "n1")], [plan("p")]);
    assert_eq!(count(&decided(&mut unnamed, morning()), is_create), 0);
    let (mut cluster, ..) = applying();
    assert_eq!(count(&decided(&mut cluster, morning()), is_create), 1);
    // Nor for another node of that name.
    observe_node(&mut cluster, 2, node("a", "n2"));
    assert_eq!(count(&decided(&mut cluster, morning()), is_create), 0);
}

/// The status with that slot may be refused, and then `b` alone would take a second node down.
#[test]
fn a_slot_that_another_plan_gets_in_the_same_decision_admits_no_node_past_max_unavailable() {
    let lost = NodeFacts {
        ready: false,
        ..node("lost", "n2")
    };
    let limited = plan_with("b", |spec| {
        (spec.cordon, spec.max_unavailable) = (None, Some(IntOrString::Int(1)));
    });
    let decision = decided(
        &mut cluster([node("a", "n1"), lost], [plan("a"), limited]),
        morning(),
    );
    let slots = |plan: &str| {
        let report = decision.pictures.get(plan).unwrap();
        report.slots.keys().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!((slots("a"), slots("b")), (vec!["a".to_owned()], Vec::new()));
    let blocker = decision.pictures.get("b").unwrap().blocker.as_ref().unwrap();
    assert_eq!(blocker.reason(), Reason::MaxUnavailable);
}

#[test]
fn a_first_status_does_not_wait_for_the_channel() {
    let follows = plan_with("p", |spec| {
        (spec.version, spec.channel) = (None, Some(URL.to_owned()));
    });
    let decision = decided(&mut cluster([], [follows]), morning());
    let status = written(&decision).unwrap();
    let conditions: Vec<_> = status
        .conditions
        .iter()
        .map(|c| (c.type_.as_str(), c.status.as_str()))
        .collect();
    assert_eq!(conditions, [("Complete", "False"), ("Validated", "True")]);
    // Before the poll, status says that it begins.
    assert!(status.channel.as_ref().unwrap().asked.is_some());
    assert_eq!(
        count(&decision, |step| matches!(step, Step::Query(Query::Poll { .. }))),
        0
    );
}

#[test]
fn a_channel_response_from_the_future_does_not_delay_the_next_query() {
    let follows = plan_with("p", |spec| {
        (spec.version, spec.channel) = (None, Some(URL.to_owned()));
    });
    let channel = ChannelRef::of(&follows.spec).unwrap();
    for (polled, asks) in [(0, false), (-1, false), (24, true)] {
        let mut cluster = cluster([], [follows.clone()]);
        let _ = decided(&mut cluster, morning());
        let at = morning() + SignedDuration::from_hours(polled) / 10;
        let offer = Ok(Offer::one("v1".to_owned()));
        let effect = StepEffect::Channel(channel.clone(), at, offer, BTreeMap::default());
        apply_effect(&mut cluster, effect);
        let decision = decided(&mut cluster, morning());
        let channel = written(&decision).and_then(|status| status.channel.as_ref());
        let announces = channel.is_some_and(|channel| channel.asked.is_some());
        assert_eq!(announces, asks, "{polled}");
    }
}

#[test]
fn status_is_written_when_all_secrets_were_read() {
    let queries = |decision: &Decision| {
        count(decision, |step| {
            matches!(step, Step::Query(Query::ReadSecret { .. }))
        })
    };
    let mut cluster = cluster(
        [],
        [plan_with("p", |spec| spec.secrets = Some(secrets(&["x", "y"])))],
    );
    assert_eq!(queries(&decided(&mut cluster, morning())), 2);
    apply_effect(&mut cluster, StepEffect::SecretMissing("y".into()));
    let decision = decided(&mut cluster, morning());
    assert_eq!((queries(&decision), written(&decision)), (1, None));
}

#[test]
fn a_malformed_plan_says_so() {
    let mut cluster = cluster([node("a", "n1")], []);
    let malformed = PlanFacts {
        malformed: Some("spec cannot be read: invalid type".to_owned()),
        ..read(refit_api::Plan::new("p", PlanSpec::default()))
    };
    observe_plan(&mut cluster, 1, malformed);
    let decision = decided(&mut cluster, morning());
    let validated = &written(&decision).unwrap().conditions[1];
    assert_eq!(
        (validated.status.as_str(), validated.reason.as_deref()),
        ("False", Some("Error"))
    );
    assert_eq!(
        validated.message.as_deref(),
        Some("spec cannot be read: invalid type")
    );
}

#[test]
fn status_shows_all_nodes_with_a_slot_and_others_up_to_a_hundred() {
    let nodes = (0..150).map(|number| node(&format!("n{number:03}"), &format!("uid-{number}")));
    let decision = decided(
        &mut cluster(nodes, [plan_with("p", |spec| spec.concurrency = Some(3))]),
        morning(),
    );
    let active = written(&decision).unwrap().active.as_ref().unwrap();
    assert_eq!(active.len(), 100);
    assert!(
        active[..3].iter().all(|n| n.phase == "Pending") && active[3..].iter().all(|n| n.phase == "Waiting")
    );
}

#[test]
fn nothing_is_written_before_the_definition_is_known_or_while_it_lacks_fields() {
    for schema in [Schema::Unknown, Schema::Outdated("spec.suspend".to_owned())] {
        let mut cluster = cluster([node("a", "n1")], [plan("p")]);
        cluster.apply(Observation::Schema(schema.clone(), "2".into()));
        let decision = decided(&mut cluster, morning());
        assert_eq!(written(&decision), None, "{schema:?}");
        assert_eq!(count(&decision, |step| matches!(step, Step::CreateJob { .. })), 0);
    }
}

#[test]
fn a_pruned_status_stops_the_roll_out_for_ten_seconds() {
    let (mut cluster, ..) = applying();
    apply_effect(&mut cluster, StepEffect::StatusPruned);
    let decision = decided(&mut cluster, morning());
    assert_eq!(count(&decision, |step| matches!(step, Step::CreateJob { .. })), 0);
    assert_eq!(
        decision.requeue_at,
        Some(morning() + SignedDuration::from_secs(10))
    );
}

#[test]
fn the_fields_annotation_is_not_written_together_with_a_status() {
    let decision = decided(
        &mut cluster([], [plan_with("p", |spec| spec.suspend = Some(true))]),
        morning(),
    );
    assert!(written(&decision).is_some());
    assert_eq!(
        count(&decision, |step| matches!(step, Step::NoteFields { .. })),
        0
    );
}

#[test]
fn a_message_about_a_drain_is_cut_to_what_status_holds() {
    let (mut cluster, plan, node) = applying();
    let hash = plan.status().latest_hash.clone().unwrap();
    let steps = decided(&mut cluster, morning()).steps;
    let created = steps.iter().find_map(|step| match step {
        Step::CreateJob { job, .. } => Some(job.clone()),
        _ => None,
    });
    let mut facts = job(&created.unwrap(), &plan, &node, &hash);
    facts.inputs = Some(cluster.plans["p"].inputs.clone());
    observe_job(&mut cluster, 3, facts.clone());
    let wait = DrainWait {
        pod: "shop/web-0".to_owned(),
        pdb: Some("web".to_owned()),
        since: morning(),
        why: "x".repeat(2_000),
    };
    let pod = PodFacts {
        job_uid: facts.uid.clone(),
        ..pod("p", "a")
    };
    cluster.apply(Observation::Pod(4, Box::new(pod)));
    let drain = |pod: &str| NodeFacts {
        drain: Some(Box::new(NodeDrain {
            plan: "p".to_owned(),
            pod: pod.to_owned(),
            note: DrainNote {
                evicted: 2,
                total: 9,
                waiting: vec![wait.clone()],
                ..DrainNote::default()
            },
        })),
        ..refit_fixtures::node("a", "n1")
    };
    observe_node(&mut cluster, 5, drain("of-another-pod"));
    // Mere progress is written after a second.
    let later = morning() + SignedDuration::from_mins(1);
    let said = |decision: &Decision| {
        let written = written(decision).unwrap().active.clone().unwrap();
        written[0].message.clone()
    };
    assert_eq!(said(&decided(&mut cluster, later)), None);
    assert_eq!(cluster.drains().count(), 0);
    observe_node(&mut cluster, 6, drain("pod-uid"));
    assert_eq!(cluster.drains().count(), 1);
    let decision = decided(&mut cluster, later);
    let message = written(&decision).unwrap().active.as_ref().unwrap()[0]
        .message
        .clone()
        .unwrap();
    let start =
        "2 of 9 pods are gone; shop/web-0 waits for PodDisruptionBudget web since 2026-01-01T09:00:00Z (x";
    assert!(message.starts_with(start), "{message}");
    assert!(message.len() <= 1_024 + "…".len(), "{}", message.len());
}

#[test]
fn an_event_of_a_job_has_the_same_key_with_any_message() {
    let (plan, uid) = ("p".into(), "uid".into());
    let event = |reason, text: &str, job| Event::job(&plan, &uid, reason, text.to_owned(), job).key;
    let failed = |text, job| event(Reason::JobFailed, text, job);
    assert_eq!(failed("a", "job-1"), failed("b", "job-1"));
    assert_ne!(failed("a", "job-1"), failed("a", "job-2"));
    assert_ne!(failed("a", "job-1"), event(Reason::JobComplete, "a", "job-1"));
}

#[test]
fn the_same_facts_give_the_same_decision() {
    let decision = |at: Timestamp| {
        let mut cluster = cluster([node("a", "n1"), node("b", "n2")], [plan("p"), plan("q")]);
        decided(&mut cluster, at)
    };
    assert_eq!(decision(morning()), decision(morning()));
}

#[test]
fn a_node_that_was_granted_to_an_object_counts_before_it_is_cordoned() {
    let mut cluster = cluster([node("a", "n1"), node("b", "n2")], []);
    let limits = BTreeMap::from([("maxUnavailable".to_owned(), "1".to_owned())]);
    cluster.apply(Observation::Limits(GlobalLimits::Present(limits)));
    let want = |cluster: &mut ClusterState, nodes: &[&str]| {
        let group = MaintenanceGroup::Medik8s;
        cluster.apply(Observation::Maintenance(
            MaintenanceGroup::Kubevirt,
            Change::Unknown,
        ));
        cluster.apply(Observation::Maintenance(group, Change::ListStarted));
        for node in nodes {
            let mut object = Maintenance::from(MedikMaintenance::default());
            object.metadata.name = Some((*node).to_owned());
            object.metadata.uid = Some(format!("uid-{node}"));
            object.spec.node_name = (*node).to_owned();
            cluster.apply(Observation::Maintenance(group, Change::Object(Box::new(object))));
        }
        cluster.apply(Observation::Maintenance(group, Change::ListFinished(0)));
        let grants = decided(cluster, morning()).grants;
        cluster.note_grants(&grants);
        let granted = grants.into_iter().filter(|(_, grant)| grant.answer.is_ok());
        granted.map(|(node, _)| node.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(want(&mut cluster, &["b"]), ["b"]);
    assert_eq!(
        want(&mut cluster, &["a", "b"]),
        ["b"],
        "the earlier one has the room"
    );
    assert_eq!(
        want(&mut cluster, &["a"]),
        ["a"],
        "until it wants its node no more"
    );
}
