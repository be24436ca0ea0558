//! Reboots of real hosts, asked for by the controller of `deploy/`: how often a host was booted is what its supervisor counted,
//! and how often a payload ran is what it wrote on the host.
//!
//! `tests/reboot/` has the same protocol with kubelets that are played, in more and finer cases. What is shown here is that
//! kubelet, containerd and a host do what those play.

mod failures;
mod loss;
mod payloads;
mod protocol;
mod settle;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ContainerStatus, Node, Pod};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams};
use refit::api::NodeProgress;
use refit::api::names::{LABEL_ROLE, ROLE_REBOOT};
use serde_json::{Value, json};

use super::stage::{RUNS, Stage, merge};
use crate::scene::{has_condition, hash, is_cordoned, ledger, record};
use crate::support::real::{PATIENCE, RealNode};
use crate::support::wait;
use crate::support::world::done;

/// Name of the Plan.
const PLAN: &str = "os";

/// What a person writes who wants nodes drained and rebooted.
fn reboots() -> Value {
    json!({
        "drain": {},
        "reboot": { "when": "Always", "timeout": "5m" },
        "settle": { "minReady": "0s" },
    })
}

/// As [`reboots`], with a command that reboots the node when the test lets it ([`Stage::let_reboot`]), and at once from then
/// on.
fn patiently() -> Value {
    let wait = "until [ -e /var/lib/reboot-now ]; do sleep 0.1; done; systemctl reboot";
    with(reboots(), &json!({ "reboot": { "command": ["sh", "-c", wait] } }))
}

/// As [`reboots`], within so many seconds by that command.
fn hastily(seconds: u32, command: &[&str]) -> Value {
    let reboot = json!({ "reboot": { "timeout": format!("{seconds}s"), "command": command } });
    with(reboots(), &reboot)
}

/// One changed by the other.
fn with(mut spec: Value, more: &Value) -> Value {
    merge(&mut spec, more);
    spec
}

/// For that node only.
fn on(node: &RealNode, mut spec: Value) -> Value {
    spec["nodeSelector"] = json!({ "matchLabels": { "kubernetes.io/hostname": node.name() } });
    spec
}

/// A payload that writes on its host which version it is of, and in which boot it runs.
fn notes() -> String {
    format!(
        "echo \"$SYSTEM_UPGRADE_PLAN_LATEST_VERSION $(cat /proc/sys/kernel/random/boot_id)\" >>/host{RUNS}"
    )
}

/// What [`notes`] writes for that version in that boot of the node, from 1.
fn noted(version: &str, node: &RealNode, boot: usize) -> String {
    format!("{version} {}", node.boot_ids()[boot - 1])
}

/// Whether the pod's container runs, and is to go on.
fn runs(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let containers = status.and_then(|status| status.container_statuses.as_ref());
    let running = |it: &ContainerStatus| it.state.as_ref().is_some_and(|state| state.running.is_some());
    pod.metadata.deletion_timestamp.is_none() && containers.into_iter().flatten().any(running)
}

impl Stage {
    /// Lets commands of [`patiently`] reboot the node.
    fn let_reboot(node: &RealNode) {
        node.write("/var/lib/reboot-now", "");
    }

    /// Fails if a command of [`patiently`] runs on the node.
    async fn nobody_reboots(node: &RealNode) {
        let processes = node.run(&["busybox", "ps", "-o", "args"]).await;
        assert!(!processes.contains("reboot-now"), "{processes}");
    }

    /// Waits until status says that the node is in that phase.
    async fn phase(&self, plan: &str, node: &RealNode, phase: &str) -> NodeProgress {
        self.told(plan, node, &format!("is {phase}"), |node| node.phase == phase)
            .await
    }

