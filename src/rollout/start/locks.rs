//! The disruptive work on each node, which keeps other Plans and other objects off it, and the limits over all of it.

use std::collections::{BTreeMap, BTreeSet};

use super::super::blocker::Blocker;
use super::super::plan::DerivedPlan;
use super::super::state::ClusterState;
use super::cluster_limits::{self, ClusterLimits};
use super::quorum::Quorums;
use crate::node::state::{NodeStates, PlanNodes};
use crate::{hooks, reservation};
use refit_api::ObjectRef;
use refit_facts::{JobFacts, JobOutcome, NodeName, PlanName, PodFacts};

/// The disruptive Plan that works on each node.
pub(crate) struct DisruptionLocks<'a> {
    pub(super) cluster: &'a ClusterState,
    pub(super) locked_by: BTreeMap<NodeName, PlanName>,
    /// The Ready nodes on which Jobs or pods of deleted Plans still run, by the names of these Plans.
    pub(super) leaving: BTreeMap<PlanName, BTreeSet<NodeName>>,
    pub(super) quorums: Quorums<'a>,
    pub(super) cluster_limits: ClusterLimits,
}

impl<'a> DisruptionLocks<'a> {
    /// Locks nodes on which work has begun. Nodes that still have to begin come after them.
    pub(crate) fn new(cluster: &'a ClusterState, node_states: &NodeStates) -> Self {
        // A Job that was requested may exist although no watch has shown it yet.
        let pending_create = cluster
            .memory
            .pending_creates
            .iter()
            .filter(|(_, pending_create)| pending_create.disruptive);
        let mut locked_by: BTreeMap<_, _> = pending_create
            .map(|((plan, node), _)| (node.clone(), plan.clone()))
            .collect();
        let mut guarded = BTreeSet::new();
        for (name, nodes) in node_states {
            let Some(plan) = cluster.plans.get(name) else {
                continue;
            };
            // A failed node is not locked: the Plan that repairs it may be another one.
            let begun = nodes
                .iter()
                .filter(|(_, state)| !state.failed && state.start.is_none());
            for (node, _) in begun {
                if plan.is_disruptive() {
                    locked_by.entry(node.clone()).or_insert_with(|| name.clone());
                } else if plan.spec().guards_control_plane() {
                    guarded.insert(node.clone());
                }
            }
        }
        let quorums = Quorums::of(cluster, |node| {
            locked_by.contains_key(node)
                || guarded.contains(node)
                || is_disturbed(cluster, node)
                || reservation::is_taken(cluster, node)
        });
        let leaving = leaving(cluster);
        let disturbed = disturbed(cluster, &leaving);
        let worked_on = locked_by
            .keys()
            .chain(reservation::taken(cluster))
            .chain(disturbed);
        let cluster_limits = ClusterLimits::of(cluster, node_states, &leaving, worked_on);
        Self {
            cluster,
            locked_by,
            leaving,
            quorums,
            cluster_limits,
        }
    }

    /// The nodes that Plans have begun to take down, or that deleted Plans still may.
    pub(super) fn worked_on(&self) -> impl Iterator<Item = &NodeName> {
        self.locked_by
            .keys()
            .chain(disturbed(self.cluster, &self.leaving))
    }

    /// Why an object other than a Plan may not take a node.
    pub(crate) fn reservation_blocker(&self, node: &NodeName) -> Option<String> {
        if let Some(plan) = self.locked_by.get(node) {
            return Some(format!("Plan {plan} works on the node"));
        }
        // Its Job may appear after the object has taken the node.
        let mut created = self.cluster.memory.pending_creates.keys();
        if let Some((plan, _)) = created.find(|(_, on)| on == node) {
            return Some(format!("Plan {plan} works on the node"));
        }
        let mut jobs = self.cluster.world.jobs.on(node);
        if let Some(job) = jobs.find(|job| job.parallelism > 0 && job.is_live()) {
            return Some(format!("Plan {} works on the node", job.plan));
        }
        if let Some(pod) = self.cluster.world.pods.live_on(node).next() {
            return Some(format!("pod {} works on the node", pod.name));
        }
        let facts = self.cluster.world.nodes.get(node);
        if let Some(by) = facts.and_then(|facts| hooks::running_on(self.cluster, facts)) {
            return Some(Blocker::NodeBusy { by }.to_string());
        }
        let quorum = self.quorums.lost_without(self.cluster, node);
        let blocker = quorum
            .or_else(|| cluster_limits::unreadable(self.cluster, node))
            .or_else(|| self.cluster_limits.max_unavailable(node))?;
        Some(blocker.to_string())
    }

