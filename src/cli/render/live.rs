//! Reads what `refit render` needs from a cluster. It writes nothing.

use std::collections::BTreeMap;
use std::fmt::Debug;

use anyhow::{Context as _, anyhow};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Node, PodSpec, Secret};
use kube::api::Api;
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use tokio::runtime::Runtime;

use crate::cli::cluster::{Connection, runtime};
use refit_api::Plan;
use refit_cluster::kube::brief;
use refit_controller::own_image::controller_container;
use refit_job::JobSettings;

pub(super) struct LiveCluster {
    runtime: Runtime,
    client: Client,
}

impl LiveCluster {
    pub(super) fn connect(connection: &Connection) -> anyhow::Result<Self> {
        let runtime = runtime()?;
        let client = runtime.block_on(connection.client())?;
        Ok(Self { runtime, client })
    }

    fn get<K>(&self, api: &Api<K>, name: &str) -> anyhow::Result<Option<K>>
    where
        K: Clone + Debug + DeserializeOwned + Resource<DynamicType = ()>,
    {
        let kind = K::kind(&());
        self.runtime
            .block_on(api.get_opt(name))
            .map_err(|error| anyhow!("{kind} {name} cannot be read: {}", brief(&error)))
    }

    fn namespaced<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), namespace)
    }

    pub(super) fn node(&self, name: &str) -> anyhow::Result<Node> {
        self.get(&Api::all(self.client.clone()), name)?
            .with_context(|| format!("the cluster has no Node {name}"))
    }

    pub(super) fn plan(&self, namespace: &str, name: &str) -> anyhow::Result<Option<Plan>> {
        self.get(&self.namespaced(namespace), name)
    }

    pub(super) fn secret(&self, namespace: &str, name: &str) -> anyhow::Result<Option<Secret>> {
        self.get(&self.namespaced(namespace), name)
    }

    /// The pod template of the controller's Deployment, if there is one.
    pub(super) fn deployed(&self, namespace: &str, controller: &str) -> anyhow::Result<Option<PodSpec>> {
        let deployment: Option<Deployment> = self.get(&self.namespaced(namespace), controller)?;
        Ok(deployment.and_then(|deployment| deployment.spec.template.spec))
    }

    /// The variables of the controller's container, including those of its `ConfigMaps`.
    pub(super) fn environment(
        &self,
        namespace: &str,
        pod: &PodSpec,
    ) -> anyhow::Result<BTreeMap<String, String>> {
        let mut found = BTreeMap::new();
        let Some(container) = controller_container(pod) else {
            return Ok(found);
        };
        let sources = container.env_from.iter().flatten();
        for map in sources.filter_map(|from| from.config_map_ref.as_ref()) {
            let map: Option<ConfigMap> = self.get(&self.namespaced(namespace), &map.name)?;
            found.extend(map.and_then(|map| map.data).unwrap_or_default());
        }
        let own = container.env.iter().flatten();
        found.extend(own.filter_map(|variable| Some((variable.name.clone(), variable.value.clone()?))));
        Ok(found)
    }
}

/// Sets the image for cordon and drain, and its pull secrets: those of the controller itself.
pub(super) fn fill_in_image(jobs: &mut JobSettings, pod: PodSpec) {
    let image = controller_container(&pod).and_then(|container| container.image.clone());
    if jobs.own_image.is_empty() {
        jobs.own_image = image.unwrap_or_default();
    }
    let secrets = pod.image_pull_secrets.into_iter().flatten();
    jobs.own_image_pull_secrets = secrets.map(|secret| secret.name).collect();
}
