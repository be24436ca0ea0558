//! What is known of each object: a few hundred bytes, not the object. Two versions of an object that give equal facts are
//! the same to a decision, so that a heartbeat wakes nobody.

mod pod;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::record::{Ledger, Record};
use crate::api::{Plan, PlanStatus};
use crate::version::policy::Offered;

pub use pod::{Found, PodFacts, RebootPod, Stage};

/// A name, UID or label, shared between the facts that mention it.
pub type Text = Arc<str>;

/// Labels, sorted by key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels(Box<[(Text, Text)]>);

impl Labels {
    /// Labels from pairs in any order; of equal keys the last one counts.
    pub fn new(pairs: impl IntoIterator<Item = (Text, Text)>) -> Self {
        Self(
            pairs
                .into_iter()
                .collect::<BTreeMap<_, _>>()
                .into_iter()
                .collect(),
        )
    }

    /// The value of a label.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0
            .binary_search_by(|(k, _)| (**k).cmp(key))
            .ok()
            .map(|i| &*self.0[i].1)
    }

    /// The value of the label whose key is `prefix` followed by `rest`.
    pub fn get_joined(&self, prefix: &str, rest: &str) -> Option<&str> {
        let compare = |key: &str| match key.as_bytes().split_at_checked(prefix.len()) {
            Some((head, tail)) => head
                .cmp(prefix.as_bytes())
                .then_with(|| tail.cmp(rest.as_bytes())),
            None => key.as_bytes().cmp(prefix.as_bytes()),
        };
        self.0
            .binary_search_by(|(k, _)| compare(k))
            .ok()
            .map(|i| &*self.0[i].1)
    }

    /// All labels, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(k, v)| (&**k, &**v))
    }
}

/// What is known of a Node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeFacts {
    /// `metadata.name`.
    pub name: Text,
    /// `metadata.uid`: another one means another machine.
    pub uid: Text,
    /// `metadata.labels`.
    pub labels: Labels,
    /// Condition Ready is True.
    pub ready: bool,
    /// `spec.unschedulable`.
    pub unschedulable: bool,
    /// It has the taint of a node that is not ready or cannot be reached.
    pub tainted: bool,
    /// Boot that the node is in, as it says. What else is said here was said in this boot.
    pub boot_id: Text,
    /// Version of its kubelet.
    pub kubelet: Text,
    /// What Plans left on the node, by Plan name.
    pub records: BTreeMap<Text, Record>,
    /// Who cordoned the node, if refit did.
    pub ledger: Option<Ledger>,
    /// A person wants the node to stay cordoned.
    pub keep_cordoned: bool,
    /// Plans that a person wants tried again here, separated by commas, or `*`.
    pub retry: Option<Text>,
}

impl NodeFacts {
    /// What `status.applying` calls the node: its hostname label, else its name (S50).
    pub fn hostname(&self) -> &str {
        self.labels
            .get(crate::api::names::LABEL_HOSTNAME)
            .unwrap_or(&self.name)
    }

    /// Ready, and nothing is left that keeps pods off it for not having been.
    pub fn is_fit(&self) -> bool {
        self.ready && !self.tainted
    }

    /// The node runs Windows, as its label says.
    pub fn is_windows(&self) -> bool {
        self.labels.get(crate::api::names::LABEL_OS) == Some("windows")
    }
}

/// How a Job stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Not finished.
    Running,
    /// Condition `FailureTarget`, not `Failed` yet: its pod is still there.
    Failing {
        /// Reason of the condition.
        reason: String,
        /// Message of the condition.
        message: String,
    },
    /// Condition `Complete`.
    Complete {
        /// When the condition came.
        at: Timestamp,
    },
    /// Condition `Failed`.
    Failed {
        /// When the condition came.
        at: Timestamp,
        /// Reason of the condition.
        reason: String,
        /// Message of the condition.
        message: String,
    },
}

impl Outcome {
    /// When the Job ended.
    pub fn ended(&self) -> Option<Timestamp> {
        match self {
            Self::Running | Self::Failing { .. } => None,
            Self::Complete { at } | Self::Failed { at, .. } => Some(*at),
        }
    }
}

/// What is known of a Job that bears our controller label.
#[derive(Clone, Debug, PartialEq)]
pub struct JobFacts {
    /// `metadata.name`.
    pub name: Text,
    /// `metadata.uid`.
    pub uid: Text,
    /// Plan, by label.
    pub plan: Text,
    /// UID of the Plan, by annotation or controlling ownerReference.
    pub plan_uid: Text,
    /// Node, by annotation, else by label.
    pub node: Text,
    /// UID of the node, absent on Jobs that system-upgrade-controller made.
    pub node_uid: Option<Text>,
    /// Hash that the Job carries out.
    pub hash: Text,
    /// Version that the Job carries out.
    pub version: Text,
    /// Digest of the user's part of the template, absent on Jobs that system-upgrade-controller made.
    pub inputs: Option<Text>,
    /// Which attempt, from 1.
    pub attempt: i64,
    /// `spec.parallelism`.
    pub parallelism: i32,
    /// `spec.backoffLimit`.
    pub backoff_limit: i32,
    /// How many of its pods have failed, as its status counts them.
    pub failures: i32,
    /// Seconds for which the Job is kept once its result is recorded.
    pub ttl: i64,
    /// The result has been recorded: the Job is spent.
    pub recorded: bool,
    /// `metadata.deletionTimestamp` is set, or a delete of ours was answered.
    pub deleting: bool,
    /// How it stands.
    pub outcome: Outcome,
    /// `metadata.creationTimestamp`.
    pub created: Timestamp,
    /// What `unschedulable` was before a drain that keeps no ledger.
    pub unschedulable_before: Option<bool>,
    /// The Job cordons, drains or reboots, or its Plan was exclusive.
    pub disruptive: bool,
    /// It has a sentinel: its success is followed by a reboot, where one is required.
    pub sentinel: bool,
    /// Boots that the node was seen in since the Job is there, the first one when it was made. Empty where nobody noted.
    pub boots: Box<[Text]>,
}

