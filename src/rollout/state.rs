//! The state of which a decision is made: what is on the cluster ([`World`]), what only this process knows ([`Memory`]), and
//! the Plans with everything that is derived from them.

pub(super) mod apply;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::event::Event;
use super::followers::oldest_followers;
use super::later::later;
use super::memory::Memory;
use super::memory::trusted_plans::TrustedPlans;
use super::plan::DerivedPlan;
use super::settings::Defaults;
use super::targets::TargetState;
use super::world::World;
use super::world::definition::WriteBlock;
use super::world::limits::KnownLimits;
use super::world::maintenances::ReservationDecisions;
use refit_api::{DrainNote, Reason};
use refit_facts::store::{DeletedUids, Listing};
use refit_facts::{
    JobFacts, NodeFacts, NodeName, PlanFacts, PlanName, PlanUid, PodUid, Schema, Taint, Termination, Text,
};
use refit_job::JobSettings;

/// Everything that a decision looks at.
#[derive(Debug)]
pub struct ClusterState {
    pub(super) defaults: Defaults,
    pub(super) world: World,
    pub(super) memory: Memory,
    pub(super) plans: BTreeMap<PlanName, DerivedPlan>,
    deleted_plans: DeletedUids<PlanUid>,
    plan_listing: Listing<PlanName>,
}

impl ClusterState {
    pub fn new(defaults: Defaults) -> Self {
        Self {
            defaults,
            world: World::default(),
            memory: Memory::default(),
            plans: BTreeMap::new(),
            deleted_plans: DeletedUids::default(),
            plan_listing: Listing::default(),
        }
    }

    pub fn plan(&self, name: &str) -> Option<&PlanFacts> {
        self.plans.get(name).map(|p| &*p.facts)
    }

    pub fn node(&self, name: &str) -> Option<&NodeFacts> {
        self.world.nodes.get(name)
    }

    /// Whether another Node has the same hostname by its label, or has had it.
    pub fn shares_hostname(&self, node: &NodeFacts) -> bool {
        self.world.nodes.shares_hostname(node)
    }

    /// The resource version of the known Plan.
    pub fn plan_version(&self, name: &str) -> Option<u64> {
        self.plans.get(name).map(|p| p.version)
    }

    /// The resource version of the known Node.
    pub fn node_version(&self, name: &str) -> Option<u64> {
        self.world.nodes.table().version(name)
    }

    /// The resource version of the known Job.
    pub fn job_version(&self, name: &str) -> Option<u64> {
        self.world.jobs.table.version(name)
    }

