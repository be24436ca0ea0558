//! The pod that reboots its node, made as the controller makes it, on a real control plane.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::ResourceExt as _;
use kube::api::PostParams;
use refit::api::{Plan, RebootFault, SentinelReport};
use refit::job::{Errand, JobSettings, NodeInput, PlanInput, RebootInput, reboot_pod};
use serde_json::json;

use super::{in_phase, with_nodes};
use crate::support::kubelet::FakeKubelet;
use crate::support::wait::{self, SOON};
use crate::support::world::World;

/// A node that was upgraded: its Plan, its boot and its sentinel are there.
struct Upgraded {
    world: World,
    kubelets: FakeKubelet,
    node: String,
    plan: Plan,
    boot_id: String,
}

impl Upgraded {
    async fn with(steering: &[(&str, &str)]) -> Self {
        let (world, kubelets, names) = with_nodes(&["n"], |nodes| {
            let nodes = nodes.steer("run-delay", "100ms");
            steering
                .iter()
                .fold(nodes, |nodes, (key, value)| nodes.steer(key, value))
        })
        .await;
        let spec = json!({"upgrade": {"image": "example.com/u"}, "reboot": {"when": "Always"}});
        let plan = json!({
            "apiVersion": "upgrade.cattle.io/v1", "kind": "Plan", "metadata": {"name": "os"}, "spec": spec,
        });
        let plan = world.plan(&plan.to_string()).await;
        let node = names[0].clone();
        let boot_id = kubelets.boot_id(&node).await;
        Self {
            world,
            kubelets,
            node,
            plan,
            boot_id,
        }
    }

    fn pod(&self, errand: Errand<'_>) -> Pod {
        let input = RebootInput {
            plan: PlanInput {
                name: "os",
                namespace: self.world.namespace(),
                uid: self.plan.metadata.uid.as_deref().unwrap(),
                labels: None,
                annotations: None,
                spec: &self.plan.spec,
                latest_version: "v1",
                latest_hash: "hash",
                inputs: "inputs",
                digests: &refit::job::NO_DIGESTS,
            },
            node: NodeInput {
                name: &self.node,
                uid: "node-uid",
                os: Some("linux"),
            },
            hash: "hash",
            errand,
            seconds: 900,
            critical: true,
        };
        reboot_pod(&input, &JobSettings::new("refit", "example.com/refit")).unwrap()
    }

    /// Makes the pod.
    async fn send(&self, errand: Errand<'_>) -> String {
        let pod = self.pod(errand);
        self.world
            .pods()
            .create(&PostParams::default(), &pod)
            .await
            .unwrap()
            .name_any()
    }

    /// Runs the sentinel on the node, as the end of a Job would.
    async fn keep(&self) {
        let name = format!("{}.node-uid.hash", self.plan.metadata.uid.as_deref().unwrap());
        let pod = json!({
            "metadata": {"name": "sentinel"},
            "spec": {
                "nodeName": self.node,
                "restartPolicy": "Never",
                "containers": [{
                    "name": "sentinel", "image": "example.com/refit",
                    "args": ["sentinel", format!("--name={name}"), "--always"],
                }],
            },
        });
        let pod = serde_json::from_value(pod).unwrap();
        self.world
            .pods()
            .create(&PostParams::default(), &pod)
            .await
            .unwrap();
        let status = in_phase(&self.world, "sentinel", "Succeeded").await;
        let report = SentinelReport::parse(&message(&status)).unwrap();
        assert_eq!(
            (report.boot_id.as_str(), report.required),
            (self.boot_id.as_str(), true)
        );
        assert_eq!(self.kubelets.sentinels(&self.node).await.len(), 1);
    }

    /// Boot ID and condition Ready, as the Node says.
    async fn node(&self) -> (String, bool) {
        let status = self.world.node(&self.node).await.status.unwrap();
        let ready = status
            .conditions
            .unwrap()
            .into_iter()
            .find(|one| one.type_ == "Ready")
            .unwrap();
        (status.node_info.unwrap().boot_id, ready.status == "True")
    }

    /// Waits until the Node says that it is, or is not, in the boot of the beginning, and is Ready or not.
    async fn is_in(&self, new_boot: bool, ready: bool) {
        wait::eventually("the Node has got there", SOON, async || {
            let node = self.node().await;
            if (node.0 != self.boot_id, node.1) == (new_boot, ready) {
                Ok(())
            } else {
                Err(format!("{node:?}"))
            }
        })
        .await;
    }
}

/// How the one container has ended last.
fn message(status: &PodStatus) -> String {
    let container = &status.container_statuses.as_ref().unwrap()[0];
    let ended = [&container.state, &container.last_state];
    let exit = ended
        .into_iter()
        .find_map(|state| state.as_ref()?.terminated.as_ref());
    exit.and_then(|exit| exit.message.clone()).unwrap_or_default()
}

