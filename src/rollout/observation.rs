//! What the controller learns of the cluster: from watches, and from the responses to its own requests.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::facts::{
    Hash, JobFacts, JobName, JobUid, Missing, NodeFacts, NodeName, NodeUid, PlanFacts, PlanName, PlanUid,
    PodFacts, PodUid, Schema, Text, WorkloadFacts,
};
use crate::channel::ChannelRef;
use crate::version::Offer;

/// A watched kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Nodes.
    Node,
    /// Jobs of this controller.
    Job,
    /// Pods of these Jobs.
    Pod,
    /// Plans.
    Plan,
    /// Secrets of the namespace.
    Secret,
}

/// What a list or a watch has returned, or how it went.
#[derive(Debug)]
pub enum Observation {
    /// A list begins. Objects that it does not contain are removed when it ends.
    ListStarted(Kind),
    /// A list has ended.
    ListFinished(Kind),
    /// A Node, with its resource version.
    Node(u64, Box<NodeFacts>),
    /// An object exists that cannot be read: kind, name, UID and why.
    Unreadable(Kind, Text, Text, String),
    /// A deleted Node: name and UID.
    NodeDeleted(NodeName, NodeUid),
    /// A Job, with its resource version.
    Job(u64, Box<JobFacts>),
    /// A deleted Job: name and UID.
    JobDeleted(JobName, JobUid),
    /// A pod, with its resource version.
    Pod(u64, Box<PodFacts>),
    /// A deleted pod: name and UID.
    PodDeleted(Text, PodUid),
    /// A Plan, with its resource version.
    Plan(u64, Box<PlanFacts>),
    /// A deleted Plan: name and UID.
    PlanDeleted(PlanName, PlanUid),
    /// The metadata of a Secret, with its resource version.
    Secret(u64, Text),
    /// A deleted Secret.
    SecretDeleted(Text),
    /// The served CRD, and its edition: each creation or change is another one.
    Schema(Schema, Text),
    /// This process has just changed the CRD, and an API server may not have loaded it yet.
    SchemaReplaced,
    /// The watch of Plans starts, with a list.
    PlanRelistStarted,
    /// Plans are being listed before the kinds to compare them with. That list only serves to report why nothing
    /// happens.
    PlanListTooEarly,
    /// A list or a watch of this kind is forbidden.
    Forbidden(Kind),
    /// All kinds could be listed after one was forbidden, so a permission was granted.
    PermissionsGranted,
}

impl Observation {
    /// The object that exists, according to this observation.
    pub(super) fn object(&self) -> Option<(Kind, &Text)> {
        match self {
            Self::Node(_, facts) => Some((Kind::Node, facts.name.text())),
            Self::Job(_, facts) => Some((Kind::Job, facts.name.text())),
            Self::Pod(_, facts) => Some((Kind::Pod, &facts.name)),
            Self::Plan(_, facts) => Some((Kind::Plan, facts.name.text())),
            Self::Secret(_, name) => Some((Kind::Secret, name)),
            Self::Unreadable(kind, name, ..) => Some((*kind, name)),
            _ => None,
        }
    }
}

/// What the response to a step says.
#[derive(Debug)]
pub enum StepEffect {
    /// The response contains an object, or says that it no longer exists.
    Observed(Observation),
    /// A delete request for a Job has succeeded: name and UID. The Job is gone once the watch says so, which may have
    /// been earlier.
    JobDeleting(JobName, JobUid),
    /// A delete request for a pod has succeeded: name and UID. The pod is gone once the watch says so.
    PodDeleting(Text, PodUid),
    /// Someone else's Job has the name.
    NameTaken(JobName),
    /// It is not known whether a Job of this name was created.
    CreateUnconfirmed(JobName),
    /// No Job of this name exists.
    JobNotFound(JobName),
    StatusWritten(PlanName),
    /// The API server has dropped refit's own fields of status.
    StatusPruned,
    /// An event with this key was written for this Plan without a status.
    Event(PlanName, String),
    /// Name, resource version and hash of a Secret.
    Secret(Text, u64, String),
    SecretMissing(Text),
    /// The result of polling a channel: which, when, what, and which Plans had requested it.
    Channel(
        ChannelRef,
        Timestamp,
        Result<Offer, String>,
        BTreeMap<PlanName, String>,
    ),
    /// The digest of an image of a Plan, at a hash.
    Digest(PlanName, Hash, String, String),
    /// A controller whose pods were evicted, and its counts.
    Workload(Text, WorkloadFacts),
    Permissions(Missing),
    /// A request was refused because a permission is missing.
    Forbidden,
}
