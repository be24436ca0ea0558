//! Nodes that join the cluster during the rehearsal (`--fault NODE:late`).

use std::time::Duration;

use jiff::SignedDuration;

use super::populate::put;
use super::{Rehearsal, RehearsalError};
use crate::cluster::Cluster;
use crate::fault::Fault;
use crate::json::Value;
use crate::resources::Kind;

impl Rehearsal {
    /// How late a node joins; `None` for one that is there at the start.
    pub(super) fn late(&self, node: &str) -> Option<SignedDuration> {
        let mut faults = self.assumptions.faults.iter().filter(|fault| fault.node == node);
        faults.find_map(Fault::late)
    }

    /// Whether the object is a late node, or a pod on one.
    pub(super) fn is_absent_at_start(&self, object: &Value) -> bool {
        let node = match object["kind"].as_str() {
            Some("Node") => &object["metadata"]["name"],
            Some("Pod") => &object["spec"]["nodeName"],
            _ => return false,
        };
        node.as_str().is_some_and(|node| self.late(node).is_some())
    }

    /// Whether a node that a Plan selects is yet to join.
    pub(super) fn is_joining(&self, cluster: &Cluster) -> bool {
        let late = self
            .assumptions
            .faults
            .iter()
            .filter(|fault| fault.late().is_some());
        let mut absent = late.filter(|fault| cluster.get(Kind::Node, "", &fault.node).is_none());
        absent.any(|fault| self.selected_nodes().contains(fault.node.as_str()))
    }

    /// Creates the late nodes, each in its time. Ends only if one is refused.
    pub(super) async fn join_late_nodes(&self, cluster: &Cluster) -> RehearsalError {
        let name = |node: &Value| node.meta("name").to_owned();
        let nodes = self.initial_cluster.node_objects();
        let mut late: Vec<_> = nodes
            .filter_map(|node| Some((self.late(&name(node))?, node)))
            .collect();
        late.sort_by_key(|(after, _)| *after);
        let failing = match self.failing() {
            Ok(failing) => failing,
            Err(error) => return error.into(),
        };
        let mut passed = SignedDuration::ZERO;
        for (after, node) in late {
            tokio::time::sleep(Duration::try_from(after - passed).unwrap_or_default()).await;
            passed = after;
            let mut node = self.steered(node, &failing);
            // It is registered now, as a new object.
            node["metadata"]["creationTimestamp"] = cluster.clock().now().to_string().into();
            if let Some(metadata) = node["metadata"].as_object_mut() {
                metadata.remove("resourceVersion");
            }
            if let Err(error) = put(cluster, node) {
                return error;
            }
        }
        std::future::pending().await
    }
}
