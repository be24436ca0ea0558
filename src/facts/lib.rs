//! What refit keeps of each object: a few hundred bytes instead of the object. A change that leaves the facts equal,
//! such as a heartbeat, causes no decision.

#![forbid(unsafe_code)]

mod condition;
mod condition_change;
mod drain_finding;
pub mod labelled_job;
mod missing;
mod node;
pub mod objects;
mod pod;
pub mod read;
pub mod record;
pub mod store;
mod taint;
mod watched;
pub mod words;

use std::sync::Arc;

use jiff::Timestamp;

use refit_api::names::ANNOTATION_NOTIFIED;
use refit_api::{Notified, Plan, PlanStatus};
use refit_base::version::policy::Offered;
use refit_job::name::RunId;

pub use condition::NodeCondition;
pub use condition_change::{ConditionChange, ConditionText};
pub use drain_finding::DrainFinding;
pub use missing::{Missing, PlanNeed};
pub use node::{Labels, NodeFacts};
pub use pod::{PodFacts, PodStage, RebootPod, SentinelResult, Termination};
pub use record::{Phase, Reboot, Record};
pub use refit_api::ids::{BootId, Hash, JobName, JobUid, NodeName, NodeUid, PlanName, PlanUid, PodUid, Text};
pub use taint::Taint;
pub use watched::Watched;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobOutcome {
    /// Not finished.
    Running,
    /// Condition `FailureTarget` but not yet `Failed`: a pod still exists.
    Failing { reason: String, message: String },
    /// Condition `Complete`.
    Complete {
        /// When the condition was set.
        at: Timestamp,
    },
    /// Condition `Failed`.
    Failed {
        /// When the condition was set.
        at: Timestamp,
        reason: String,
        message: String,
    },
}

impl JobOutcome {
    /// When the Job ended.
    pub fn ended(&self) -> Option<Timestamp> {
        match self {
            Self::Running | Self::Failing { .. } => None,
            Self::Complete { at } | Self::Failed { at, .. } => Some(*at),
        }
    }
}

/// Facts of a Job that has the label of this controller.
#[derive(Clone, Debug, PartialEq)]
pub struct JobFacts {
    /// `metadata.name`.
    pub name: JobName,
    pub uid: JobUid,
    /// Plan, from the label.
    pub plan: PlanName,
    /// UID of the Plan, from the annotation or the controlling ownerReference.
    pub plan_uid: PlanUid,
    /// Node, from the annotation, or else from the label, which has a short form of names with more than 63 bytes.
    pub node: NodeName,
    /// UID of the node. Absent on Jobs of system-upgrade-controller.
    pub node_uid: Option<NodeUid>,
    /// Hash of the Plan for which the Job runs.
    pub hash: Hash,
    /// Version for which the Job runs.
    pub version: Text,
    /// Digest of the user's part of the template. Absent on Jobs of system-upgrade-controller.
    pub inputs: Option<Text>,
    /// Number of the attempt, from 1.
    pub attempt: i64,
    /// `spec.parallelism`.
    pub parallelism: i32,
    /// `spec.backoffLimit`.
    pub backoff_limit: i32,
    /// Number of failed pods, from `status`.
    pub failures: i32,
    /// TTL in seconds that the Job gets when its result is recorded.
    pub ttl: i64,
    /// Whether the result is recorded. Such a Job is never adopted.
    pub recorded: bool,
    /// Whether `metadata.deletionTimestamp` is set, or a delete request of refit has succeeded.
    pub deleting: bool,
    pub outcome: JobOutcome,
    /// `metadata.creationTimestamp`.
    pub created: Timestamp,
    /// Value of `unschedulable` before a drain that keeps no ledger.
    pub unschedulable_before: Option<bool>,
    /// Whether the Job cordons, drains or reboots, or its Plan was exclusive.
    pub disruptive: bool,
    /// Whether the scheduler keeps its pods off hosts with pods of other Jobs, by the hostname label.
    pub avoids_hosts: bool,
    /// Whether the Job has a `spec.podReplacementPolicy`. refit's Jobs have one, unless the API server drops it.
    pub has_replacement_policy: bool,
    /// Whether the Job ends with a sentinel, so that a reboot may follow.
    pub sentinel: bool,
    /// Whether its node must be verified before it is done.
    pub verify: bool,
    /// What it verifies: the UID of the Job that has upgraded the node. Such a Job upgrades nothing.
    pub verifies: Option<Text>,
    /// Boot IDs of the node under this Job, beginning with the one at its creation. Empty if none were recorded.
    pub boots: Box<[BootId]>,
    /// The value of the label `refit.rs/hook`: the Job runs once for each roll-out, and belongs to no node.
    pub hook: Option<Text>,
}

