//! How often the hash of a Plan is computed. Its annotation may name fields that take milliseconds to collect.

use super::build::{cluster, observe_plan};
use crate::{ClusterState, decide};
use refit_api::names::ANNOTATION_DIGEST;
use refit_api::{Plan, PlanStatus};
use refit_fixtures::{morning, node, plan_with, read};

fn plan(fields: &str) -> Plan {
    let mut plan = plan_with("p", |_| {});
    plan.metadata.annotations = Some([(ANNOTATION_DIGEST.to_owned(), fields.to_owned())].into());
    plan
}

fn computed(cluster: &mut ClusterState) -> usize {
    for _ in 0..5 {
        cluster.refresh(morning());
        let _ = decide(cluster, morning());
    }
    cluster.plans["p"].hashes.computed
}

#[test]
fn a_hash_is_computed_once_until_its_plan_changes() {
    let mut cluster = cluster([node("a", "1")], [plan("spec.upgrade")]);
    assert_eq!(computed(&mut cluster), 1);
    let with_status = |mut plan: Plan| {
        plan.status = Some(PlanStatus::default());
        read(plan)
    };
    observe_plan(&mut cluster, 2, with_status(plan("spec.upgrade")));
    assert_eq!(computed(&mut cluster), 1, "a hash of the spec");
    observe_plan(&mut cluster, 3, with_status(plan("status.latestVersion")));
    assert_eq!(computed(&mut cluster), 2, "another annotation");
}
