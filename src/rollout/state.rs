//! The index of facts. Watches and the responses to refit's own writes fill it in the same way. An older version of an
//! object never replaces a newer one, so a slow watch cannot undo what a write returned.

mod apply;
mod index;
mod limits;
mod table;
mod timers;
mod unmarked;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

pub use apply::ListCounts;
pub(super) use apply::UnreadableNode;
use index::Index;
pub(super) use limits::KnownLimits;
pub(super) use table::Table;

use super::event::Event;
use super::known::KnownPlans;
use super::node::Workload;
use super::notified::Unstored;
use super::plan::PlanState;
use super::pod_blockers::PodCheck;
use super::refusal::Refusal;
use super::reservation::Reservations;
use super::step::Key;
use refit_api::names::ControlPlaneRole;
use refit_api::{ChannelRef, Reason};
use refit_facts::{
    ChannelFacts, JobFacts, JobName, JobUid, Missing, NodeFacts, NodeName, NodeUid, PlanFacts, PlanName,
    PlanUid, PodFacts, PodStage, PodUid, Schema, SecretFacts, Text,
};
use refit_job::JobSettings;

/// Settings that all Plans share.
#[derive(Clone, Debug)]
pub struct Defaults {
    /// Namespace of the controller and of its Plans.
    pub namespace: String,
    pub job: JobSettings,
    pub polling_interval: SignedDuration,
    /// How long a node must have been registered to start.
    pub min_node_age: SignedDuration,
    /// Whether images that follow the version must exist before nodes start.
    pub checks_images: bool,
    /// The node on which the controller runs.
    pub own_node: Text,
    /// Zone of `timeZone: Local`.
    pub local_zone: jiff::tz::TimeZone,
    /// Whether nodes can be held by other objects than Plans.
    pub has_front_ends: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepFailure {
    pub message: String,
    /// Whether the cluster refuses the step, so that an early retry would not help.
    pub refused: bool,
}

/// Everything that a decision looks at.
#[derive(Debug)]
pub struct ClusterState {
    pub(super) defaults: Defaults,
    pub(super) nodes: Table<NodeName, NodeUid, NodeFacts>,
    /// By their hostname labels.
    pub(super) nodes_by_hostname: Index<Text, NodeName>,
    /// Hostnames that several Nodes have had at a time. A kubelet may give its Node that of another one in turns.
    shared_hostnames: BTreeSet<Text>,
    /// Nodes that exist and cannot be read. `nodes` has what was known of them before, if anything.
    pub(super) unreadable_nodes: BTreeMap<NodeName, UnreadableNode>,
    pub(super) jobs: Table<JobName, JobUid, JobFacts>,
    pub(super) pods: Table<Text, PodUid, PodFacts>,
    pub(super) plans: BTreeMap<PlanName, PlanState>,
    deleted_plans: table::DeletedUids<PlanUid>,
    plan_lists: u64,
    pub(super) secrets: Table<Text, Text, SecretFacts>,
    /// The Plans that have a Secret in their hash, except those that are being deleted.
    plans_by_secret: Index<Text, PlanName>,
    /// The names of these Secrets. `None` if a Plan has changed since they were collected.
    hashed_secrets: Option<Arc<BTreeSet<Text>>>,
    /// Secrets that may not be listed or watched.
    unwatched_secrets: BTreeSet<Text>,
    pub(super) channels: BTreeMap<ChannelRef, ChannelFacts>,
    schema: Schema,
    /// The edition of the CRD to which `schema` applies.
    edition: Text,
    /// When an API server last dropped refit's fields although the CRD has them.
    pruned: Option<Timestamp>,
    relist: Relist,
    /// Whether lists may lack refit's fields: an API server dropped them, or the CRD was changed at start.
    distrusts_lists: bool,
    /// Key of the last event about why each Plan is not written.
    pub(super) events_sent: BTreeMap<PlanName, String>,
    /// Missing permissions, once checked.
    permissions: Option<Missing>,
    pub(super) failures_by_step: BTreeMap<Key, StepFailure>,
    /// Names of Jobs and pods that belong to others, and when that was seen.
    pub(super) name_conflicts: BTreeMap<Text, Timestamp>,
    /// Jobs whose creation is not confirmed, by Plan and node.
    pub(super) pending_creates: BTreeMap<(PlanName, NodeName), PendingCreate>,
    /// Nodes whose ledger is being written: a cancellation of an earlier Job's drain may be in flight.
    pub(super) ledgers_sent: BTreeSet<NodeName>,
    /// UIDs of deleted Jobs whose result is not recorded yet.
    pub(super) deleted_unrecorded: BTreeSet<JobUid>,
    /// UIDs of Jobs that succeeded, whose nodes are labelled, and whose annotation `refit.rs/recorded` is in flight.
    /// Later changes of their nodes do not concern them.
    pub(super) marking: BTreeSet<JobUid>,
    /// UIDs of Jobs that succeeded, and whose nodes were seen with the label.
    labelled: BTreeSet<JobUid>,
    /// Jobs for which only the annotation `refit.rs/recorded` is missing, by end time and name.
    unmarked: BTreeSet<(Timestamp, JobName)>,
    /// When this state was first looked at, which is when this process began to lead.
    pub(super) started: Option<Timestamp>,
    /// Termination messages of deleted pods, by UID of their Job. When a Job exceeds its deadline, its pods are deleted
    /// before the Job reports the failure.
    termination_messages: BTreeMap<JobUid, String>,
    /// Jobs whose result is not recorded, by Plan name, except those in `unmarked`.
    pub(super) open_jobs: Index<PlanName, JobName>,
    jobs_on: Index<NodeName, JobName>,
    pods_of: Index<JobUid, Text>,
    /// Pods that are bound and have not ended, by node name.
    live_pods_on: Index<NodeName, Text>,
    pub(super) recorded_on: Index<PlanName, NodeName>,
    /// Nodes whose annotation `refit.rs/labelled-jobs` names the Plan.
    pub(super) labelled_on: Index<PlanName, NodeName>,
    pub(super) ledgers: BTreeSet<NodeName>,
    /// Nodes with a taint that says that a Plan of this namespace is still to upgrade them.
    pub(super) pending: BTreeSet<NodeName>,
    /// `None` if there is no Lease to store them: then every holder counts.
    pub(super) known_plans: Option<KnownPlans>,
    /// What holds for all Plans.
    pub(super) limits: KnownLimits,
    /// Notifications that were sent, and are not stored yet.
    pub(super) notified: Unstored,
    /// Nodes that are not Ready or are cordoned.
    pub(super) unavailable: BTreeSet<NodeName>,
    /// Nodes with each role of the control plane.
    pub(super) control_plane: BTreeMap<ControlPlaneRole, BTreeSet<NodeName>>,
    /// Nodes whose member of etcd is not Ready, as its pod says; `None` before the pods were read.
    pub(super) etcd_down: Option<BTreeSet<NodeName>>,
    /// The version of the API server, once it is known.
    pub(super) api_server_version: Option<Text>,
    /// Nodes of the control plane that were deleted a short time ago: their machines may still be members of etcd, and
    /// may register again.
    departed: BTreeMap<ControlPlaneRole, BTreeSet<NodeName>>,
    pub(super) reboot_pods: BTreeSet<Text>,
    /// Plan and UID of the node: this process has given the slot, and has created no Job since.
    pub(super) unstarted_slots: BTreeSet<(PlanName, NodeUid)>,
    timers: timers::Timers,
    /// The nodes that other objects than Plans want; `None` before a front end has reported them.
    pub(super) reservations: Option<Reservations>,
    /// The objects that may take the nodes that they want, by UID. Their front end may be about to cordon the node, so
    /// this is not taken back while they want it.
    pub(super) granted: BTreeMap<NodeName, Text>,
    /// Whether the API server keeps `spec.podReplacementPolicy` of Jobs, by the Job of refit that was seen last.
    pub(super) keeps_replacement_policy: Option<bool>,
    /// Controllers whose pods were evicted, as far as they were read.
    pub(super) workloads: BTreeMap<Text, Workload>,
    /// Why the API server refuses the pods of Jobs.
    pub(super) refusals: BTreeMap<JobUid, Refusal>,
    /// What was seen of pods for which nodes wait.
    pub(super) pod_checks: BTreeMap<(PlanName, NodeName), PodCheck>,
}

/// A Job whose creation is not confirmed.
#[derive(Debug)]
pub(super) struct PendingCreate {
    pub(super) job: JobName,
    /// UIDs of the Plan and of the machine.
    pub(super) plan_uid: PlanUid,
    pub(super) node_uid: NodeUid,
    /// Whether the Job disrupts its node, even if the Plan has changed.
    pub(super) disruptive: bool,
    /// Whether the request is in flight.
    pub(super) in_flight: bool,
    /// Whether no response has said if the Job exists.
    pub(super) unknown: bool,
}

/// Whether Plans were read with all their fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relist {
    /// They were, as far as refit knows.
    Done,
    /// They may lack refit's fields and must be listed again.
    Due,
    /// A list was requested.
    Asked,
    /// They are being listed.
    Running,
}

