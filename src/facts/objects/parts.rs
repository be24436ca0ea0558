//! Parts of objects that several kinds have.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::condition::NodeCondition;
use crate::read::{LenientTime, lenient_time, present_time};
use refit_api::ids::Text;
use refit_api::text::{MAX_NAME, shorten};

/// Metadata without `managedFields`, which are half of it, and with finalizers only if they keep it from being deleted.
pub(super) fn slim_meta<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
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
        finalizers: Option<Vec<String>>,
    }
    let slim = Slim::deserialize(deserializer)?;
    Ok(ObjectMeta {
        name: slim.name,
        namespace: slim.namespace,
        uid: slim.uid,
        resource_version: slim.resource_version,
        generation: slim.generation,
        creation_timestamp: slim.creation_timestamp.map(Time),
        finalizers: slim.finalizers.filter(|_| slim.deletion_timestamp.is_some()),
        deletion_timestamp: slim.deletion_timestamp.map(Time),
        deletion_grace_period_seconds: slim.deletion_grace_period_seconds,
        labels: slim.labels,
        annotations: slim.annotations,
        owner_references: slim.owner_references,
        ..ObjectMeta::default()
    })
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct SlimCondition {
    #[serde(rename = "type")]
    pub(super) type_: String,
    pub(super) status: String,
    pub(super) reason: Option<String>,
    pub(super) message: Option<String>,
    pub(super) last_transition_time: LenientTime,
}

impl SlimCondition {
    pub(super) fn fact(&self, intern: &Intern) -> NodeCondition {
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
#[serde(default, rename_all = "camelCase")]
pub(super) struct SlimPodSpec {
    pub(super) node_name: Option<String>,
    pub(super) service_account_name: Option<String>,
    pub(super) init_containers: Vec<SlimContainer>,
    pub(super) affinity: SlimAffinity,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct SlimAffinity {
    pub(super) pod_anti_affinity: serde_json::Map<String, Value>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct SlimContainer {
    pub(super) name: String,
}

/// Says which time of a condition is ignored.
pub(super) fn ignored_time(conditions: &[SlimCondition]) -> Option<String> {
    conditions.iter().find_map(|condition| {
        let text = condition.last_transition_time.ignored.as_deref()?;
        let type_ = shorten(&condition.type_, MAX_NAME);
        Some(format!(
            "lastTransitionTime of condition {type_} is ignored: {text:?} is not a time before 9999-12-31"
        ))
    })
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

pub(super) fn owner(meta: &ObjectMeta) -> Option<&OwnerReference> {
    let mut owners = meta.owner_references.iter().flatten();
    // The API server admits only one owner with `controller: true`.
    owners.find(|owner| owner.controller.unwrap_or_default())
}
