//! Would a drain of this node end? Reads pods, budgets and other nodes, and changes nothing. The rules are those of the drain:
//! [`triage`], [`budget::refusal`].

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod as CorePod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{ListParams, Request};
use kube::{Client, Resource as _};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::Options;
use super::budget::{self, Budget};
use super::fit::{Place, PlacedPod};
use super::pods::{DaemonSet, Pod, Verdict, triage};
use crate::kube::pages::Pages;
use refit_api::AfterTimeout;
use refit_facts::DrainFinding;
use refit_facts::read::read;

/// Objects that are read at a time: a kubelet can create mirror pods of a megabyte each on its node.
const PAGE: u32 = 16;
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
    for raw in pods_on(client, node, &options.pod_selector).await? {
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
                let needs = read::<PlacedPod>(&raw).ok();
                let needs = needs.filter(|needs| pod.is_replaced() && !needs.has_ended());
                leaving.push(Leaving { pod, needs });
            }
        }
    }
    let heeds_budgets = !options.disable_eviction && options.after_timeout == AfterTimeout::Fail;
    if heeds_budgets && !leaving.is_empty() {
        let budgets = budgets(client, &leaving).await?;
        for Leaving { pod, .. } in &leaving {
            if let Some(why) = budget::refusal(pod, &budgets) {
                findings.insert(pod.id().path(), why);
            }
        }
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

async fn pods_on(client: &Client, node: &str, selector: &str) -> Result<Vec<Box<RawValue>>, kube::Error> {
    let params = ListParams::default()
        .fields(&format!("spec.nodeName={node}"))
        .labels(selector)
        .limit(PAGE);
    let mut pages = Pages::new(Request::new(CorePod::url_path(&(), None)), params, false);
    let mut all = Vec::new();
    while let Some(page) = pages.next::<Box<RawValue>>(client).await? {
        all.extend(page);
    }
    Ok(all)
}

/// The budgets that select one of the pods.
async fn budgets(client: &Client, leaving: &[Leaving]) -> Result<Vec<Budget>, kube::Error> {
    let request = Request::new(PodDisruptionBudget::url_path(&(), None));
    let mut pages = Pages::new(request, ListParams::default().limit(100), false);
    let mut all = Vec::new();
    while let Some(page) = pages.next::<Box<RawValue>>(client).await? {
        let budgets = readable::<Budget>(&page);
        all.extend(budgets.filter(|budget| leaving.iter().any(|one| budget.selects(&one.pod))));
    }
    Ok(all)
}

/// The pods for which there is no room on other nodes.
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
        ListParams::default().limit(PAGE),
        false,
    );
    let mut looked = 0;
    while !left.is_empty() {
        let Some(page) = pages.next::<Box<RawValue>>(client).await? else {
            break;
        };
        for place in readable::<Place>(&page).filter(|place| place.name() != node) {
            if !left.iter().any(|(_, pod)| place.suits(pod)) {
                continue;
            }
            looked += 1;
            if looked > MAX_PLACES {
                return Ok(Vec::new());
            }
            let pods = pods_on(client, place.name(), "").await?;
            let pods: Vec<PlacedPod> = readable(&pods).collect();
            let mut free = place.free(&pods);
            left.retain(|(_, pod)| !(place.suits(pod) && free.place(pod)));
        }
    }
    Ok(left)
}

/// What whoever may write an object has made unreadable is passed over.
fn readable<T: DeserializeOwned>(page: &[Box<RawValue>]) -> impl Iterator<Item = T> {
    page.iter().filter_map(|raw| read::<T>(raw).ok())
}
