//! What a decision asks for. Each step is one object to write or one question to ask; the steps of a decision need no
//! order among themselves.

use std::collections::BTreeMap;

use jiff::SignedDuration;

use super::event::Event;
use super::facts::Text;
use crate::api::PlanStatus;
use crate::channel::Named;

/// What a step is about. At most one step per key is under way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// Status of a Plan.
    Plan(Text),
    /// The note on a Plan about its fields.
    Fields(Text),
    /// What is told about a Plan that cannot be written.
    Told(Text),
    /// A Node.
    Node(Text),
    /// A Job that there is.
    Job(Text),
    /// The next Job of a Plan on a node, whatever its name.
    NextJob(Text, Text),
    /// A pod that reboots its node.
    Pod(Text),
    /// A Secret.
    Secret(Text),
    /// A controller whose pods were evicted.
    Workload(Text),
    /// A channel.
    Channel(Named),
    /// What a tag of an image of a Plan stands for.
    Digest(Text, String),
    /// What the controller may do.
    Permissions,
    /// All Plans.
    Plans,
}

/// Changes to a Node that belong together: they are one patch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeChange {
    /// Labels to set, or with `None` to remove.
    pub labels: BTreeMap<String, Option<String>>,
    /// Annotations to set, or with `None` to remove.
    pub annotations: BTreeMap<String, Option<String>>,
    /// `spec.unschedulable` to set.
    pub unschedulable: Option<bool>,
    /// The change was worked out from what the node was: it must not have changed since.
    pub exact: bool,
}

impl NodeChange {
    /// Nothing to do.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.annotations.is_empty() && self.unschedulable.is_none()
    }
}

/// How long after the end of its Job a mark that nobody waits for can wait.
pub const MARK_WAITS: SignedDuration = SignedDuration::from_secs(60);

/// One thing to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Patch the status of a Plan, in the version that the decision saw; before that, write the events.
    WriteStatus {
        /// The Plan.
        plan: Text,
        /// The status as it should be.
        status: Box<PlanStatus>,
        /// What the change means, in words.
        events: Vec<Event>,
    },
    /// Note on a Plan which of our own fields it uses.
    NoteFields {
        /// The Plan.
        plan: Text,
        /// Value of the annotation `refit.rs/fields`; `None` removes it.
        note: Option<String>,
    },
    /// Write events about a Plan, and nothing else.
    Tell {
        /// The Plan.
        plan: Text,
        /// What there is to tell.
        events: Vec<Event>,
    },
    /// Make the Job of a node that status says is applying.
    CreateJob {
        /// The Plan.
        plan: Text,
        /// The node.
        node: Text,
        /// Name of the Job.
        job: Text,
        /// Which attempt, from 1.
        attempt: i64,
    },
    /// Find out whether a Job is there that was asked for and of which no answer has told.
    LookForJob {
        /// The Plan.
        plan: Text,
        /// The node.
        node: Text,
        /// Name of the Job.
        job: Text,
    },
    /// Delete a Job with its pods (propagation Background).
    DeleteJob {
        /// The Job.
        job: Text,
        /// Its UID.
        uid: Text,
        /// Only if, read once more, no pod of it is bound to a node.
        only_unbound: bool,
        /// Why, for the log.
        why: &'static str,
    },
    /// Let a Job run that system-upgrade-controller left at parallelism 0.
    ReleaseJob {
        /// The Job.
        job: Text,
        /// Its UID.
        uid: Text,
    },
    /// Let no further pod of a Job follow when the one that runs fails. In the version that the decision saw: a limit below
    /// the failures that there are ends the Job at once, whatever its pod is at.
    EndRetries {
        /// The Job.
        job: Text,
        /// Its UID.
        uid: Text,
        /// `spec.backoffLimit`: the failures that the Job has, or less to end it.
        limit: i32,
    },
    /// Note on a Job the boots that its node was seen in. In the version that the decision saw.
    NoteBoots {
        /// The Job.
        job: Text,
        /// Its UID.
        uid: Text,
        /// Boot IDs, the first one first.
        boots: Vec<Text>,
    },
    /// Make the pod that reboots a node, or asks it in which boot its upgrade succeeded.
    CreatePod {
        /// The Plan.
        plan: Text,
        /// The node.
        node: Text,
        /// Name of the pod.
        pod: Text,
        /// Hash that the node was upgraded to.
        hash: Text,
        /// The boot that is to end; without one the pod only asks.
        boot_id: Option<Text>,
        /// How many seconds it has.
        seconds: i64,
    },
    /// Delete a pod that reboots a node.
    DeletePod {
        /// The pod.
        pod: Text,
        /// Its UID.
        uid: Text,
        /// Why, for the log.
        why: &'static str,
    },
    /// Say on a Job that its result is recorded, and let its TTL run from now; before that, write the event.
    MarkRecorded {
        /// The Job.
        job: Text,
        /// Its UID.
        uid: Text,
        /// `spec.ttlSecondsAfterFinished`, which Kubernetes counts from when the Job finished.
        ttl_seconds: i32,
        /// What it means, in words.
        events: Vec<Event>,
        /// Nobody waits for it: the node has been told.
        may_wait: bool,
    },
    /// Patch a Node; before that, write the events.
    PatchNode {
        /// The Node.
        node: Text,
        /// Its UID.
        uid: Text,
        /// What to change.
        change: NodeChange,
        /// What it means, in words.
        events: Vec<Event>,
    },
    /// Ask a channel.
    Poll {
        /// The channel.
        channel: Named,
        /// The version that a Plan of it has now.
        latest_version: Option<String>,
        /// Plans that a person has had ask at once, and the values of their annotations.
        asked_by: BTreeMap<Text, String>,
    },
    /// Ask a registry what the tag of an image stands for.
    ReadDigest {
        /// The Plan.
        plan: Text,
        /// Its hash, at which that is asked once.
        hash: Text,
        /// The image, with its tag.
        image: String,
        /// The secrets with which it is pulled.
        access: Named,
    },
    /// Read a Secret and tell its hash.
    ReadSecret {
        /// Its name.
        name: Text,
    },
    /// Read how many pods of a controller are ready.
    ReadWorkload {
        /// Its kind, namespace and name, with `/` between.
        workload: Text,
    },
    /// Ask what the controller may do.
    AskPermissions,
    /// Begin the watch of Plans anew, so that all of them are read again.
    ReadPlans,
}

