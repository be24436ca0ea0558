//! Objects from the API server, reduced to the fields that become facts. Other fields are never parsed: a Node has 14
//! kB of JSON and a few hundred bytes of facts.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use kube::Resource;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::condition::kept;
use crate::read::{LenientTime, Unreadable, lenient_time, present_time};
use crate::record::Record;
use crate::watched::Watched;
use crate::{BootId, JobFacts, JobOutcome, Labels, NodeCondition, NodeFacts, PlanFacts, Taint, Text};
use refit_api::text::{MAX_CONDITION_MESSAGE, MAX_MESSAGE, MAX_NAME, shorten};
use refit_api::{Ledger, NodeDrain, Plan, PlanSpec, PlanStatus, RebootRequest, RemediationPause, names};
use refit_job::name::hook_controller;

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
        #[serde(deserialize_with = "lenient_time")]
        creation_timestamp: Option<Timestamp>,
        #[serde(deserialize_with = "present_time")]
        deletion_timestamp: Option<Timestamp>,
        deletion_grace_period_seconds: Option<i64>,
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
        creation_timestamp: slim.creation_timestamp.map(Time),
        deletion_timestamp: slim.deletion_timestamp.map(Time),
        deletion_grace_period_seconds: slim.deletion_grace_period_seconds,
        labels: slim.labels,
        annotations: slim.annotations,
        owner_references: slim.owner_references,
        ..ObjectMeta::default()
    })
}

/// Implements the API's traits for a reduced type.
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

// They need the macro.
pub mod maintenance;
pub mod node_op;
mod pod;

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
    // A merge patch replaces the whole list of taints, so fields such as `timeAdded` have to be written back.
    #[serde(flatten)]
    others: serde_json::Map<String, Value>,
}

impl SlimTaint {
    fn fact(&self) -> Option<Taint> {
        let Self { key, others } = self;
        let mut others = others.clone();
        let mut text = |field: &str| match others.remove(field) {
            None => Some(None),
            Some(Value::String(text)) => Some(Some(text)),
            Some(_) => None,
        };
        let (value, effect) = (text("value")?, text("effect")??);
        Some(Taint {
            key: key.clone(),
            value,
            effect,
            others,
        })
    }
}

/// Maximum number of taints that are kept as facts. The API server limits the length of each.
const MAX_TAINTS: usize = 64;

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
    #[serde(rename = "osImage")]
    os_image: String,
    #[serde(rename = "kernelVersion")]
    kernel_version: String,
    architecture: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct SlimCondition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
    reason: Option<String>,
    message: Option<String>,
    last_transition_time: LenientTime,
}

impl SlimCondition {
    fn fact(&self, intern: &Intern) -> NodeCondition {
        let text = |text: &str| intern.text(&shorten(text, MAX_NAME));
        NodeCondition {
            type_: text(&self.type_),
            status: text(&self.status),
            reason: text(self.reason.as_deref().unwrap_or_default()),
            message: NodeCondition::kept_message(
                self.reason.as_deref().unwrap_or_default(),
                self.message.as_deref().unwrap_or_default(),
            ),
        }
    }
}

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
    pod_replacement_policy: Option<IgnoredAny>,
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
    service_account_name: Option<String>,
    init_containers: Vec<SlimContainer>,
    affinity: SlimAffinity,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct SlimAffinity {
    pod_anti_affinity: serde_json::Map<String, Value>,
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

/// Pods that have ended, but are not counted in the Job's status yet.
/// The Job controller counts them once their finalizers are removed (KEP-2307).
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

/// Maximum length of the annotation `refit.rs/retry`, in bytes; a longer one is ignored.
const MAX_RETRY: usize = 4_096;
/// Maximum length of the annotation `refit.rs/labelled-jobs`, in bytes; a longer one is ignored.
const MAX_LABELLED_JOBS: usize = 4_096;

/// Default of `spec.backoffLimit`.
const DEFAULT_BACKOFF_LIMIT: i32 = 6;

/// A Plan with any spec, so that an invalid one does not fail the whole list.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct RawPlan {
    #[serde(deserialize_with = "slim_meta")]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Option<Value>,
    #[serde(default)]
    status: Option<Value>,
    /// Why the spec is missing.
    #[serde(skip)]
    unreadable: Option<String>,
}
resource!(
    RawPlan,
    "upgrade.cattle.io",
    "v1",
    "Plan",
    "plans",
    k8s_openapi::NamespaceResourceScope
);

/// The metadata of a Secret. Its content is read one by one, and only of Secrets that Plans name.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct SlimSecret {
    #[serde(deserialize_with = "slim_meta")]
    metadata: ObjectMeta,
}
resource!(
    SlimSecret,
    "",
    "v1",
    "Secret",
    "secrets",
    k8s_openapi::NamespaceResourceScope
);

