//! Reboots: one reboot if one is required, even if pods, Jobs, nodes or the controller are
//! lost.

mod loss;
mod protocol;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use refit_api::names::{LABEL_ROLE, ROLE_REBOOT};
use refit_api::{NodePhase, Plan};
use serde_json::{Value, json};

use crate::harness::{Harness, is_free, record};
use crate::testenv::context::TestContext;
use crate::testenv::wait::{self, SOON};

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

/// R4: each server goes down some seconds after its Job, and a controller that takes over meanwhile waits for it as well.
#[tokio::test]
async fn servers_that_their_payload_reboots_go_down_one_after_the_other_without_a_pod_of_refit() {
    let servers = ["one", "two", "three"];
    let harness = Harness::on(TestContext::alone().await, servers, |set| {
        set.label("node-role.kubernetes.io/control-plane", "true")
    })
    .await;
    let mut controller = harness.ctx.controller().start();
    let spec = json!({
        "concurrency": 3, "reboot": { "by": "Payload", "timeout": "120s" }, "settle": { "minReady": "0s" },
    });
    harness.plan_with(PLAN, spec).await;
    let mut back = Vec::new();
    for round in 1..=servers.len() {
        let is_alone = |plan: &Plan| {
            let active = plan.status.clone().unwrap_or_default().active.unwrap_or_default();
            let at_work: Vec<_> = active
                .iter()
                .filter(|entry| entry.phase != NodePhase::Waiting)
                .collect();
            matches!(at_work[..], [one] if one.phase == NodePhase::Rebooting && !back.contains(&one.name))
        };
        let plan = harness
            .ctx
            .plan_until(PLAN, "waits for a reboot", SOON, is_alone)
            .await;
        assert_eq!(harness.ctx.jobs_of(PLAN).await.len(), round);
        if round == 2 {
            controller.kill();
            controller = controller.start_again();
        }
        let down = plan.status.unwrap().applying.unwrap().remove(0);
        harness.kubelet.reboot(&down).await;
        back.push(down);
    }
    harness.complete(PLAN).await;
    for server in servers {
        assert_eq!(
            (
                harness.runs(server, "upgrade").await,
                harness.reboots(server).await
            ),
            (1, 1)
        );
    }
    assert_eq!(harness.reboot_pods().await, Vec::<String>::new());
    let requests = harness.ctx.controller_requests().await;
    assert!(requests.forbidden().is_empty(), "{:#?}", requests.forbidden());
    drop(controller);
}