/// Why no Plan is written and no node starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteBlock<'a> {
    /// The served CRD lacks fields.
    Outdated {
        missing: &'a str,
        /// When to try again, if the CRD itself has the fields.
        until: Option<Timestamp>,
    },
    /// The CRD, the limits for all Plans, or the Plans must be read first.
    Unread {
        /// Whether that must still be requested.
        ask: bool,
    },
}

/// Number of hostnames at which those that are not shared any more are forgotten. A kubelet may give its Node one
/// hostname after another, and the set would grow without limit.
const MAX_SHARED_HOSTNAMES: usize = 1_024;

/// How long refit writes nothing after an API server dropped its fields, unless the CRD changes. The API servers of a
/// cluster load a new CRD one after the other.
const PRUNED_PAUSE: SignedDuration = SignedDuration::from_secs(10);

impl ClusterState {
    pub fn new(defaults: Defaults) -> Self {
        Self {
            defaults,
            nodes: Table::default(),
            nodes_by_hostname: Index::default(),
            shared_hostnames: BTreeSet::new(),
            unreadable_nodes: BTreeMap::new(),
            jobs: Table::default(),
            pods: Table::default(),
            plans: BTreeMap::new(),
            deleted_plans: table::DeletedUids::default(),
            plan_lists: 0,
            secrets: Table::default(),
            plans_by_secret: Index::default(),
            hashed_secrets: None,
            unwatched_secrets: BTreeSet::new(),
            channels: BTreeMap::new(),
            schema: Schema::Unknown,
            edition: "".into(),
            pruned: None,
            relist: Relist::Done,
            distrusts_lists: false,
            events_sent: BTreeMap::new(),
            permissions: None,
            failures_by_step: BTreeMap::new(),
            name_conflicts: BTreeMap::new(),
            termination_messages: BTreeMap::new(),
            pending_creates: BTreeMap::new(),
            ledgers_sent: BTreeSet::new(),
            deleted_unrecorded: BTreeSet::new(),
            marking: BTreeSet::new(),
            labelled: BTreeSet::new(),
            unmarked: BTreeSet::new(),
            started: None,
            open_jobs: Index::default(),
            jobs_on: Index::default(),
            pods_of: Index::default(),
            live_pods_on: Index::default(),
            recorded_on: Index::default(),
            labelled_on: Index::default(),
            ledgers: BTreeSet::new(),
            pending: BTreeSet::new(),
            known_plans: None,
            limits: KnownLimits::default(),
            notified: Unstored::new(),
            unavailable: BTreeSet::new(),
            control_plane: BTreeMap::new(),
            etcd_down: None,
            api_server_version: None,
            departed: BTreeMap::new(),
            reboot_pods: BTreeSet::new(),
            unstarted_slots: BTreeSet::new(),
            timers: timers::Timers::default(),
            reservations: None,
            granted: BTreeMap::new(),
            keeps_replacement_policy: None,
            workloads: BTreeMap::new(),
            refusals: BTreeMap::new(),
            pod_checks: BTreeMap::new(),
        }
    }

