//! Nodes without a kubelet: registered and Ready, with pods that do nothing until the test says how they end. For tests
//! of what a Plan says, where a pod's life does not matter.

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, ListParams, Patch, PatchParams};
use refit::api::names::LABEL_PLAN;
use serde_json::json;

use super::wait::{self, SOON};
use super::world::{World, create};

impl World {
    /// Registers a Node that is Ready, and returns its full name. Its label `kubernetes.io/hostname` is its name.
    pub async fn puppet(&self, name: &str) -> String {
        let name = self.node_name(name);
        let mut labels = self.node_labels();
        labels.insert("kubernetes.io/hostname".to_owned(), name.clone());
        labels.insert("kubernetes.io/os".to_owned(), "linux".to_owned());
        let nodes = self.nodes();
        create::<Node>(&nodes, json!({ "metadata": { "name": name, "labels": labels } })).await;
        self.puppet_is(&name, true).await;
        name
    }

    /// Says of a Node whether it is Ready.
    pub async fn puppet_is(&self, name: &str, ready: bool) {
        let resources = json!({ "cpu": "4", "memory": "8Gi", "pods": "110" });
        let status = json!({ "status": {
            "conditions": [{
                "type": "Ready", "status": if ready { "True" } else { "False" }, "reason": "Puppet", "message": "",
                "lastHeartbeatTime": null, "lastTransitionTime": null,
            }],
            "capacity": resources, "allocatable": resources,
        } });
        let nodes = self.nodes();
        let patched = nodes
            .patch_status(name, &PatchParams::default(), &Patch::Strategic(status))
            .await;
        patched.unwrap_or_else(|error| panic!("cannot patch the status of Node {name}: {error}"));
    }

    /// Waits for the pod of a Plan that is bound to a node, and ends it: `Succeeded` or `Failed`.
    pub async fn end_pod(&self, plan: &str, node: &str, phase: &str) {
        let pod = wait::eventually(&format!("a pod of {plan} is on {node}"), SOON, async || {
            let of_plan = ListParams::default().labels(&format!("{LABEL_PLAN}={plan}"));
            let pods = self
                .pods()
                .list(&of_plan)
                .await
                .map_err(|error| error.to_string())?;
            let is_here = |pod: &Pod| {
                let ended = pod.status.as_ref().and_then(|status| status.phase.as_deref());
                pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(node)
                    && ended == Some("Pending")
            };
            let names = pods
                .items
                .into_iter()
                .filter(is_here)
                .filter_map(|pod| pod.metadata.name);
            names.into_iter().next().ok_or_else(|| "none is".to_owned())
        })
        .await;
        let pods: Api<Pod> = self.pods();
        let status = json!({ "status": { "phase": phase } });
        let patched = pods
            .patch_status(&pod, &PatchParams::default(), &Patch::Strategic(status))
            .await;
        patched.unwrap_or_else(|error| panic!("cannot end pod {pod}: {error}"));
    }
}
