//! The pod that reboots a node, and who may create it. What happens when anything of a reboot is lost is in
//! `src/testkit/tests/engine/reboot`, and in `e2e`.

mod protocol;

use kube::ResourceExt as _;
use refit_api::names::{LABEL_ROLE, ROLE_REBOOT};
use serde_json::{Value, json};

use crate::harness::Harness;
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
}
