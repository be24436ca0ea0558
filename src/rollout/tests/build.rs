//! Cluster states for tests, from [`refit_fixtures`].

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use crate::{ClusterState, Decision, Defaults, Observation, Step, StepEffect, decide};
use refit_api::{NodeProgress, Plan, PlanStatus};
use refit_facts::{JobFacts, Missing, NodeFacts, PlanFacts, PodFacts, PodStage, Schema};
use refit_fixtures::{CONTROLLER, NAMESPACE, morning, node, plan, read};
use refit_job::JobSettings;

pub(crate) fn defaults() -> Defaults {
    let mut job = JobSettings::new(CONTROLLER, "refit:test");
    job.kubectl_image_windows = "kubectl:windows".to_owned();
    Defaults {
        namespace: NAMESPACE.to_owned(),
        job,
        polling_interval: SignedDuration::from_mins(15),
        min_node_age: SignedDuration::from_mins(1),
        checks_images: false,
        checks_drains: false,
        own_node: "own-node".into(),
        local_zone: jiff::tz::TimeZone::UTC,
        has_front_ends: false,
        node_conditions: false,
    }
}

/// The state after all first lists: these nodes and Plans, the definition, and all permissions.
pub(crate) fn cluster(
    nodes: impl IntoIterator<Item = NodeFacts>,
    plans: impl IntoIterator<Item = Plan>,
) -> ClusterState {
    let mut cluster = ClusterState::new(defaults());
    cluster.apply(Observation::Schema(Schema::Current, "1".into()));
    cluster.apply(Observation::Limits(crate::GlobalLimits::Absent));
    cluster.apply(Observation::EtcdDown(BTreeSet::new()));
    apply_effect(&mut cluster, StepEffect::Permissions(Missing::nothing()));
    for node in nodes {
        observe_node(&mut cluster, 1, node);
    }
    for plan in plans {
        observe_plan(&mut cluster, 1, read(plan));
    }
    cluster
}

/// A watch returns a Node in this version. Returns whether that is a change.
pub(crate) fn observe_node(cluster: &mut ClusterState, version: u64, facts: NodeFacts) -> bool {
    cluster.apply(Observation::Node(version, Box::new(facts)))
}

/// A watch returns a Job in this version.
pub(crate) fn observe_job(cluster: &mut ClusterState, version: u64, facts: JobFacts) -> bool {
    cluster.apply(Observation::Job(version, Box::new(facts)))
}

/// A watch returns a Plan in this version.
pub(crate) fn observe_plan(cluster: &mut ClusterState, version: u64, facts: PlanFacts) -> bool {
    cluster.apply(Observation::Plan(version, Box::new(facts)))
}

/// A live pod of a Plan on a node.
pub(crate) fn pod(plan: &str, node: &str) -> PodFacts {
    PodFacts {
        name: "pod".into(),
        uid: "pod-uid".into(),
        job_uid: "".into(),
        foreign: false,
        plan: plan.into(),
        node: Some(node.into()),
        stage: PodStage::Drain,
        waiting: None,
        failed: None,
        upgraded: false,
        sentinel_result: None,
        reboot: None,
        deleting: false,
        hook: false,
    }
}

/// A request is sent and answered.
pub(crate) fn apply_effect(cluster: &mut ClusterState, effect: StepEffect) -> bool {
    cluster.apply_effect(effect, cluster.lists(), morning())
}

pub(crate) fn decided(cluster: &mut ClusterState, now: Timestamp) -> Decision {
    cluster.refresh(now);
    decide(cluster, now)
}

/// The status that a decision about one Plan writes.
pub(crate) fn written(decision: &Decision) -> Option<&PlanStatus> {
    decision.steps.iter().find_map(|step| match step {
        Step::WriteStatus { status, .. } => Some(&**status),
        _ => None,
    })
}

/// A Plan whose stored status gives a slot to node `a`, and that node.
pub(crate) fn applying() -> (ClusterState, PlanFacts, NodeFacts) {
    let mut cluster = cluster([node("a", "n1")], [plan("p")]);
    let status = status_of(&mut cluster, "p");
    let mut stored = read(plan("p"));
    stored.object.status = Some(status);
    observe_plan(&mut cluster, 2, stored.clone());
    (cluster, stored, node("a", "n1"))
}

/// The status of a Plan that a decision writes.
pub(crate) fn status_of(cluster: &mut ClusterState, plan: &str) -> PlanStatus {
    let decision = decided(cluster, morning());
    let mut written = decision.steps.into_iter().filter_map(|step| match step {
        Step::WriteStatus { plan: of, status, .. } if *of == *plan => Some(*status),
        _ => None,
    });
    written.next().unwrap()
}

/// The nodes of Plan `p` that start, and the reasons and messages of the others.
pub(crate) fn outcome(cluster: &mut ClusterState) -> (Vec<String>, Vec<String>) {
    let status = status_of(cluster, "p");
    let why = |entry: &NodeProgress| {
        let (reason, message) = (entry.reason.as_deref()?, entry.message.as_deref()?);
        Some(format!("{} {reason}: {message}", entry.name))
    };
    let waiting = status.active.iter().flatten().filter_map(why).collect();
    (status.applying.unwrap_or_default(), waiting)
}
