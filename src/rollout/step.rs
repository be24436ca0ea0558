//! The steps that a decision requests. Each is one write of one object or one query; the order of the steps of a
//! decision does not matter.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::event::Event;
use super::memory::turns::{MaintenanceProgress, MaintenanceTask};
use super::world::maintenances::MaintenanceId;
use refit_api::{ChannelRef, Check, Hook, PlanStatus, PodBlocker};
use refit_facts::{
    BootId, ConditionChange, Hash, JobFacts, JobName, JobUid, NodeFacts, NodeName, NodeUid, PlanName, PodUid,
    Taint, Text,
};

/// The object of a step. At most one step per key is in flight.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    Plan(PlanName),
    /// The annotation `refit.rs/fields` of a Plan.
    Fields(PlanName),
    /// Events about a Plan that cannot be written.
    Events(PlanName),
    Node(NodeName),
    /// The lifecycle conditions of a Node.
    Conditions(NodeName),
    /// An existing Job.
    Job(JobName),
    /// The next Job of a Plan on a node, whatever its name: while it is not known whether one was created, none may be
    /// created under another name.
    NextJob(PlanName, NodeName),
    /// A reboot Pod.
    Pod(Text),
    Secret(Text),
    /// Why a Job has no pod.
    Refusal(JobName),
    /// A controller whose pods were evicted.
    Workload(Text),
    /// The pods for which a node of a Plan waits.
    Pods(PlanName, NodeName),
    /// What keeps remediation operators off a node.
    Remediation(NodeName),
    /// The pods of DaemonSets on an upgraded node.
    DaemonPods(PlanName, NodeName),
    Channel(ChannelRef),
    /// An image of a Plan, of which a registry is asked.
    Digest(PlanName, String),
    /// The check of this name in `spec.checks` of the Plan.
    Check(PlanName, String),
    /// A `NodeMaintenance`.
    Maintenance(MaintenanceId),
    /// The controller's permissions.
    Permissions,
    Plans,
}

/// Changes to a Node that belong together, sent as one patch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeChange {
    /// Labels to set, or with `None` to remove.
    pub labels: BTreeMap<String, Option<String>>,
    /// Annotations to set, or with `None` to remove.
    pub annotations: BTreeMap<String, Option<String>>,
    /// `spec.unschedulable` to set.
    pub unschedulable: Option<bool>,
    /// `spec.taints` to set.
    pub taints: Option<Vec<Taint>>,
    /// Whether the change was computed from the node's state, so that the patch must fail if the node has changed.
    pub exact: bool,
    /// Whether no node and no pod waits for it.
    pub background: bool,
}

impl NodeChange {
    /// One that was computed from the node's state.
    pub(super) fn exact() -> Self {
        Self {
            exact: true,
            ..Self::default()
        }
    }

    /// Sets a label as well, or with `None` removes it.
    pub(super) fn label(mut self, key: impl Into<String>, value: Option<String>) -> Self {
        self.labels.insert(key.into(), value);
        self
    }

