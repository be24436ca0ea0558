//! Would a drain of this node end? Reads pods, budgets and other nodes, and changes nothing. The rules are those of the drain:
//! [`triage`], [`Selecting`].

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{ListParams, Request};
use kube::{Client, Resource as _};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::budget::{Budget, Selecting};
use super::fit::{Place, PlacedPod};
use super::options::Options;
use super::pods::{DaemonSet, Pod, Verdict, triage};
use crate::kube::pages::{Pages, SMALL};
use refit_api::AfterTimeout;
use refit_facts::DrainFinding;
use refit_facts::read::read;

/// Bytes of text of the pods to evict that are kept. Nothing is found against those beyond.
const MAX_KEPT: usize = 8 << 20;
/// Nodes whose pods are read to find room. If there are more that could take a pod, one of them is assumed to do.
const MAX_PLACES: usize = 50;

/// A pod that would be evicted.
struct Leaving {
    pod: Pod,
    /// What it needs of another node, if something creates it again there.
    needs: Option<PlacedPod>,
}

/// Why a drain with these options would not end; `None` if nothing is known against it.
///
/// # Errors
/// Fails if a request does.
pub async fn forecast(
    client: &Client,
    node: &str,
    options: &Options,
    now: Timestamp,
) -> Result<Option<DrainFinding>, kube::Error> {
    let mut findings: BTreeMap<String, String> = BTreeMap::new();
    let mut leaving = Vec::new();
    let mut kept = 0;
    let mut pods = Pages::of_pods(node, None, &options.pod_selector);
    while let Some(page) = pods.next::<Box<RawValue>>(client).await? {
        for raw in page {
            let Ok(pod) = read::<Pod>(&raw) else { continue };
            // It is given time to end, and what is left of it the drain decides then.
            if options.wait_for.iter().any(|wait| pod.is_awaited(wait)) {
                continue;
            }
            // Whether the DaemonSet exists is not asked: if it is gone, the drain says so.
            match triage(
                &pod,
                Some(&DaemonSet::Exists).filter(|_| pod.daemon_set().is_some()),
                options.rules,
                now,
            ) {
                Verdict::Stays | Verdict::StaysWithWarning(_) => {}
                Verdict::Refused(why) => {
                    findings.insert(pod.id().path(), format!("cannot delete {why}"));
                }
                Verdict::Goes | Verdict::GoesWithWarning(_) => {
                    kept += raw.get().len();
                    if kept > MAX_KEPT {
                        continue;
                    }
                    let needs = read::<PlacedPod>(&raw).ok();
                    let is_replaced = pod.is_replaced() && pod.deletion_timestamp().is_none();
                    let needs = needs.filter(|needs| is_replaced && !needs.has_ended());
                    leaving.push(Leaving { pod, needs });
                }
            }
        }
    }
    let heeds_budgets = !options.disable_eviction && options.after_timeout == AfterTimeout::Fail;
    if heeds_budgets && !leaving.is_empty() {
        findings.extend(guarded(client, &leaving).await?);
    }
    for (path, needs) in without_place(client, node, &leaving).await? {
        let why = format!(
            "by an estimate, it fits on no other node (it requests{})",
            needs.describe()
        );
        findings.entry(path).or_insert(why);
    }
    let more = findings.len().saturating_sub(1);
    Ok(findings.pop_first().map(|(pod, why)| DrainFinding {
        pod: pod.as_str().into(),
        why,
        more,
    }))
}

/// The next objects. What whoever may write an object has made unreadable is passed over.
async fn next<T: DeserializeOwned>(
    client: &Client,
    pages: &mut Pages,
) -> Result<Option<Vec<T>>, kube::Error> {
    let page = pages.next::<Box<RawValue>>(client).await?;
    Ok(page.map(|page| page.iter().filter_map(|raw| read::<T>(raw).ok()).collect()))
}

/// The pods that budgets keep for good, and why.
async fn guarded(client: &Client, leaving: &[Leaving]) -> Result<BTreeMap<String, String>, kube::Error> {
    let request = Request::new(PodDisruptionBudget::url_path(&(), None));
    let mut pages = Pages::new(request, ListParams::default().limit(SMALL), false);
    let mut all: Vec<_> = leaving
        .iter()
        .map(|one| (&one.pod, Selecting::default()))
        .collect();
    while let Some(budgets) = next::<Budget>(client, &mut pages).await? {
        for budget in budgets {
            for (pod, selecting) in &mut all {
                selecting.add(&budget, pod);
            }
        }
    }
    let refused = |(pod, selecting): (&Pod, Selecting)| Some((pod.id().path(), selecting.refusal()?));
    Ok(all.into_iter().filter_map(refused).collect())
}

