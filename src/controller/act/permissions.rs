//! Checks with the API server, before a node starts, whether the controller has the permissions for a roll-out.

use kube::{Client, Error};

use refit_api::Reason;
use refit_cluster::kube::permissions::{Need, may, phrase};
use refit_facts::Missing;
use refit_facts::objects::maintenance::MaintenanceGroup;

/// Permissions for every roll-out, except for lists and watches, which are checked once one of them was refused.
const NEEDS: &[Need] = &[
    Need {
        group: "upgrade.cattle.io",
        resource: "plans",
        subresource: "status",
        namespaced: true,
        verbs: &["patch"],
    },
    Need {
        group: "batch",
        resource: "jobs",
        subresource: "",
        namespaced: true,
        verbs: &["create", "patch", "delete"],
    },
    Need {
        group: "",
        resource: "nodes",
        subresource: "",
        namespaced: false,
        verbs: &["patch"],
    },
    Need {
        group: "",
        resource: "events",
        subresource: "",
        namespaced: true,
        verbs: &["create"],
    },
];

/// Additional permissions for Plans with reboots.
const REBOOT_NEEDS: &[Need] = &[Need {
    group: "",
    resource: "pods",
    subresource: "",
    namespaced: true,
    verbs: &["get", "create", "delete"],
}];

/// Additional permissions for Plans with `settle.workloads`.
const WORKLOAD_NEEDS: &[Need] = &[
    Need {
        group: "apps",
        resource: "replicasets",
        subresource: "",
        namespaced: false,
        verbs: &["get"],
    },
    Need {
        group: "apps",
        resource: "statefulsets",
        subresource: "",
        namespaced: false,
        verbs: &["get"],
    },
];

/// Additional permissions for Plans with `drain.blockedBy` or `settle.daemonSets`.
const POD_NEEDS: &[Need] = &[Need {
    group: "",
    resource: "pods",
    subresource: "",
    namespaced: false,
    verbs: &["list"],
}];

/// Additional permissions for Plans with `drain.checkFirst`. Nodes may be listed anyway.
const DRAIN_CHECK_NEEDS: &[Need] = &[
    POD_NEEDS[0],
    Need {
        group: "policy",
        resource: "poddisruptionbudgets",
        subresource: "",
        namespaced: false,
        verbs: &["list"],
    },
];
/// Additional permissions for Plans with `pauseRemediation`, in the namespace of the Leases of nodes.
const REMEDIATION_NEEDS: &[Need] = &[Need {
    group: "coordination.k8s.io",
    resource: "leases",
    subresource: "",
    namespaced: true,
    verbs: &["get", "create", "patch", "delete"],
}];

/// Permissions that are checked only if a Plan needs them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionalPermissions {
    /// Whether a Plan reboots nodes.
    pub reboots: bool,
    /// Whether a Plan waits for workloads.
    pub workloads: bool,
    /// Whether a Plan waits for pods.
    pub pods: bool,
    /// Whether a Plan asks whether drains would end.
    pub drain_checks: bool,
    /// Whether a Plan keeps remediation operators off nodes.
    pub remediation: bool,
    /// Whether nodes can be held by other objects than Plans.
    pub front_ends: bool,
}

/// Lists and watches without which the state of a roll-out is unknown.
const WATCHED: &[Need] = &[
    Need {
        group: "",
        resource: "nodes",
        subresource: "",
        namespaced: false,
        verbs: &["list", "watch"],
    },
    Need {
        group: "",
        resource: "pods",
        subresource: "",
        namespaced: true,
        verbs: &["list"],
    },
    Need {
        group: "batch",
        resource: "jobs",
        subresource: "",
        namespaced: true,
        verbs: &["list", "watch"],
    },
    Need {
        group: "upgrade.cattle.io",
        resource: "plans",
        subresource: "",
        namespaced: true,
        verbs: &["list", "watch"],
    },
];

/// Lists and watches of objects that hold nodes.
const MAINTENANCE_WATCHED: &[Need] = &[
    Need {
        group: "nodemaintenance.medik8s.io",
        resource: "nodemaintenances",
        subresource: "",
        namespaced: false,
        verbs: &["list", "watch"],
    },
    Need {
        group: "nodemaintenance.kubevirt.io",
        resource: "nodemaintenances",
        subresource: "",
        namespaced: false,
        verbs: &["list", "watch"],
    },
];

