//! Reboots on a real control plane: one boot where one is asked for, whatever becomes of pods, Jobs, nodes and the controller
//! meanwhile.

mod loss;
mod protocol;
mod settle;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use refit::api::names::{LABEL_ROLE, ROLE_REBOOT};
use serde_json::{Value, json};

use crate::scene::{A_WHILE, Scene, both, has_condition, is_cordoned, ledger, record};
use crate::support::wait::{self, SOON};

/// Name of the Plan.
const PLAN: &str = "os";

/// A Plan that cordons and reboots, and has settled as soon as its node is Ready.
fn always() -> Value {
    json!({ "spec": {
        "cordon": true,
        "reboot": { "when": "Always", "timeout": "60s" },
        "settle": { "minReady": "0s" },
    } })
}

/// As [`always`], with a short time to reboot in.
fn hasty(seconds: u32) -> Value {
    let timeout = json!({ "spec": { "reboot": { "timeout": format!("{seconds}s") } } });
    both(always(), timeout)
}

impl Scene {
    /// How often the node has booted since it is there.
    async fn reboots(&self, node: &str) -> u32 {
        self.kubelet.boots(&self.node(node)).await - 1
    }

    /// Names of the pods of the controller that no Job made.
    async fn reboot_pods(&self) -> Vec<String> {
        let pods = self
            .world
            .pods()
            .list(&kube::api::ListParams::default())
            .await
            .unwrap();
        let of_no_job = |pod: &&k8s_openapi::api::core::v1::Pod| pod.labels().contains_key(LABEL_ROLE);
        pods.items
            .iter()
            .filter(of_no_job)
            .map(kube::ResourceExt::name_any)
            .collect()
    }

    /// Waits until there is a pod that reboots a node.
    async fn reboot_pod(&self) -> String {
        wait::eventually("there is a pod that reboots the node", A_WHILE, async || {
            let pods = self
                .world
                .pods()
                .list(&kube::api::ListParams::default())
                .await
                .unwrap();
            let role = |pod: &k8s_openapi::api::core::v1::Pod| pod.labels().get(LABEL_ROLE).cloned();
            let pod = pods
                .items
                .iter()
                .find(|pod| role(pod).as_deref() == Some(ROLE_REBOOT));
            pod.map(kube::ResourceExt::name_any)
                .ok_or_else(|| "there is none".to_owned())
        })
        .await
    }

    /// Waits until the pods that reboot nodes are gone.
    async fn no_reboot_pods(&self) {
        wait::eventually("the pods that reboot nodes are gone", A_WHILE, async || {
            let left = self.reboot_pods().await;
            if left.is_empty() {
                Ok(())
            } else {
                Err(format!("{left:?}"))
            }
        })
        .await;
    }

    /// Fails unless the node is done, was upgraded and rebooted so often, and nothing is left on it.
    async fn is_done_after(&self, node: &str, upgrades: u32, reboots: u32) {
        let hash = self.complete(PLAN).await;
        let there = self.done(PLAN, node, &hash).await;
        assert!(!is_cordoned(&there) && ledger(&there).is_none() && record(&there, PLAN).is_none());
        assert_eq!(self.runs(node, "upgrade").await, upgrades, "upgrades of {node}");
        assert_eq!(self.reboots(node).await, reboots, "reboots of {node}");
        self.no_reboot_pods().await;
        let requests = self.world.controller_requests().await;
        assert!(requests.forbidden().is_empty(), "{:#?}", requests.forbidden());
    }

    /// Waits until the Plan has failed on the node for that reason, and fails unless the node is as it should be then.
    async fn has_failed(&self, node: &str, reason: &str) -> String {
        let failed = self.held_up(PLAN, node, reason).await;
        assert_eq!(failed.phase, "Failed", "{failed:?}");
        // Status and record are written side by side.
        let is_recorded = |node: &Node| record(node, PLAN).is_some_and(|record| record["phase"] == "Failed");
        let name = self.node(node);
        let there = self
            .world
            .node_until(&name, "says that it failed", SOON, is_recorded)
            .await;
        assert!(is_cordoned(&there), "a failed node stays cordoned");
        failed.message.unwrap()
    }

    /// Waits until the Job on the node is Complete, for nobody who works on it.
    async fn job_is_complete(&self, node: &str) {
        self.job_until(PLAN, node, "is Complete", |job| has_condition(job, "Complete"))
            .await;
    }

    /// Deletes a pod, as a person does, and waits until it is gone.
    async fn delete_pod(&self, pod: &str) {
        let pods = self.world.pods();
        let now = DeleteParams::default().grace_period(0);
        pods.delete(pod, &now).await.unwrap();
        wait::gone(pods, pod, SOON).await;
    }
}
