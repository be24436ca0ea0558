//! Reboots of real hosts by the controller of `deploy/`. The supervisor of a host counts its boots, and payloads record
//! their runs on the host.
//!
//! The engine's scenarios (`src/testkit/tests/engine`) and `tests/reboot` cover the protocol with simulated kubelets,
//! in more detail. These tests show that a real kubelet, containerd and host behave as simulated.

mod failures;
mod loss;
mod payloads;
mod protocol;
mod settle;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ContainerStatus, Node, Pod};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams};
use refit_api::NodeProgress;
use refit_api::names::{LABEL_ROLE, ROLE_REBOOT};
use serde_json::{Value, json};

use super::harness::{E2eHarness, RUNS, merge};
use crate::harness::{has_condition, hash, is_cordoned, ledger, record};
use crate::testenv::context::done;
use crate::testenv::real::{PATIENCE, RealNode};
use crate::testenv::wait;

/// Name of the Plan.
const PLAN: &str = "os";

/// The spec of a Plan that drains and reboots.
fn reboots() -> Value {
    json!({
        "drain": {},
        "reboot": { "when": "Always", "timeout": "5m" },
        "settle": { "minReady": "0s" },
    })
}

/// As [`reboots`], with a command that waits for [`E2eHarness::let_reboot`] before it reboots the node.
fn patiently() -> Value {
    let wait = "until [ -e /var/lib/reboot-now ]; do sleep 0.1; done; systemctl reboot";
    with(reboots(), &json!({ "reboot": { "command": ["sh", "-c", wait] } }))
}

/// A spec with a merge patch.
fn with(mut spec: Value, more: &Value) -> Value {
    merge(&mut spec, more);
    spec
}

/// A spec for this node only.
fn on(node: &RealNode, mut spec: Value) -> Value {
    spec["nodeSelector"] = json!({ "matchLabels": { "kubernetes.io/hostname": node.name() } });
    spec
}

/// A payload that records its version and its boot on the host.
fn notes() -> String {
    format!(
        "echo \"$SYSTEM_UPGRADE_PLAN_LATEST_VERSION $(cat /proc/sys/kernel/random/boot_id)\" >>/host{RUNS}"
    )
}

/// The line that [`notes`] writes for a version in a boot of the node, counted from 1.
fn noted(version: &str, node: &RealNode, boot: usize) -> String {
    format!("{version} {}", node.boot_ids()[boot - 1])
}

/// Whether the pod's container runs, and the pod is not being deleted.
fn runs(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let containers = status.and_then(|status| status.container_statuses.as_ref());
    let running = |it: &ContainerStatus| it.state.as_ref().is_some_and(|state| state.running.is_some());
    pod.metadata.deletion_timestamp.is_none() && containers.into_iter().flatten().any(running)
}

impl E2eHarness {
    /// Lets commands of [`patiently`] reboot the node.
    fn let_reboot(node: &RealNode) {
        node.write("/var/lib/reboot-now", "");
    }

    /// Waits until status says that the node is in that phase.
    async fn phase(&self, plan: &str, node: &RealNode, phase: &str) -> NodeProgress {
        self.wait_for_progress(plan, node, &format!("is {phase}"), |node| node.phase == phase)
            .await
    }

    /// Waits until the Plan has failed on the node for this reason. Checks that the node stays cordoned with a record, and
    /// returns the message in status.
    async fn has_failed(&self, plan: &str, node: &RealNode, reason: &str) -> String {
        let failed = |node: &NodeProgress| node.phase == "Failed";
        let failed = self.wait_for_progress(plan, node, "has failed", failed).await;
        assert_eq!(failed.reason.as_deref(), Some(reason), "{failed:?}");
        let is_recorded = |node: &Node| record(node, plan).is_some_and(|record| record["phase"] == "Failed");
        let there = self
            .ctx
            .node_until(node.name(), "has a record of the failure", PATIENCE, is_recorded)
            .await;
        assert!(is_cordoned(&there), "a failed node stays cordoned");
        let current = hash(&self.ctx.plans().get(plan).await.unwrap());
        assert_ne!(done(&there, plan), Some(current), "it is not done");
        failed.message.unwrap()
    }

    /// Waits until the Plan is Complete. Checks that its nodes are done without records or reboot pods, and that no
    /// request of the controller was forbidden.
    async fn is_done(&self, plan: &str, nodes: &[&RealNode]) {
        self.is_complete(plan, nodes).await;
        let requests = self.ctx.controller_requests().await;
        assert!(requests.forbidden().is_empty(), "{:#?}", requests.forbidden());
    }

    /// As [`Self::is_done`], except for forbidden requests.
    async fn is_complete(&self, plan: &str, nodes: &[&RealNode]) {
        let complete = self.complete(plan).await;
        for node in nodes {
            let there = self.node(node).await;
            assert_eq!(done(&there, plan), Some(hash(&complete)), "{there:#?}");
            assert!(record(&there, plan).is_none(), "{there:#?}");
        }
        self.no_reboot_pods().await;
    }

    /// Waits until a reboot pod is `good`.
    async fn reboot_pod(&self, what: &str, good: impl Fn(&Pod) -> bool) -> Pod {
        wait::eventually(
            &format!("there is a pod that reboots a node, and it {what}"),
            PATIENCE,
            async || {
                let pods = self.reboot_pods().await;
                let states: Vec<_> = pods.iter().map(|pod| &pod.status).collect();
                let seen = format!("{states:?}");
                pods.into_iter().find(|pod| good(pod)).ok_or(seen)
            },
        )
        .await
    }

    /// Waits until no reboot pod is left.
    async fn no_reboot_pods(&self) {
        wait::until(
            "the pods that reboot nodes are gone",
            async || self.reboot_pods().await,
            Vec::is_empty,
        )
        .await;
    }

    async fn reboot_pods(&self) -> Vec<Pod> {
        self.ctx.pods_with(&format!("{LABEL_ROLE}={ROLE_REBOOT}")).await
    }

    /// Waits until a Job of the Plan has that condition, and returns it.
    async fn job_is(&self, plan: &str, condition: &str) -> Job {
        wait::eventually(&format!("the Job is {condition}"), PATIENCE, async || {
            let jobs = self.ctx.jobs_of(plan).await;
            let good = |job: &&Job| has_condition(job, condition);
            let found = jobs.iter().find(good).cloned();
            found.ok_or_else(|| format!("{:?}", jobs.iter().map(|job| &job.status).collect::<Vec<_>>()))
        })
        .await
    }

    /// Deletes all Jobs of a Plan with their pods, and waits until both are gone.
    async fn delete_jobs(&self, plan: &str) {
        let jobs = self.ctx.jobs_of(plan).await;
        assert!(!jobs.is_empty(), "there is a Job to delete");
        for job in jobs {
            let name = job.name_any();
            let all = self.ctx.jobs();
            all.delete(&name, &DeleteParams::background()).await.unwrap();
            wait::gone(all, &name, PATIENCE).await;
            let pods = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={name}"));
            wait::until(
                "its pods are gone",
                async || self.ctx.pods().list(&pods).await.unwrap().items,
                Vec::is_empty,
            )
            .await;
        }
    }

    /// Fails as soon as the node is cordoned or its payload has begun.
    async fn untouched(&self, node: &RealNode) -> ! {
        loop {
            let there = self.node(node).await;
            assert!(!is_cordoned(&there) && ledger(&there).is_none(), "{there:#?}");
            assert_eq!(node.lines(RUNS), [""; 0]);
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    }
}
