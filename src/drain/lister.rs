//! Lists the pods of a node. Writes nothing.

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
use crate::kube::brief;
use crate::kube::read::present_time;

/// A page of a list.
#[derive(Deserialize)]
#[serde(bound = "T: Deserialize<'de>")]
struct Page<T> {
    #[serde(default)]
    metadata: PageMeta,
    /// null in an empty list of metadata.
    items: Option<Vec<T>>,
}

/// The parts of a pod that are needed while waiting for it. A drain lists its node several times a second, so labels,
/// annotations and owners are not parsed.
#[derive(Deserialize)]
struct Present {
    metadata: PresentMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PresentMeta {
    #[serde(default)]
    uid: String,
    #[serde(default, deserialize_with = "present_time")]
    deletion_timestamp: Option<Timestamp>,
}

#[derive(Default, Deserialize)]
struct PageMeta {
    #[serde(rename = "continue", default)]
    next: Option<String>,
}

/// How often to restart a list whose continue token has expired.
const RESTARTS: u32 = 3;

/// Lists the pods of one node.
#[derive(Clone)]
pub(super) struct PodLister {
    pub(super) client: Client,
    pub(super) node: String,
    /// `--pod-selector`.
    pub(super) selector: String,
    /// `--chunk-size`: pods per page; 0 means one page.
    pub(super) chunk: u32,
}

impl PodLister {
    /// Lists the pods, with the verdict for each.
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

    /// The pods on the node by UID, and when their grace period ends if they are being deleted. Lists pods with any
    /// labels, because a pod that loses the selected labels must still be waited for.
    pub(super) async fn present(&self) -> Result<BTreeMap<String, Option<Timestamp>>, kube::Error> {
        let whatever = Self {
            selector: String::new(),
            ..self.clone()
        };
        let pods = whatever.pages::<Present>(true).await?;
        Ok(pods
            .into_iter()
            .map(|pod| (pod.metadata.uid, pod.metadata.deletion_timestamp))
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
                // The resource version of the list has expired.
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

    /// Names of the `PodDisruptionBudgets` of a pod, if they may be listed. The API server does not name the two budgets
    /// that make an eviction impossible.
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

/// Names of the nodes that a selector selects, in the order of the API server.
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

/// Body of an eviction. The one of kube's client sends `delete_options`, which the API server ignores, so grace period,
/// dry run and preconditions would be lost.
pub(super) fn eviction(pod: &PodId, delete_options: &Value) -> Value {
    serde_json::json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": { "name": pod.name, "namespace": pod.namespace },
        "deleteOptions": delete_options,
    })
}
