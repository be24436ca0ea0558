//! A node without a Job whose result counts: what is left to do there, and its next Job.

use jiff::Timestamp;

use super::NodeReconciler;
use super::state::{NodeDecision, NodeState, Start};
use crate::blocker::Blocker;
use crate::hooks;
use crate::memory::PendingCreate;
use crate::release;
use crate::remediation;
use crate::start::versions::VersionLimits;
use crate::step::{Key, Query, Step};
use refit_api::{NodePhase, NodeProgress};
use refit_facts::record::Phase;
use refit_facts::{BootId, JobFacts, JobName, NodeFacts};
use refit_job::name::job_name;

impl NodeReconciler<'_> {
    /// Reconciles a node without a Job whose result counts.
    pub(super) fn without_job(
        &self,
        node: &NodeFacts,
        stored_entry: Option<&NodeProgress>,
        leaving: Option<&JobFacts>,
    ) -> NodeDecision {
        let eligible = self.is_eligible(node);
        if let Some(pending_create) = self.pending_create(node)
            && let Some(decision) = self.await_create(node, pending_create, stored_entry.filter(|_| eligible))
        {
            return decision;
        }
        let Some(record) = self.record(node) else {
            return match stored_entry {
                Some(entry) if eligible && !self.has_finished_another(node, entry) => {
                    self.begin(node, 1, stored_entry, leaving)
                }
                _ => NodeDecision::Cleanup(
                    release::void_record(self.cluster, node, &self.plan.facts.name)
                        .into_iter()
                        .collect(),
                ),
            };
        };
        // A record of another version does not block this one: an edit is how a user says "try again".
        let current = self.plan.is_at(&record.hash);
        let unknown = !eligible && self.plan.selects_unknown();
        match record.phase {
            // Also at another version, or if the node is deselected: its reboot may be under way.
            Phase::Upgraded => self.finish_record(node, record),
            Phase::Recovering => self.recover(node, record),
            Phase::Retry if current && eligible => self.begin(node, record.attempt, stored_entry, leaving),
            Phase::Failed if current && eligible => NodeDecision::slot(self.failed(node, record)),
            Phase::Skipped if current && eligible => self.after_skip(node, record, stored_entry, leaving),
            _ if eligible && stored_entry.is_some_and(|entry| !self.has_freed_slot(entry)) => {
                self.begin(node, 1, stored_entry, leaving)
            }
            // A mistake in `nodeSelector` deselects no node.
            Phase::Failed if unknown && (current || stored_entry.is_some()) => {
                NodeDecision::slot(self.failed_state(node, record))
            }
            _ if unknown => NodeDecision::Cleanup(Vec::new()),
            // A failure at another version no longer matters once the node is done or not selected.
            _ if eligible => NodeDecision::Cleanup(Vec::new()),
            _ => NodeDecision::Cleanup(vec![release::drop_record(node, &self.plan.facts.name)]),
        }
    }

    /// A Job that may or may not exist. If it is for this Plan and machine, the node has its slot, and the controller
    /// looks the Job up before it creates another.
    fn await_create(
        &self,
        node: &NodeFacts,
        pending_create: &PendingCreate,
        stored_entry: Option<&NodeProgress>,
    ) -> Option<NodeDecision> {
        let here = pending_create.plan_uid == self.plan.facts.uid && pending_create.node_uid == node.uid;
        // The request cannot be recalled. Its Job will carry the wrong UIDs, and is deleted when it is seen.
        if pending_create.in_flight && !here {
            return None;
        }
        let look = || {
            Step::Query(Query::GetJob {
                plan: self.plan.facts.name.clone(),
                node: node.name.clone(),
                job: pending_create.job.clone(),
            })
        };
        // A list in progress answers the same question.
        let look = (!pending_create.in_flight && !self.cluster.world.jobs.is_being_listed()).then(look);
        if !here && stored_entry.is_none() {
            return Some(NodeDecision::Cleanup(look.into_iter().collect()));
        }
        let attempt = stored_entry
            .and_then(|stored_entry| stored_entry.attempt)
            .unwrap_or(1);
        let mut state = self.pending(node, attempt, stored_entry);
        if !self.can_start(node) {
            state = state.with_blocker(&Blocker::NodeNotReady);
        }
        Some(NodeDecision::slot(state).and(look))
    }

    /// A node with a slot and without a Job. The controller creates the Job once the stored status names the node. If
    /// nothing may start now, a node that never had a Job goes back to waiting; a node that lost its Job continues.
    pub(super) fn begin(
        &self,
        node: &NodeFacts,
        attempt: i64,
        stored_entry: Option<&NodeProgress>,
        leaving: Option<&JobFacts>,
    ) -> NodeDecision {
        // The name of the Job is in the stored status before the Job is created, so an entry without one has never
        // had a Job.
        let is_first = attempt == 1 || self.is_skipped(node);
        let never_started = is_first && stored_entry.is_none_or(|stored_entry| stored_entry.job.is_none());
        let by_version = || VersionLimits::of(self.cluster, self.plan)?.blocker(node);
        let shut = match self.gate {
            // `NotReady` also holds for a moment after each start, while Secrets are read. That is no reason to
            // release a slot.
            Some(Blocker::NotReady) | None => (!self.can_start(node)).then_some(&Blocker::NodeNotReady),
            Some(blocker) => Some(blocker),
        };
        let pending = || self.pending(node, attempt, stored_entry);
        if let Some(decision) = self.reconcile_lost_machine(node, attempt, stored_entry) {
            return decision;
        }
        // A Job that is being deleted is not lost: if it ends before, its result counts.
        if leaving.is_none()
            && let Some(decision) = self.reconcile_lost_job(node, attempt, stored_entry, pending)
        {
            return decision;
        }
        // Also while the gate is shut for another reason.
        if self.plan.is_aborted() {
            return self.release_slot(node, pending(), leaving);
        }
        let mut state = pending();
        state.start = Some(Start::Later);
        // The slot is released: while the Plan is suspended or its window is closed, status should not name nodes
        // that have not begun.
        if never_started && (shut.is_some() || by_version().is_some()) {
            return NodeDecision::Cleanup(Vec::new());
        }
        // A node that failed at another version, or whose Job was cancelled, keeps its slot.
        let has_other_job = stored_entry.is_some_and(|entry| self.has_other_job(node, entry));
        if let Some(blocker) = has_other_job.then(by_version).flatten() {
            return NodeDecision::slot(state.with_blocker(&blocker));
        }
        if self.is_cancelled(node) {
            return NodeDecision::slot(state).and(self.revoke_cancel(node));
        }
        // A cancellation of the previous drain may still be on its way. The next drain would read it and stop.
        if self.cluster.memory.ledgers_sent.contains(&node.name) {
            return NodeDecision::slot(state);
        }
        // The result of a pod of an earlier attempt must not be mistaken for that of the next.
        if let Some(blocker) = self.leftover_pod(node) {
            return NodeDecision::slot(state.with_blocker(&blocker));
        }
        if let Some(blocker) = remediation::blocker(self.cluster, self.plan, node) {
            // Another program took the Lease meanwhile: others start, and this node has its turn again.
            if never_started && matches!(blocker, Blocker::NodeLeased { .. }) {
                return NodeDecision::Cleanup(Vec::new());
            }
            return NodeDecision::slot(state.with_blocker(&blocker));
        }
        NodeDecision::slot(match self.next_job(node, leaving) {
            Err(NoJobReason::NotYet) => state,
            Err(NoJobReason::Recorded(job)) => state.with_step(Step::delete(
                job,
                "its result is recorded, and its name is needed",
            )),
            Err(NoJobReason::Blocked(blocker)) => state.with_blocker(&blocker),
            Err(NoJobReason::NameConflict { job, until }) => {
                state.requeue_at = Some(until);
                state.with_blocker(&Blocker::NameTaken {
                    kind: "Job",
                    name: job,
                })
            }
            Ok(job) => {
                if let Some(failure) = self
                    .cluster
                    .memory
                    .failures
                    .get(&Key::NextJob(self.plan.facts.name.clone(), node.name.clone()))
                {
                    state = state.with_blocker(&Blocker::JobRefused {
                        why: failure.message.clone(),
                    });
                }
                if self.may_begin(stored_entry)
                    && !stored_entry.is_some_and(|stored_entry| self.names_other_job(node, stored_entry))
                {
                    let (plan, node) = (self.plan.facts.name.clone(), node.name.clone());
                    state.start = Some(Start::Now(Step::CreateJob {
                        plan,
                        node,
                        job,
                        attempt,
                    }));
                }
                state
            }
        })
    }

    /// A node of an aborted roll-out: it keeps its slot until nothing of its Job is left. A node that has failed before
    /// keeps it, as failed nodes do.
    fn release_slot(&self, node: &NodeFacts, state: NodeState, leaving: Option<&JobFacts>) -> NodeDecision {
        let by_job = leaving.map(|job| Blocker::JobLeaving {
            job: job.name.to_string(),
        });
        let blocker = by_job.or_else(|| {
            let plan = &self.plan.facts.name;
            let pod = self
                .cluster
                .world
                .pods
                .live_on(&node.name)
                .find(|pod| pod.plan == *plan)?;
            Some(Blocker::PodLeaving {
                pod: pod.name.to_string(),
            })
        });
        let failed = || {
            let record = self.record(node).filter(|record| record.phase != Phase::Skipped);
            record.and(self.gate).cloned()
        };
        match blocker.or_else(failed) {
            Some(blocker) => NodeDecision::slot(state.with_blocker(&blocker)),
            None => NodeDecision::Cleanup(Vec::new()),
        }
    }

    /// The state of a node that has its slot, but no Job yet.
    fn pending(&self, node: &NodeFacts, attempt: i64, stored_entry: Option<&NodeProgress>) -> NodeState {
        let mut state = NodeState::new(node, NodePhase::Pending);
        state.attempt = Some(attempt);
        state.since = stored_entry
            .and_then(|t| t.since.as_deref()?.parse().ok())
            .or(Some(self.now));
        // An entry of another attempt does not apply to this one.
        let stored_entry = stored_entry.filter(|stored_entry| stored_entry.attempt.unwrap_or(1) == attempt);
        let named = stored_entry.filter(|stored_entry| !self.names_other_job(node, stored_entry));
        state.job = named.and_then(|t| t.job.as_deref()).map(JobName::from);
        let boot = stored_entry.and_then(|t| t.boot_id.as_deref()).map(BootId::from);
        state.boot = boot.or_else(|| self.plan.spec().may_reboot().then(|| node.boot_id.clone()));
        state
    }

    fn next_job(&self, node: &NodeFacts, leaving: Option<&JobFacts>) -> Result<JobName, NoJobReason<'_>> {
        let resolved = self.plan.resolved.as_ref().ok_or(NoJobReason::NotYet)?;
        if let Some(job) = leaving {
            return Err(NoJobReason::Blocked(Blocker::JobLeaving {
                job: job.name.to_string(),
            }));
        }
        // A roll-out that is closed for new nodes continues on nodes that had started, but not before `spec.before` has
        // succeeded, which such a gate hides.
        let shut = self
            .gate
            .filter(|gate| !gate.is_for_new_nodes() || hooks::is_before_open(self.plan));
        if let Some(blocker) = shut.cloned().or_else(|| self.plan.job_blocker(node.is_windows())) {
            return Err(NoJobReason::Blocked(blocker));
        }
        if !self.can_start(node) {
            return Err(NoJobReason::Blocked(Blocker::NodeNotReady));
        }
        self.free_name(node, &resolved.hash)
    }

    /// The Job of the node whose creation is not confirmed.
    fn pending_create(&self, node: &NodeFacts) -> Option<&PendingCreate> {
        self.cluster
            .memory
            .pending_creates
            .get(&(self.plan.facts.name.clone(), node.name.clone()))
    }

    /// The name of the next Job: that of S29, or if someone else's Job has it, one with the node's UID.
    fn free_name(&self, node: &NodeFacts, hash: &str) -> Result<JobName, NoJobReason<'_>> {
        let plan = &self.plan.facts;
        let first: JobName = job_name(&plan.name, &node.name, hash).into();
        let second: JobName = plan.run_id(node, hash).second_job_name().into();
        let mut until = Timestamp::MAX;
        for name in [&first, &second] {
            match self.cluster.world.jobs.get(name) {
                // Its own earlier Job: once its result is recorded, the name is free to use again.
                Some(job) if job.node == node.name && job.plan == plan.name => {
                    return Err(if job.recorded {
                        NoJobReason::Recorded(job)
                    } else {
                        NoJobReason::NotYet
                    });
                }
                Some(_) => {}
                None => match self.name_conflict_until(name.text()) {
                    Some(at) => until = until.min(at),
                    None => return Ok(name.clone()),
                },
            }
        }
        Err(NoJobReason::NameConflict {
            job: second.to_string(),
            until,
        })
    }

    pub(super) fn name_conflict_until(&self, name: &str) -> Option<Timestamp> {
        self.cluster.memory.name_conflict_until(name, self.now)
    }
}

/// Why no Job can be created yet.
enum NoJobReason<'a> {
    /// The Plan has no version, or the result of the Job with the name is about to be recorded.
    NotYet,
    /// A recorded Job has the name.
    Recorded(&'a JobFacts),
    Blocked(Blocker),
    /// Jobs of others have both names. The controller tries again at this time.
    NameConflict {
        job: String,
        until: Timestamp,
    },
}