    /// An object other than a Plan waits for the node: no Plan takes the last unit of the limit before it.
    pub(crate) fn keep_room(&mut self, node: &NodeName) {
        self.cluster_limits.take(node);
    }

    /// An object other than a Plan takes a node down.
    pub(crate) fn take(&mut self, node: &NodeName) {
        self.cluster_limits.take(node);
        self.quorums.take(node);
    }

    /// Why the node may not take one of the Plan's free slots: as many nodes without a slot still run Jobs or pods of a
    /// deleted Plan of its name. Each of them is a node in progress, as it was before the Plan was created again.
    pub(super) fn room_blocker(
        &self,
        plan: &DerivedPlan,
        slots: &PlanNodes,
        free: i64,
        node: &NodeName,
    ) -> Option<Blocker> {
        let nodes = self.leaving.get(&plan.facts.name)?;
        let mut leaving = nodes.iter().filter(|node| !slots.contains_key(*node));
        let first = leaving.next()?;
        let is_full = free <= i64::try_from(1 + leaving.count()).unwrap_or(i64::MAX);
        let blocker = || self.leaving_blocker(plan, first);
        (is_full && !nodes.contains(node)).then(blocker).flatten()
    }

    pub(super) fn lock(&mut self, plan: &DerivedPlan, node: &NodeName) {
        if plan.is_disruptive() {
            self.locked_by.insert(node.clone(), plan.facts.name.clone());
        }
        self.cluster_limits.take(node);
        if plan.is_disruptive() || plan.spec().guards_control_plane() {
            self.quorums.take(node);
        }
    }

    /// Why a Plan may not start on a node.
    pub(super) fn blocker(&self, plan: &DerivedPlan, node: &NodeName) -> Option<Blocker> {
        let name = &plan.facts.name;
        if let Some(object) = reservation::reserved_by(self.cluster, node) {
            return Some(Blocker::NodeBusy { by: vec![object] });
        }
        let facts = self.cluster.world.nodes.get(node);
        if let Some((type_, condition)) =
            facts.and_then(|facts| facts.maintenance_of_others(&self.cluster.defaults.namespace))
        {
            return Some(Blocker::NodeInMaintenance {
                node: node.clone(),
                type_,
                reason: condition.reason.clone(),
            });
        }
        if plan.is_disruptive()
            && let Some(other) = self.locked_by.get(node).filter(|other| *other != name)
        {
            return Some(Blocker::NodeBusy {
                by: vec![ObjectRef::plan(&**other)],
            });
        }
        if plan.is_disruptive()
            && let Some(by) = facts.and_then(|facts| hooks::running_on(self.cluster, facts))
        {
            return Some(Blocker::NodeBusy { by });
        }
        let blocks =
            |job: &&JobFacts| job.plan != *name && job.disruptive && job.parallelism > 0 && job.is_live();
        if plan.is_disruptive()
            && let Some(job) = self.cluster.world.jobs.on(node).find(blocks)
        {
            return Some(Blocker::NodeBusy {
                by: vec![ObjectRef::plan(&*job.plan)],
            });
        }
        self.leaving_blocker(plan, node)
    }

