//! A Job that was lost before its end was seen, of a Plan with `reboot`: its upgrade may have succeeded, and then must
//! not run again. A pod asks the node first. The sentinel on the node does not outlive a boot; after that a user has to
//! decide.

use super::NodeReconciler;
use super::reboot::{ASKING_NODE, EVIDENCE_LOST, EVIDENCE_UNAVAILABLE};
use super::state::{NodeDecision, NodeState, Start};
use crate::blocker::Blocker;
use crate::later::later;
use refit_api::{NodePhase, NodeProgress, Reason};
use refit_facts::record::{Reboot, Record};
use refit_facts::{Hash, NodeFacts, SentinelResult};
use refit_job::name::job_name;

impl NodeReconciler<'_> {
    /// The state of a node whose Job may have been created and lost; `None` if the next Job can be created.
    pub(super) fn reconcile_lost_job(
        &self,
        node: &NodeFacts,
        attempt: i64,
        stored_entry: Option<&NodeProgress>,
        state: impl FnOnce() -> NodeState,
    ) -> Option<NodeDecision> {
        let (stored_entry, hash) = (stored_entry?, self.hash()?);
        if !self.plan.spec().has_sentinel() || !self.may_be_lost(node, hash, attempt, stored_entry) {
            return None;
        }
        let pod = self.reboot_pod(node, hash, None);
        let at_work = |live: &super::PodFacts| {
            live.plan == self.plan.facts.name && pod.is_none_or(|(pod, _)| pod.uid != live.uid)
        };
        let mut state = state();
        // Without a start, other disruptive Plans see the node as in progress: the lost Job may still work on it.
        state.start = None;
        // A successor must not take the node for one that never started.
        let plan = &self.plan.facts.name;
        let name = state.job.take();
        state.job = name.or_else(|| Some(job_name(plan, &node.name, hash).into()));
        // A pod of the lost Job may still be upgrading. Its sentinel is only conclusive once it has ended.
        if let Some(pod) = self
            .cluster
            .world
            .pods
            .live_on(&node.name)
            .find(|pod| at_work(pod))
        {
            let pod = pod.name.to_string();
            return Some(NodeDecision::slot(
                state.with_blocker(&Blocker::PodLeaving { pod }),
            ));
        }
        let answer = pod
            // A pod that is being deleted may have read the node for an earlier attempt.
            .filter(|(pod, _)| !pod.deleting)
            .and_then(|(pod, _)| pod.sentinel_result.as_ref());
        Some(match answer {
            Some(SentinelResult::Success { boot_id, required }) => {
                let record = Record {
                    reboot: required.then(|| Reboot {
                        boot_id: Some(boot_id.to_string()),
                        since: self.now,
                    }),
                    ..self.lost_record(node, hash, attempt, stored_entry)
                };
                state.pod = self.evidence_pod(node, hash);
                NodeDecision::slot(state.with_step(self.patch_record(node, &record, Vec::new())))
            }
            Some(SentinelResult::Nothing { boot_id: Some(now) })
                if stored_entry.boot_id.as_deref() == Some(&**now) =>
            {
                // Still the boot in which the node started, so the upgrade has not succeeded. Status shows that by
                // naming no Job. If another process wrote such a status, it may have created a Job since, so its
                // successor names the Job again first.
                if stored_entry.job.is_some() {
                    state.job = None;
                }
                state.start = Some(Start::Later);
                state.pod = pod.map(|(pod, _)| pod.uid.clone());
                NodeDecision::slot(state)
            }
            Some(SentinelResult::Nothing { .. }) => {
                let record = self.lost_record(node, hash, attempt, stored_entry);
                self.fail_permanently(
                    node,
                    &record,
                    Reason::RebootFailed,
                    Reason::EvidenceLost,
                    EVIDENCE_LOST.to_owned(),
                )
            }
            // The pod that reads the sentinel cannot run, for example because the node is down. Without the evidence
            // an upgrade must not run again by itself.
            None if pod.is_some_and(|(_, it)| {
                later(it.created, self.plan.completion.reboot_timeout) <= self.now
            }) =>
            {
                let record = self.lost_record(node, hash, attempt, stored_entry);
                let why = EVIDENCE_UNAVAILABLE.to_owned();
                self.fail_permanently(node, &record, Reason::RebootFailed, Reason::EvidenceLost, why)
            }
            None => {
                let begun = pod.map_or(self.now, |(_, it)| it.created);
                let due = later(begun, self.plan.completion.reboot_timeout);
                state.requeue_at = Some(due);
                let state = state.with_message(ASKING_NODE.to_owned());
                NodeDecision::slot(self.ensure_pod(node, state, hash, None, due))
            }
        })
    }

    /// Whether the node was lost with its Job (`NodeLost`), and this has freed its slot. It must not take it back by
    /// itself: others may have taken it.
    pub(super) fn has_lost_slot(&self, stored_entry: Option<&NodeProgress>) -> bool {
        let reason = stored_entry.and_then(|stored| stored.reason.as_ref());
        reason.is_some_and(|reason| *reason == Reason::NodeLost) && self.plan.failed_nodes_free_slots()
    }

    /// A machine that was lost with its Job (`NodeLost`), and whose Job a user has deleted before refit saw its end. Its
    /// failure stays, where its slot is free.
    pub(super) fn reconcile_lost_machine(
        &self,
        node: &NodeFacts,
        attempt: i64,
        stored_entry: Option<&NodeProgress>,
    ) -> Option<NodeDecision> {
        let stored_entry = stored_entry.filter(|stored| stored.attempt.unwrap_or(1) == attempt)?;
        let hash = self.hash()?;
        if !self.has_lost_slot(Some(stored_entry)) {
            return None;
        }
        let names = self.job_names(node, hash);
        if stored_entry.job.as_ref().is_none_or(|job| !names.contains(job)) {
            // The Plan is at another version, which the node gets when it is its turn.
            return Some(NodeDecision::Cleanup(Vec::new()));
        }
        let record = self.lost_record(node, hash, attempt, stored_entry);
        let why = stored_entry.message.clone().unwrap_or_default();
        Some(self.fail_permanently(node, &record, Reason::JobFailed, Reason::NodeLost, why))
    }

    /// Whether the slot was given, a Job may have been created since, and none exists.
    fn may_be_lost(&self, node: &NodeFacts, hash: &Hash, attempt: i64, stored_entry: &NodeProgress) -> bool {
        let plan = &self.plan.facts;
        if stored_entry.attempt.unwrap_or(1) != attempt || stored_entry.uid.is_none() {
            return false;
        }
        let names = self.job_names(node, hash);
        let is_own = |name: &String| {
            let job = self.cluster.world.jobs.get(name);
            job.is_some_and(|job| job.plan == plan.name && job.node == node.name)
        };
        if names.iter().any(is_own) {
            return false; // about to be deleted, and its result is known
        }
        match &stored_entry.job {
            Some(job) => names.contains(job),
            // The process that gave the slot may have created the Job before it wrote status.
            None => !self.plan.unstarted_slots.contains(&node.uid),
        }
    }

    /// The names that a Job of this hash may have on a node.
    fn job_names(&self, node: &NodeFacts, hash: &str) -> [String; 2] {
        let plan = &self.plan.facts;
        [
            job_name(&plan.name, &node.name, hash),
            plan.run_id(node, hash).second_job_name(),
        ]
    }

    /// Whether status names the Job of another hash. If a lost Job cannot simply be created again, status must drop
    /// that name before the next Job is created, or a successor could not know about the next Job.
    pub(super) fn names_other_job(&self, node: &NodeFacts, stored_entry: &NodeProgress) -> bool {
        self.plan.spec().has_sentinel() && self.has_other_job(node, stored_entry)
    }

    /// Whether its last Job is of another hash.
    pub(super) fn has_other_job(&self, node: &NodeFacts, stored_entry: &NodeProgress) -> bool {
        let known = self.hash().zip(stored_entry.job.as_ref());
        known.is_some_and(|(hash, job)| !self.job_names(node, hash).contains(job))
    }

    /// Whether the last Job of the node was of another hash, and is done. The slot was that of this Job: at the current hash the
    /// node has its turn like the others.
    pub(super) fn has_finished_another(&self, node: &NodeFacts, stored_entry: &NodeProgress) -> bool {
        let done = node.labels.of_plan(&self.plan.facts.name);
        let done = done.filter(|done| self.hash().is_some_and(|hash| **hash != **done));
        let job = done.zip(stored_entry.job.as_ref());
        job.is_some_and(|(done, job)| self.job_names(node, done).contains(job))
    }

    /// Whether the node has failed, and this has freed its slot: it must not take it back by itself.
    pub(super) fn has_freed_slot(&self, stored_entry: &NodeProgress) -> bool {
        stored_entry.phase == NodePhase::Failed && self.plan.failed_nodes_free_slots()
    }

    fn lost_record(
        &self,
        node: &NodeFacts,
        hash: &Hash,
        attempt: i64,
        stored_entry: &NodeProgress,
    ) -> Record {
        let first = job_name(&self.plan.facts.name, &node.name, hash);
        let version = self
            .plan
            .resolved
            .as_ref()
            .map(|resolved| resolved.version.to_string());
        Record {
            version: version.unwrap_or_default(),
            attempt,
            job: stored_entry.job.as_deref().unwrap_or(&first).into(),
            inputs: Some(self.plan.inputs.to_string()),
            ..self.success_record(node, hash)
        }
    }
}
