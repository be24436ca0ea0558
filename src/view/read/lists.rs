//! The lists that a snapshot is read from. An error is a gap, and the rest is shown all the same.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::Client;
use kube::api::ListParams;
use kube::core::Request;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{Budget, EventLine, JobObject, NodeObject, ObjectKind, PodObject, Scope, Terminating};
use refit_api::selector::Selector;
use refit_api::text::{MAX_MESSAGE, shorten};
use refit_cluster::kube::pages::on_node;
use refit_cluster::kube::read::list_pages;
use refit_cluster::kube::served::is_unknown;
use refit_cluster::kube::{Answer, brief};
use refit_facts::objects::maintenance::{
    KubevirtMaintenance, Maintenance, MaintenanceGroup, MedikMaintenance,
};
use refit_facts::objects::{Intern, SlimJob, SlimNode, SlimPod, maintenance};
use refit_facts::read::{Unreadable, read};
use refit_facts::{PlanFacts, Watched};

/// Items per page of a list: the default of `kubectl get --chunk-size`.
pub(super) const PAGE: u32 = 500;
/// Maximum number of pages of Events to read: a cluster may have any number of Events.
const EVENT_PAGES: usize = 10;
/// How long after its grace period a pod may take until it counts as kept.
const TERMINATION_SLACK: jiff::SignedDuration = jiff::SignedDuration::from_secs(10);

pub(super) struct Reader<'a> {
    pub(super) client: &'a Client,
    pub(super) gaps: Vec<String>,
}

