//! Asks the API server which pods are on a node. Nothing is written here.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::DaemonSet as Object;
use k8s_openapi::api::core::v1::Pod as CorePod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Client;
use kube::api::{Api, ListParams, Request};
use kube::core::PartialObjectMeta;
use kube::{Resource as _, ResourceExt};
use serde::Deserialize;
use serde_json::Value;

use super::pods::{DaemonSet, Found, Pod, PodId, Rules, Verdict, triage};
use crate::api::selector::Selector;
use crate::controller::client::brief;

/// A page of a list.
#[derive(Deserialize)]
#[serde(bound = "T: Deserialize<'de>")]
struct Page<T> {
    #[serde(default)]
    metadata: PageMeta,
    /// null where a list of metadata is empty.
    items: Option<Vec<T>>,
}

#[derive(Default, Deserialize)]
struct PageMeta {
    #[serde(rename = "continue", default)]
    next: Option<String>,
}

/// How often a list is begun anew whose pages were forgotten by the server.
const RESTARTS: u32 = 3;

/// The pods of one node.
#[derive(Clone)]
pub(super) struct Finder {
    pub(super) client: Client,
    pub(super) node: String,
    /// `--pod-selector`.
    pub(super) selector: String,
    /// `--chunk-size`: pods per page; 0 is all at once.
    pub(super) chunk: u32,
}

impl Finder {
    /// What a drain would do with each pod.
    pub(super) async fn find(&self, rules: Rules, now: Timestamp) -> Result<Found, kube::Error> {
        let mut found = Found::default();
        let mut known: BTreeMap<(String, String), DaemonSet> = BTreeMap::new();
        for pod in self.pages::<Pod>(false).await? {
            let id = pod.id();
            let daemon_set = match pod.daemon_set() {
                None => None,
                Some(name) => {
                    let key = (id.namespace.clone(), name.to_owned());
                    if !known.contains_key(&key) {
                        let answer = self.daemon_set(&key.0, &key.1).await;
                        known.insert(key.clone(), answer);
                    }
                    known.get(&key)
                }
            };
            let verdict = triage(&pod, daemon_set, rules, now);
            if matches!(verdict, Verdict::Goes | Verdict::GoesWithWarning(_)) {
                found.of(pod.workload());
            }
            found.add(id, verdict);
        }
        Ok(found)
    }

    /// Which pods are on the node, by UID, and when the grace period of those ends that are told to go. Whatever their
    /// labels: a pod that loses those by which it was found is still to be waited for.
    pub(super) async fn present(&self) -> Result<BTreeMap<String, Option<Timestamp>>, kube::Error> {
        let whatever = Self {
            selector: String::new(),
            ..self.clone()
        };
        let pods = whatever.pages::<Pod>(true).await?;
        Ok(pods
            .iter()
            .map(|pod| (pod.id().uid, pod.deletion_timestamp()))
            .collect())
    }

    async fn pages<T: for<'de> Deserialize<'de>>(&self, metadata_only: bool) -> Result<Vec<T>, kube::Error> {
        let request = Request::new(CorePod::url_path(&(), None));
        let mut params = ListParams::default().fields(&format!("spec.nodeName={}", self.node));
        if !self.selector.is_empty() {
            params = params.labels(&self.selector);
        }
        if self.chunk > 0 {
            params = params.limit(self.chunk);
        }
        let (mut all, mut restarts) = (Vec::new(), 0);
        loop {
            let list = if metadata_only {
                request.list_metadata(&params)
            } else {
                request.list(&params)
            };
            let page: Page<T> = match self
                .client
                .request(list.map_err(kube::Error::BuildRequest)?)
                .await
            {
                Ok(page) => page,
                // The server has forgotten the version that the pages are of.
                Err(kube::Error::Api(status)) if status.code == 410 && restarts < RESTARTS => {
                    restarts += 1;
                    params.continue_token = None;
                    all.clear();
                    continue;
                }
                Err(error) => return Err(error),
            };
            all.extend(page.items.into_iter().flatten());
            params.continue_token = page.metadata.next.filter(|next| !next.is_empty());
            if params.continue_token.is_none() {
                return Ok(all);
            }
        }
    }

    async fn daemon_set(&self, namespace: &str, name: &str) -> DaemonSet {
        let api = Api::<PartialObjectMeta<Object>>::namespaced(self.client.clone(), namespace);
        match api.get_metadata(name).await {
            Ok(_) => DaemonSet::Exists,
            Err(error @ kube::Error::Api(_)) if is_not_found(&error) => DaemonSet::Gone(brief(&error)),
            Err(error) => DaemonSet::Unknown(brief(&error)),
        }
    }

    /// Names of the budgets of a pod, as far as they may be read: an eviction that two of them make impossible
    /// is refused without their names.
    pub(super) async fn budgets(&self, pod: &PodId) -> Option<Vec<String>> {
        let pods = self.pages::<Pod>(true).await.ok()?;
        let labels = pods.iter().find(|one| one.id() == *pod)?.labels();
        let budgets = Api::<PodDisruptionBudget>::namespaced(self.client.clone(), &pod.namespace)
            .list(&ListParams::default())
            .await
            .ok()?;
        let selects = |budget: &&PodDisruptionBudget| {
            let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
            Selector::new(selector).is_ok_and(|selector| selector.matches(labels))
        };
        Some(
            budgets
                .items
                .iter()
                .filter(selects)
                .map(ResourceExt::name_any)
                .collect(),
        )
    }
}

fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// Names of the nodes that a selector selects, in their order.
pub(super) async fn nodes(client: &Client, selector: &str, chunk: u32) -> Result<Vec<String>, kube::Error> {
    let api = Api::<PartialObjectMeta<k8s_openapi::api::core::v1::Node>>::all(client.clone());
    let mut params = ListParams::default().labels(selector);
    if chunk > 0 {
        params = params.limit(chunk);
    }
    let mut names = Vec::new();
    loop {
        let page = api.list_metadata(&params).await?;
        names.extend(page.items.iter().map(ResourceExt::name_any));
        params.continue_token = page.metadata.continue_.filter(|next| !next.is_empty());
        if params.continue_token.is_none() {
            return Ok(names);
        }
    }
}

/// Body of an eviction. kube's own sends `delete_options`, which the API server does not know and passes over: grace
/// period, dry run and preconditions would be lost.
pub(super) fn eviction(pod: &PodId, delete_options: &Value) -> Value {
    serde_json::json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": { "name": pod.name, "namespace": pod.namespace },
        "deleteOptions": delete_options,
    })
}
