//! The permissions of the controller that Plans need.

use std::collections::BTreeSet;

use super::blocker::Blocker;
use super::plan::DerivedPlan;
use super::state::ClusterState;
use refit_api::{ObjectRef, names};
use refit_facts::PlanNeed;
use refit_facts::objects::maintenance::MaintenanceGroup;

impl DerivedPlan {
    /// What it needs permissions for.
    fn needs(&self) -> impl Iterator<Item = PlanNeed> {
        let all = [
            (PlanNeed::RollOut, true),
            (PlanNeed::Reboots, self.spec().has_sentinel()),
            (PlanNeed::Workloads, self.completion.workloads),
            (PlanNeed::DrainChecks, self.checks_drains),
            (PlanNeed::Remediation, self.pauses_remediation()),
            (PlanNeed::PodBlockers, !self.parsed.pod_blockers.is_empty()),
            (PlanNeed::DaemonSets, self.completion.daemon_sets.is_some()),
        ];
        all.into_iter()
            .filter_map(|(need, applies)| applies.then_some(need))
    }
}

/// What Plans need permissions for.
pub fn plan_needs(cluster: &ClusterState) -> BTreeSet<PlanNeed> {
    cluster.plans.values().flat_map(DerivedPlan::needs).collect()
}

/// The roles of `deploy/` that grant it.
fn roles(need: PlanNeed, namespace: &str) -> Vec<ObjectRef> {
    let of_cluster = |name| ObjectRef::new("ClusterRole", name);
    let in_namespace = |namespace, name| ObjectRef::at("Role", &format!("{namespace}/{name}"));
    match need {
        PlanNeed::RollOut => vec![in_namespace(namespace, names::ROLE), of_cluster(names::ROLE)],
        PlanNeed::Reboots => vec![in_namespace(namespace, names::ROLE)],
        PlanNeed::Workloads => vec![of_cluster(names::ROLE)],
        PlanNeed::DrainChecks => vec![of_cluster(names::ROLE_DRAIN_CHECKS)],
        PlanNeed::PodBlockers | PlanNeed::DaemonSets => vec![of_cluster(names::ROLE_PODS)],
        PlanNeed::Remediation => {
            let namespace = MaintenanceGroup::Medik8s.lease_namespace();
            vec![in_namespace(namespace, names::ROLE_REMEDIATION)]
        }
    }
}

/// Whether to check the controller's permissions.
pub(super) fn are_asked(cluster: &ClusterState) -> bool {
    let known = cluster.world.permissions.as_ref().is_some_and(|missing| {
        // Someone may have granted a missing permission, so it is checked again, with the back-off of a refused
        // step.
        missing.is_empty() && missing.knows(plan_needs(cluster))
    });
    !known && !cluster.plans.is_empty()
}

/// What the Plan needs and the controller may not; `None` while permissions are not checked.
pub(super) fn missing(cluster: &ClusterState, plan: &DerivedPlan) -> Option<Blocker> {
    let missing = cluster.world.permissions.as_ref()?;
    let namespace = &cluster.defaults.namespace;
    let for_secrets = plan
        .secrets
        .names()
        .iter()
        .filter(|name| cluster.world.secrets.is_unwatched(name))
        .flat_map(|name| {
            ["list", "watch"].map(|verb| format!("{verb} secrets {name:?} in namespace {namespace}"))
        });
    let phrases = plan
        .needs()
        .flat_map(|need| missing.phrases([need]).map(move |what| (need, what)));
    let lacks: Vec<_> = phrases
        .chain(for_secrets.map(|what| (PlanNeed::RollOut, what)))
        .collect();
    let needs: BTreeSet<_> = lacks.iter().map(|(need, _)| *need).collect();
    let mut all = Vec::new();
    for role in needs.into_iter().flat_map(|need| roles(need, namespace)) {
        if !all.contains(&role) {
            all.push(role);
        }
    }
    let what: Vec<_> = lacks.into_iter().map(|(_, what)| what).collect();
    (!all.is_empty()).then(|| Blocker::MissingPermission {
        what: what.join(", "),
        roles: all,
    })
}

/// Whether the API server has confirmed all permissions that the Plan needs.
pub(super) fn are_granted(cluster: &ClusterState, plan: &DerivedPlan) -> bool {
    let permissions = cluster.world.permissions.as_ref();
    permissions.is_some_and(|missing| missing.knows(plan.needs())) && missing(cluster, plan).is_none()
}
