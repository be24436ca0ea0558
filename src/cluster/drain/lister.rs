//! Lists the pods of a node. Writes nothing.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::DaemonSet as Object;
use k8s_openapi::api::core::v1::{Node, Pod as CorePod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{GetParams, ListParams, Request};
use kube::{Client, Resource as _};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;

use super::budget::Budget;
use super::changes::{Changes, LastAnswer};
use super::pods::{DaemonSet, Found, Pod, PodId, Rules, Verdict, triage};
use crate::kube::pages::on_node;
use crate::kube::read::{list, list_metadata};
use crate::kube::{Answer, brief};
use refit_api::WaitFor;
use refit_api::selector::Selector;
use refit_facts::read::{present_time, read};

/// The parts of a pod that are needed while waiting for it. A drain lists its node several times a second, so labels,
/// annotations and owners are not parsed.
#[derive(Deserialize)]
struct PresentPod {
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

/// Lists the pods of one node.
#[derive(Clone)]
pub(super) struct PodLister {
    pub(super) client: Client,
    pub(super) node: String,
    /// `--pod-selector`.
    pub(super) selector: String,
    /// `--chunk-size`: pods per page; 0 means one page.
    pub(super) chunk: u32,
    /// `--evict-last`.
    pub(super) evict_last: Vec<Selector>,
    pub(super) changes: Option<Changes>,
    /// Of [`PodLister::present`].
    pub(super) last: LastAnswer<Present>,
}

/// The pods on a node by UID, and when their grace period ends if they are being deleted.
pub(super) type Present = BTreeMap<String, Option<Timestamp>>;

impl PodLister {
    /// Lists the pods, with the verdict for each. Those that are `awaited` are not refused.
    pub(super) async fn find(
        &self,
        rules: Rules,
        now: Timestamp,
        awaited: &[WaitFor],
    ) -> Result<Found, kube::Error> {
        let mut found = Found::default();
        let mut known: BTreeMap<(String, String), DaemonSet> = BTreeMap::new();
        for pod in self.pages::<Pod>(&self.selector, false).await? {
            let id = pod.id();
            let daemon_set = match pod.daemon_set() {
                None => None,
                Some(name) => {
                    let key = (id.namespace.clone(), name.to_owned());
                    // Nodes run several pods of the few DaemonSets of a cluster at most, so one query for each is
                    // enough.
                    if !known.contains_key(&key) {
                        let answer = self.daemon_set(&key.0, &key.1).await;
                        known.insert(key.clone(), answer);
                    }
                    known.get(&key)
                }
            };
            let mut verdict = triage(&pod, daemon_set, rules, now);
            if matches!(verdict, Verdict::Refused(_)) && awaited.iter().any(|wait| pod.is_awaited(wait)) {
                verdict = Verdict::Stays;
            }
            if matches!(verdict, Verdict::Goes | Verdict::GoesWithWarning(_)) {
                found.add_workload(pod.workload());
                let group = self
                    .evict_last
                    .iter()
                    .position(|group| group.matches(pod.labels()));
                found.later.extend(group.map(|group| (id.clone(), group + 1)));
            }
            found.add(id, verdict);
        }
        Ok(found)
    }

    /// Lists pods with any labels, because a pod that loses the selected labels must still be waited for.
    pub(super) async fn present(&self) -> Result<Present, kube::Error> {
        // Read before the request: if a pod changes while the list is in flight, the next call lists again.
        let version = self.changes.as_ref().map(|changes| changes(&self.node).pods);
        if let Some(present) = self.last.at(version) {
            return Ok(present);
        }
        let pods = self.pages::<PresentPod>("", true).await?;
        let present = pods
            .into_iter()
            .map(|pod| (pod.metadata.uid, pod.metadata.deletion_timestamp))
            .collect();
        self.last.keep(version, &present);
        Ok(present)
    }

    /// All pods of the node that have volumes with a claim, and the names of these.
    pub(super) async fn claims(&self) -> Result<Vec<(PodId, Vec<String>)>, kube::Error> {
        let pods = self.pages::<Pod>("", false).await?.into_iter();
        let claims = pods.map(|pod| (pod.id(), pod.claims()));
        Ok(claims.filter(|(_, claims)| !claims.is_empty()).collect())
    }

    /// Reads the Node, as far as `T` does.
    pub(super) async fn read_node<T: for<'de> Deserialize<'de>>(&self) -> Result<T, kube::Error> {
        let request = Request::new(Node::url_path(&(), None));
        let request = request.get(&self.node, &GetParams::default());
        self.client
            .request(request.map_err(kube::Error::BuildRequest)?)
            .await
    }

    /// The pods of the node that a label selector selects.
    pub(super) async fn pages<T: for<'de> Deserialize<'de>>(
        &self,
        selector: &str,
        metadata_only: bool,
    ) -> Result<Vec<T>, kube::Error> {
        let request = Request::new(CorePod::url_path(&(), None));
        let mut params = on_node(&self.node);
        if !selector.is_empty() {
            params = params.labels(selector);
        }
        if self.chunk > 0 {
            params = params.limit(self.chunk);
        }
        list(&self.client, &request, params, metadata_only).await
    }

    async fn daemon_set(&self, namespace: &str, name: &str) -> DaemonSet {
        let request = Request::new(Object::url_path(&(), Some(namespace)));
        let asked = match request.get_metadata(name, &GetParams::default()) {
            // Only whether it exists: who may write it, may give its `managedFields` a time that cannot be read.
            Ok(request) => self.client.request::<IgnoredAny>(request).await,
            Err(error) => Err(kube::Error::BuildRequest(error)),
        };
        match asked {
            Ok(_) => DaemonSet::Exists,
            // Only a 404 proves that nothing would recreate the pod. With any other error the drain stops, as kubectl
            // does.
            Err(error) if Answer::of(&error) == Answer::NotFound => DaemonSet::Gone(brief(&error)),
            Err(error) => DaemonSet::Unknown(brief(&error)),
        }
    }

    /// Names of the `PodDisruptionBudgets` of a pod, if they may be listed. The API server does not name the two budgets
    /// that make an eviction impossible.
    pub(super) async fn budgets(&self, pod: &PodId) -> Option<Vec<String>> {
        let pods = self.pages::<Pod>(&self.selector, true).await.ok()?;
        let pod = pods.iter().find(|one| one.id() == *pod)?;
        let namespace = pod.id().namespace;
        let request = Request::new(PodDisruptionBudget::url_path(&(), Some(&namespace)));
        let budgets = list::<Box<RawValue>>(&self.client, &request, ListParams::default(), false);
        let budgets = budgets.await.ok()?.into_iter();
        Some(
            budgets
                .filter_map(|budget| read::<Budget>(&budget).ok())
                .filter(|budget| budget.selects(pod))
                .map(|budget| budget.name().to_owned())
                .collect(),
        )
    }
}

/// Names of the nodes that a selector selects, in the order of the API server.
pub(super) async fn nodes(client: &Client, selector: &str, chunk: u32) -> Result<Vec<String>, kube::Error> {
    let mut params = ListParams::default().labels(selector);
    if chunk > 0 {
        params = params.limit(chunk);
    }
    let nodes = list_metadata::<Node>(client, None, params).await?;
    Ok(nodes.into_iter().filter_map(|node| node.name).collect())
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;
    use tower::BoxError;

    use super::*;

    /// Go accepts this time.
    const LATE: &str = "9999-12-31T23:59:59Z";

    /// Objects as their owners may write them.
    fn lister() -> PodLister {
        let odd = |name: &str| {
            json!({
                "name": name, "namespace": "shop", "uid": name, "creationTimestamp": LATE, "labels": { "app": "web" },
                "managedFields": [{ "manager": "m", "operation": "Update", "time": LATE }],
                "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": true }],
            })
        };
        let answer = move |path: &str| {
            let spec = json!({ "selector": { "matchLabels": { "app": "web" } } });
            match path.rsplit('/').next() {
                Some("nodes") => {
                    json!({ "metadata": {}, "items": [{ "metadata": odd("a") }, { "metadata": odd("b") }] })
                }
                Some("poddisruptionbudgets") => {
                    let whole = json!({ "metadata": odd("web"), "spec": spec });
                    json!({ "metadata": {}, "items": [{ "metadata": odd("odd"), "spec": { "selector": 7 } }, whole] })
                }
                Some("pods") => json!({ "metadata": {}, "items": [{ "metadata": odd("web-1") }] }),
                _ => {
                    json!({ "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": odd("d") })
                }
            }
        };
        let answer = Arc::new(answer);
        let transport = tower::service_fn(move |request: Request<Body>| {
            let body = answer(request.uri().path()).to_string();
            async move { Ok::<_, BoxError>(Response::new(Body::from(body.into_bytes()))) }
        });
        PodLister {
            client: Client::new(transport, "default"),
            node: "a".to_owned(),
            selector: String::new(),
            chunk: 0,
            evict_last: Vec::new(),
            changes: None,
            last: LastAnswer::default(),
        }
    }

    /// A tenant who may write a `DaemonSet` could otherwise stop the drains of all nodes with a pod of it.
    #[tokio::test]
    async fn times_that_cannot_be_read_in_what_tenants_write_stop_no_drain() {
        let lister = lister();
        assert_eq!(lister.daemon_set("shop", "d").await, DaemonSet::Exists);
        let pod = PodId {
            uid: "web-1".to_owned(),
            namespace: "shop".to_owned(),
            name: "web-1".to_owned(),
        };
        assert_eq!(lister.budgets(&pod).await, Some(vec!["web".to_owned()]));
        assert_eq!(nodes(&lister.client, "", 0).await.unwrap(), ["a", "b"]);
    }
}
