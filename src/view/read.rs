//! Reads a cluster once. What may not be read, or does not exist, is a gap: everything else is shown all the same.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::Client;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::api::selector::Selector;
use crate::api::text::{MAX_MESSAGE, shorten};
use crate::api::{DrainNote, names};
use crate::convert::op_plan::ANNOTATION_OWNER;
use crate::kube::brief;
use crate::kube::objects::maintenance::{
    self, KubevirtMaintenance, Maintenance, MaintenanceGroup, MedikMaintenance,
};
use crate::kube::objects::{Intern, RawPlan, SlimJob, SlimNode, SlimPod};
use crate::kube::read::read;
use crate::kube::served::is_unknown;
use crate::kube::watch::Watched;
use crate::rollout::{JobFacts, NodeFacts, PlanFacts, PodFacts};

/// Items per page of a list.
const PAGE: usize = 500;
/// Pages that are read of Events, of which there may be any number.
const EVENT_PAGES: usize = 10;

/// Nodes whose pods are read, because a drain waits there for pods that it does not name.
const MAX_DRAINS: usize = 5;
/// How long after its grace period a pod may take until it counts as kept.
const TERMINATION_SLACK: jiff::SignedDuration = jiff::SignedDuration::from_secs(10);

/// Which Plans to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// `None` means all namespaces.
    pub namespace: Option<String>,
    /// Where to look if all namespaces may not be listed.
    pub fallback_namespace: String,
}

/// What could be read of a cluster.
#[derive(Debug, Default)]
pub struct Snapshot {
    pub now: Timestamp,
    pub plans: Vec<PlanObject>,
    /// `None` if Nodes may not be read.
    pub nodes: Option<BTreeMap<String, NodeObject>>,
    pub jobs: Vec<JobObject>,
    pub pods: Vec<PodObject>,
    /// By name.
    pub maintenances: Vec<Maintenance>,
    /// Events about Plans, the oldest first.
    pub events: Vec<EventLine>,
    pub budgets: Vec<Budget>,
    /// What could not be read, and why.
    pub gaps: Vec<String>,
    /// Jobs whose pod the API server refuses, the oldest refusal first.
    pub refused: Vec<Refusal>,
    /// Pods for which drains wait although they should have ended.
    pub terminating: Vec<Terminating>,
    /// Namespaces whose Jobs could be read.
    pub readable_jobs: BTreeSet<String>,
}

#[derive(Debug)]
pub struct PlanObject {
    pub namespace: String,
    pub facts: PlanFacts,
    /// Its finalizers, if it is being deleted.
    pub deleting: Option<Vec<String>>,
    /// Kind, namespace and name of the `NodeOp` or `NodeOpUpgrade` that it was made of.
    pub node_op: Option<String>,
}

#[derive(Debug)]
pub struct NodeObject {
    pub facts: NodeFacts,
    pub labels: BTreeMap<String, String>,
    /// Reason, message and time of the condition Ready.
    pub ready: Option<(String, String, String)>,
}

#[derive(Debug)]
pub struct JobObject {
    pub namespace: String,
    pub facts: JobFacts,
    pub started: Option<Timestamp>,
}

#[derive(Debug)]
pub struct PodObject {
    pub namespace: String,
    pub facts: PodFacts,
    pub created: Option<Timestamp>,
}

/// A pod of a Job that could not be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub namespace: String,
    pub job: String,
    pub at: Timestamp,
    pub message: String,
}

/// A pod that is past its grace period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terminating {
    pub node: String,
    /// Namespace and name, separated by `/`.
    pub pod: String,
    /// When its grace period ended.
    pub ends: Timestamp,
    pub finalizers: Vec<String>,
}

/// An Event about a Plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventLine {
    pub namespace: String,
    pub plan: String,
    pub at: Timestamp,
    pub reason: String,
    pub message: String,
    pub warning: bool,
}

/// A `PodDisruptionBudget` that a drain waits for, and its pods.
#[derive(Debug)]
pub struct Budget {
    pub namespace: String,
    pub name: String,
    pub allowed: i64,
    pub healthy: i64,
    pub desired: i64,
    pub expected: i64,
    /// Its pods that are not Ready, each with the reason.
    pub unready: Vec<(String, String)>,
}

#[derive(Deserialize)]
struct RawList {
    #[serde(default)]
    metadata: ListMeta,
    #[serde(default)]
    items: Vec<Box<RawValue>>,
}

#[derive(Default, Deserialize)]
struct ListMeta {
    #[serde(default, rename = "continue")]
    next: Option<String>,
}

struct Reader<'a> {
    client: &'a Client,
    gaps: Vec<String>,
}

