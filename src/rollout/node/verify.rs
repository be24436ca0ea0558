//! A node that must be verified before it is done. A Job of its own runs `spec.verify` there, after the reboot and once
//! the node has settled, while it is still cordoned.
//!
//! The order of writes is: the record; the Job; at the end one patch with label and cordon, which also removes the record.
//! The Job has one name for each Job that upgrades, so it is safe to create it again after a lost response.

use super::NodeReconciler;
use super::state::{NodeDecision, NodeState};
use crate::blocker::Blocker;
use crate::step::{Key, Step};
use refit_api::{NodePhase, Reason};
use refit_facts::record::{Phase, Record, Verification};
use refit_facts::{JobFacts, JobName, JobOutcome, NodeFacts};

impl NodeReconciler<'_> {
    /// The state of a node that is yet to be verified; `None` if it has been, or need not be.
    pub(super) fn verify(
        &self,
        node: &NodeFacts,
        success: &Record,
        record: Option<&Record>,
        job: Option<&JobFacts>,
    ) -> Option<NodeDecision> {
        let known = record.and_then(|record| record.verify.as_ref());
        let announced = known.is_some() || job.is_some_and(|job| job.verify);
        if !self.verifies(announced) || known.is_some_and(|known| known.passed) {
            return None;
        }
        let mut state = NodeState::of_record(node, success, NodePhase::Verifying);
        state.since = Some(known.map_or(self.now, |known| known.since));
        let (Some(record), Some(_)) = (record, known) else {
            // Before anything else: the success must not be lost with its Job while another one runs.
            let record = Record {
                verify: Some(Verification {
                    since: self.now,
                    passed: false,
                }),
                ..record.unwrap_or(success).clone()
            };
            return Some(NodeDecision::slot(state.with_step(self.patch_record(
                node,
                &record,
                Vec::new(),
            ))));
        };
        state
            .steps
            .extend(job.map(|job| self.mark_recorded(job, Vec::new())));
        let name = self.verify_job_name(node, record);
        Some(NodeDecision::slot(match self.cluster.world.jobs.get(&name) {
            None => self.create_verify_job(node, success, state, name),
            Some(job) if !self.is_verified_by(node, record, job) => state.with_blocker(&Blocker::NameTaken {
                kind: "Job",
                name: name.to_string(),
            }),
            Some(job) if job.deleting || job.recorded => {
                let remove =
                    (!job.deleting).then(|| Step::delete(job, "its result belongs to an earlier upgrade"));
                state.steps.extend(remove);
                state.with_blocker(&Blocker::JobLeaving {
                    job: name.to_string(),
                })
            }
            Some(job) => match &job.outcome {
                JobOutcome::Complete { .. } => return None,
                JobOutcome::Failed { reason, message, at } => {
                    let took = at.duration_since(job.created);
                    let entry = self.verify_entry(node);
                    let (cause, text) = self.failure_cause(job, [reason, message], took, entry);
                    let message = format!("the upgrade succeeded, but verify did not: {text} ({cause})");
                    let failed = Reason::VerifyFailed;
                    return Some(self.fail_permanently(node, record, failed, failed, message));
                }
                JobOutcome::Running | JobOutcome::Failing { .. } => {
                    self.await_verify_job(node, success, state, job)
                }
            },
        }))
    }

    /// Whether nodes are verified. While it is not known what the Plan says, those are for which it did.
    fn verifies(&self, announced: bool) -> bool {
        self.plan.spec().verify.is_some() || announced && self.is_spec_unknown()
    }

    fn is_spec_unknown(&self) -> bool {
        self.plan.facts.malformed.is_some() || matches!(self.gate, Some(Blocker::SpecPruned))
    }

    fn create_verify_job(
        &self,
        node: &NodeFacts,
        success: &Record,
        mut state: NodeState,
        name: JobName,
    ) -> NodeState {
        if self.is_spec_unknown() {
            return match self.gate {
                Some(gate) => state.with_blocker(gate),
                None => state,
            };
        }
        if let Some(until) = self.name_conflict_until(name.text()) {
            state.requeue_at = Some(until);
            return state.with_blocker(&Blocker::NameTaken {
                kind: "Job",
                name: name.to_string(),
            });
        }
        if let Some(failure) = self.cluster.memory.failures.get(&Key::Job(name.clone())) {
            let why = failure.message.clone();
            state.set_blocker(&Blocker::JobRefused { why });
        }
        state.with_step(Step::CreateVerifyJob {
            plan: self.plan.facts.name.clone(),
            node: node.name.clone(),
            job: name,
            hash: success.hash.clone(),
            version: success.version.as_str().into(),
            attempt: success.attempt,
            upgrade_job: success.upgrade_id().into(),
        })
    }

    fn await_verify_job(
        &self,
        node: &NodeFacts,
        success: &Record,
        mut state: NodeState,
        job: &JobFacts,
    ) -> NodeState {
        // An edit replaces it, so that a mistake in `verify` need not wait for the deadline. It changes nothing on the
        // node, so it may be replaced at any time.
        let is_current = self.plan.is_at(&success.hash);
        let inputs = job.inputs.as_ref();
        if is_current && !self.is_spec_unknown() && inputs.is_some_and(|inputs| *inputs != self.plan.inputs) {
            return state.with_step(Step::delete(job, "the Plan has been edited"));
        }
        if let Some(why) = self.pod(job).and_then(|pod| pod.waiting.clone()) {
            state.set_reason(Reason::PodWaiting, why);
        }
        self.with_wait(state, job, self.verify_entry(node))
    }

    fn verify_job_name(&self, node: &NodeFacts, record: &Record) -> JobName {
        let plan = &self.plan.facts;
        let upgrade = record.upgrade_id();
        plan.run_id(node, &upgrade).verify_job_name().into()
    }

    /// Whether the Job verifies what the record says.
    fn is_verified_by(&self, node: &NodeFacts, record: &Record, job: &JobFacts) -> bool {
        job.plan_uid == self.plan.facts.uid
            && job.node_uid.as_ref() == Some(&node.uid)
            && job.verifies == Some(record.upgrade_id().into())
    }

    /// Steps for Jobs that verify the node, and whose result does not matter any more.
    pub(super) fn release_verify_jobs(&self, name: &str, node: Option<&NodeFacts>) -> Vec<Step> {
        let is_needed = |job: &JobFacts| {
            let record = node.and_then(|node| Some((node, self.record(node)?)));
            record.is_some_and(|(node, record)| {
                record.phase == Phase::Upgraded
                    && self.verifies(record.verify.is_some())
                    && self.is_verified_by(node, record, job)
            })
        };
        let jobs = self.cluster.world.jobs.verifying(name);
        let jobs = jobs.filter(|job| job.plan == self.plan.facts.name && !job.deleting && !job.recorded);
        let released = jobs.filter(|job| !is_needed(job)).map(|job| {
            // A Job that has ended stays for its TTL, so that users can read its log.
            if job.is_live() || node.is_none() {
                return Step::delete(job, "its node need not be verified any more");
            }
            self.mark_recorded(job, Vec::new()).in_background()
        });
        released.collect()
    }
}
