//! Checks with the API server, before a node starts, whether the controller has the permissions for a roll-out.

use std::collections::BTreeSet;

use kube::{Client, Error};

use refit_api::Reason;
use refit_cluster::kube::permissions::{Need, Scope, may, phrase};
use refit_facts::objects::maintenance::MaintenanceGroup;
use refit_facts::{Missing, PlanNeed};

/// The permissions for what Plans need, except for lists and watches of every roll-out, which are checked once one of them was
/// refused.
fn permissions(need: PlanNeed) -> &'static [Need] {
    const LIST_PODS: Need = Need::new("", "pods", Scope::AllNamespaces, &["list"]);
    const ROLL_OUT: [Need; 4] = [
        Need {
            subresource: "status",
            ..Need::new("upgrade.cattle.io", "plans", Scope::Namespace, &["patch"])
        },
        Need::new("batch", "jobs", Scope::Namespace, &["create", "patch", "delete"]),
        Need::new("", "nodes", Scope::Cluster, &["patch"]),
        Need::new("", "events", Scope::Namespace, &["create"]),
    ];
    const REBOOTS: Need = Need::new("", "pods", Scope::Namespace, &["get", "create", "delete"]);
    const WORKLOADS: [Need; 2] = [
        Need::new("apps", "replicasets", Scope::AllNamespaces, &["get"]),
        Need::new("apps", "statefulsets", Scope::AllNamespaces, &["get"]),
    ];
    // Nodes may be listed anyway.
    const DRAIN_CHECKS: [Need; 2] = [
        LIST_PODS,
        Need::new("policy", "poddisruptionbudgets", Scope::AllNamespaces, &["list"]),
    ];
    const REMEDIATION: Need = Need::new(
        "coordination.k8s.io",
        "leases",
        Scope::Namespace,
        &["get", "create", "patch", "delete"],
    );
    match need {
        PlanNeed::RollOut => &ROLL_OUT,
        PlanNeed::Reboots => &[REBOOTS],
        PlanNeed::Workloads => &WORKLOADS,
        PlanNeed::DrainChecks => &DRAIN_CHECKS,
        PlanNeed::Remediation => &[REMEDIATION],
        PlanNeed::PodBlockers | PlanNeed::DaemonSets => &[LIST_PODS],
    }
}

/// Lists and watches without which the state of a roll-out is unknown.
const WATCHED: [Need; 4] = [
    Need::new("", "nodes", Scope::Cluster, &["list", "watch"]),
    Need::new("", "pods", Scope::Namespace, &["list"]),
    Need::new("batch", "jobs", Scope::Namespace, &["list", "watch"]),
    Need::new("upgrade.cattle.io", "plans", Scope::Namespace, &["list", "watch"]),
];

/// Lists and watches of objects that hold nodes.
const MAINTENANCE_WATCHED: [Need; 2] = [
    Need::new(
        "nodemaintenance.medik8s.io",
        "nodemaintenances",
        Scope::Cluster,
        &["list", "watch"],
    ),
    Need::new(
        "nodemaintenance.kubevirt.io",
        "nodemaintenances",
        Scope::Cluster,
        &["list", "watch"],
    ),
];

/// What to check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    pub needs: BTreeSet<PlanNeed>,
    /// Whether nodes can be held by other objects than Plans.
    pub front_ends: bool,
}

/// The missing permissions. With `degraded`, lists and watches are checked too.
pub(super) async fn ask(
    client: &Client,
    namespace: &str,
    degraded: bool,
    checked: Checked,
) -> Result<Missing, Error> {
    let mut missing = Missing::default();
    let mut all = Vec::new();
    for need in checked.needs {
        all.extend(permissions(need).iter().map(|it| (need, it)));
    }
    if degraded {
        let held = MAINTENANCE_WATCHED.iter().filter(|_| checked.front_ends);
        all.extend(WATCHED.iter().chain(held).map(|it| (PlanNeed::RollOut, it)));
    }
    for (need, it) in all {
        let place = match need {
            PlanNeed::Remediation => MaintenanceGroup::Medik8s.lease_namespace(),
            _ => namespace,
        };
        let list = missing.0.entry(need).or_default();
        for verb in it.verbs {
            let scope = (it.scope == Scope::Namespace).then_some(place);
            if !may(client, scope, it, verb).await? {
                list.push(phrase(it, verb, place));
            }
        }
    }
    Ok(missing)
}

/// The missing permissions as a sentence for the log.
pub(super) fn sentence(missing: &Missing) -> String {
    let what: Vec<_> = missing.phrases(PlanNeed::ALL).collect();
    format!(
        "{}: the controller may not {}",
        Reason::MissingPermission,
        what.join(", ")
    )
}

/// Whether pods may be watched: system-upgrade-controller's roles permit only lists of them.
///
/// # Errors
/// Fails if the API server does not answer the question.
pub async fn may_watch_pods(client: &Client, namespace: &str) -> Result<bool, Error> {
    let pods = Need::new("", "pods", Scope::Namespace, &[]);
    may(client, Some(namespace), &pods, "watch").await
}