    /// The Plan's inputs of its Jobs.
    pub fn job_input(&self, plan: &str) -> Option<refit_job::PlanInput<'_>> {
        self.plans.get(plan).map(|p| p.job_input(&self.defaults))
    }

    /// Whether pods must be watched: a Job is not recorded, a pod may still run on a node, or a node must reboot.
    pub fn has_work_on_nodes(&self) -> bool {
        let World {
            nodes, jobs, pods, ..
        } = &self.world;
        let is_rebooted = |(plan, names): (&PlanName, &BTreeSet<NodeName>)| {
            let records = names.iter().filter_map(|node| nodes.get(node)?.records.get(plan));
            records.into_iter().any(|record| record.reboot.is_some())
        };
        jobs.has_open() || pods.may_run() || nodes.recorded.iter().any(is_rebooted)
    }

    pub fn job_settings(&self) -> &JobSettings {
        &self.defaults.job
    }

    /// The Plans that are not being deleted.
    pub fn share_plans(&self) -> Vec<Arc<PlanFacts>> {
        let all = self.plans.values().map(|plan| &plan.facts);
        all.filter(|plan| !plan.is_deleting()).cloned().collect()
    }

    pub fn plan_names(&self) -> impl Iterator<Item = &PlanName> {
        self.plans.keys()
    }

    /// A container of a Job that failed: one that did so by itself, rather than one that was stopped at the deadline.
    pub(super) fn failed_container(&self, job: &JobFacts) -> Option<&Termination> {
        let gone = self.memory.results.failed_containers.get(&job.uid);
        let there = self.world.pods.of(job).filter_map(|pod| pod.failed.as_ref());
        let rank = |failed: &&Termination| !failed.is_of_deletion;
        gone.into_iter().chain(there).max_by_key(rank) // the last one of several
    }

    /// Whether the served CRD has refit's fields.
    pub fn schema(&self) -> &Schema {
        self.world.definition.schema()
    }

    /// The event that says this of a Plan whose status cannot be written: one for each edition of the definition.
    pub(super) fn unwritten_plan_event(&self, plan: &PlanFacts, reason: Reason, text: String) -> Event {
        Event::plan(
            &plan.name,
            &plan.uid,
            reason,
            text,
            self.world.definition.edition(),
        )
    }

    /// Why no Plan may be written and no node may start now.
    pub(super) fn write_block(&self, now: Timestamp) -> Option<WriteBlock<'_>> {
        let world = &self.world;
        if let Some(block) = world.definition.write_block(now) {
            return Some(block);
        }
        // A node may be in use that no Plan may touch.
        let unreported = self.defaults.has_front_ends && world.maintenances.reservations().is_none();
        if matches!(world.limits, KnownLimits::Unread) || unreported || world.etcd_down.is_none() {
            return Some(WriteBlock::Unread { ask: false });
        }
        // A Plan that was read without refit's fields may lack `suspend`, and a write would store it without them.
        world.definition.relist().map(|ask| WriteBlock::Unread { ask })
    }

    /// Whether the result of a Job is recorded, on the Job or on its node. Such a Job is never adopted. If the label of the
    /// node is missing, someone removed it to run the Plan again.
    pub(super) fn is_result_recorded(&self, job: &JobFacts) -> bool {
        let results = &self.memory.results;
        job.recorded
            || results.marking.contains(&job.uid)
            || results.labelled.contains(&job.uid)
            || self
                .world
                .nodes
                .get(&job.node)
                .is_some_and(|node| node.was_labelled_for(&job.uid))
    }

    /// Whether a successor knows that the Plan has existed, if it must.
    pub(super) fn is_remembered(&self, plan: &DerivedPlan) -> bool {
        let is_stored = |known: &TrustedPlans| known.is_stored(&plan.facts.uid);
        !plan.is_disruptive() || self.memory.trusted_plans.as_ref().is_none_or(is_stored)
    }

    /// What the Lease says which Plans have existed.
    pub fn remember_plans(&mut self, note: Option<&str>) {
        self.memory.trusted_plans = Some(TrustedPlans::of(note, &self.world.nodes));
    }

    /// The note on the Lease is now this.
    pub fn confirm_known_plans(&mut self, note: &str) {
        if let Some(known) = &mut self.memory.trusted_plans {
            known.confirm(note);
        }
    }

    /// Adds the Plans that exist. Returns the note for the Lease if it is to change, or in any case if it is `absent`.
    pub fn note_known_plans(&mut self, absent: bool) -> Option<String> {
        let plans: Vec<_> = self.plans.values().map(|plan| &plan.facts.uid).collect();
        let known = self.memory.trusted_plans.as_mut()?;
        known.note(&plans, &self.world.nodes, absent)
    }

    /// Whether nodes can be held by other objects than Plans.
    pub fn has_front_ends(&self) -> bool {
        self.defaults.has_front_ends
    }

    /// Notes which objects may take their nodes.
    pub fn note_grants(&mut self, grants: &ReservationDecisions) {
        let granted = grants.iter().filter(|(_, grant)| grant.answer.is_ok());
        let granted = granted.map(|(node, grant)| (node.clone(), grant.uid.clone()));
        self.memory.granted.extend(granted);
    }

    /// Whether the object with this UID has the node that it wants, and not an older one.
    pub fn is_reserved_for(&self, uid: &str) -> bool {
        let mut all = self.world.maintenances.reservations().into_iter().flatten();
        all.any(|(_, reservation)| *reservation.uid == *uid)
    }

    /// Whether the node has the taint of a new node, or a Plan may give it one at any moment.
    pub fn may_be_new(&self, node: &NodeFacts) -> bool {
        let mut taints = node.taints.iter().flatten();
        taints.any(Taint::is_of_new_node) || self.plans.values().any(DerivedPlan::taints_new_nodes)
    }

    /// The names of the Secrets that Plans have in their hash: the same set until one of these Plans changes.
    pub fn retain_hashed_secrets(&mut self) -> Arc<BTreeSet<Text>> {
        self.world.secrets.retain_hashed()
    }

    pub fn is_done(&self, plan: &str, node: &str) -> bool {
        let state = self.plans.get(plan).and_then(|plan| plan.targets.state(node));
        state == Some(&TargetState::Done)
    }

    /// Number of Nodes that exist.
    pub fn node_count(&self) -> usize {
        self.world.nodes.iter().count()
    }

    /// The Plans of this controller for which nodes are cordoned, and these nodes.
    pub fn cordons(&self) -> impl Iterator<Item = (&str, &NodeName)> {
        let of_node = |name: &'_ NodeName| {
            let (name, node) = self.world.nodes.get_key_value(name)?;
            let ledger = node.ledger.as_ref().filter(|_| node.unschedulable)?;
            Some((name, ledger))
        };
        self.world
            .nodes
            .ledgers
            .iter()
            .filter_map(of_node)
            .flat_map(|(name, ledger)| {
                let ours = ledger.holders.iter().filter(|holder| {
                    holder.namespace == self.defaults.namespace
                        && holder.controller == self.defaults.job.controller_name
                });
                ours.map(move |holder| (holder.plan.as_str(), name))
            })
    }

    /// The progress of drains, as the pods on the nodes report it in an annotation of their node.
    pub fn drains(&self) -> impl Iterator<Item = (&PlanName, &PodUid, &DrainNote)> {
        self.world.pods.live().filter_map(|pod| {
            let drain = self.world.nodes.get(pod.node.as_ref()?)?.drain.as_ref()?;
            (*drain.pod == *pod.uid).then_some((&pod.plan, &pod.uid, &drain.note))
        })
    }

    /// The time of day was set by so much.
    pub fn shift_times(&mut self, step: SignedDuration) {
        let shift = |at: &mut Timestamp| *at = later(*at, step);
        self.memory.shift_times(shift);
        self.world.definition.shift_times(shift);
        for plan in self.plans.values_mut() {
            plan.shift_times(shift);
        }
    }

    /// Updates what depends on several facts, before a decision: the version of each Plan, its nodes, and timers.
    pub fn refresh(&mut self, now: Timestamp) {
        self.memory.started.get_or_insert(now);
        for plan in self.plans.values_mut() {
            plan.count_kubelets(&self.world);
        }
        let followers = oldest_followers(&self.plans);
        for (name, plan) in &mut self.plans {
            plan.refresh(&self.world, &self.defaults, followers.get(name), now);
        }
        let Memory { timers, answers, .. } = &mut self.memory;
        let evicted = timers.update(&self.world.nodes, &self.world.jobs, now);
        answers.workloads.retain(|workload, _| evicted.contains(workload));
        let nodes = &self.world.nodes;
        answers.daemon_pods.retain(|(plan, node), _| {
            let node = nodes.get(node);
            node.is_some_and(|node| node.records.contains_key(&**plan))
        });
    }
}