impl JobFacts {
    /// Made by system-upgrade-controller, before the swap.
    pub fn is_foreign_make(&self) -> bool {
        self.node_uid.is_none()
    }

    /// What it cordons or drains with is refit's own, and keeps a ledger: it is not system-upgrade-controller's, and not the
    /// kubectl of a Windows node.
    pub fn keeps_ledger(&self) -> bool {
        !self.is_foreign_make() && self.unschedulable_before.is_none()
    }

    /// A pod of it may be running.
    pub fn is_live(&self) -> bool {
        matches!(self.outcome, Outcome::Running | Outcome::Failing { .. })
    }
}

/// What is known of a Plan.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanFacts {
    /// `metadata.name`.
    pub name: Text,
    /// `metadata.uid`.
    pub uid: Text,
    /// The Plan, without `managedFields` and `resourceVersion`. Where `malformed`, its spec is empty.
    pub object: Plan,
    /// Why the spec cannot be read.
    pub malformed: Option<String>,
}

impl PlanFacts {
    /// The status as stored.
    pub fn status(&self) -> &PlanStatus {
        static NONE: PlanStatus = PlanStatus {
            conditions: Vec::new(),
            latest_version: None,
            latest_hash: None,
            applying: None,
            observed_generation: None,
            nodes: None,
            progress: None,
            active: None,
            channel: None,
            pinned: None,
            next_window: None,
        };
        self.object.status.as_ref().unwrap_or(&NONE)
    }

    /// The value of an annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        let annotations = self.object.metadata.annotations.as_ref()?;
        annotations.get(key).map(String::as_str)
    }

    /// `metadata.generation`.
    pub fn generation(&self) -> i64 {
        self.object.metadata.generation.unwrap_or_default()
    }

    /// `metadata.deletionTimestamp` is set.
    pub fn deleting(&self) -> bool {
        self.object.metadata.deletion_timestamp.is_some()
    }
}

/// What is known of a Secret that a Plan names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretFacts {
    /// It exists, and its content has not been read in this version.
    Unread,
    /// Its hash (S42).
    Hash(String),
    /// It does not exist, as the API server says. Of one that is not known at all that is not said yet: it may have been
    /// made a moment before the Plan, and the watches tell of the two in any order.
    Missing,
}

/// What is known of a controller whose pods were evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkloadFacts {
    /// When it was read.
    pub seen: Timestamp,
    /// `status.readyReplicas`.
    pub ready: i32,
    /// `spec.replicas`. 0 where it is gone.
    pub wanted: i32,
}

impl WorkloadFacts {
    /// All pods that are wanted are ready.
    pub fn is_whole(&self) -> bool {
        self.ready >= self.wanted
    }
}

/// What a channel said.
#[derive(Clone, Debug, PartialEq)]
pub struct ChannelFacts {
    /// When it was asked last.
    pub polled: Timestamp,
    /// How many times in a row it could not be used.
    pub failures: u32,
    /// The last answer that could be used.
    pub offer: Option<Arc<Offered>>,
    /// Why the last answer could not be used.
    pub error: Option<String>,
}

/// What the controller may not do, each a verb and a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// What every Plan takes.
    pub for_all: Vec<String>,
    /// What a Plan takes besides whose hash has Secrets in it.
    pub for_secrets: Vec<String>,
    /// What a Plan takes besides that reboots its nodes.
    pub for_reboots: Vec<String>,
    /// That was asked for at all: not everybody has such Plans.
    pub knows_reboots: bool,
    /// What a Plan takes besides that waits for workloads.
    pub for_workloads: Vec<String>,
    /// That was asked for at all.
    pub knows_workloads: bool,
}

impl Missing {
    /// Nothing is missing.
    pub fn is_empty(&self) -> bool {
        self.for_all.is_empty()
            && self.for_secrets.is_empty()
            && self.for_reboots.is_empty()
            && self.for_workloads.is_empty()
    }
}

/// Whether the served CRD has our fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Schema {
    /// Nobody has said so yet: nothing is written and nothing is started.
    #[default]
    Unknown,
    /// It has, as far as is known.
    Current,
    /// It lacks these: nothing is written and nothing is started.
    Outdated(String),
}
