//! Reboots of a node during its Job. A payload may reboot its node once: its pod dies, and the next one finds the work
//! done. The controller stops a payload that reboots its node repeatedly. It also stops the Job of a Plan with `reboot`
//! if the node went down during `upgrade`, because the upgrade may be incomplete.

use super::NodeReconciler;
use super::fail::failed_state;
use super::state::NodeState;
use crate::step::Step;
use refit_api::Reason;
use refit_facts::record::{Phase, Record};
use refit_facts::{JobFacts, NodeFacts, PodFacts, PodStage};

/// Maximum number of boots during a Job: the one in which it was created, and one more.
const MAX_BOOTS: usize = 2;

impl NodeReconciler<'_> {
    /// Fails a running Job whose node has rebooted too often, or that would try again what has failed under a Plan that no
    /// longer wants it. The failure is written to the node first, then the Job is ended. `None` if that is not so.
    pub(super) fn stop_for_good(&self, node: &NodeFacts, job: &JobFacts) -> Option<NodeState> {
        let written = self.record(node).filter(|record| {
            *record.job_uid == *job.uid && matches!(record.phase, Phase::Failed | Phase::Retry)
        });
        if let Some(record) = written {
            let mut state = failed_state(node, record);
            state.steps.extend(self.end_retries(job));
            return Some(state);
        }
        let ended = if self.plan.is_aborted() {
            Some("its Plan was aborted before another attempt")
        } else if self.was_done(node, job) {
            Some("its Plan returned to the version before, before another attempt")
        } else {
            None
        };
        let (reason, message) = if let Some(why) = ended.filter(|_| self.has_failed_in_upgrade(job)) {
            // To release the node would say that nothing has happened there.
            let took = self.now.duration_since(job.created);
            self.failure_cause(job, [Reason::ContainerFailed.name(), why], took, None)
        } else if job.sentinel {
            let is_lost = |pod: &PodFacts| pod.sentinel_result.is_none();
            (job.boots.len() > 1 && self.ended_in_upgrade(job).any(is_lost)).then(|| {
                (
                    Reason::UpgradeInterrupted.into(),
                    "the node went down during its upgrade, which may be incomplete: check the node, then set refit.rs/retry on it".to_owned(),
                )
            })?
        } else if job.boots.len() > MAX_BOOTS && self.failures(job) > 0 {
            // A payload that reboots its node fails its own pod. Without a failed pod, something else has rebooted
            // the node.
            let times = job.boots.len() - 1;
            (
                Reason::RebootLoop.into(),
                format!(
                    "the node has rebooted {times} times under one Job, and its upgrade has not ended: the payload must exit with 0 without a reboot"
                ),
            )
        } else {
            return None;
        };
        let record = Record {
            reason: Some(reason),
            message: Some(message.clone()),
            ..self.failure_record(node, job, self.now)
        };
        let event = self.failed_event(job, node, &record);
        Some(failed_state(node, &record).with_step(self.patch_record(node, &record, vec![event])))
    }

    /// The pods of the Job that ended after their `upgrade` had started. None if one runs `upgrade` now, which the end of
    /// the Job would kill.
    fn ended_in_upgrade(&self, job: &JobFacts) -> impl Iterator<Item = &PodFacts> {
        let pods = || self.cluster.world.pods.of(job);
        let upgrades = pods().any(|pod| pod.stage == PodStage::Upgrade && !pod.deleting);
        pods().filter(move |pod| !upgrades && pod.upgraded && pod.stage == PodStage::Ended)
    }

    /// Whether all attempts of `upgrade` have failed so far. The Job of one that has succeeded is complete a second later.
    fn has_failed_in_upgrade(&self, job: &JobFacts) -> bool {
        let mut ended = self.ended_in_upgrade(job).peekable();
        ended.peek().is_some() && ended.all(|pod| pod.failed.is_some())
    }

    /// Ends a Job at once, whatever its pod does.
    fn end_retries(&self, job: &JobFacts) -> Option<Step> {
        // The Job controller fails a Job with more failed pods than `backoffLimit`, and deletes its pods
        // (kubernetes/kubernetes, pkg/controller/job/job_controller.go).
        let limit = self.failures(job).checked_sub(1)?;
        (job.backoff_limit > limit).then(|| Step::EndRetries {
            job: job.name.clone(),
            uid: job.uid.clone(),
            limit,
        })
    }
}

/// Records the current boot of a node on a Job.
pub(super) fn note_boot(node: &NodeFacts, job: &JobFacts) -> Option<Step> {
    // The list begins at the creation of a refit Job. One of system-upgrade-controller has none to compare with.
    let known = job.boots.is_empty() || node.boot_id.is_empty() || job.boots.contains(&node.boot_id);
    // More are not read, so that the list would never be complete.
    let is_full = job.boots.len() >= JobFacts::MAX_BOOTS;
    (!known && !is_full).then(|| Step::NoteBoots {
        job: job.name.clone(),
        uid: job.uid.clone(),
        boots: job.boots.iter().chain([&node.boot_id]).cloned().collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use refit_facts::BootId;

    #[test]
    fn a_boot_is_added_to_the_list_of_a_job_until_the_list_is_full() {
        let node = refit_fixtures::node("a", "a-uid");
        let plan = refit_fixtures::read(refit_fixtures::plan("p"));
        let mut job = refit_fixtures::job("j", &plan, &node, "hash");
        let boots = |count: usize| (0..count).map(|number| BootId::from(format!("before-{number}").as_str()));
        job.boots = boots(JobFacts::MAX_BOOTS - 1).collect();
        assert!(note_boot(&node, &job).is_some());
        job.boots = boots(JobFacts::MAX_BOOTS).collect();
        assert_eq!(note_boot(&node, &job), None);
    }
}