#[tokio::test]
async fn a_reboot_pod_ends_the_boot_once_and_succeeds_in_the_next() {
    let node = Upgraded::with(&[("ready-delay", "300ms")]).await;
    node.keep().await;
    let boot_id = node.boot_id.clone();
    let pod = node.send(Errand::Reboot { boot_id: &boot_id }).await;
    node.is_in(true, false).await;
    node.is_in(true, true).await;
    in_phase(&node.world, &pod, "Succeeded").await;
    assert_eq!(node.kubelets.boots(&node.node).await, 2);
    assert!(
        node.kubelets.sentinels(&node.node).await.is_empty(),
        "/run is a tmpfs"
    );
    // A second one finds the next boot, and has nothing to do.
    node.world
        .pods()
        .delete(&pod, &kube::api::DeleteParams::default())
        .await
        .unwrap();
    wait::eventually("the pod is gone", SOON, async || {
        let left = node.world.pods().get_opt(&pod).await.unwrap();
        left.map_or(Ok(()), |pod| Err(format!("{:?}", pod.status)))
    })
    .await;
    let pod = node.send(Errand::Reboot { boot_id: &boot_id }).await;
    in_phase(&node.world, &pod, "Succeeded").await;
    assert_eq!(node.kubelets.boots(&node.node).await, 2);
}

#[tokio::test]
async fn there_is_one_reboot_pod_at_a_time() {
    let node = Upgraded::with(&[("comes-back", "as-if-nothing")]).await;
    node.keep().await;
    let boot_id = node.boot_id.clone();
    let pod = node.send(Errand::Reboot { boot_id: &boot_id }).await;
    let again = node.pod(Errand::Reboot { boot_id: &boot_id });
    let error = node
        .world
        .pods()
        .create(&PostParams::default(), &again)
        .await
        .unwrap_err();
    assert!(
        matches!(&error, kube::Error::Api(status) if status.code == 409),
        "{error}"
    );
    in_phase(&node.world, &pod, "Running").await;
    wait::always("the node stays as it is", Duration::from_secs(1), async || {
        let now = node.node().await;
        if now == (boot_id.clone(), true) {
            Ok(())
        } else {
            Err(format!("{now:?}"))
        }
    })
    .await;
}

#[tokio::test]
async fn a_node_may_come_back_unwell_or_not_at_all() {
    let node = Upgraded::with(&[("comes-back", "not-ready")]).await;
    node.keep().await;
    node.send(Errand::Reboot {
        boot_id: &node.boot_id.clone(),
    })
    .await;
    node.is_in(true, false).await;
    node.kubelets.set_ready(&node.node).await;
    node.is_in(true, true).await;

    let node = Upgraded::with(&[("comes-back", "never")]).await;
    node.keep().await;
    node.send(Errand::Reboot {
        boot_id: &node.boot_id.clone(),
    })
    .await;
    node.is_in(false, false).await;
    // Somebody presses the button.
    node.kubelets.power_on(&node.node).await;
    node.is_in(true, true).await;
    assert_eq!(node.kubelets.boots(&node.node).await, 2);
}

#[tokio::test]
async fn without_a_sentinel_the_pod_says_so_and_the_node_stays() {
    let node = Upgraded::with(&[]).await;
    node.keep().await;
    node.kubelets.lose_sentinels(&node.node).await;
    let pod = node
        .send(Errand::Reboot {
            boot_id: &node.boot_id.clone(),
        })
        .await;
    let said = wait::eventually("the pod has said why", SOON, async || {
        let status = node.world.pods().get(&pod).await.unwrap().status.unwrap();
        let told = if status.container_statuses.is_some() {
            message(&status)
        } else {
            String::new()
        };
        if told.is_empty() {
            Err(format!("{status:?}"))
        } else {
            Ok(told)
        }
    })
    .await;
    assert_eq!(RebootFault::parse(&said).unwrap().0, RebootFault::SentinelMissing);
    let pod = node.send(Errand::Ask).await;
    let status = in_phase(&node.world, &pod, "Failed").await;
    assert_eq!(
        RebootFault::parse(&message(&status)).unwrap().0,
        RebootFault::SentinelMissing
    );
    node.is_in(false, true).await;
    assert_eq!(node.kubelets.boots(&node.node).await, 1);
}

#[tokio::test]
async fn a_pod_that_asks_gets_the_report_of_the_sentinel() {
    let node = Upgraded::with(&[]).await;
    node.keep().await;
    let pod = node.send(Errand::Ask).await;
    let status = in_phase(&node.world, &pod, "Succeeded").await;
    assert_eq!(
        SentinelReport::parse(&message(&status)).unwrap().boot_id,
        node.boot_id
    );
    assert_eq!(node.kubelets.boots(&node.node).await, 1);
}
