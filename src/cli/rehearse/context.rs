//! Reads the cluster of a kubeconfig context once. It writes nothing.

use anyhow::{Context as _, anyhow};

use crate::cli::cluster::{Connection, list};
use crate::kube::brief;
use crate::rehearse::json::Value;

/// Paths, the kinds of their items, and whether a list is optional: its type may be missing, or reading it forbidden.
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

/// The objects of the cluster, and notes about what could not be read.
pub(super) fn objects(connection: &Connection) -> anyhow::Result<(Vec<Value>, Vec<String>)> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the runtime cannot be started")?;
    runtime.block_on(async {
        let client = connection.client().await?;
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
        Ok((objects, missing))
    })
}