/// In which queue a step stands, where not all can be under way at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    /// Nodes wait for it to begin.
    Start,
    /// Goes on with what has begun.
    Work,
    /// Asks somebody else than the API server, who may take long.
    Outside,
}

impl Step {
    /// Where the step stands.
    pub fn lane(&self) -> Lane {
        match self {
            Self::WriteStatus { .. }
            | Self::CreateJob { .. }
            | Self::LookForJob { .. }
            | Self::ReleaseJob { .. } => Lane::Start,
            Self::Poll { .. } | Self::ReadDigest { .. } => Lane::Outside,
            _ => Lane::Work,
        }
    }

    /// Nobody waits for it.
    pub fn may_wait(&self) -> bool {
        matches!(self, Self::MarkRecorded { may_wait: true, .. })
    }

    /// A node begins or is done.
    pub fn moves_node(&self) -> bool {
        match self {
            Self::CreateJob { .. } => true,
            Self::PatchNode { change, .. } => !change.labels.is_empty(),
            _ => false,
        }
    }

    /// What the step is about.
    pub fn key(&self) -> Key {
        match self {
            Self::WriteStatus { plan, .. } => Key::Plan(plan.clone()),
            Self::NoteFields { plan, .. } => Key::Fields(plan.clone()),
            Self::Tell { plan, .. } => Key::Told(plan.clone()),
            Self::CreateJob { plan, node, .. } | Self::LookForJob { plan, node, .. } => {
                Key::NextJob(plan.clone(), node.clone())
            }
            Self::DeleteJob { job, .. }
            | Self::ReleaseJob { job, .. }
            | Self::EndRetries { job, .. }
            | Self::NoteBoots { job, .. }
            | Self::MarkRecorded { job, .. } => Key::Job(job.clone()),
            Self::CreatePod { pod, .. } | Self::DeletePod { pod, .. } => Key::Pod(pod.clone()),
            Self::PatchNode { node, .. } => Key::Node(node.clone()),
            Self::Poll { channel, .. } => Key::Channel(channel.clone()),
            Self::ReadDigest { plan, image, .. } => Key::Digest(plan.clone(), image.clone()),
            Self::ReadSecret { name } => Key::Secret(name.clone()),
            Self::ReadWorkload { workload } => Key::Workload(workload.clone()),
            Self::AskPermissions => Key::Permissions,
            Self::ReadPlans => Key::Plans,
        }
    }
}
