//! Cancels the drain of a Job that the Plan no longer needs. First the Job's `backoffLimit` prevents further pods. Then
//! the Plan's holder in the node's ledger is marked as `cancelled`. The drain reads the ledger while it waits, and its
//! last step is a patch of the ledger, which then fails. So either the cancellation is first and no upgrade begins, or
//! it is too late and is not written.
//!
//! A cancelled holder also shows that the failure of the Job is none. The controller revokes the cancellation when the
//! Job is recorded, before it creates the next Job. If no Job follows, it removes the holder when it releases the node.

use super::{NodeReconciler, patch};
use crate::blocker::Blocker;
use crate::release::PlanHold;
use crate::step::{NodeChange, Step};
use refit_api::{Holder, names};
use refit_facts::{JobFacts, JobOutcome, NodeFacts, PodStage};

impl NodeReconciler<'_> {
    /// The Plan's holder in ledgers.
    pub(super) fn plan_hold(&self) -> PlanHold<'_> {
        PlanHold {
            defaults: &self.cluster.defaults,
            plan_uid: &self.plan.facts.uid,
        }
    }

    /// Whether the Plan's drain on the node is cancelled.
    pub(super) fn is_cancelled(&self, node: &NodeFacts) -> bool {
        self.plan_hold()
            .holder(node)
            .is_some_and(|holder| holder.cancelled)
    }

    /// The next step to cancel a drain; `None` if it cannot be cancelled, or is already.
    pub(super) fn cancel(&self, node: &NodeFacts, job: &JobFacts) -> Option<Step> {
        // If the Plan is invalid or not resolved, or its fields were pruned, it is not known which Job it needs.
        let unknown = matches!(self.gate, Some(Blocker::NotReady | Blocker::SpecPruned));
        let unknown = unknown || self.plan.selects_unknown() || self.plan.resolved.is_none();
        if unknown && !self.plan.is_aborted() {
            return None;
        }
        let stage = self.pod(job)?.stage;
        // After the drain the upgrade may have begun, and half an upgrade is worse than either version.
        let drains =
            matches!(stage, PodStage::Cordon | PodStage::Drain) && job.outcome == JobOutcome::Running;
        // kubectl, which drains Windows nodes and in Jobs of system-upgrade-controller, does not read the ledger.
        let holder = self
            .plan_hold()
            .holder(node)
            .filter(|holder| drains && job.keeps_ledger() && !holder.completed && !holder.cancelled)?;
        let failures = self.failures(job);
        // First no further pod, then the cancellation: in the other order, the Job would start another pod after the
        // cancelled one.
        if job.backoff_limit > failures {
            return Some(Step::EndRetries {
                job: job.name.clone(),
                uid: job.uid.clone(),
                limit: failures,
            });
        }
        Some(set_cancelled(node, holder, true))
    }

    /// Number of failed pods of a running Job. A pod may be seen to end before its Job counts it.
    pub(super) fn failures(&self, job: &JobFacts) -> i32 {
        let pods = self.cluster.world.pods.of(job);
        // A limit below the number of failures would end the running pod at once.
        let ended = pods.filter(|pod| pod.stage == PodStage::Ended).count();
        job.failures.max(i32::try_from(ended).unwrap_or(i32::MAX))
    }

    /// Revokes a cancellation that was for an earlier Job and arrived late. It would fail every attempt of a Job that
    /// the Plan needs and whose retries are not ended.
    pub(super) fn revoke_late_cancel(&self, node: &NodeFacts, job: &JobFacts) -> Option<Step> {
        let holder = self.plan_hold().holder(node).filter(|holder| holder.cancelled)?;
        let with_message = job.outcome == JobOutcome::Running && job.backoff_limit > self.failures(job);
        (with_message && self.is_wanted(node, job)).then(|| set_cancelled(node, holder, false))
    }

    /// Revokes a cancellation once its drain has ended. It would stop the next drain too.
    pub(super) fn revoke_cancel(&self, node: &NodeFacts) -> Option<Step> {
        let holder = self.plan_hold().holder(node)?;
        let plan = &self.plan.facts.name;
        let job = self
            .jobs_on(&node.name)
            .any(|job| !self.cluster.is_result_recorded(job));
        let pod = self
            .cluster
            .world
            .pods
            .live_on(&node.name)
            .any(|pod| pod.plan == *plan);
        (!job && !pod).then(|| set_cancelled(node, holder, false))
    }
}

/// Changes a holder in the ledger of a node, at the version that was seen, so that a concurrent write of the drain
/// wins.
fn set_cancelled(node: &NodeFacts, holder: &Holder, cancelled: bool) -> Step {
    let holder = Holder {
        cancelled,
        ..holder.clone()
    };
    let ledger = node.ledger.as_ref();
    let text = ledger.map(|ledger| ledger.with_updated(holder).to_text());
    let change = NodeChange::exact().annotate(names::ANNOTATION_CORDON, text);
    patch(node, change, Vec::new())
}