impl Snapshot {
    /// Reads the cluster.
    ///
    /// # Errors
    /// Fails if Plans cannot be read, because nothing can be shown then.
    pub async fn read(client: &Client, scope: &Scope, now: Timestamp) -> Result<Self, kube::Error> {
        let mut reader = Reader {
            client,
            gaps: Vec::new(),
        };
        let mut snapshot = Self {
            now,
            plans: reader.plans(scope).await?,
            ..Self::default()
        };
        snapshot.nodes = reader.nodes().await;
        snapshot.maintenances = reader.maintenances().await;
        let namespaces: BTreeSet<_> = snapshot.plans.iter().map(|plan| plan.namespace.clone()).collect();
        for namespace in namespaces {
            if let Some(jobs) = reader.jobs(&namespace).await {
                snapshot.jobs.extend(jobs);
                snapshot.readable_jobs.insert(namespace.clone());
            }
            snapshot.pods.extend(reader.pods(&namespace).await);
            if let Some(events) = reader.events(&namespace).await {
                snapshot.events.extend(events);
                snapshot.refused.extend(reader.refusals(&namespace).await);
            }
        }
        snapshot.events.sort_by_key(|event| event.at);
        snapshot.refused.sort_by_key(|refusal| refusal.at);
        snapshot.read_budgets(&mut reader).await;
        snapshot.read_terminating(&mut reader).await;
        snapshot.gaps = reader.gaps;
        Ok(snapshot)
    }

    /// The budgets that drains wait for.
    async fn read_budgets(&mut self, reader: &mut Reader<'_>) {
        let waits = self.pods.iter().filter_map(|pod| self.drain_of(pod));
        let waits = waits.flat_map(|drain| &drain.waiting);
        let wanted: BTreeSet<(String, String)> = waits
            .filter_map(|wait| {
                let (namespace, _) = wait.pod.split_once('/')?;
                let budget = wait.pdb.as_deref()?;
                let budget = budget.rsplit('/').next().unwrap_or(budget);
                Some((namespace.to_owned(), budget.to_owned()))
            })
            .collect();
        for (namespace, name) in wanted {
            self.budgets.extend(reader.budget(&namespace, &name).await);
        }
    }

    /// The pods that keep drains, of which nothing else is known, from their end.
    async fn read_terminating(&mut self, reader: &mut Reader<'_>) {
        let silent = self.pods.iter().filter_map(|pod| {
            let drain = self.drain_of(pod)?;
            let waits = drain.waiting.is_empty() && drain.evicted < drain.total;
            (waits && pod.facts.stage == crate::rollout::PodStage::Drain)
                .then(|| pod.facts.node.as_deref().map(str::to_owned))?
        });
        let silent: BTreeSet<String> = silent.collect();
        for node in silent.into_iter().take(MAX_DRAINS) {
            let found = reader.terminating(&node, self.now).await;
            self.terminating.extend(found);
        }
    }

    /// A Plan alone.
    pub fn of_plan(raw: &RawValue, now: Timestamp) -> Option<Self> {
        Some(Self {
            now,
            plans: vec![plan_object(raw)?],
            ..Self::default()
        })
    }

    pub fn node(&self, name: &str) -> Option<&NodeObject> {
        self.nodes.as_ref()?.get(name)
    }

    /// The Jobs of a Plan on a node, the oldest first.
    pub(super) fn jobs_on<'a>(&'a self, plan: &'a PlanObject, node: &'a str) -> Vec<&'a JobObject> {
        let is_own = |job: &&JobObject| job.namespace == plan.namespace && job.facts.plan == plan.facts.name;
        let mut jobs: Vec<_> = self
            .jobs
            .iter()
            .filter(|job| is_own(job) && *job.facts.node == *node)
            .collect();
        jobs.sort_by_key(|job| job.facts.created);
        jobs
    }

    /// Progress of the drain that runs in a pod, or did last. Its node has it in an annotation.
    pub(super) fn drain_of(&self, pod: &PodObject) -> Option<&DrainNote> {
        let drain = self.node(pod.facts.node.as_deref()?)?.facts.drain.as_ref()?;
        (*drain.pod == *pod.facts.uid).then_some(&drain.note)
    }

    /// The pod that shows the progress of a Job.
    pub(super) fn pod_of(&self, job: &JobObject) -> Option<&PodObject> {
        let pods = self.pods.iter().filter(|pod| pod.namespace == job.namespace);
        let own = pods.filter(|pod| pod.facts.job_uid == job.facts.uid);
        own.max_by_key(|pod| {
            (
                pod.facts.stage != crate::rollout::PodStage::Ended,
                pod.facts.stage,
            )
        })
    }
}

