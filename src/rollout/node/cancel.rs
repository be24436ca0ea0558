//! A drain of a Job that the Plan no longer asks for is told to stop. First the Job is to have no further pod, then the
//! Plan's holder in the node's ledger is marked: the drain looks there while it waits, and its last act is a patch of the
//! ledger that fails then. So either the mark comes first and no upgrade begins, or it comes too late and is not made.
//!
//! The mark is what tells that the failure of the Job is none. It is taken back when the Job's result is recorded, before
//! the next Job is made; where none follows, the holder goes with it when the node is given back.

use super::{Question, patch};
use crate::api::names;
use crate::rollout::Holder;
use crate::rollout::blocker::Blocker;
use crate::rollout::facts::{JobFacts, NodeFacts, Outcome, Stage};
use crate::rollout::give_back::Mine;
use crate::rollout::step::{NodeChange, Step};

impl Question<'_> {
    /// Whose holder in a ledger is the Plan's.
    pub(super) fn mine(&self) -> Mine<'_> {
        Mine {
            defaults: &self.world.defaults,
            plan_uid: &self.plan.facts.uid,
        }
    }

    /// The Plan's drain on the node has been told to stop.
    pub(super) fn is_cancelled(&self, node: &NodeFacts) -> bool {
        self.mine().holder(node).is_some_and(|mine| mine.cancelled)
    }

    /// The next step on the way to the end of a drain; nothing where it cannot be stopped, or has been told.
    pub(super) fn cancel(&self, node: &NodeFacts, job: &JobFacts) -> Option<Step> {
        // Of a Plan that is not valid, not resolved or not whole it is not known what it asks for.
        let unknown = matches!(self.gate, Some(Blocker::NotReady | Blocker::SpecPruned));
        if unknown || self.plan.selector_error.is_some() {
            return None;
        }
        let stage = self.pod(job)?.stage;
        let drains = matches!(stage, Stage::Cordon | Stage::Drain) && job.outcome == Outcome::Running;
        let mine = self
            .mine()
            .holder(node)
            .filter(|mine| drains && job.keeps_ledger() && !mine.passed && !mine.cancelled)?;
        let failures = self.failures(job);
        if job.backoff_limit > failures {
            return Some(Step::EndRetries {
                job: job.name.clone(),
                uid: job.uid.clone(),
                limit: failures,
            });
        }
        Some(say(
            node,
            Holder {
                cancelled: true,
                ..mine.clone()
            },
        ))
    }

    /// How many pods of a Job have failed that has not ended. One may be seen to end before its Job counts it.
    pub(super) fn failures(&self, job: &JobFacts) -> i32 {
        let pods = self.world.pods_of(&job.uid);
        let ended = pods.filter(|pod| pod.stage == Stage::Ended).count();
        job.failures.max(i32::try_from(ended).unwrap_or(i32::MAX))
    }

    /// Takes a mark back that was meant for an earlier Job and came late: it would stop each try of one that is wanted and
    /// that nobody has told to have no further pod.
    pub(super) fn clears(&self, node: &NodeFacts, job: &JobFacts) -> Option<Step> {
        let mine = self.mine().holder(node).filter(|mine| mine.cancelled)?;
        let goes_on = job.outcome == Outcome::Running && job.backoff_limit > self.failures(job);
        (goes_on && self.is_wanted(node, job)).then(|| {
            say(
                node,
                Holder {
                    cancelled: false,
                    ..mine.clone()
                },
            )
        })
    }

    /// Takes the mark back, once nobody is left for whom it was meant: it would stop the next drain as well.
    pub(super) fn take_back(&self, node: &NodeFacts) -> Option<Step> {
        let mine = self.mine().holder(node)?;
        let plan = &self.plan.facts.name;
        let job = self.jobs_on(&node.name).any(|job| !self.world.is_spent(job));
        let pod = self.world.live_pods_on(&node.name).any(|pod| pod.plan == *plan);
        (!job && !pod).then(|| {
            say(
                node,
                Holder {
                    cancelled: false,
                    ..mine.clone()
                },
            )
        })
    }
}

/// Changes a holder in the ledger of a node, in the version that was seen: another word of the node side comes first.
fn say(node: &NodeFacts, holder: Holder) -> Step {
    let mut change = NodeChange {
        exact: true,
        ..NodeChange::default()
    };
    let text = node.ledger.as_ref().map(|ledger| ledger.with(holder).to_text());
    change
        .annotations
        .insert(names::ANNOTATION_CORDON.to_owned(), text);
    patch(node, change, Vec::new())
}
