//! Reboots of a node while its Job is there. A payload may reboot its node by itself, once: its pod dies, and the next one
//! shows that the work is done. One that reboots it again and again is stopped, and so is the Job of a Plan that reboots by
//! itself when the node went down in the middle of its upgrade: nobody knows how far that came.

use super::fail::has_failed;
use super::{Question, Standing, patch, record_key};
use crate::rollout::event::EventType;
use crate::rollout::facts::{JobFacts, NodeFacts, Stage, Text};
use crate::rollout::record::{Phase, Record};
use crate::rollout::step::{NodeChange, Step};

/// How many boots a Job is given: the one in which it was made, and one more.
const BOOTS: usize = 2;

impl Question<'_> {
    /// A Job that has not ended, and whose node has rebooted too often under it: its failure is written on the node first,
    /// and then the Job is ended. Nothing where that is not so.
    pub(super) fn stopped(&self, node: &NodeFacts, job: &JobFacts) -> Option<Standing> {
        let written = self.record(node).filter(|record| {
            *record.job_uid == *job.uid && matches!(record.phase, Phase::Failed | Phase::Retry)
        });
        if let Some(record) = written {
            let mut standing = has_failed(node, record);
            standing.steps.extend(self.end(job));
            return Some(standing);
        }
        let (reason, message) = if job.sentinel {
            self.was_interrupted(job).then(|| {
                (
                    "UpgradeInterrupted",
                    "the node went down during its upgrade, and nobody knows how far that came".to_owned(),
                )
            })?
        } else if job.boots.len() > BOOTS && self.failures(job) > 0 {
            let times = job.boots.len() - 1;
            (
                "RebootLoop",
                format!("the node has rebooted {times} times under one Job, and its upgrade has not ended"),
            )
        } else {
            return None;
        };
        let record = Record {
            reason: Some(reason.to_owned()),
            message: Some(message.clone()),
            ..self.failure_record(node, job, self.now)
        };
        let mut change = NodeChange::default();
        change
            .annotations
            .insert(record_key(&self.plan.facts.name), Some(record.to_text()));
        let text = self.failed_text(job, node, reason, &message);
        let event = self.job_event(EventType::Warning, "JobFailed", text, &job.uid);
        Some(has_failed(node, &record).then(patch(node, change, vec![event])))
    }

    /// The node has rebooted since the Job was made, a pod of it ended after its upgrade had begun, and none upgrades now.
    fn was_interrupted(&self, job: &JobFacts) -> bool {
        let mut pods = self.world.pods_of(&job.uid);
        let upgrades = self
            .world
            .pods_of(&job.uid)
            .any(|pod| pod.stage == Stage::Upgrade && !pod.deleting);
        job.boots.len() > 1
            && !upgrades
            && pods.any(|pod| pod.upgraded && pod.stage == Stage::Ended && pod.found.is_none())
    }

    /// Lets a Job fail at once, whatever its pod is at.
    fn end(&self, job: &JobFacts) -> Option<Step> {
        let limit = self.failures(job).checked_sub(1)?;
        (job.backoff_limit > limit).then(|| Step::EndRetries {
            job: job.name.clone(),
            uid: job.uid.clone(),
            limit,
        })
    }
}

/// Notes on a Job the boot that its node is in now.
pub(super) fn note_boot(node: &NodeFacts, job: &JobFacts) -> Option<Step> {
    let known = job.boots.is_empty() || node.boot_id.is_empty() || job.boots.contains(&node.boot_id);
    (!known).then(|| Step::NoteBoots {
        job: job.name.clone(),
        uid: job.uid.clone(),
        boots: job.boots.iter().chain([&node.boot_id]).map(Text::clone).collect(),
    })
}