    /// Sets an annotation as well, or with `None` removes it.
    pub(super) fn annotate(mut self, key: impl Into<String>, value: Option<String>) -> Self {
        self.annotations.insert(key.into(), value);
        self
    }

    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
            && self.annotations.is_empty()
            && self.unschedulable.is_none()
            && self.taints.is_none()
    }

    /// The merge patch of the Node.
    pub fn body(&self, uid: &str, version: u64) -> Value {
        let mut body = json!({ "metadata": { "uid": uid } });
        let metadata = &mut body["metadata"];
        if self.exact {
            metadata["resourceVersion"] = version.to_string().into();
        }
        for (field, pairs) in [("labels", &self.labels), ("annotations", &self.annotations)] {
            if !pairs.is_empty() {
                metadata[field] = json!(pairs);
            }
        }
        if let Some(unschedulable) = self.unschedulable {
            // kubectl removes the field rather than set it to false.
            body["spec"]["unschedulable"] = json!(unschedulable.then_some(true));
        }
        if let Some(taints) = &self.taints {
            body["spec"]["taints"] = json!(taints);
        }
        body
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Write the events, then patch the status of a Plan at the version that the decision saw.
    WriteStatus {
        plan: PlanName,
        status: Box<PlanStatus>,
        /// Events for the change.
        events: Vec<Event>,
        /// Whether no slot, result or condition changes.
        background: bool,
    },
    /// Update the annotation `refit.rs/fields` of a Plan.
    NoteFields {
        plan: PlanName,
        /// Value of the annotation `refit.rs/fields`; `None` removes it.
        note: Option<String>,
    },
    /// Update the annotation `refit.rs/notified` of a Plan.
    NoteNotified {
        plan: PlanName,
        notified: String,
    },
    /// Write events about a Plan, and nothing else.
    WriteEvents {
        plan: PlanName,
        events: Vec<Event>,
    },
    /// Create the Job of a node that is applying in status.
    CreateJob {
        plan: PlanName,
        node: NodeName,
        job: JobName,
        /// Number of the attempt, from 1.
        attempt: i64,
    },
    /// Create the Job that verifies a node. It has one name for each upgrade, so it may be requested again.
    CreateVerifyJob {
        plan: PlanName,
        node: NodeName,
        job: JobName,
        /// Hash of the upgrade.
        hash: Hash,
        /// Version of the upgrade.
        version: Text,
        /// Number of the attempt, from 1.
        attempt: i64,
        /// UID of the Job that has upgraded the node.
        upgrade_job: Text,
    },
    /// Create the Job that pulls the image of an upgrade on a node that comes next. It has one name for each hash, and
    /// nothing waits for it.
    CreatePrepullJob {
        plan: PlanName,
        node: NodeName,
        job: JobName,
    },
    /// Create the Job of `spec.before` or `spec.after`. It has one name for each attempt, so it may be requested again.
    CreateHookJob {
        plan: PlanName,
        hook: Hook,
        job: JobName,
        /// Number of the attempt, from 1.
        attempt: i64,
    },
    /// Delete a Job with its pods (propagation Background).
    DeleteJob {
        job: JobName,
        uid: JobUid,
        /// Only if a fresh read shows that no pod of it is bound to a node.
        only_unbound: bool,
        /// Reason for the log.
        why: &'static str,
    },
    /// Release a Job that system-upgrade-controller left at parallelism 0.
    ReleaseJob {
        job: JobName,
        uid: JobUid,
    },
    /// Prevent further pods of a Job when the running one fails. Patches at the version that the decision saw, because
    /// a limit below the number of failures ends the Job at once.
    EndRetries {
        job: JobName,
        uid: JobUid,
        /// `spec.backoffLimit`: the number of failures of the Job, or less to end it.
        limit: i32,
    },
    /// Record the boot IDs of the node on a Job. Patches at the version that the decision saw.
    NoteBoots {
        job: JobName,
        uid: JobUid,
        /// Boot IDs in the order in which they were seen.
        boots: Vec<BootId>,
    },
    /// Create the pod that reboots a node, or reads its sentinel.
    CreatePod {
        plan: PlanName,
        node: NodeName,
        pod: Text,
        /// Hash of the upgrade.
        hash: Hash,
        /// The boot to end. Without one, the pod only reads the sentinel.
        boot_id: Option<BootId>,
        /// Time limit in seconds.
        seconds: i64,
        /// Whether a pod that is not refit's has that name, so that it gets a suffix.
        name_is_taken: bool,
    },
    /// Delete a reboot Pod.
    DeletePod {
        pod: Text,
        uid: PodUid,
        /// Reason for the log.
        why: &'static str,
    },
    /// Write the events, then set the annotation `refit.rs/recorded` and the TTL of a Job.
    MarkRecorded {
        job: JobName,
        uid: JobUid,
        /// `spec.ttlSecondsAfterFinished`, which Kubernetes counts from the end of the Job.
        ttl_seconds: i32,
        /// Events for the result.
        events: Vec<Event>,
        /// Whether no node waits for it.
        background: bool,
    },
    /// Write the events, then patch a Node.
    PatchNode {
        node: NodeName,
        uid: NodeUid,
        change: NodeChange,
        /// Events for the change.
        events: Vec<Event>,
    },
    /// Change lifecycle conditions of a Node at the version that the decision saw.
    PatchConditions {
        node: NodeName,
        uid: NodeUid,
        changes: Vec<ConditionChange>,
        /// When that was decided.
        at: Timestamp,
    },
    /// Read something, and change nothing.
    Query(Query),
    Maintain(Box<MaintenanceTurn>),
    Remediation(RemediationStep),
    /// Check the controller's permissions.
    AskPermissions,
    /// Restart the watch of Plans, so that all of them are read again.
    ReadPlans,
}

