//! The permissions of the controller that Plans need.

use super::blocker::Blocker;
use super::plan::DerivedPlan;
use super::state::ClusterState;
use refit_api::{ObjectRef, names};
use refit_facts::Missing;
use refit_facts::objects::maintenance::MaintenanceGroup;

/// Whether to check the controller's permissions.
pub(super) fn are_asked(cluster: &ClusterState) -> bool {
    let known = cluster.world.permissions.as_ref().is_some_and(|missing| {
        // Someone may have granted a missing permission, so it is checked again, with the back-off of a refused
        // step.
        missing.is_empty()
            && (missing.knows_reboots || !cluster.has_reboots())
            && (missing.knows_workloads || !cluster.has_workloads())
            && (missing.knows_pods || !cluster.waits_for_pods())
            && (missing.knows_drain_checks || !cluster.has_drain_checks())
            && (missing.knows_remediation || !cluster.has_remediation_pauses())
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
    let for_reboots = missing.for_reboots.iter().filter(|_| plan.spec().has_sentinel());
    let for_workloads = missing.for_workloads.iter().filter(|_| plan.completion.workloads);
    let for_all: Vec<_> = missing
        .for_all
        .iter()
        .chain(for_reboots)
        .chain(for_workloads)
        .cloned()
        .chain(for_secrets)
        .collect();
    let for_drain_checks = missing.for_drain_checks.iter().filter(|_| plan.checks_drains);
    let for_remediation = missing
        .for_remediation
        .iter()
        .filter(|_| plan.pauses_remediation());
    let for_pods = missing.for_pods.iter().filter(|_| plan.waits_for_pods());
    let field = if plan.pod_blockers.is_empty() {
        "spec.settle.daemonSets"
    } else {
        "spec.drain.blockedBy"
    };
    let for_pods = for_pods.map(|what| format!("{what} in all namespaces, which {field} needs"));
    let leases = MaintenanceGroup::Medik8s.lease_namespace();
    let of_all = ObjectRef::new("ClusterRole", names::ROLE);
    let of_drain_checks = ObjectRef::new("ClusterRole", names::ROLE_DRAIN_CHECKS);
    let of_remediation = ObjectRef::at("Role", &format!("{leases}/{}", names::ROLE_REMEDIATION));
    let of_pods = ObjectRef::new("ClusterRole", names::ROLE_PODS);
    let parts = [
        (of_all, for_all),
        (of_drain_checks, for_drain_checks.cloned().collect()),
        (of_remediation, for_remediation.cloned().collect()),
        (of_pods, for_pods.collect()),
    ];
    let parts = parts.into_iter().filter(|(_, what)| !what.is_empty());
    let (roles, what): (Vec<_>, Vec<_>) = parts.map(|(role, what)| (role, what.join(", "))).unzip();
    (!roles.is_empty()).then(|| Blocker::MissingPermission {
        what: what.join(", "),
        roles,
    })
}

/// Whether the API server has confirmed all permissions that the Plan needs.
pub(super) fn are_granted(cluster: &ClusterState, plan: &DerivedPlan) -> bool {
    let asked = |missing: &Missing| {
        (missing.knows_reboots || !plan.spec().has_sentinel())
            && (missing.knows_workloads || !plan.completion.workloads)
            && (missing.knows_pods || !plan.waits_for_pods())
            && (missing.knows_drain_checks || !plan.checks_drains)
            && (missing.knows_remediation || !plan.pauses_remediation())
    };
    cluster.world.permissions.as_ref().is_some_and(asked) && missing(cluster, plan).is_none()
}
