//! Objects from the API server, reduced to the fields that become facts. Other fields are never parsed: a Node has 14
//! kB of JSON and a few hundred bytes of facts.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, ResourceExt};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::condition::kept;
use crate::read::Unreadable;
use crate::record::Record;
use crate::watched::Watched;
use crate::{BootId, Labels, NodeFacts, PlanFacts, Taint};
use refit_api::text::{MAX_CONDITION_MESSAGE, MAX_NAME, shorten};
use refit_api::{Ledger, NodeDrain, Plan, PlanSpec, PlanStatus, RebootRequest, RemediationPause, names};

pub use job::SlimJob;
pub use parts::Intern;
use parts::{SlimCondition, ignored_time, slim_meta};
pub use pod::SlimPod;

/// Implements the API's traits for a reduced type.
macro_rules! resource {
    ($type:ty, $group:expr, $version:expr, $kind:expr, $plural:expr, $scope:ty) => {
        resource!($type: metadata, $group, $version, $kind, $plural, $scope);
    };
    ($type:ty: $($metadata:ident).+, $group:expr, $version:expr, $kind:expr, $plural:expr, $scope:ty) => {
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
                &self.$($metadata).+
            }
            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.$($metadata).+
            }
        }
    };
}

// They need the macro.
mod job;
pub mod maintenance;
pub mod node_op;
mod parts;
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

/// Maximum length of the annotation `refit.rs/retry`, in bytes; a longer one is ignored.
const MAX_RETRY: usize = 4_096;
/// Maximum length of the annotation `refit.rs/labelled-jobs`, in bytes; a longer one is ignored.
const MAX_LABELLED_JOBS: usize = 4_096;

resource!(
    PlanFacts: object.metadata,
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

impl Watched for SlimSecret {}
impl Watched for CustomResourceDefinition {}

/// A Plan has a status, which says what is wrong with it.
impl Watched for PlanFacts {
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
        Some(plan(parts.metadata, Err(unreadable.why.clone()), status))
    }
}

/// With any spec and status, so that an invalid one does not fail the whole list.
impl<'de> Deserialize<'de> for PlanFacts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Parts {
            #[serde(deserialize_with = "slim_meta")]
            metadata: ObjectMeta,
            spec: Option<Value>,
            status: Option<Value>,
        }
        let parts = Parts::deserialize(deserializer)?;
        let spec = parts.spec.unwrap_or(Value::Object(serde_json::Map::new()));
        let spec = PlanSpec::deserialize(spec).map_err(|error| error.to_string());
        Ok(plan(parts.metadata, spec, parts.status))
    }
}

fn plan(metadata: ObjectMeta, spec: Result<PlanSpec, String>, status: Option<Value>) -> PlanFacts {
    let malformed = spec
        .as_ref()
        .err()
        .map(|why| format!("spec cannot be read: {why}"));
    PlanFacts {
        name: metadata.name.as_deref().unwrap_or_default().into(),
        uid: metadata.uid.as_deref().unwrap_or_default().into(),
        object: Plan {
            metadata,
            spec: spec.unwrap_or_default(),
            // An invalid status is replaced.
            status: status.and_then(|status| PlanStatus::deserialize(status).ok()),
        },
        malformed,
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

/// Taints of a node that is not Ready, which stay for a moment after it is Ready again.
const NOT_READY_TAINTS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

impl SlimNode {
    pub fn facts(&self, intern: &Intern) -> NodeFacts {
        let annotations = self.annotations();
        let annotation = |key: &str| annotations.get(key);
        let labels = self.labels().iter();
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
                .iter()
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
            reboot_request: RebootRequest::of(annotations).map(Box::new),
            drain: annotation(names::ANNOTATION_DRAIN)
                .and_then(|text| NodeDrain::parse(text))
                .map(Box::new),
            remediation: annotation(names::ANNOTATION_REMEDIATION)
                .and_then(|text| RemediationPause::parse(text))
                .map(Box::new),
        }
    }
}

#[cfg(test)]
mod tests;