    /// Waits until the Plan has failed on the node for that reason, and fails unless the node is held as it should be then.
    /// Returns what status says of it.
    async fn has_failed(&self, plan: &str, node: &RealNode, reason: &str) -> String {
        let failed = |node: &NodeProgress| node.phase == "Failed";
        let failed = self.told(plan, node, "has failed", failed).await;
        assert_eq!(failed.reason.as_deref(), Some(reason), "{failed:?}");
        let is_recorded = |node: &Node| record(node, plan).is_some_and(|record| record["phase"] == "Failed");
        let there = self
            .world
            .node_until(node.name(), "says that it failed", PATIENCE, is_recorded)
            .await;
        assert!(is_cordoned(&there), "a failed node stays cordoned");
        let asked_for = hash(&self.world.plans().get(plan).await.unwrap());
        assert_ne!(done(&there, plan), Some(asked_for), "it is not done");
        failed.message.unwrap()
    }

    /// Waits until the Plan is Complete, and fails unless its nodes are done, nothing is left of the way there, and the controller
    /// was never refused anything.
    async fn is_done(&self, plan: &str, nodes: &[&RealNode]) {
        self.is_complete(plan, nodes).await;
        let requests = self.world.controller_requests().await;
        assert!(requests.forbidden().is_empty(), "{:#?}", requests.forbidden());
    }

    /// As [`Self::is_done`], whatever was refused.
    async fn is_complete(&self, plan: &str, nodes: &[&RealNode]) {
        let complete = self.complete(plan).await;
        for node in nodes {
            let there = self.node(node).await;
            assert_eq!(done(&there, plan), Some(hash(&complete)), "{there:#?}");
            assert!(record(&there, plan).is_none(), "{there:#?}");
        }
        self.no_reboot_pods().await;
    }

    /// Changes the Plan's version, and more.
    async fn edit(&self, plan: &str, spec: Value) {
        self.world.edit_plan(plan, json!({ "spec": spec })).await;
    }

    /// Waits until a pod that reboots a node is as `good` wants it.
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

    /// Waits until no such pod is left.
    async fn no_reboot_pods(&self) {
        wait::eventually("the pods that reboot nodes are gone", PATIENCE, async || {
            let left = self.reboot_pods().await;
            if left.is_empty() {
                Ok(())
            } else {
                Err(format!(
                    "{:?}",
                    left.iter().map(Pod::name_any).collect::<Vec<_>>()
                ))
            }
        })
        .await;
    }

    async fn reboot_pods(&self) -> Vec<Pod> {
        let role = ListParams::default().labels(&format!("{LABEL_ROLE}={ROLE_REBOOT}"));
        let pods = self.world.pods().list(&role).await;
        pods.unwrap_or_else(|error| panic!("cannot list pods: {error}"))
            .items
    }

    /// Waits until a Job of the Plan has that condition, and returns it.
    async fn job_is(&self, plan: &str, condition: &str) -> Job {
        wait::eventually(&format!("the Job is {condition}"), PATIENCE, async || {
            let jobs = self.world.jobs_of(plan).await;
            let good = |job: &&Job| has_condition(job, condition);
            let found = jobs.iter().find(good).cloned();
            found.ok_or_else(|| format!("{:?}", jobs.iter().map(|job| &job.status).collect::<Vec<_>>()))
        })
        .await
    }

    /// Deletes all Jobs of a Plan with their pods, as a person does, and waits until both are gone.
    async fn delete_jobs(&self, plan: &str) {
        let jobs = self.world.jobs_of(plan).await;
        assert!(!jobs.is_empty(), "there is a Job to delete");
        for job in jobs {
            let name = job.name_any();
            let all = self.world.jobs();
            all.delete(&name, &DeleteParams::background()).await.unwrap();
            wait::gone(all, &name, PATIENCE).await;
            let pods = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={name}"));
            wait::eventually("its pods are gone", PATIENCE, async || {
                let left = self.world.pods().list(&pods).await.unwrap().items;
                if left.is_empty() {
                    Ok(())
                } else {
                    Err(format!(
                        "{:?}",
                        left.iter().map(|pod| &pod.status).collect::<Vec<_>>()
                    ))
                }
            })
            .await;
        }
    }

    /// Fails as soon as the node has been touched: cordoned, or begun.
    async fn untouched(&self, node: &RealNode) -> ! {
        loop {
            let there = self.node(node).await;
            assert!(!is_cordoned(&there) && ledger(&there).is_none(), "{there:#?}");
            assert_eq!(node.lines(RUNS), [""; 0]);
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    }
}
