//! Reads the cluster of a kubeconfig context once. It writes nothing.

use anyhow::{Context as _, anyhow};
use http::Request;

use crate::cli::cluster::Connection;
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
            let (group, _) = path.rsplit_once('/').unwrap_or_default();
            let version = group.trim_start_matches("/apis/").trim_start_matches("/api/");
            // `resourceVersion=0` allows the API server to answer from its cache.
            let request = Request::get(format!("{path}?resourceVersion=0")).body(Vec::new());
            let list = client
                .request::<Value>(request.map_err(|error| anyhow!(error))?)
                .await;
            let mut list = match list {
                Ok(list) => list,
                Err(error) if needed => {
                    return Err(anyhow!("{kind}s cannot be read: {}", brief(&error)));
                }
                Err(error) => {
                    missing.push(format!("{kind}s cannot be read: {}", brief(&error)));
                    continue;
                }
            };
            let items = list["items"]
                .as_array_mut()
                .map(std::mem::take)
                .unwrap_or_default();
            // Items of a list have neither apiVersion nor kind.
            objects.extend(items.into_iter().map(|mut item| {
                item["apiVersion"] = version.into();
                item["kind"] = kind.into();
                item
            }));
        }
        Ok((objects, missing))
    })
}