impl Reader<'_> {
    async fn list(&self, path: &str) -> Result<Vec<Box<RawValue>>, kube::Error> {
        list(self.client, path, ListParams::default(), usize::MAX).await
    }

    /// As [`Self::list`], except that an error is a gap.
    async fn list_or_gap(
        &mut self,
        what: &str,
        path: &str,
        params: ListParams,
        pages: usize,
    ) -> Option<Vec<Box<RawValue>>> {
        match list(self.client, path, params, pages).await {
            Ok(items) => Some(items),
            Err(error) => {
                self.gaps
                    .push(format!("{what} cannot be read: {}", brief(&error)));
                None
            }
        }
    }

    async fn list_of(&mut self, kind: ObjectKind, namespace: &str) -> Option<Vec<Box<RawValue>>> {
        let pages = if kind == ObjectKind::Event {
            EVENT_PAGES
        } else {
            usize::MAX
        };
        let namespace = Some(namespace).filter(|namespace| !namespace.is_empty());
        let params = ListParams {
            label_selector: kind.labels().map(str::to_owned),
            field_selector: kind.fields().map(str::to_owned),
            ..ListParams::default()
        };
        let (what, path) = (kind.describe(namespace), kind.path(namespace));
        self.list_or_gap(&what, &path, params, pages).await
    }

    /// The Plans, and the namespace in which they were listed, if it is one.
    pub(super) async fn plans(
        &mut self,
        scope: &Scope,
    ) -> Result<(Vec<PlanFacts>, Option<String>), kube::Error> {
        let mut read_namespace = scope.namespace.clone();
        let path = |namespace| ObjectKind::Plan.path(namespace);
        let listed = self.list(&path(scope.namespace.as_deref())).await;
        let items = match listed {
            Err(error) if Answer::of(&error) == Answer::Forbidden && scope.namespace.is_none() => {
                let namespace = &scope.fallback_namespace;
                let items = self.list(&path(Some(namespace))).await?;
                self.gaps.push(format!(
                    "Plans of other namespaces than {namespace} cannot be read: {}",
                    brief(&error)
                ));
                read_namespace = Some(namespace.clone());
                items
            }
            other => other?,
        };
        let mut plans: Vec<PlanFacts> = items.iter().filter_map(|raw| salvaged(raw)).collect();
        plans.sort_by(|a, b| (a.namespace(), &a.name).cmp(&(b.namespace(), &b.name)));
        Ok((plans, read_namespace))
    }

    pub(super) async fn nodes(&mut self) -> Option<BTreeMap<String, NodeObject>> {
        let items = self.list_of(ObjectKind::Node, "").await?;
        let intern = Intern::default();
        let mut nodes = BTreeMap::new();
        for raw in items {
            match node_object(&raw, &intern) {
                Ok(node) => _ = nodes.insert(node.facts.name.to_string(), node),
                Err(unreadable) => self.gaps.push(unreadable_gap(ObjectKind::Node, &unreadable)),
            }
        }
        Some(nodes)
    }

    /// The nodes in maintenance. A cluster that does not know the kind has none.
    pub(super) async fn maintenances(&mut self) -> Vec<Maintenance> {
        let mut found: Vec<Maintenance> = Vec::new();
        for group in MaintenanceGroup::ALL {
            let path = group.path();
            match self.list(&path).await {
                Ok(items) => found.extend(items.iter().filter_map(|raw| match group {
                    MaintenanceGroup::Medik8s => salvaged::<MedikMaintenance>(raw).map(Into::into),
                    MaintenanceGroup::Kubevirt => salvaged::<KubevirtMaintenance>(raw).map(Into::into),
                })),
                Err(error) if is_unknown(self.client, &path, &error).await => {}
                Err(error) => self.gaps.push(format!(
                    "{}s of {} cannot be read: {}",
                    maintenance::KIND,
                    group.name(),
                    brief(&error)
                )),
            }
        }
        found.sort_by(|a, b| (a.name(), a.group).cmp(&(b.name(), b.group)));
        found
    }

    /// The objects of a kind that can be read.
    pub(super) async fn objects<T>(
        &mut self,
        kind: ObjectKind,
        namespace: &str,
        read: impl Fn(&RawValue) -> Option<T>,
    ) -> Vec<T> {
        let items = self.list_of(kind, namespace).await;
        items.iter().flatten().filter_map(|raw| read(raw)).collect()
    }

    /// The pods of a node that should have ended.
    pub(super) async fn terminating(&mut self, node: &str, now: Timestamp) -> Vec<Terminating> {
        let what = format!("pods on Node {node}");
        let items = self
            .list_or_gap(&what, "/api/v1/pods", on_node(node), usize::MAX)
            .await;
        let pod = |raw: &RawValue| {
            let metadata = metadata(raw);
            // For a pod, `deletionTimestamp` is the end of its grace period, and not the time of the request.
            let ends: Timestamp = text(&metadata, "/deletionTimestamp").parse().ok()?;
            (now.duration_since(ends) > TERMINATION_SLACK).then(|| Terminating {
                node: node.to_owned(),
                pod: format!("{}/{}", text(&metadata, "/namespace"), text(&metadata, "/name")),
                ends,
                finalizers: finalizers(&metadata),
            })
        };
        items.iter().flatten().filter_map(|raw| pod(raw)).collect()
    }

    pub(super) async fn budget(&mut self, namespace: &str, name: &str) -> Option<Budget> {
        let path = format!("/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets");
        let what = format!("PodDisruptionBudgets in namespace {namespace}");
        let items = self
            .list_or_gap(&what, &path, ListParams::default(), usize::MAX)
            .await?;
        let values = items
            .iter()
            .filter_map(|raw| serde_json::from_str::<Value>(raw.get()).ok());
        let budget = values
            .into_iter()
            .find(|value| text(value, "/metadata/name") == name)?;
        let number = |field| budget.pointer(field).and_then(Value::as_i64).unwrap_or_default();
        let selector = budget.pointer("/spec/selector").cloned().unwrap_or_default();
        Some(Budget {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            allowed: number("/status/disruptionsAllowed"),
            healthy: number("/status/currentHealthy"),
            desired: number("/status/desiredHealthy"),
            expected: number("/status/expectedPods"),
            unready: self.unready(namespace, selector).await,
        })
    }

    /// The pods that a selector selects and that are not Ready, each with its reason.
    async fn unready(&mut self, namespace: &str, selector: Value) -> Vec<(String, String)> {
        let selector: Option<LabelSelector> = serde_json::from_value(selector).ok();
        let Ok(selector) = Selector::new(selector.as_ref()) else {
            return Vec::new();
        };
        let path = format!("/api/v1/namespaces/{namespace}/pods");
        let what = format!("pods in namespace {namespace}");
        let items = self
            .list_or_gap(&what, &path, ListParams::default(), usize::MAX)
            .await;
        let pod = |raw: &RawValue| {
            let value: Value = serde_json::from_str(raw.get()).ok()?;
            let labels = value.pointer("/metadata/labels").cloned().unwrap_or_default();
            let labels: BTreeMap<String, String> = serde_json::from_value(labels).unwrap_or_default();
            let conditions = value.pointer("/status/conditions").and_then(Value::as_array);
            let mut conditions = conditions.into_iter().flatten();
            let is_ready = conditions.any(|one| one["type"] == "Ready" && one["status"] == "True");
            (selector.matches(&labels) && !is_ready)
                .then(|| (text(&value, "/metadata/name"), why_unready(&value)))
        };
        items.iter().flatten().filter_map(|raw| pod(raw)).collect()
    }
}