/// Do for a `NodeMaintenance` what can be done now.
#[derive(Clone, Debug, PartialEq)]
pub struct MaintenanceTurn {
    pub id: MaintenanceId,
    pub task: MaintenanceTask,
    pub progress: Box<MaintenanceProgress>,
}

/// Take or renew the Lease of a node and annotate its Machine, or take both back.
#[derive(Clone, Debug, PartialEq)]
pub struct RemediationStep {
    pub node: NodeName,
    pub uid: NodeUid,
    /// Who holds the Lease.
    pub holder: Text,
    pub pause: bool,
}

/// A request that changes nothing in the cluster.
#[derive(Clone, Debug, PartialEq)]
pub enum Query {
    /// Look up a Job whose creation was not confirmed.
    GetJob {
        plan: PlanName,
        node: NodeName,
        job: JobName,
    },
    /// Poll a channel.
    Poll {
        channel: ChannelRef,
        /// The current version of one of its Plans.
        latest_version: Option<String>,
        /// Plans with a new value of the annotation `refit.rs/poll-now`, and that value.
        asked_by: BTreeMap<PlanName, String>,
    },
    /// Ask the registry of an image whether it exists, and for its digest.
    ReadDigest {
        plan: PlanName,
        /// Hash of the Plan; each image is asked for once per hash.
        hash: Hash,
        /// The image, with its tag.
        image: String,
        /// The Secrets with which the image is pulled.
        access: ChannelRef,
        /// Whether Jobs run the digest, so that no answer is an error. Otherwise it only matters whether the image exists.
        pins: bool,
    },
    /// Ask the server of a check.
    Check { plan: PlanName, check: Box<Check> },
    /// Read a Secret and compute its hash.
    ReadSecret { name: Text },
    /// Read why the API server refuses the pod of a Job.
    ReadRefusal { job: JobName, uid: JobUid },
    /// Read how many pods of a controller are ready.
    ReadWorkload {
        /// Its kind, namespace and name, with `/` between.
        workload: Text,
    },
    /// Read who holds the Lease of a node.
    ReadLease {
        node: NodeName,
        uid: NodeUid,
        /// Whose own Lease is free for it.
        holder: Text,
    },
    /// List the pods for which a node waits.
    ListPods {
        plan: PlanName,
        node: NodeName,
        /// `metadata.generation` of the Plan.
        generation: i64,
        blockers: Arc<[PodBlocker]>,
        /// The arguments of the drain of which to find out whether it would end.
        drain: Option<Vec<String>>,
    },
    /// List the pods of DaemonSets on an upgraded node.
    ListDaemonPods {
        plan: PlanName,
        node: NodeName,
        /// `metadata.generation` of the Plan.
        generation: i64,
        /// Which of them.
        pods: Arc<PodBlocker>,
    },
}

/// The step that changes a Node, as long as it is the same machine.
pub(super) fn patch(node: &NodeFacts, change: NodeChange, events: Vec<Event>) -> Step {
    Step::PatchNode {
        node: node.name.clone(),
        uid: node.uid.clone(),
        change,
        events,
    }
}

/// The queue of a step. Each has its own limit of requests in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// A node or a user waits for it.
    Interactive,
    /// Nothing waits for it: it runs while the API server has room.
    Background,
    /// A request to another server than the API server, which may be slow.
    External,
    /// A request to the server of a check, which may hang, and be asked often.
    Check,
    /// Secrets that Plans name, which may be many: their Plans wait for them, and no other.
    Secrets,
    /// Drains for maintenances, which take half a minute each, and mostly wait.
    Drain,
}

impl Step {
    /// Deletes a Job, also while its pods run.
    pub(super) fn delete(job: &JobFacts, why: &'static str) -> Self {
        Self::DeleteJob {
            job: job.name.clone(),
            uid: job.uid.clone(),
            only_unbound: false,
            why,
        }
    }

