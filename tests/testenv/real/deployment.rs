//! The Deployment of `deploy/` with refit's own image on a real node.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;

use super::{PATIENCE, REFIT, RealNode};
use crate::testenv::context::{TestContext, create};
use crate::testenv::controller::NAME;
use crate::testenv::wait;

/// The `ConfigMap` of `deploy/` with the controller's environment.
const ENVIRONMENT: &str = "default-controller-env";

/// A Deployment of the controller.
#[derive(Debug)]
pub struct Deployed {
    deployments: Api<Deployment>,
    pods: Api<Pod>,
    leases: Api<Lease>,
}

/// Makes `node` a control-plane node, and deploys the controller there. Only the image's tag and the pull policy of Jobs
/// differ from `deploy/`, because there is no registry, and the age of nodes, which are new.
pub async fn deploy(ctx: &TestContext, node: &RealNode) -> Deployed {
    ctx.label_node(node.name(), "node-role.kubernetes.io/control-plane", Some("true"))
        .await;
    let maps = Api::<ConfigMap>::namespaced(ctx.client.clone(), ctx.namespace());
    let changed = json!({
        "SYSTEM_UPGRADE_JOB_IMAGE_PULL_POLICY": "IfNotPresent",
        "REFIT_MIN_NODE_AGE": "0s",
        "REFIT_CHECK_IMAGES": "false",
    });
    let changed = Patch::Merge(json!({ "data": changed }));
    maps.patch(ENVIRONMENT, &PatchParams::default(), &changed)
        .await
        .unwrap_or_else(|error| panic!("cannot change {ENVIRONMENT}: {error}"));
    let mut deployment = ctx.deployment();
    deployment["spec"]["template"]["spec"]["containers"][0]["image"] = json!(REFIT);
    let deployments = Api::namespaced(ctx.client.clone(), ctx.namespace());
    create(&deployments, deployment).await;
    Deployed {
        deployments,
        pods: ctx.pods(),
        leases: Api::namespaced(ctx.client.clone(), ctx.namespace()),
    }
}

impl Deployed {
    pub async fn scale(&self, replicas: u32) {
        let patch = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
        self.deployments
            .patch(NAME, &PatchParams::default(), &patch)
            .await
            .unwrap_or_else(|error| panic!("cannot scale {NAME}: {error}"));
        // Before its first run it replaces no other pod.
        wait::object(
            self.deployments.clone(),
            NAME,
            "has its replicas",
            PATIENCE,
            |it| {
                let ready = it.status.as_ref().and_then(|status| status.ready_replicas);
                u32::try_from(ready.unwrap_or_default()) == Ok(replicas)
            },
        )
        .await;
    }

    /// Waits until no controller runs.
    pub async fn stop(&self) {
        self.scale(0).await;
        wait::until(
            "the controller is gone",
            async || self.pods().await,
            Vec::is_empty,
        )
        .await;
    }

    pub async fn start(&self) -> Pod {
        self.scale(1).await;
        self.leading().await
    }

    /// Waits until one of its pods leads.
    pub async fn leading(&self) -> Pod {
        self.leader(|_| true).await
    }

    /// Like [`Self::leading`], for another pod than `former`.
    pub async fn leading_instead_of(&self, before: &Pod) -> Pod {
        self.leader(|pod| pod.metadata.uid != before.metadata.uid).await
    }

    async fn leader(&self, good: impl Fn(&Pod) -> bool) -> Pod {
        wait::eventually("the Deployment's controller leads", PATIENCE, async || {
            let lease = self
                .leases
                .get_opt(NAME)
                .await
                .map_err(|error| error.to_string())?;
            let holder = lease
                .and_then(|lease| lease.spec?.holder_identity)
                .unwrap_or_default();
            let pods = self.pods().await;
            let leads = |pod: &&Pod| {
                let name = pod.metadata.name.as_deref().unwrap_or_default();
                let here = pod.metadata.deletion_timestamp.is_none();
                here && !name.is_empty() && holder.starts_with(name) && good(pod)
            };
            pods.iter()
                .find(leads)
                .cloned()
                .ok_or_else(|| format!("the holder is {holder:?}; pods: {:?}", states(&pods)))
        })
        .await
    }

    /// Deletes a pod, and waits until it is gone.
    pub async fn delete(&self, pod: &Pod) {
        let name = pod.metadata.name.as_deref().expect("a pod has a name");
        self.pods
            .delete(name, &DeleteParams::default())
            .await
            .unwrap_or_else(|error| panic!("cannot delete pod {name}: {error}"));
        wait::gone(self.pods.clone(), name, Duration::from_secs(60)).await;
    }

    async fn pods(&self) -> Vec<Pod> {
        let mine = ListParams::default()
            .labels("app.kubernetes.io/name=refit,app.kubernetes.io/component=controller");
        let pods = self.pods.list(&mine).await;
        pods.unwrap_or_else(|error| panic!("cannot list pods: {error}"))
            .items
    }
}

fn states(pods: &[Pod]) -> Vec<String> {
    let state = |pod: &Pod| {
        format!(
            "{}: {}",
            pod.metadata.name.as_deref().unwrap_or_default(),
            serde_json::to_string(&pod.status).unwrap_or_default()
        )
    };
    pods.iter().map(state).collect()
}