    /// The Job or pod on the node that has to be gone before the Plan may start there.
    fn leaving_blocker(&self, plan: &DerivedPlan, node: &NodeName) -> Option<Blocker> {
        let name = &plan.facts.name;
        let mut own = self.cluster.world.jobs.on(node).filter(|job| job.plan == *name);
        let by_job = own.find_map(|job| {
            // While status names the node, the result of a successful Job without `refit.rs/recorded` is yet to be
            // recorded.
            let lacks_annotation =
                matches!(job.outcome, JobOutcome::Complete { .. }) && !job.recorded && plan.is_at(&job.hash);
            let leaving = job.deleting || job.plan_uid != plan.facts.uid || lacks_annotation;
            leaving.then(|| Blocker::JobLeaving {
                job: job.name.to_string(),
            })
        });
        by_job.or_else(|| {
            let mut pods = left_behind(self.cluster, node);
            let pod = pods.find(|pod| plan.is_disruptive() || pod.plan == *name)?;
            Some(Blocker::PodLeaving {
                pod: pod.name.to_string(),
            })
        })
    }
}

/// The Ready nodes on which Jobs and pods of deleted Plans still run. Garbage collection deletes a Job at once, and its pod
/// has its grace period after that.
fn leaving(cluster: &ClusterState) -> BTreeMap<PlanName, BTreeSet<NodeName>> {
    let of_a_deleted_plan = |job: &&JobFacts| {
        let plan = cluster.plans.get(&job.plan);
        let is_deleted = plan.is_none_or(|plan| plan.facts.uid != job.plan_uid);
        is_deleted && job.verifies.is_none() && job.parallelism > 0 && job.is_live()
    };
    let jobs = cluster
        .world
        .jobs
        .all_open()
        .filter(of_a_deleted_plan)
        .map(|job| (&job.plan, &job.node));
    let pods = cluster.world.pods.live();
    let pods = pods
        .filter_map(|pod| Some((pod, pod.node.as_ref()?)))
        .filter(|(pod, node)| is_left_behind(cluster, pod, node))
        .map(|(pod, node)| (&pod.plan, node));
    let mut leaving = BTreeMap::<_, BTreeSet<_>>::new();
    // A kubelet that is down may never report the end of its pods: nobody but its own node waits for that.
    let is_up = |(_, node): &(_, &NodeName)| cluster.world.nodes.get(node).is_some_and(|node| node.ready);
    for (plan, node) in jobs.chain(pods).filter(is_up) {
        leaving.entry(plan.clone()).or_default().insert(node.clone());
    }
    leaving
}

/// The pods on the node whose Job is gone. A Job can be deleted while its pod terminates: with its Plan, with orphan
/// propagation, or while its kubelet is down. That pod may still upgrade the host.
fn left_behind<'a>(cluster: &'a ClusterState, node: &'a NodeName) -> impl Iterator<Item = &'a PodFacts> {
    let pods = cluster.world.pods.live_on(node);
    pods.filter(move |pod| is_left_behind(cluster, pod, node))
}

fn is_left_behind(cluster: &ClusterState, pod: &PodFacts, node: &str) -> bool {
    !cluster.world.jobs.all_on(node).any(|job| job.uid == pod.job_uid)
}

fn disturbed<'a>(
    cluster: &'a ClusterState,
    leaving: &'a BTreeMap<PlanName, BTreeSet<NodeName>>,
) -> impl Iterator<Item = &'a NodeName> {
    let nodes = leaving.values().flatten();
    nodes.filter(|node| is_disturbed(cluster, node))
}

/// Whether a Job or a pod of a Plan that takes nodes down works on the node, even if the Plan is gone.
pub(super) fn is_disturbed(cluster: &ClusterState, node: &NodeName) -> bool {
    // At parallelism 0, as system-upgrade-controller creates Jobs, a Job has no pod.
    let by_job = |job: &JobFacts| job.disruptive && job.parallelism > 0 && job.is_live();
    cluster.world.jobs.on(node).any(by_job)
        // Nothing shows whether the deleted Job of such a pod was disruptive.
        || left_behind(cluster, node).next().is_some()
}
