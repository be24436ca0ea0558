//! Reads the cluster of a kubeconfig context once. It writes nothing.

use std::collections::BTreeSet;

use anyhow::anyhow;
use k8s_openapi::api::core::v1::ConfigMap;

use crate::cli::cluster::{Connection, list};
use crate::cli::target::with_client;
use refit_api::limits;
use refit_cluster::kube::served::is_unknown;
use refit_cluster::kube::{brief, read};
use refit_facts::objects::maintenance;
use refit_facts::objects::maintenance::MaintenanceGroup;
use refit_facts::objects::node_op::OpKind;
use refit_rehearse::json::Value;

/// Paths, the kinds of their items, and whether a rehearsal needs them: the type of the others may be missing, or
/// reading them forbidden.
const LISTS: [(&str, &str, bool); 7] = [
    ("/api/v1/nodes", "Node", true),
    ("/api/v1/pods", "Pod", true),
    (
        "/apis/policy/v1/poddisruptionbudgets",
        "PodDisruptionBudget",
        true,
    ),
    ("/apis/apps/v1/replicasets", "ReplicaSet", false),
    ("/apis/apps/v1/daemonsets", "DaemonSet", false),
    ("/apis/batch/v1/jobs", "Job", false),
    ("/apis/upgrade.cattle.io/v1/plans", "Plan", false),
];

/// Namespace of the controller if the cluster has no Plan.
const NAMESPACE: &str = "system-upgrade";

/// The objects of the cluster, and notes about what could not be read. `namespace` is that of the controller, if it is
/// given.
pub(super) fn objects(
    connection: &Connection,
    namespace: Option<&str>,
) -> anyhow::Result<(Vec<Value>, Vec<String>)> {
    with_client(connection, async |client| {
        let (mut objects, mut missing) = (Vec::new(), Vec::new());
        for (path, kind, needed) in LISTS {
            let list = list(&client, path, kind).await;
            match list {
                Ok(list) => objects.extend(list),
                Err(error) if needed => {
                    return Err(anyhow!("{kind}s cannot be read: {}", brief(&error)));
                }
                Err(error) => {
                    missing.push(format!("{kind}s cannot be read: {}", brief(&error)));
                }
            }
        }
        let ops = OpKind::ALL.map(|kind| (kind.path(), kind.name()));
        let maintenances = MaintenanceGroup::ALL.map(|group| (group.path(), maintenance::KIND));
        // A cluster that does not know a kind has no objects of it.
        for (path, kind) in ops.into_iter().chain(maintenances) {
            match list(&client, &path, kind).await {
                Ok(list) => objects.extend(list),
                Err(error) if is_unknown(&client, &path, &error).await => {}
                Err(error) => missing.push(format!("{kind}s cannot be read: {}", brief(&error))),
            }
        }
        for namespace in controller_namespaces(&objects, namespace) {
            match limits_of(&client, &namespace).await {
                Ok(limits) => objects.extend(limits),
                Err(error) => missing.push(format!(
                    "ConfigMap {namespace}/{} cannot be read, so there are no limits for all Plans: {}",
                    limits::NAME,
                    brief(&error)
                )),
            }
        }
        Ok((objects, missing))
    })
}

/// The namespaces in which a controller may have limits for all Plans: those of the Plans.
fn controller_namespaces(objects: &[Value], given: Option<&str>) -> BTreeSet<String> {
    let plans = objects.iter().filter(|object| object["kind"] == "Plan");
    let of_plans = plans.filter_map(|plan| plan["metadata"]["namespace"].as_str());
    let mut namespaces: BTreeSet<String> = of_plans.chain(given).map(str::to_owned).collect();
    if namespaces.is_empty() {
        namespaces.insert(NAMESPACE.to_owned());
    }
    namespaces
}

/// The limits for all Plans. The `ConfigMap` is read by name, because a rehearsal needs no permission for the others.
async fn limits_of(client: &kube::Client, namespace: &str) -> Result<Option<Value>, kube::Error> {
    let limits = read::get::<ConfigMap>(client, Some(namespace), limits::NAME).await?;
    Ok(limits
        .and_then(|limits| serde_json::to_value(limits).ok())
        .map(Value::from))
}
