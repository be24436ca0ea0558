//! What the controller learns of the cluster: from watches, and from the responses to its own requests.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::memory::answers::{DaemonPods, LeaseCheck, PodCheck, Refusal};
use super::memory::turns::MaintenanceProgress;
use super::world::limits::GlobalLimits;
use super::world::maintenances::MaintenanceId;
use refit_api::image::ImageAnswer;
use refit_api::{ChannelRef, Check, CheckAnswer};
use refit_base::version::Offer;
use refit_facts::objects::maintenance::{Maintenance, MaintenanceGroup};
use refit_facts::objects::version;
use refit_facts::store::Change;
use refit_facts::{
    Hash, JobFacts, JobName, JobUid, Missing, NodeFacts, NodeName, NodeUid, PlanFacts, PlanName, PlanUid,
    PodFacts, PodUid, Schema, Text, WorkloadFacts,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Node,
    /// Jobs of this controller.
    Job,
    /// Pods of these Jobs.
    Pod,
    Plan,
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
    /// An object exists that cannot be read.
    Unreadable {
        kind: Kind,
        name: Text,
        uid: Text,
        why: String,
    },
    NodeDeleted(NodeName, NodeUid),
    /// A Job, with its resource version.
    Job(u64, Box<JobFacts>),
    JobDeleted(JobName, JobUid),
    /// A pod, with its resource version.
    Pod(u64, Box<PodFacts>),
    /// A deleted pod: name and UID.
    PodDeleted(Text, PodUid),
    /// A Plan, with its resource version: [`Self::plan`].
    Plan(u64, Box<PlanFacts>),
    PlanDeleted(PlanName, PlanUid),
    /// The metadata of a Secret, with its resource version.
    Secret(u64, Text),
    /// A list of a Secret by its name, at this resource version, did not contain it.
    SecretAbsent(u64, Text),
    SecretDeleted(Text),
    /// Whether a Secret may not be listed or watched.
    SecretForbidden(Text, bool),
    /// The served CRD, and its edition: each creation or change is another one.
    Schema(Schema, Text),
    /// The `ConfigMap` with the limits for all Plans.
    Limits(GlobalLimits),
    /// The nodes whose member of etcd is not Ready: all of them.
    EtcdDown(BTreeSet<NodeName>),
    /// A change of the objects of the kind `NodeMaintenance` of a group.
    Maintenance(MaintenanceGroup, Change<Box<Maintenance>>),
    /// Notifications about a Plan were sent: its name and UID, and their marks.
    Notified(PlanName, PlanUid, Vec<String>),
    /// This process has just changed the CRD, and an API server may not have loaded it yet.
    SchemaReplaced,
    /// The watch of Plans starts, with a list.
    PlanRelistStarted,
    /// Plans are being listed before the kinds to compare them with. That list only serves to report why nothing
    /// happens.
    PlanListTooEarly,
    /// A list, a watch or a write is forbidden. Without any of the kinds, it is unknown which nodes have started.
    Forbidden,
    /// All kinds could be listed after one was forbidden, so a permission was granted.
    PermissionsGranted,
    /// The image that the controller runs from, and the names of its pull secrets.
    OwnImage(String, Vec<String>),
    /// The version of the API server.
    ApiServer(Text),
}

impl Observation {
    /// A Plan as it was read. In the facts, its resource version would make each version a change, and cause a decision.
    pub fn plan(mut facts: PlanFacts) -> Self {
        let version = version(&facts.object.metadata);
        facts.object.metadata.resource_version = None;
        Self::Plan(version, Box::new(facts))
    }

    /// The object that exists, according to this observation.
    pub(super) fn object(&self) -> Option<(Kind, &Text)> {
        match self {
            Self::Node(_, facts) => Some((Kind::Node, facts.name.text())),
            Self::Job(_, facts) => Some((Kind::Job, facts.name.text())),
            Self::Pod(_, facts) => Some((Kind::Pod, &facts.name)),
            Self::Plan(_, facts) => Some((Kind::Plan, facts.name.text())),
            Self::Unreadable { kind, name, .. } => Some((*kind, name)),
            _ => None,
        }
    }
}

#[derive(Debug)]
pub enum StepEffect {
    /// The response contains an object, or says that it no longer exists, or that a permission is missing.
    Observed(Observation),
    /// A delete request for a Job has succeeded: name and UID. The Job is gone once the watch says so, which may have
    /// been earlier.
    JobDeleting(JobName, JobUid),
    /// A delete request for a pod has succeeded: name and UID. The pod is gone once the watch says so.
    PodDeleting(Text, PodUid),
    /// Someone else's Job has the name.
    NameTaken(JobName),
    /// Someone else's pod has the name.
    PodNameTaken(Text),
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
    /// What the registry says about an image of a Plan, at a hash.
    Digest(PlanName, Hash, String, ImageAnswer),
    /// The answer to a check of a Plan, and when it was asked.
    Check(PlanName, Box<Check>, Timestamp, CheckAnswer),
    /// What the events of a Job without a pod say.
    Refusal(JobUid, Refusal),
    /// A controller whose pods were evicted, and its counts.
    Workload(Text, WorkloadFacts),
    /// What was seen of pods for which a node of a Plan waits.
    PodCheck(PlanName, NodeName, PodCheck),
    /// Who holds the Lease of a node.
    Lease(NodeName, LeaseCheck),
    DaemonPods(PlanName, NodeName, DaemonPods),
    Permissions(Missing),
    /// A turn of a maintenance has ended: that of the object with this UID, what was written, and when to look again if nothing
    /// changes before.
    Maintained(MaintenanceId, Text, Box<MaintenanceProgress>, Option<Timestamp>),
}