/// The pods of which each by itself has no room on any other node. Together they may have none although each has: which one the
/// scheduler places first is not known.
async fn without_place<'l>(
    client: &Client,
    node: &str,
    leaving: &'l [Leaving],
) -> Result<Vec<(String, &'l PlacedPod)>, kube::Error> {
    let mut left: Vec<(String, &PlacedPod)> = leaving
        .iter()
        .filter_map(|one| Some((one.pod.id().path(), one.needs.as_ref()?)))
        .collect();
    let mut pages = Pages::new(
        Request::new(Node::url_path(&(), None)),
        ListParams::default().limit(SMALL),
        false,
    );
    let mut looked = 0;
    while !left.is_empty() {
        let Some(places) = next::<Place>(client, &mut pages).await? else {
            break;
        };
        for place in &places {
            if place.name() == node {
                left.retain(|(_, pod)| !place.binds(pod));
                continue;
            }
            if !left.iter().any(|(_, pod)| place.suits(pod)) {
                continue;
            }
            looked += 1;
            if looked > MAX_PLACES {
                return Ok(Vec::new());
            }
            let mut free = place.free();
            let mut pods = Pages::of_pods(place.name(), None, "");
            while let Some(pods) = next::<PlacedPod>(client, &mut pods).await? {
                for pod in &pods {
                    free.take(pod);
                }
            }
            left.retain(|(_, pod)| !(place.suits(pod) && free.has(pod)));
        }
    }
    Ok(left)
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};
    use tower::BoxError;

    use super::*;

    /// What is found against a drain of `a` with these pods, beside a node `b` of two cores.
    async fn found(pods: Value) -> Option<DrainFinding> {
        let transport = tower::service_fn(move |request: Request<Body>| {
            let items = match (request.uri().path(), request.uri().query()) {
                ("/api/v1/nodes", _) => {
                    let size = json!({ "cpu": "2", "pods": "9" });
                    json!([{ "metadata": { "name": "a", "labels": { "kubernetes.io/hostname": "a" } } }, { "metadata": { "name": "b" }, "status": { "allocatable": size } }])
                }
                ("/api/v1/pods", Some(query)) if query.contains("nodeName%3Da") => pods.clone(),
                _ => json!([]),
            };
            let body = json!({ "metadata": {}, "items": items }).to_string();
            async move { Ok::<_, BoxError>(Response::new(Body::from(body.into_bytes()))) }
        });
        let client = Client::new(transport, "default");
        let options = Options::default();
        forecast(&client, "a", &options, Timestamp::UNIX_EPOCH)
            .await
            .unwrap()
    }

    fn pod(name: &str, cpu: &str) -> Value {
        let owner = json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": true });
        json!({
            "metadata": { "name": name, "namespace": "shop", "uid": name, "ownerReferences": [owner] },
            "spec": { "containers": [{ "resources": { "requests": { "cpu": cpu } } }] },
            "status": { "phase": "Running" },
        })
    }

    #[tokio::test]
    async fn a_pod_that_fits_somewhere_by_itself_is_not_said_to_fit_nowhere() {
        assert_eq!(found(json!([pod("x", "1500m"), pod("y", "1500m")])).await, None);
        let finding = found(json!([pod("x", "1"), pod("y", "3")])).await.unwrap();
        assert_eq!(&*finding.pod, "shop/y");
        assert_eq!(finding.more, 0);
        let mut ends = pod("y", "3");
        ends["metadata"]["deletionTimestamp"] = json!("1970-01-01T00:00:30Z");
        assert_eq!(found(json!([ends])).await, None);
        // A storage daemon of this very node.
        let mut bound = pod("y", "3");
        bound["spec"]["nodeSelector"] = json!({ "kubernetes.io/hostname": "a" });
        assert_eq!(found(json!([bound])).await, None);
    }

    #[tokio::test]
    async fn pods_beyond_what_is_kept_are_passed_over() {
        let mut large = pod("x", "1");
        large["metadata"]["annotations"] = json!({ "a": "a".repeat(MAX_KEPT) });
        assert_eq!(found(json!([large, pod("y", "3")])).await, None);
    }
}