impl JobFacts {
    /// Boots of a Job that are read. The third one is a failure already.
    pub const MAX_BOOTS: usize = 16;

    /// Whether system-upgrade-controller created the Job.
    pub fn is_made_by_suc(&self) -> bool {
        self.node_uid.is_none() && self.hook.is_none()
    }

    /// Whether the cordon or drain in the Job is refit's own, which keeps a ledger. That of system-upgrade-controller,
    /// and kubectl on Windows nodes, keeps none.
    pub fn keeps_ledger(&self) -> bool {
        !self.is_made_by_suc() && self.unschedulable_before.is_none()
    }

    /// Whether a pod of the Job may be running.
    pub fn is_live(&self) -> bool {
        matches!(self.outcome, JobOutcome::Running | JobOutcome::Failing { .. })
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlanFacts {
    /// `metadata.name`.
    pub name: PlanName,
    pub uid: PlanUid,
    /// The Plan without `managedFields`, which differ after every write. If `malformed` is set, its spec is empty.
    pub object: Plan,
    /// Why the spec cannot be parsed.
    pub malformed: Option<String>,
}

impl PlanFacts {
    pub fn status(&self) -> &PlanStatus {
        self.object.stored_status()
    }

    pub fn namespace(&self) -> &str {
        self.object.metadata.namespace.as_deref().unwrap_or_default()
    }

    pub fn annotation(&self, key: &str) -> Option<&str> {
        let annotations = self.object.metadata.annotations.as_ref()?;
        annotations.get(key).map(String::as_str)
    }

    /// The notifications that were sent, as stored.
    pub fn notified(&self) -> Notified {
        self.annotation(ANNOTATION_NOTIFIED)
            .map(Notified::parse)
            .unwrap_or_default()
    }

    /// `metadata.generation`.
    pub fn generation(&self) -> i64 {
        self.object.metadata.generation.unwrap_or_default()
    }

    /// The record of the Plan on a node. One of an earlier Plan or node with the same name is void.
    pub fn record<'n>(&self, node: &'n NodeFacts) -> Option<&'n Record> {
        let record = node.records.get(&self.name)?;
        (record.plan_uid == self.uid && record.node_uid == node.uid).then_some(record)
    }

    /// What the names of objects on a node depend on.
    pub fn run_id<'a>(&'a self, node: &'a NodeFacts, upgrade: &'a str) -> RunId<'a> {
        RunId {
            plan: &self.name,
            plan_uid: &self.uid,
            node: &node.name,
            node_uid: &node.uid,
            upgrade,
        }
    }

    /// Whether `metadata.deletionTimestamp` is set.
    pub fn is_deleting(&self) -> bool {
        self.object.metadata.deletion_timestamp.is_some()
    }
}

/// Facts of a Secret that a Plan names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretFacts {
    /// It exists, but its content at this version has not been read.
    Unread,
    /// Its hash (S42).
    Hash(String),
    /// The API server says that it does not exist. A Secret that is merely unknown is not `Missing`: it may have been
    /// created just before the Plan, and the two watches report them in any order.
    Missing,
}

/// Facts of a controller whose pods were evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkloadFacts {
    /// When it was read.
    pub seen: Timestamp,
    /// `status.readyReplicas`.
    pub ready: i32,
    /// `spec.replicas`; 0 if the controller no longer exists.
    pub wanted: i32,
    /// How many were ready before the drain, if its account could read that.
    pub before: Option<i32>,
}

impl WorkloadFacts {
    /// Whether as many pods are ready as before the drain, or as many as are wanted.
    pub fn is_available(&self) -> bool {
        self.ready >= self.before.map_or(self.wanted, |before| before.min(self.wanted))
    }
}

/// The result of polling a channel.
#[derive(Clone, Debug, PartialEq)]
pub struct ChannelFacts {
    /// When it was last polled.
    pub polled: Timestamp,
    /// Number of consecutive failures.
    pub failures: u32,
    /// The last usable response.
    pub offer: Option<Arc<Offered>>,
    /// Why the last response was not usable.
    pub error: Option<String>,
}

/// Whether the served CRD has refit's fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Schema {
    /// Not known yet: nothing is written and no node starts.
    #[default]
    Unknown,
    /// It has them, as far as refit knows.
    Current,
    /// It lacks these fields: nothing is written and no node starts.
    Outdated(String),
}
