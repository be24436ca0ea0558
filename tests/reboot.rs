//! Reboots: one reboot if one is required, even if pods, Jobs, nodes or the controller are
//! lost.

mod loss;
mod protocol;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use refit_api::names::{LABEL_ROLE, ROLE_REBOOT};
use serde_json::{Value, json};

use crate::harness::{Harness, is_free, record};
use crate::testenv::wait;

/// Name of the Plan.
const PLAN: &str = "os";

/// A Plan that cordons and reboots, and settles as soon as its node is Ready.
fn always() -> Value {
    json!({ "spec": {
        "cordon": true,
        "reboot": { "when": "Always", "timeout": "60s" },
        "settle": { "minReady": "0s" },
    } })
}

impl Harness {
    /// Number of reboots of the node.
    async fn reboots(&self, node: &str) -> u32 {
        self.kubelet.boots(&self.node(node)).await - 1
    }

    /// Names of the controller's pods without a Job.
    async fn reboot_pods(&self) -> Vec<String> {
        let pods = self.ctx.pods_with(LABEL_ROLE).await;
        pods.iter().map(Pod::name_any).collect()
    }

    /// Waits for a reboot Pod.
    async fn reboot_pod(&self) -> String {
        let role = format!("{LABEL_ROLE}={ROLE_REBOOT}");
        let pods = wait::until(
            "there is a pod that reboots the node",
            async || self.ctx.pods_with(&role).await,
            |pods| !pods.is_empty(),
        );
        pods.await[0].name_any()
    }

    /// Waits until all reboot Pods are gone.
    async fn no_reboot_pods(&self) {
        wait::until(
            "the pods that reboot nodes are gone",
            async || self.reboot_pods().await,
            Vec::is_empty,
        )
        .await;
    }

    /// Fails unless the node is done after so many upgrades and reboots, and nothing is left on it.
    async fn is_done_after(&self, node: &str, upgrades: u32, reboots: u32) {
        let hash = self.complete(PLAN).await;
        let there = self.done(PLAN, node, &hash).await;
        assert!(is_free(&there) && record(&there, PLAN).is_none());
        assert_eq!(self.runs(node, "upgrade").await, upgrades, "upgrades of {node}");
        assert_eq!(self.reboots(node).await, reboots, "reboots of {node}");
        self.no_reboot_pods().await;
        let requests = self.ctx.controller_requests().await;
        assert!(requests.forbidden().is_empty(), "{:#?}", requests.forbidden());
    }
}
