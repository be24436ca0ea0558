//! Cluster states for tests.

use std::collections::BTreeSet;

use jiff::SignedDuration;

use refit_api::Plan;
use refit_facts::{Missing, NodeFacts, Schema};
use refit_fixtures::{CONTROLLER, NAMESPACE, morning, read};
use refit_job::JobSettings;
use refit_rollout::{ClusterState, Defaults, GlobalLimits, Observation, StepEffect};

/// The state after all first lists: these nodes and Plans, the definition, and all permissions.
pub(crate) fn cluster(
    nodes: impl IntoIterator<Item = NodeFacts>,
    plans: impl IntoIterator<Item = Plan>,
) -> ClusterState {
    let mut cluster = ClusterState::new(Defaults {
        namespace: NAMESPACE.to_owned(),
        job: JobSettings::new(CONTROLLER, "refit:test"),
        polling_interval: SignedDuration::from_mins(15),
        min_node_age: SignedDuration::from_mins(1),
        checks_images: false,
        checks_drains: false,
        own_node: "own-node".into(),
        local_zone: jiff::tz::TimeZone::UTC,
        has_front_ends: false,
        node_conditions: false,
    });
    cluster.apply(Observation::Schema(Schema::Current, "1".into()));
    cluster.apply(Observation::Limits(GlobalLimits::Absent));
    cluster.apply(Observation::EtcdDown(BTreeSet::new()));
    let permissions = Missing::nothing();
    cluster.apply_effect(StepEffect::Permissions(permissions), cluster.lists(), morning());
    for node in nodes {
        observe_node(&mut cluster, 1, node);
    }
    for plan in plans {
        cluster.apply(Observation::Plan(1, Box::new(read(plan))));
    }
    cluster
}

/// A watch returns a Node in this version.
pub(crate) fn observe_node(cluster: &mut ClusterState, version: u64, facts: NodeFacts) {
    cluster.apply(Observation::Node(version, Box::new(facts)));
}
