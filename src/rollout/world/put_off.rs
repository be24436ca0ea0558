//! Marks that are put off while there is something better to do. The nodes of such Jobs are done and say so, and a Job of
//! which that is known is spent, marked or not; whoever knows nothing of it, as a successor, has the label of the node.

use super::World;
use crate::rollout::facts::{JobFacts, Text};
use crate::rollout::step::Step;

impl World {
    /// The mark of a Job waits: no decision asks for it again until its node changes or it is taken up. Says the name of the
    /// Job, once.
    pub fn puts_off(&mut self, step: &Step) -> Option<Text> {
        let Step::MarkRecorded { job, uid, .. } = step else {
            return None;
        };
        let known = self.jobs.get(job).filter(|known| known.uid == *uid)?;
        self.open_jobs.drop(&known.plan, job);
        self.marking.insert(uid.clone());
        self.put_off.insert(job.clone()).then(|| job.clone())
    }

    /// Its result is recorded: on the Job, or on its node at least.
    pub(in crate::rollout) fn is_spent(&self, job: &JobFacts) -> bool {
        job.recorded || self.marking.contains(&job.uid)
    }

    /// The next decision asks for the mark of this Job, if that was put off.
    pub fn takes_up(&mut self, job: &str) {
        if let Some(job) = self.put_off.take(job)
            && let Some(facts) = self.jobs.get(&job)
        {
            self.open_jobs.add(&facts.plan, &job);
        }
    }

    /// A node is not as it was: what is to become of its Jobs is asked again.
    pub(super) fn take_up_on(&mut self, node: &str) {
        let jobs = self.jobs_on.of(node).filter(|job| self.put_off.contains(*job));
        for job in jobs.cloned().collect::<Vec<_>>() {
            self.takes_up(&job);
        }
    }
}
