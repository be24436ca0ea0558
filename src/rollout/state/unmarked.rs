//! Jobs for which only the annotation `refit.rs/recorded` is missing: they succeeded, and their node has the label. No
//! node waits for that annotation, so the background lane writes it, oldest Job first. Meanwhile the Job counts as
//! recorded, even if the label is removed.

use jiff::Timestamp;

use super::ClusterState;
use refit_api::names;
use refit_facts::{JobFacts, JobName, JobOutcome};

impl ClusterState {
    /// Whether its result is recorded, on the Job or on its node. Such a Job is never adopted. If the label of the node is
    /// missing, someone removed it to run the Plan again.
    pub(crate) fn is_spent(&self, job: &JobFacts) -> bool {
        job.recorded
            || self.marking.contains(&job.uid)
            || self.labelled.contains(&job.uid)
            || self
                .nodes
                .get(&job.node)
                .is_some_and(|node| node.was_labelled_for(&job.uid))
    }

    /// Whether only the annotation is missing.
    pub(crate) fn is_unmarked(&self, job: &JobFacts) -> bool {
        job.outcome
            .ended()
            .is_some_and(|at| self.unmarked.contains(&(at, job.name.clone())))
    }

    /// Jobs for which only the annotation is missing, ordered by their end.
    pub(crate) fn unmarked(&self) -> impl Iterator<Item = &JobFacts> {
        let jobs = self.unmarked.iter();
        jobs.filter_map(|(_, job)| self.jobs.get(job).filter(|job| !job.deleting))
    }

    /// Updates the indexes of a node's Jobs after a change of the node or of a Job.
    pub(super) fn file_jobs_on(&mut self, node: &str) {
        let jobs: Vec<_> = self.jobs_on.of(node).cloned().collect();
        for job in jobs {
            self.file_job(&job);
        }
    }

    /// Updates the indexes of a Job.
    pub(super) fn file_job(&mut self, name: &JobName) {
        let Some(job) = self.jobs.get(name).filter(|job| !job.recorded) else {
            return;
        };
        match self.labelled_since(job) {
            Some(at) => {
                self.labelled.insert(job.uid.clone());
                self.open_jobs.drop(&job.plan, name);
                self.unmarked.insert((at, name.clone()));
            }
            None => self.open(name),
        }
    }

    /// Makes each decision look at the node of this Job, because a node may wait for its annotation.
    pub(super) fn open(&mut self, name: &JobName) {
        let Some(job) = self.jobs.get(name).filter(|job| !job.recorded) else {
            return;
        };
        if let Some(at) = job.outcome.ended() {
            self.unmarked.remove(&(at, name.clone()));
        }
        self.open_jobs.add(&job.plan, name);
    }

    /// When the Job succeeded, if its node has the label and nothing else is left to do there.
    fn labelled_since(&self, job: &JobFacts) -> Option<Timestamp> {
        let JobOutcome::Complete { at } = job.outcome else {
            return None;
        };
        // The label is not its result, and no event follows it.
        if job.verifies.is_some() {
            return None;
        }
        let node = self.nodes.get(&job.node)?;
        let label = node.labels.get_joined(names::LABEL_PLAN_PREFIX, &job.plan);
        let is_done = label == Some(&*job.hash)
            && !node.records.contains_key(&job.plan)
            && job.node_uid.as_ref().is_none_or(|uid| *uid == node.uid);
        (is_done && !job.deleting).then_some(at)
    }
}
