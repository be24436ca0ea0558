//! The permissions of the controller that Plans need.

use super::plan::DerivedPlan;
use super::state::ClusterState;
use refit_facts::PlanNeed;

impl DerivedPlan {
    /// What it needs permissions for.
    pub(super) fn needs(&self) -> impl Iterator<Item = PlanNeed> {
        let all = [
            (PlanNeed::RollOut, true),
            (PlanNeed::Reboots, self.spec().has_sentinel()),
            (PlanNeed::Workloads, self.completion.workloads),
            (PlanNeed::DrainChecks, self.checks_drains),
            (PlanNeed::Remediation, self.pauses_remediation()),
            (PlanNeed::PodBlockers, !self.pod_blockers.is_empty()),
            (PlanNeed::DaemonSets, self.completion.daemon_sets.is_some()),
        ];
        all.into_iter()
            .filter_map(|(need, applies)| applies.then_some(need))
    }
}

/// Whether to check the controller's permissions.
pub(super) fn are_asked(cluster: &ClusterState) -> bool {
    let known = cluster.world.permissions.as_ref().is_some_and(|missing| {
        // Someone may have granted a missing permission, so it is checked again, with the back-off of a refused
        // step.
        missing.is_empty() && missing.knows(cluster.needs())
    });
    !known && !cluster.plans.is_empty()
}

/// The permission that the Plan needs and the controller lacks; `None` while permissions are not checked.
pub(super) fn missing(cluster: &ClusterState, plan: &DerivedPlan) -> Option<String> {
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
    let what: Vec<_> = missing.phrases(plan.needs()).chain(for_secrets).collect();
    (!what.is_empty()).then(|| what.join(", "))
}

/// Whether the API server has confirmed all permissions that the Plan needs.
pub(super) fn are_granted(cluster: &ClusterState, plan: &DerivedPlan) -> bool {
    let permissions = cluster.world.permissions.as_ref();
    permissions.is_some_and(|missing| missing.knows(plan.needs())) && missing(cluster, plan).is_none()
}
