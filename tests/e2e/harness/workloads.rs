//! Workloads: the Deployment `web`, and the budget `guard`, which allows no eviction or one at a time.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams, Patch, PatchParams};
use refit_api::NodeProgress;
use serde_json::{Value, json};

use super::{E2eHarness, WORKER};
use crate::testenv::context::create;
use crate::testenv::real::{BUSYBOX, PATIENCE, RealNode};
use crate::testenv::wait;

impl E2eHarness {
    /// A Ready pod of `web` on the second node, whose budget allows no eviction.
    pub(crate) async fn guarded_pod(&self) -> Pod {
        self.guarded(1, json!({ "nodeSelector": { WORKER: "workers" } }))
            .await;
        self.web_is_ready().await
    }

    /// A pod of `web` on each node that fits on no other, and a budget that allows one eviction at a time.
    pub(crate) async fn a_pod_on_each_node(&self) -> Vec<Pod> {
        let apart = json!({
            "topologyKey": "kubernetes.io/hostname",
            "labelSelector": { "matchLabels": { "app": "web" } },
        });
        let required = json!({ "requiredDuringSchedulingIgnoredDuringExecution": [apart] });
        self.guarded(2, json!({ "affinity": { "podAntiAffinity": required } }))
            .await;
        self.web().await
    }

    /// Pods of `web`, which the budget has counted. It keeps one of them available.
    async fn guarded(&self, replicas: i32, place: Value) {
        let labels = json!({ "app": "web" });
        let mut web = json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": { "name": "web" },
            "spec": {
                "replicas": replicas,
                "selector": { "matchLabels": labels },
                "template": {
                    "metadata": { "labels": labels },
                    "spec": {
                        "terminationGracePeriodSeconds": 1,
                        "containers": [{ "name": "web", "image": BUSYBOX, "command": ["sleep", "infinity"] }],
                    },
                },
            },
        });
        super::merge(&mut web["spec"]["template"]["spec"], &place);
        let guard = json!({
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": { "name": "guard" },
            "spec": { "minAvailable": 1, "selector": { "matchLabels": labels } },
        });
        create(&self.namespaced::<Deployment>(), web).await;
        create(&self.budgets(), guard).await;
        let looked = |budget: &PodDisruptionBudget| {
            let status = budget.status.as_ref();
            status.is_some_and(|status| status.current_healthy == Some(replicas))
        };
        wait::object(self.budgets(), "guard", "counts its pods", PATIENCE, looked).await;
    }

    /// The pods of `web`.
    pub(crate) async fn web(&self) -> Vec<Pod> {
        let mine = ListParams::default().labels("app=web");
        let pods = self.ctx.pods().list(&mine).await;
        pods.unwrap_or_else(|error| panic!("cannot list pods: {error}"))
            .items
    }

    /// The one pod of `web`, when it is Ready.
    pub(crate) async fn web_is_ready(&self) -> Pod {
        let mut ready = self.web_has(1).await;
        ready.remove(0)
    }

    /// Waits until this number of pods of `web` is Ready, and returns them.
    pub(crate) async fn web_has(&self, count: usize) -> Vec<Pod> {
        wait::until(
            &format!("{count} pods of web are ready"),
            async || {
                let pods = self.web().await;
                pods.iter()
                    .filter(|pod| is_serving(pod))
                    .cloned()
                    .collect::<Vec<_>>()
            },
            |ready| ready.len() == count,
        )
        .await
    }

    /// Fails as soon as no pod of `web` is serving.
    pub(crate) async fn budget_is_kept(&self) -> ! {
        loop {
            let pods = self.web().await;
            assert!(pods.iter().any(is_serving), "{}", states(&pods));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Changes the budget so that it allows all evictions.
    pub(crate) async fn allow_evictions(&self) {
        let patch = Patch::Merge(json!({ "spec": { "minAvailable": 0 } }));
        self.budgets()
            .patch("guard", &PatchParams::default(), &patch)
            .await
            .unwrap_or_else(|error| panic!("cannot change the budget: {error}"));
    }

    /// Waits until the node is cordoned and its drain waits for the budget.
    pub(crate) async fn drain_waits(&self, plan: &str, node: &RealNode) -> NodeProgress {
        let waits = |node: &NodeProgress| node.reason.as_deref() == Some("DrainWaiting");
        let waiting = self
            .wait_for_progress(plan, node, "waits in its drain", waits)
            .await;
        assert!(self.is_cordoned(node).await);
        waiting
    }

    fn budgets(&self) -> Api<PodDisruptionBudget> {
        self.namespaced()
    }
}

/// Whether the pod is Ready, and not being deleted.
pub(crate) fn is_serving(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    pod.metadata.deletion_timestamp.is_none()
        && conditions
            .into_iter()
            .flatten()
            .any(|it| it.type_ == "Ready" && it.status == "True")
}

fn states(pods: &[Pod]) -> String {
    let states: Vec<_> = pods.iter().map(|pod| (pod.name_any(), &pod.status)).collect();
    format!("{states:?}")
}
