//! Objects as the API server sends them, cut down to what becomes a fact. The rest is never built: a Node is 14 kB of
//! JSON and some hundred bytes of facts.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::api::{Plan, PlanSpec, PlanStatus, names};
use crate::rollout::facts::Text;
use crate::rollout::{JobFacts, Labels, Ledger, NodeFacts, Outcome, PlanFacts, Record};

pub use pod::SlimPod;

/// Metadata without `managedFields`, which are half of it.
fn slim_meta<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Slim {
        name: Option<String>,
        namespace: Option<String>,
        uid: Option<String>,
        resource_version: Option<String>,
        generation: Option<i64>,
        creation_timestamp: Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>,
        deletion_timestamp: Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>,
        labels: Option<BTreeMap<String, String>>,
        annotations: Option<BTreeMap<String, String>>,
        owner_references: Option<Vec<OwnerReference>>,
    }
    let slim = Slim::deserialize(deserializer)?;
    Ok(ObjectMeta {
        name: slim.name,
        namespace: slim.namespace,
        uid: slim.uid,
        resource_version: slim.resource_version,
        generation: slim.generation,
        creation_timestamp: slim.creation_timestamp,
        deletion_timestamp: slim.deletion_timestamp,
        labels: slim.labels,
        annotations: slim.annotations,
        owner_references: slim.owner_references,
        ..ObjectMeta::default()
    })
}

/// Gives a type of ours the place in the API of the object that it is a part of.
macro_rules! resource {
    ($type:ty, $group:expr, $version:expr, $kind:expr, $plural:expr, $scope:ty) => {
        impl Resource for $type {
            type DynamicType = ();
            type Scope = $scope;
            fn kind((): &()) -> std::borrow::Cow<'_, str> {
                $kind.into()
            }
            fn group((): &()) -> std::borrow::Cow<'_, str> {
                $group.into()
            }
            fn version((): &()) -> std::borrow::Cow<'_, str> {
                $version.into()
            }
            fn plural((): &()) -> std::borrow::Cow<'_, str> {
                $plural.into()
            }
            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

mod pod; // it needs the macro