    pub fn plan(&self, name: &str) -> Option<&PlanFacts> {
        self.plans.get(name).map(|p| &p.facts)
    }

    pub fn node(&self, name: &str) -> Option<&NodeFacts> {
        self.nodes.get(name)
    }

    pub fn job(&self, name: &str) -> Option<&JobFacts> {
        self.jobs.get(name)
    }

    /// Whether another Node has the same hostname by its label, or has had it.
    pub fn shares_hostname(&self, node: &NodeFacts) -> bool {
        self.shared_hostnames.contains(node.hostname())
    }

    pub(super) fn add_hostname(&mut self, hostname: &Text, node: &NodeName) {
        self.nodes_by_hostname.add(hostname, node);
        if self.nodes_by_hostname.of(hostname).nth(1).is_some() {
            if self.shared_hostnames.len() >= MAX_SHARED_HOSTNAMES {
                let hosts = &self.nodes_by_hostname;
                self.shared_hostnames
                    .retain(|host| hosts.of(host).nth(1).is_some());
            }
            self.shared_hostnames.insert(hostname.clone());
        }
    }

    /// The resource version of the known Plan.
    pub fn plan_version(&self, name: &str) -> Option<u64> {
        self.plans.get(name).map(|p| p.version)
    }

    /// The resource version of the known Node.
    pub fn node_version(&self, name: &str) -> Option<u64> {
        self.nodes.version(name)
    }