    /// Sets the annotation `refit.rs/recorded` on a finished Job, and starts its TTL.
    pub(super) fn record(job: &JobFacts, events: Vec<Event>, now: Timestamp) -> Self {
        let at = job.outcome.ended().unwrap_or(now);
        // Kubernetes counts the TTL from the end of the Job, which may be long ago after an outage of the controller.
        // The Job should be kept for its TTL from now on.
        let past = now.duration_since(at).max(SignedDuration::ZERO).as_secs();
        Self::MarkRecorded {
            job: job.name.clone(),
            uid: job.uid.clone(),
            ttl_seconds: i32::try_from(past.saturating_add(job.ttl.max(0))).unwrap_or(i32::MAX),
            events,
            background: false,
        }
    }

    /// The same, if it records a Job for which no node waits.
    pub(super) fn in_background(mut self) -> Self {
        if let Self::MarkRecorded { background, .. } = &mut self {
            *background = true;
        }
        self
    }

    pub fn lane(&self) -> Lane {
        match self {
            Self::WriteStatus { background: true, .. } | Self::MarkRecorded { background: true, .. } => {
                Lane::Background
            }
            Self::PatchNode { change, .. } if change.background => Lane::Background,
            Self::CreatePrepullJob { .. } | Self::PatchConditions { .. } => Lane::Background,
            Self::Query(Query::Poll { .. } | Query::ReadDigest { .. }) => Lane::External,
            Self::Query(Query::Check { .. }) => Lane::Check,
            Self::Query(Query::ReadSecret { .. }) => Lane::Secrets,
            Self::Maintain(_) => Lane::Drain,
            _ => Lane::Interactive,
        }
    }

    pub fn key(&self) -> Key {
        match self {
            Self::WriteStatus { plan, .. } => Key::Plan(plan.clone()),
            // One after the other, because they patch the same object.
            Self::NoteFields { plan, .. } | Self::NoteNotified { plan, .. } => Key::Fields(plan.clone()),
            Self::WriteEvents { plan, .. } => Key::Events(plan.clone()),
            Self::CreateJob { plan, node, .. } | Self::Query(Query::GetJob { plan, node, .. }) => {
                Key::NextJob(plan.clone(), node.clone())
            }
            Self::CreateVerifyJob { job, .. }
            | Self::CreatePrepullJob { job, .. }
            | Self::CreateHookJob { job, .. }
            | Self::DeleteJob { job, .. }
            | Self::ReleaseJob { job, .. }
            | Self::EndRetries { job, .. }
            | Self::NoteBoots { job, .. }
            | Self::MarkRecorded { job, .. } => Key::Job(job.clone()),
            Self::CreatePod { pod, .. } | Self::DeletePod { pod, .. } => Key::Pod(pod.clone()),
            Self::PatchNode { node, .. } => Key::Node(node.clone()),
            Self::PatchConditions { node, .. } => Key::Conditions(node.clone()),
            Self::Query(Query::Poll { channel, .. }) => Key::Channel(channel.clone()),
            Self::Query(Query::ReadDigest { plan, image, .. }) => Key::Digest(plan.clone(), image.clone()),
            Self::Query(Query::Check { plan, check }) => Key::Check(plan.clone(), check.name.clone()),
            Self::Query(Query::ReadSecret { name }) => Key::Secret(name.clone()),
            Self::Query(Query::ReadRefusal { job, .. }) => Key::Refusal(job.clone()),
            Self::Query(Query::ReadWorkload { workload }) => Key::Workload(workload.clone()),
            Self::Query(Query::ListPods { plan, node, .. }) => Key::Pods(plan.clone(), node.clone()),
            Self::Remediation(RemediationStep { node, .. }) | Self::Query(Query::ReadLease { node, .. }) => {
                Key::Remediation(node.clone())
            }
            Self::Query(Query::ListDaemonPods { plan, node, .. }) => {
                Key::DaemonPods(plan.clone(), node.clone())
            }
            Self::Maintain(turn) => Key::Maintenance(turn.id.clone()),
            Self::AskPermissions => Key::Permissions,
            Self::ReadPlans => Key::Plans,
        }
    }
}
