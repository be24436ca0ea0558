//! Nodes whose upgrades run until a test ends them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, Patch, PatchParams};
use refit_api::names::LABEL_PLAN;
use refit_rehearse::pod_lifecycle::{Defaults, Delay, STEERING_PREFIX};
use serde_json::json;

use super::context::TestContext;
use super::kubelet::{FakeKubelet, NodeSet};
use super::wait::{self, SOON};

/// Dropping it stops the kubelets.
pub struct ManualKubelet {
    pub kubelet: FakeKubelet,
    pods: Api<Pod>,
    names: BTreeMap<String, String>,
}

impl TestContext {
    /// Registers nodes, and waits until they are schedulable. Their label `kubernetes.io/hostname` is their full name.
    pub async fn manual_kubelet<const N: usize>(&self, names: [&str; N]) -> ManualKubelet {
        self.manual_kubelet_with(names, |nodes| nodes).await
    }

    /// Like [`Self::manual_kubelet`], with changed nodes.
    pub async fn manual_kubelet_with<const N: usize>(
        &self,
        names: [&str; N],
        change: impl FnOnce(NodeSet) -> NodeSet,
    ) -> ManualKubelet {
        let nodes = NodeSet::named(names.map(|name| self.node_name(name)))
            .steer("start-delay", "20ms")
            .steer("upgrade.run-delay", "never")
            .pods(Defaults {
                init: Delay::millis(20),
                ..Defaults::default()
            });
        ManualKubelet {
            kubelet: self.run(change(nodes)).await,
            pods: self.pods(),
            names: names
                .iter()
                .map(|name| ((*name).to_owned(), self.node_name(name)))
                .collect(),
        }
    }
}

impl ManualKubelet {
    /// The full name of a node.
    pub fn name(&self, name: &str) -> String {
        self.names[name].clone()
    }

    /// Waits until the upgrade of a Plan runs on a node, and ends it with an exit code.
    pub async fn end(&self, plan: &str, node: &str, code: i32) {
        let of_node = ListParams::default()
            .labels(&format!("{LABEL_PLAN}={plan}"))
            .fields(&format!("spec.nodeName={node}"));
        let running = wait::eventually(&format!("{plan} runs on {node}"), SOON, async || {
            let pods = self
                .pods
                .list(&of_node)
                .await
                .map_err(|error| error.to_string())?;
            let running = pods.items.into_iter().find(is_upgrading);
            running
                .and_then(|pod| pod.metadata.name)
                .ok_or_else(|| "it does not".to_owned())
        })
        .await;
        let steering = json!({
            format!("{STEERING_PREFIX}upgrade.exit-code"): code.to_string(),
            format!("{STEERING_PREFIX}upgrade.run-delay"): "0",
        });
        let patch = Patch::Merge(json!({ "metadata": { "annotations": steering } }));
        let ended = self.pods.patch(&running, &PatchParams::default(), &patch).await;
        ended.unwrap_or_else(|error| panic!("the container of {plan} on {node} is gone: {error}"));
    }

    /// Waits until the upgrade of a Plan runs on a node, and ends it successfully.
    pub async fn succeed(&self, plan: &str, node: &str) {
        self.end(plan, node, 0).await;
    }
}

/// Whether `upgrade` runs, and has not been asked to end.
fn is_upgrading(pod: &Pod) -> bool {
    let steered = |key: &str| {
        pod.metadata
            .annotations
            .iter()
            .flatten()
            .any(|(known, _)| known.ends_with(key))
    };
    let statuses = pod
        .status
        .as_ref()
        .and_then(|status| status.container_statuses.as_ref());
    let runs = statuses.into_iter().flatten().any(|container| {
        container.name == "upgrade"
            && container
                .state
                .as_ref()
                .is_some_and(|state| state.running.is_some())
    });
    runs && pod.metadata.deletion_timestamp.is_none() && !steered("/upgrade.exit-code")
}