    /// The resource version of the known Job.
    pub fn job_version(&self, name: &str) -> Option<u64> {
        self.jobs.version(name)
    }

    /// The resource version of the known Secret.
    pub fn secret_version(&self, name: &str) -> Option<u64> {
        self.secrets.version(name)
    }

    /// The hash and the version of a Plan, once resolved.
    pub fn target(&self, plan: &str) -> Option<(&str, &str)> {
        let resolved = self.plans.get(plan)?.resolved.as_ref()?;
        Some((&resolved.version, &resolved.hash))
    }

    /// The Plan's inputs of its Jobs.
    pub fn job_input(&self, plan: &str) -> Option<refit_job::PlanInput<'_>> {
        self.plans.get(plan).map(|p| p.job_input(&self.defaults))
    }

    /// Whether pods must be watched: a Job is not recorded, a pod may still run on a node, or a node must reboot.
    pub fn has_work_on_nodes(&self) -> bool {
        let is_rebooted = |(plan, nodes): (&PlanName, &BTreeSet<NodeName>)| {
            let records = nodes
                .iter()
                .filter_map(|node| self.nodes.get(node)?.records.get(plan));
            records.into_iter().any(|record| record.reboot.is_some())
        };
        !self.open_jobs.is_empty()
            || !self.live_pods_on.is_empty()
            || !self.reboot_pods.is_empty()
            || self.recorded_on.iter().any(is_rebooted)
    }

    pub fn job_settings(&self) -> &JobSettings {
        &self.defaults.job
    }

    /// The digest of the user's part of the template of a Plan.
    pub fn inputs(&self, plan: &str) -> Option<&str> {
        self.plans.get(plan).map(|p| &*p.inputs)
    }

    pub fn plan_names(&self) -> impl Iterator<Item = &PlanName> {
        self.plans.keys()
    }

    /// All Jobs of this controller that upgrade the node of this name.
    pub(super) fn jobs_on(&self, node: &str) -> impl Iterator<Item = &JobFacts> {
        self.all_jobs_on(node).filter(|job| job.verifies.is_none())
    }

    /// All Jobs of this controller that verify the node.
    pub(super) fn verify_jobs_on(&self, node: &str) -> impl Iterator<Item = &JobFacts> {
        self.all_jobs_on(node).filter(|job| job.verifies.is_some())
    }

    /// All Jobs of this controller for the node.
    pub(super) fn all_jobs_on(&self, node: &str) -> impl Iterator<Item = &JobFacts> {
        self.jobs_on.of(node).filter_map(|job| self.jobs.get(job))
    }

    /// The pods that the Job controls. Only those on its node count: what happens elsewhere says nothing about it.
    pub(super) fn pods_of(&self, job: &JobFacts) -> impl Iterator<Item = &PodFacts> {
        let pods = self.pods_of.of(&job.uid).filter_map(|pod| self.pods.get(pod));
        pods.filter(|pod| pod.node.as_ref().is_none_or(|node| *node == job.node))
    }

    /// The termination message of the last container of a failed Job.
    pub(super) fn termination_message(&self, job: &JobFacts) -> Option<&str> {
        let there = self
            .pods_of(job)
            .filter_map(|pod| pod.termination_message.as_deref());
        there
            .last()
            .or_else(|| self.termination_messages.get(&job.uid).map(String::as_str))
    }

    /// The pods of this controller that are bound to a node and have not ended.
    pub(super) fn live_pods_on(&self, node: &str) -> impl Iterator<Item = &PodFacts> {
        self.live_pods_on.of(node).filter_map(|pod| self.pods.get(pod))
    }

    /// All pods of this controller that are bound to a node and have not ended.
    pub(super) fn live_pods(&self) -> impl Iterator<Item = &PodFacts> {
        let pods = self.live_pods_on.iter().flat_map(|(_, pods)| pods);
        pods.filter_map(|pod| self.pods.get(pod))
    }

    /// Whether the served CRD has refit's fields.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The event that says this of a Plan whose status cannot be written: one for each edition of the definition.
    pub(super) fn unwritten_plan_event(&self, plan: &PlanFacts, reason: Reason, text: String) -> Event {
        Event::plan(&plan.name, &plan.uid, reason, text, &self.edition)
    }

    /// That event was the last one of its kind, and the status has not been written since.
    pub(super) fn is_sent(&self, plan: &PlanFacts, event: &Event) -> bool {
        self.events_sent.get(&plan.name) == Some(&event.key)
    }

    /// Why no Plan may be written and no node may start now.
    pub(super) fn write_block(&self, now: Timestamp) -> Option<WriteBlock<'_>> {
        let missing = match &self.schema {
            Schema::Unknown => return Some(WriteBlock::Unread { ask: false }),
            Schema::Outdated(missing) => return Some(WriteBlock::Outdated { missing, until: None }),
            // The definition has every field, but an API server that drops them still serves an older one. This field
            // is in every status, so that server drops it too.
            Schema::Current => "status.observedGeneration",
        };
        let until = self
            .pruned
            .map(|at| at.saturating_add(PRUNED_PAUSE).unwrap_or(Timestamp::MAX));
        if let Some(until) = until.filter(|until| now < *until) {
            let until = Some(until);
            return Some(WriteBlock::Outdated { missing, until });
        }
        // A node may be in use that no Plan may touch.
        let unreported = self.defaults.has_front_ends && self.reservations.is_none();
        if matches!(self.limits, KnownLimits::Unread) || unreported || self.etcd_down.is_none() {
            return Some(WriteBlock::Unread { ask: false });
        }
        // A Plan that was read without refit's fields may lack `suspend`, and a write would store it without them.
        let ask = self.relist == Relist::Due;
        (self.relist != Relist::Done).then_some(WriteBlock::Unread { ask })
    }

    /// Whether to check the controller's permissions.
    pub(super) fn asks_permissions(&self) -> bool {
        let known = self.permissions.as_ref().is_some_and(|missing| {
            // Someone may have granted a missing permission, so it is checked again, with the back-off of a refused
            // step.
            missing.is_empty()
                && (missing.knows_reboots || !self.has_reboots())
                && (missing.knows_workloads || !self.has_workloads())
                && (missing.knows_pods || !self.has_pod_blockers())
        });
        !known && !self.plans.is_empty()
    }

    /// Whether a Plan waits for workloads.
    pub fn has_workloads(&self) -> bool {
        self.plans.values().any(|plan| plan.completion.workloads)
    }

    /// Whether a Plan may reboot nodes.
    pub fn has_reboots(&self) -> bool {
        self.plans.values().any(|plan| plan.spec().has_sentinel())
    }

    /// The permission that the Plan needs and the controller lacks; `None` while permissions are not checked.
    pub(super) fn missing_permission(&self, plan: &PlanState) -> Option<String> {
        let missing = self.permissions.as_ref()?;
        let namespace = &self.defaults.namespace;
        let for_secrets = plan
            .secrets
            .names()
            .iter()
            .filter(|name| self.unwatched_secrets.contains(*name))
            .flat_map(|name| {
                ["list", "watch"].map(|verb| format!("{verb} secrets {name:?} in namespace {namespace}"))
            });
        let for_reboots = missing.for_reboots.iter().filter(|_| plan.spec().has_sentinel());
        let for_workloads = missing.for_workloads.iter().filter(|_| plan.completion.workloads);
        let for_pods = missing.for_pods.iter().filter(|_| !plan.pod_blockers.is_empty());
        let what: Vec<_> = missing
            .for_all
            .iter()
            .chain(for_reboots)
            .chain(for_workloads)
            .chain(for_pods)
            .cloned()
            .chain(for_secrets)
            .collect();
        (!what.is_empty()).then(|| what.join(", "))
    }

    /// Whether the API server has confirmed all permissions that the Plan needs.
    pub(super) fn is_permitted(&self, plan: &PlanState) -> bool {
        let asked = |missing: &Missing| {
            (missing.knows_reboots || !plan.spec().has_sentinel())
                && (missing.knows_workloads || !plan.completion.workloads)
                && (missing.knows_pods || plan.pod_blockers.is_empty())
        };
        self.permissions.as_ref().is_some_and(asked) && self.missing_permission(plan).is_none()
    }

    /// Updates what depends on several facts, before a decision: the version of each Plan, its nodes, and timers.
    pub fn refresh(&mut self, now: Timestamp) {
        self.started.get_or_insert(now);
        for plan_state in self.plans.values_mut() {
            plan_state.refresh(&self.nodes, &self.secrets, &self.channels, &self.defaults, now);
        }
        self.update_timers(now);
    }
}

fn is_live(pod: &PodFacts) -> bool {
    pod.node.is_some() && pod.stage != PodStage::Ended
}