// It is one small object, and all of it counts.
impl Watched for k8s_openapi::api::core::v1::ConfigMap {}

impl Watched for SlimNode {
    fn ignored_time(&self) -> Option<String> {
        ignored_time(&self.status.conditions)
    }
}

impl Watched for SlimJob {
    fn ignored_time(&self) -> Option<String> {
        ignored_time(&self.status.conditions)
    }
}

/// Says which time of a condition is ignored.
fn ignored_time(conditions: &[SlimCondition]) -> Option<String> {
    conditions.iter().find_map(|condition| {
        let text = condition.last_transition_time.ignored.as_deref()?;
        let type_ = shorten(&condition.type_, MAX_NAME);
        Some(format!(
            "lastTransitionTime of condition {type_} is ignored: {text:?} is not a time before 9999-12-31"
        ))
    })
}

impl Watched for SlimSecret {}
impl Watched for CustomResourceDefinition {}

/// A Plan has a status, which says what is wrong with it.
impl Watched for RawPlan {
    fn salvage(raw: &RawValue, unreadable: &Unreadable) -> Option<Self> {
        #[derive(Deserialize)]
        struct Parts<'a> {
            #[serde(deserialize_with = "slim_meta")]
            metadata: ObjectMeta,
            #[serde(borrow)]
            status: Option<&'a RawValue>,
        }
        let parts: Parts<'_> = serde_json::from_str(raw.get()).ok()?;
        let status = parts.status.and_then(|it| serde_json::from_str(it.get()).ok());
        Some(Self {
            metadata: parts.metadata,
            spec: None,
            status,
            unreadable: Some(unreadable.why.clone()),
        })
    }
}

/// The resource version as a number: larger is later (KEP-5504). 0 if it is not a number, which counts as later than
/// everything.
pub fn version(meta: &ObjectMeta) -> u64 {
    meta.resource_version
        .as_deref()
        .and_then(|v| v.parse().ok())
        .unwrap_or(0)
}

/// Interns texts that many objects share.
#[derive(Clone, Debug, Default)]
pub struct Intern(Arc<Mutex<HashSet<Text>>>);

/// Number of texts at which unused ones are dropped.
const INTERN_SWEEP: usize = 4096;

impl Intern {
    /// The shared copy of a text or an identifier.
    pub fn text<T: From<Text>>(&self, text: &str) -> T {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(text) = known.get(text) {
            return text.clone().into();
        }
        // A sweep visits all texts, so there is one only when the set would have to grow.
        if known.len() >= INTERN_SWEEP && known.len() == known.capacity() {
            known.retain(|text| Arc::strong_count(text) > 1);
        }
        let text: Text = text.into();
        known.insert(text.clone());
        text.into()
    }
}

/// Taints of a node that is not Ready, which stay for a moment after it is Ready again.
const NOT_READY_TAINTS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

impl SlimNode {
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
            conditions: kept(self.status.conditions.iter(), |condition| &condition.type_)
                .map(|condition| condition.fact(intern))
                .collect(),
            unschedulable: self.spec.unschedulable,
            tainted: self
                .spec
                .taints
                .iter()
                .any(|taint| NOT_READY_TAINTS.contains(&taint.key.as_str())),
            taints: (self.spec.taints.len() <= MAX_TAINTS)
                .then(|| self.spec.taints.iter().map(SlimTaint::fact).collect())
                .flatten(),
            created: self.metadata.creation_timestamp.as_ref().map(|at| at.0),
            // The list of boots of a Job separates them by commas.
            boot_id: BootId::from(&*shorten(&self.status.node_info.boot_id, MAX_NAME).replace(',', "_")),
            kubelet: intern.text(&shorten(&self.status.node_info.kubelet_version, MAX_NAME)),
            os_image: intern.text(&shorten(&self.status.node_info.os_image, MAX_NAME)),
            kernel: intern.text(&shorten(&self.status.node_info.kernel_version, MAX_NAME)),
            architecture: intern.text(&shorten(&self.status.node_info.architecture, MAX_NAME)),
            records: annotations
                .into_iter()
                .flatten()
                .filter_map(|(key, value)| {
                    let plan = key.strip_prefix(names::ANNOTATION_RECORD_PREFIX)?;
                    Some((intern.text(plan), Record::parse(value)?))
                })
                .collect(),
            labelled_jobs: annotation(names::ANNOTATION_LABELLED_JOBS)
                .filter(|text| text.len() <= MAX_LABELLED_JOBS)
                .map(|text| text.as_str().into()),
            ledger: annotation(names::ANNOTATION_CORDON).and_then(|text| Ledger::parse(text)),
            keep_cordoned: annotation(names::ANNOTATION_KEEP_CORDONED).is_some(),
            retry: annotation(names::ANNOTATION_RETRY)
                .filter(|text| text.len() <= MAX_RETRY)
                .map(|text| text.as_str().into()),
            skip: annotation(names::ANNOTATION_SKIP)
                .map(|text| shorten(text, MAX_CONDITION_MESSAGE).as_ref().into()),
            reboot_request: annotations.and_then(RebootRequest::of).map(Box::new),
            drain: annotation(names::ANNOTATION_DRAIN)
                .and_then(|text| NodeDrain::parse(text))
                .map(Box::new),
            remediation: annotation(names::ANNOTATION_REMEDIATION)
                .and_then(|text| RemediationPause::parse(text))
                .map(Box::new),
        }
    }
}