async fn look(client: &Client, namespace: &str, need: &Need, list: &mut Vec<String>) -> Result<(), Error> {
    for verb in need.verbs {
        if !may(client, need.namespaced.then_some(namespace), need, verb).await? {
            list.push(phrase(need, verb, namespace));
        }
    }
    Ok(())
}

/// The missing permissions. With `degraded`, lists and watches are checked too.
pub(super) async fn ask(
    client: &Client,
    namespace: &str,
    degraded: bool,
    optional: OptionalPermissions,
) -> Result<Missing, Error> {
    let mut missing = Missing {
        knows_reboots: optional.reboots,
        knows_workloads: optional.workloads,
        knows_pods: optional.pods,
        knows_drain_checks: optional.drain_checks,
        knows_remediation: optional.remediation,
        ..Missing::default()
    };
    for need in NEEDS.iter().chain(WATCHED.iter().filter(|_| degraded)) {
        look(client, namespace, need, &mut missing.for_all).await?;
    }
    for need in MAINTENANCE_WATCHED
        .iter()
        .filter(|_| degraded && optional.front_ends)
    {
        look(client, namespace, need, &mut missing.for_all).await?;
    }
    for need in REBOOT_NEEDS.iter().filter(|_| optional.reboots) {
        look(client, namespace, need, &mut missing.for_reboots).await?;
    }
    for need in WORKLOAD_NEEDS.iter().filter(|_| optional.workloads) {
        look(client, namespace, need, &mut missing.for_workloads).await?;
    }
    for need in POD_NEEDS.iter().filter(|_| optional.pods) {
        look(client, namespace, need, &mut missing.for_pods).await?;
    }
    for need in DRAIN_CHECK_NEEDS.iter().filter(|_| optional.drain_checks) {
        look(client, namespace, need, &mut missing.for_drain_checks).await?;
    }
    for what in &mut missing.for_drain_checks {
        what.push_str(" in all namespaces, which spec.drain.checkFirst needs");
    }
    let leases = MaintenanceGroup::Medik8s.lease_namespace();
    for need in REMEDIATION_NEEDS.iter().filter(|_| optional.remediation) {
        look(client, leases, need, &mut missing.for_remediation).await?;
    }
    Ok(missing)
}

/// The missing permissions as a sentence for the log.
pub(super) fn sentence(missing: &Missing) -> String {
    let mut parts = Vec::new();
    if !missing.for_all.is_empty() {
        parts.push(format!("no node is started: {}", missing.for_all.join(", ")));
    }
    if !missing.for_reboots.is_empty() {
        let what = missing.for_reboots.join(", ");
        parts.push(format!("no node of a Plan that reboots is started: {what}"));
    }
    if !missing.for_workloads.is_empty() {
        let what = missing.for_workloads.join(", ");
        parts.push(format!(
            "no node of a Plan that waits for workloads is started: {what}"
        ));
    }
    if !missing.for_pods.is_empty() {
        let what = missing.for_pods.join(", ");
        parts.push(format!(
            "no node of a Plan that waits for pods is started: {what} in all namespaces"
        ));
    }
    if !missing.for_drain_checks.is_empty() {
        let what = missing.for_drain_checks.join(", ");
        parts.push(format!(
            "no node of a Plan that checks drains first is started: {what}"
        ));
    }
    if !missing.for_remediation.is_empty() {
        let what = missing.for_remediation.join(", ");
        parts.push(format!(
            "no node of a Plan that pauses remediation is started: {what}"
        ));
    }
    format!("{}: {}", Reason::MissingPermission, parts.join("; "))
}

/// Whether pods may be watched: system-upgrade-controller's roles permit only lists of them.
///
/// # Errors
/// Fails if the API server does not answer the question.
pub async fn may_watch_pods(client: &Client, namespace: &str) -> Result<bool, Error> {
    let pods = Need {
        group: "",
        resource: "pods",
        subresource: "",
        namespaced: true,
        verbs: &[],
    };
    may(client, Some(namespace), &pods, "watch").await
}