/// The items of a list, up to so many pages.
pub(crate) async fn list(
    client: &Client,
    path: &str,
    params: ListParams,
    pages: usize,
) -> Result<Vec<Box<RawValue>>, kube::Error> {
    list_pages(client, &Request::new(path), params.limit(PAGE), false, pages).await
}

pub(super) fn node_object(raw: &RawValue, intern: &Intern) -> Result<NodeObject, Unreadable> {
    let facts = read::<SlimNode>(raw)?.facts(intern);
    let value: Value = serde_json::from_str(raw.get()).unwrap_or_default();
    let conditions = value.pointer("/status/conditions").and_then(Value::as_array);
    let ready = conditions
        .into_iter()
        .flatten()
        .find(|one| one["type"] == "Ready");
    let ready = ready.map(|one| {
        let field = |name| short(&text(one, name));
        (field("/reason"), field("/message"), field("/lastTransitionTime"))
    });
    Ok(NodeObject { facts, ready })
}

pub(super) fn job_object(raw: &RawValue, intern: &Intern) -> Result<JobObject, Unreadable> {
    let job: SlimJob = read(raw)?;
    let value: Value = serde_json::from_str(raw.get()).unwrap_or_default();
    Ok(JobObject {
        namespace: text(&value, "/metadata/namespace"),
        controller: text(&value, "/metadata/labels/upgrade.cattle.io~1controller"),
        facts: job.facts(intern, 0),
        started: text(&value, "/status/startTime").parse().ok(),
    })
}

pub(super) fn pod_object(raw: &RawValue, intern: &Intern) -> Result<PodObject, Unreadable> {
    let pod: SlimPod = read(raw)?;
    let metadata = metadata(raw);
    Ok(PodObject {
        prepares: pod.last_begun() == Some("prepare"),
        namespace: text(&metadata, "/namespace"),
        created: text(&metadata, "/creationTimestamp").parse().ok(),
        facts: pod.facts(intern),
    })
}

/// One without a time is left out.
pub(super) fn event_line(raw: &RawValue) -> Option<EventLine> {
    let value: Value = serde_json::from_str(raw.get()).ok()?;
    Some(EventLine {
        uid: text(&value, "/metadata/uid"),
        namespace: text(&value, "/metadata/namespace"),
        plan: text(&value, "/involvedObject/name"),
        at: time_of_event(&value)?,
        reason: short(&text(&value, "/reason")).as_str().into(),
        message: short(&text(&value, "/message")),
    })
}

pub(super) fn unreadable_gap(kind: ObjectKind, unreadable: &Unreadable) -> String {
    format!(
        "{} {} cannot be read: {}",
        kind.name(),
        unreadable.name,
        unreadable.why
    )
}

/// An object with what can be read of it.
pub(super) fn salvaged<K: Watched>(raw: &RawValue) -> Option<K> {
    let object = read(raw).or_else(|unreadable| K::salvage(raw, &unreadable).ok_or(()));
    object.ok()
}

fn finalizers(metadata: &Value) -> Vec<String> {
    let all = metadata.get("finalizers").and_then(Value::as_array);
    let all = all.into_iter().flatten().filter_map(Value::as_str);
    all.map(str::to_owned).collect()
}

fn time_of_event(event: &Value) -> Option<Timestamp> {
    // An Event written by `events.k8s.io/v1` has `eventTime`, and no `lastTimestamp`.
    let fields = ["/lastTimestamp", "/eventTime", "/metadata/creationTimestamp"];
    fields
        .into_iter()
        .find_map(|field| text(event, field).parse().ok())
}

/// Why a pod is not Ready, in the words of the kubelet or the scheduler.
fn why_unready(pod: &Value) -> String {
    let statuses = pod.pointer("/status/containerStatuses").and_then(Value::as_array);
    let waiting = statuses.into_iter().flatten().find_map(|status| {
        let reason = status.pointer("/state/waiting/reason")?.as_str()?;
        Some(reason.to_owned())
    });
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array);
    let unscheduled = || {
        let mut conditions = conditions.into_iter().flatten();
        let one = conditions.find(|one| one["type"] == "PodScheduled" && one["status"] == "False")?;
        Some(text(one, "/message"))
    };
    let why = waiting
        .or_else(unscheduled)
        .unwrap_or_else(|| text(pod, "/status/phase"));
    short(&why)
}

fn metadata(raw: &RawValue) -> Value {
    let value: Value = serde_json::from_str(raw.get()).unwrap_or_default();
    value.get("metadata").cloned().unwrap_or_default()
}

fn text(value: &Value, pointer: &str) -> String {
    value
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}

fn short(text: &str) -> String {
    shorten(text, MAX_MESSAGE).into_owned()
}