fn owner(meta: &ObjectMeta) -> Option<&OwnerReference> {
    let mut owners = meta.owner_references.iter().flatten();
    // The API server admits only one owner with `controller: true`.
    owners.find(|owner| owner.controller.unwrap_or_default())
}

impl SlimJob {
    pub fn is_of(&self, controller: &str) -> bool {
        let label = |key| self.metadata.labels.as_ref().and_then(|labels| labels.get(key));
        label(names::LABEL_CONTROLLER).is_some_and(|of| match label(names::LABEL_HOOK) {
            None => of == controller,
            Some(_) => *of == hook_controller(controller),
        })
    }

    /// The facts of the Job. `ttl` is the TTL of Jobs that do not name one.
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
        let at = |c: &SlimCondition| c.last_transition_time.time.unwrap_or(created);
        let text =
            |field: &Option<String>| shorten(field.as_deref().unwrap_or_default(), MAX_MESSAGE).into_owned();
        let outcome = if let Some(c) = condition("Complete") {
            JobOutcome::Complete { at: at(c) }
        } else if let Some(c) = condition("Failed") {
            JobOutcome::Failed {
                at: at(c),
                reason: text(&c.reason),
                message: text(&c.message),
            }
        } else if let Some(c) = condition("FailureTarget") {
            // The Job controller adds `Failed` only when all pods have ended (since 1.31), also on a lost node.
            JobOutcome::Failing {
                reason: text(&c.reason),
                message: text(&c.message),
            }
        } else {
            JobOutcome::Running
        };
        let cordons = |c: &SlimContainer| matches!(c.name.as_str(), "cordon" | "drain");
        JobFacts {
            name: meta.name.as_deref().unwrap_or_default().into(),
            uid: meta.uid.as_deref().unwrap_or_default().into(),
            plan: intern.text(plan),
            plan_uid: intern.text(
                annotation(names::ANNOTATION_PLAN_UID)
                    // A Job of system-upgrade-controller has no such annotation, only an owner.
                    .or_else(|| owner(meta).map(|owner| owner.uid.as_str()))
                    .unwrap_or_default(),
            ),
            // A label holds 63 characters: a longer name of a node is shortened in it, and whole in the annotation.
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
            // Jobs of system-upgrade-controller are recognized by their containers, whose names are the same.
            disruptive: label(names::LABEL_EXCLUSIVE) == "true"
                || annotation(names::ANNOTATION_REBOOT).is_some()
                || self.spec.template.spec.init_containers.iter().any(cordons),
            avoids_hosts: !self.spec.template.spec.affinity.pod_anti_affinity.is_empty(),
            has_replacement_policy: self.spec.pod_replacement_policy.is_some(),
            sentinel: annotation(names::ANNOTATION_REBOOT).is_some(),
            verify: annotation(names::ANNOTATION_VERIFY).is_some(),
            verifies: annotation(names::ANNOTATION_VERIFIES)
                .map(|upgrade| shorten(upgrade, MAX_NAME).as_ref().into()),
            boots: annotation(names::ANNOTATION_BOOT_IDS)
                .into_iter()
                .flat_map(|boots| boots.split(','))
                .filter(|boot| !boot.is_empty())
                .take(JobFacts::MAX_BOOTS)
                .map(|boot| BootId::from(&*shorten(boot, MAX_NAME)))
                .collect(),
            hook: meta
                .labels
                .as_ref()
                .and_then(|labels| labels.get(names::LABEL_HOOK))
                .map(|hook| intern.text(hook)),
        }
    }
}

impl RawPlan {
    pub fn facts(self) -> PlanFacts {
        let Self {
            mut metadata,
            spec,
            status,
            unreadable,
        } = self;
        // The state keeps it apart. In the facts it would make each version of a Plan a change, and cause a decision.
        metadata.resource_version = None;
        let spec = match unreadable {
            Some(why) => Err(why),
            None => PlanSpec::deserialize(spec.unwrap_or(Value::Object(serde_json::Map::new())))
                .map_err(|error| error.to_string()),
        };
        let (spec, malformed) = match spec {
            Ok(spec) => (spec, None),
            Err(why) => (PlanSpec::default(), Some(format!("spec cannot be read: {why}"))),
        };
        // An invalid status is replaced.
        let status = status.and_then(|status| PlanStatus::deserialize(status).ok());
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