impl Reader<'_> {
    async fn list(&self, path: &str, query: &str, pages: usize) -> Result<Vec<Box<RawValue>>, kube::Error> {
        list(self.client, path, query, pages).await
    }

    /// As [`Self::list`], except that an error is a gap.
    async fn list_or_gap(
        &mut self,
        what: &str,
        path: &str,
        query: &str,
        pages: usize,
    ) -> Option<Vec<Box<RawValue>>> {
        match self.list(path, query, pages).await {
            Ok(items) => Some(items),
            Err(error) => {
                self.gaps
                    .push(format!("{what} cannot be read: {}", brief(&error)));
                None
            }
        }
    }

    async fn plans(&mut self, scope: &Scope) -> Result<Vec<PlanObject>, kube::Error> {
        let path = |namespace: Option<&str>| match namespace {
            Some(namespace) => format!("/apis/{}/v1/namespaces/{namespace}/plans", names::GROUP),
            None => format!("/apis/{}/v1/plans", names::GROUP),
        };
        let listed = self.list(&path(scope.namespace.as_deref()), "", usize::MAX).await;
        let items = match listed {
            Err(kube::Error::Api(status)) if status.code == 403 && scope.namespace.is_none() => {
                let namespace = &scope.fallback_namespace;
                let items = self.list(&path(Some(namespace)), "", usize::MAX).await?;
                self.gaps.push(format!(
                    "Plans of other namespaces than {namespace} cannot be read: {}",
                    status.message
                ));
                items
            }
            other => other?,
        };
        let mut plans: Vec<_> = items.iter().filter_map(|raw| plan_object(raw)).collect();
        plans.sort_by(|a, b| (&a.namespace, &a.facts.name).cmp(&(&b.namespace, &b.facts.name)));
        Ok(plans)
    }

    async fn nodes(&mut self) -> Option<BTreeMap<String, NodeObject>> {
        let items = self.list_or_gap("Nodes", "/api/v1/nodes", "", usize::MAX).await?;
        let intern = Intern::default();
        let mut nodes = BTreeMap::new();
        for raw in items {
            let node: SlimNode = match read(&raw) {
                Ok(node) => node,
                Err(unreadable) => {
                    self.gaps.push(format!(
                        "Node {} cannot be read: {}",
                        unreadable.name, unreadable.why
                    ));
                    continue;
                }
            };
            let facts = node.facts(&intern);
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
            let node = NodeObject {
                labels: facts
                    .labels
                    .iter()
                    .map(|(key, value)| (key.to_owned(), value.to_owned()))
                    .collect(),
                ready,
                facts,
            };
            nodes.insert(node.facts.name.to_string(), node);
        }
        Some(nodes)
    }

    /// The nodes in maintenance. A cluster that does not know the kind has none.
    async fn maintenances(&mut self) -> Vec<Maintenance> {
        let mut found = Vec::new();
        for group in MaintenanceGroup::ALL {
            let path = group.path();
            match self.list(&path, "", usize::MAX).await {
                Ok(items) => found.extend(items.iter().filter_map(|raw| match group {
                    MaintenanceGroup::Medik8s => maintenance_object::<MedikMaintenance>(raw),
                    MaintenanceGroup::Kubevirt => maintenance_object::<KubevirtMaintenance>(raw),
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

    async fn jobs(&mut self, namespace: &str) -> Option<Vec<JobObject>> {
        let path = format!("/apis/batch/v1/namespaces/{namespace}/jobs");
        let what = format!("Jobs in namespace {namespace}");
        let query = format!("labelSelector={}", encoded(names::LABEL_PLAN));
        let items = self.list_or_gap(&what, &path, &query, usize::MAX).await?;
        let intern = Intern::default();
        let jobs = items.iter().filter_map(|raw| {
            let job: SlimJob = read(raw).ok()?;
            let started = serde_json::from_str::<Value>(raw.get()).ok()?;
            Some(JobObject {
                namespace: namespace.to_owned(),
                facts: job.facts(&intern, 0),
                started: text(&started, "/status/startTime").parse().ok(),
            })
        });
        Some(jobs.collect())
    }

    async fn pods(&mut self, namespace: &str) -> Vec<PodObject> {
        let path = format!("/api/v1/namespaces/{namespace}/pods");
        let what = format!("pods in namespace {namespace}");
        let query = format!("labelSelector={}", encoded(names::LABEL_PLAN));
        let items = self.list_or_gap(&what, &path, &query, usize::MAX).await;
        let intern = Intern::default();
        let pods = items.iter().flatten().filter_map(|raw| {
            let pod: SlimPod = read(raw).ok()?;
            Some(PodObject {
                namespace: namespace.to_owned(),
                created: text(&metadata(raw), "/creationTimestamp").parse().ok(),
                facts: pod.facts(&intern),
            })
        });
        pods.collect()
    }

    async fn events(&mut self, namespace: &str) -> Option<Vec<EventLine>> {
        let path = format!("/api/v1/namespaces/{namespace}/events");
        let what = format!("Events in namespace {namespace}");
        let query = format!("fieldSelector={}", encoded("involvedObject.kind=Plan"));
        let items = self.list_or_gap(&what, &path, &query, EVENT_PAGES).await?;
        let event = |raw: &RawValue| {
            let value: Value = serde_json::from_str(raw.get()).ok()?;
            Some(EventLine {
                namespace: namespace.to_owned(),
                plan: text(&value, "/involvedObject/name"),
                at: time_of_event(&value)?,
                reason: short(&text(&value, "/reason")),
                message: short(&text(&value, "/message")),
                warning: text(&value, "/type") == "Warning",
            })
        };
        Some(items.iter().filter_map(|raw| event(raw)).collect())
    }

    /// The Events of Jobs whose pods are refused.
    async fn refusals(&mut self, namespace: &str) -> Vec<Refusal> {
        let path = format!("/api/v1/namespaces/{namespace}/events");
        let what = format!("Events of Jobs in namespace {namespace}");
        let query = format!(
            "fieldSelector={}",
            encoded("involvedObject.kind=Job,reason=FailedCreate")
        );
        let items = self.list_or_gap(&what, &path, &query, EVENT_PAGES).await;
        let refusal = |raw: &RawValue| {
            let value: Value = serde_json::from_str(raw.get()).ok()?;
            Some(Refusal {
                namespace: namespace.to_owned(),
                job: text(&value, "/involvedObject/name"),
                at: time_of_event(&value)?,
                message: short(&text(&value, "/message")),
            })
        };
        items.iter().flatten().filter_map(|raw| refusal(raw)).collect()
    }

    /// The pods of a node that should have ended.
    async fn terminating(&mut self, node: &str, now: Timestamp) -> Vec<Terminating> {
        let what = format!("pods on Node {node}");
        let query = format!("fieldSelector={}", encoded(&format!("spec.nodeName={node}")));
        let items = self.list_or_gap(&what, "/api/v1/pods", &query, usize::MAX).await;
        let pod = |raw: &RawValue| {
            let metadata = metadata(raw);
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

    async fn budget(&mut self, namespace: &str, name: &str) -> Option<Budget> {
        let path = format!("/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets");
        let what = format!("PodDisruptionBudgets in namespace {namespace}");
        let items = self.list_or_gap(&what, &path, "", usize::MAX).await?;
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
        let items = self.list_or_gap(&what, &path, "", usize::MAX).await;
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
pub(super) async fn list(
    client: &Client,
    path: &str,
    query: &str,
    pages: usize,
) -> Result<Vec<Box<RawValue>>, kube::Error> {
    let (mut items, mut next) = (Vec::new(), String::new());
    for _ in 0..pages {
        let mut uri = format!("{path}?limit={PAGE}");
        if !query.is_empty() {
            uri = format!("{uri}&{query}");
        }
        if !next.is_empty() {
            let token: String = url::form_urlencoded::byte_serialize(next.as_bytes()).collect();
            uri = format!("{uri}&continue={token}");
        }
        let request = http::Request::get(uri)
            .body(Vec::new())
            .map_err(kube::Error::HttpError)?;
        let list: RawList = client.request(request).await?;
        items.extend(list.items);
        next = list.metadata.next.unwrap_or_default();
        if next.is_empty() {
            break;
        }
    }
    Ok(items)
}

fn plan_object(raw: &RawValue) -> Option<PlanObject> {
    let metadata = metadata(raw);
    let plan: RawPlan = match read(raw) {
        Ok(plan) => plan,
        Err(unreadable) => RawPlan::salvage(raw, &unreadable)?,
    };
    let deletion = text(&metadata, "/deletionTimestamp");
    Some(PlanObject {
        namespace: text(&metadata, "/namespace"),
        facts: plan.facts(),
        deleting: (!deletion.is_empty()).then(|| finalizers(&metadata)),
        node_op: metadata["annotations"][ANNOTATION_OWNER]
            .as_str()
            .map(str::to_owned),
    })
}

/// One whose status cannot be read is for its node all the same.
fn maintenance_object<K: Watched + Into<Maintenance>>(raw: &RawValue) -> Option<Maintenance> {
    let object = read::<K>(raw).or_else(|unreadable| K::salvage(raw, &unreadable).ok_or(()));
    object.ok().map(Into::into)
}

fn finalizers(metadata: &Value) -> Vec<String> {
    let all = metadata.get("finalizers").and_then(Value::as_array);
    let all = all.into_iter().flatten().filter_map(Value::as_str);
    all.map(str::to_owned).collect()
}

fn time_of_event(event: &Value) -> Option<Timestamp> {
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

fn encoded(text: &str) -> String {
    url::form_urlencoded::byte_serialize(text.as_bytes()).collect()
}