/// A Node.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct SlimNode {
    #[serde(deserialize_with = "slim_meta")]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: SlimNodeSpec,
    #[serde(default)]
    status: SlimNodeStatus,
}
resource!(
    SlimNode,
    "",
    "v1",
    "Node",
    "nodes",
    k8s_openapi::ClusterResourceScope
);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct SlimNodeSpec {
    unschedulable: bool,
    taints: Vec<SlimTaint>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct SlimTaint {
    key: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct SlimNodeStatus {
    conditions: Vec<SlimCondition>,
    node_info: SlimNodeInfo,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct SlimNodeInfo {
    #[serde(rename = "bootID")]
    boot_id: String,
    #[serde(rename = "kubeletVersion")]
    kubelet_version: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct SlimCondition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
    reason: Option<String>,
    message: Option<String>,
    last_transition_time: Option<Timestamp>,
}

/// A Job.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct SlimJob {
    #[serde(deserialize_with = "slim_meta")]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: SlimJobSpec,
    #[serde(default)]
    status: SlimJobStatus,
}
resource!(
    SlimJob,
    "batch",
    "v1",
    "Job",
    "jobs",
    k8s_openapi::NamespaceResourceScope
);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct SlimJobSpec {
    parallelism: Option<i32>,
    backoff_limit: Option<i32>,
    template: SlimTemplate,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct SlimTemplate {
    spec: SlimPodSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct SlimPodSpec {
    node_name: Option<String>,
    init_containers: Vec<SlimContainer>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct SlimContainer {
    name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct SlimJobStatus {
    conditions: Vec<SlimCondition>,
    failed: i32,
    uncounted_terminated_pods: SlimUncounted,
}

/// Pods that have ended, and which the Job controller is about to count.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct SlimUncounted {
    failed: Vec<IgnoredAny>,
}

impl SlimJobStatus {
    fn failures(&self) -> i32 {
        let uncounted = i32::try_from(self.uncounted_terminated_pods.failed.len()).unwrap_or(i32::MAX);
        self.failed.saturating_add(uncounted)
    }
}

/// `spec.backoffLimit` where a Job does not say it.
const DEFAULT_BACKOFF_LIMIT: i32 = 6;

/// A Plan, whatever its spec looks like: one that cannot be read must not hide the others.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct RawPlan {
    #[serde(deserialize_with = "slim_meta")]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Option<Value>,
    /// Most of a Plan: it is not read twice.
    #[serde(default)]
    status: Option<Box<RawValue>>,
}
resource!(
    RawPlan,
    "upgrade.cattle.io",
    "v1",
    "Plan",
    "plans",
    k8s_openapi::NamespaceResourceScope
);

/// Version of an object as a number: larger is later (KEP-5504). 0 where it is none, which is always taken for later.
pub fn version(meta: &ObjectMeta) -> u64 {
    meta.resource_version
        .as_deref()
        .and_then(|v| v.parse().ok())
        .unwrap_or(0)
}

/// Texts that many objects share are kept once.
#[derive(Clone, Debug, Default)]
pub struct Intern(Arc<Mutex<HashSet<Text>>>);

/// How many texts are kept before those go that nobody else has any more.
const INTERN_SWEEP: usize = 4096;

impl Intern {
    /// The text, shared with all who asked for the same.
    pub fn text(&self, text: &str) -> Text {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(text) = known.get(text) {
            return text.clone();
        }
        if known.len() >= INTERN_SWEEP && known.len() == known.capacity() {
            known.retain(|text| Arc::strong_count(text) > 1);
        }
        let text: Text = text.into();
        known.insert(text.clone());
        text
    }
}

/// Keys of the taints that a node has which is not Ready, and for a moment after.
const NOT_FIT: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

impl SlimNode {
    /// What of the Node is a fact.
    pub fn facts(&self, intern: &Intern) -> NodeFacts {
        let annotations = self.metadata.annotations.as_ref();
        let annotation = |key: &str| annotations.and_then(|a| a.get(key));
        let labels = self.metadata.labels.iter().flatten();
        NodeFacts {
            name: intern.text(self.metadata.name.as_deref().unwrap_or_default()),
            uid: intern.text(self.metadata.uid.as_deref().unwrap_or_default()),
            labels: Labels::new(labels.map(|(key, value)| (intern.text(key), intern.text(value)))),
            ready: self
                .status
                .conditions
                .iter()
                .any(|c| c.type_ == "Ready" && c.status == "True"),
            unschedulable: self.spec.unschedulable,
            tainted: self
                .spec
                .taints
                .iter()
                .any(|taint| NOT_FIT.contains(&taint.key.as_str())),
            boot_id: self.status.node_info.boot_id.as_str().into(),
            kubelet: intern.text(&self.status.node_info.kubelet_version),
            records: annotations
                .into_iter()
                .flatten()
                .filter_map(|(key, value)| {
                    let plan = key.strip_prefix(names::ANNOTATION_RECORD_PREFIX)?;
                    Some((intern.text(plan), Record::parse(value)?))
                })
                .collect(),
            ledger: annotation(names::ANNOTATION_CORDON).and_then(|text| Ledger::parse(text)),
            keep_cordoned: annotation(names::ANNOTATION_KEEP_CORDONED).is_some(),
            retry: annotation(names::ANNOTATION_RETRY).map(|text| text.as_str().into()),
        }
    }
}

/// The UID of the owner that is in charge.
fn owner_uid(meta: &ObjectMeta) -> Option<&str> {
    let owners = meta.owner_references.as_ref()?;
    owners
        .iter()
        .find(|o| o.controller.unwrap_or_default())
        .map(|o| o.uid.as_str())
}

impl SlimJob {
    /// Whether the Job is of the controller of this name.
    pub fn is_of(&self, controller: &str) -> bool {
        let label = self
            .metadata
            .labels
            .as_ref()
            .and_then(|l| l.get(names::LABEL_CONTROLLER));
        label.is_some_and(|label| label == controller)
    }

    /// What of the Job is a fact. `ttl`: how long Jobs are kept that do not say it themselves.
    pub fn facts(&self, intern: &Intern, ttl: i64) -> JobFacts {
        let meta = &self.metadata;
        let label = |key: &str| {
            meta.labels
                .as_ref()
                .and_then(|l| l.get(key))
                .map_or("", String::as_str)
        };
        let annotation = |key: &str| {
            meta.annotations
                .as_ref()
                .and_then(|a| a.get(key))
                .map(String::as_str)
        };
        let plan = label(names::LABEL_PLAN);
        let condition = |type_: &str| {
            self.status
                .conditions
                .iter()
                .find(|c| c.type_ == type_ && c.status == "True")
        };
        let created = meta
            .creation_timestamp
            .as_ref()
            .map_or(Timestamp::UNIX_EPOCH, |t| t.0);
        let at = |c: &SlimCondition| c.last_transition_time.unwrap_or(created);
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        let outcome = if let Some(c) = condition("Complete") {
            Outcome::Complete { at: at(c) }
        } else if let Some(c) = condition("Failed") {
            Outcome::Failed {
                at: at(c),
                reason: text(&c.reason),
                message: text(&c.message),
            }
        } else if let Some(c) = condition("FailureTarget") {
            Outcome::Failing {
                reason: text(&c.reason),
                message: text(&c.message),
            }
        } else {
            Outcome::Running
        };
        let cordons = |c: &SlimContainer| matches!(c.name.as_str(), "cordon" | "drain");
        JobFacts {
            name: meta.name.as_deref().unwrap_or_default().into(),
            uid: meta.uid.as_deref().unwrap_or_default().into(),
            plan: intern.text(plan),
            plan_uid: intern.text(
                annotation(names::ANNOTATION_PLAN_UID)
                    .or_else(|| owner_uid(meta))
                    .unwrap_or_default(),
            ),
            node: intern
                .text(annotation(names::ANNOTATION_NODE_NAME).unwrap_or_else(|| label(names::LABEL_NODE))),
            node_uid: annotation(names::ANNOTATION_NODE_UID).map(|uid| intern.text(uid)),
            hash: intern.text(label(&format!("{}{plan}", names::LABEL_PLAN_PREFIX))),
            version: intern.text(label(names::LABEL_VERSION)),
            inputs: annotation(names::ANNOTATION_INPUTS).map(|inputs| intern.text(inputs)),
            attempt: annotation(names::ANNOTATION_ATTEMPT)
                .and_then(|a| a.parse().ok())
                .unwrap_or(1),
            parallelism: self.spec.parallelism.unwrap_or(1),
            backoff_limit: self.spec.backoff_limit.unwrap_or(DEFAULT_BACKOFF_LIMIT),
            failures: self.status.failures(),
            ttl: annotation(names::ANNOTATION_TTL)
                .and_then(|t| t.parse().ok())
                .unwrap_or(ttl),
            recorded: annotation(names::ANNOTATION_RECORDED).is_some(),
            deleting: meta.deletion_timestamp.is_some(),
            outcome,
            created,
            unschedulable_before: annotation(names::ANNOTATION_UNSCHEDULABLE_BEFORE).map(|b| b == "true"),
            disruptive: label(names::LABEL_EXCLUSIVE) == "true"
                || annotation(names::ANNOTATION_REBOOT).is_some()
                || self.spec.template.spec.init_containers.iter().any(cordons),
            sentinel: annotation(names::ANNOTATION_REBOOT).is_some(),
            boots: annotation(names::ANNOTATION_BOOT_IDS)
                .into_iter()
                .flat_map(|boots| boots.split(','))
                .filter(|boot| !boot.is_empty())
                .map(Text::from)
                .collect(),
        }
    }
}

impl RawPlan {
    /// What of the Plan is a fact.
    pub fn facts(self) -> PlanFacts {
        let Self {
            mut metadata,
            spec,
            status,
        } = self;
        metadata.resource_version = None;
        let (spec, malformed) =
            match PlanSpec::deserialize(spec.unwrap_or(Value::Object(serde_json::Map::new()))) {
                Ok(spec) => (spec, None),
                Err(error) => (PlanSpec::default(), Some(format!("spec cannot be read: {error}"))),
            };
        // A status that cannot be read is written anew.
        let status = status.and_then(|status| serde_json::from_str::<PlanStatus>(status.get()).ok());
        PlanFacts {
            name: metadata.name.as_deref().unwrap_or_default().into(),
            uid: metadata.uid.as_deref().unwrap_or_default().into(),
            object: Plan {
                metadata,
                spec,
                status,
            },
            malformed,
        }
    }
}

#[cfg(test)]
mod tests;
