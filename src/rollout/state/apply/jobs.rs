//! Jobs, and Jobs whose creation is not confirmed.

use jiff::Timestamp;

use crate::state::ClusterState;
use crate::state::table::Put;
use refit_facts::{JobFacts, JobName};

impl ClusterState {
    pub(super) fn apply_job(&mut self, version: u64, mut facts: JobFacts) -> bool {
        let (name, uid) = (facts.name.clone(), facts.uid.clone());
        // The Job exists, or existed: a late response to its creation holds no slot. A Job for another node had the
        // name before, and says nothing about a request in flight.
        self.pending_creates.retain(|(_, node), pending_create| {
            let is_another = *node != facts.node && pending_create.in_flight && !pending_create.unknown;
            pending_create.job != name || is_another
        });
        // After a successful delete request the Job counts as deleting, even if the watch still delivers older
        // versions.
        facts.deleting |= self
            .jobs
            .get(&name)
            .is_some_and(|known| known.uid == facts.uid && known.deleting);
        match self.jobs.put(&name, &uid, version, facts) {
            Put::Unchanged => return false,
            Put::Inserted => {}
            Put::Replaced(old) => {
                // The name was used again, and the deletion of the earlier Job was missed during a break of the
                // watch.
                if old.uid != uid {
                    self.forget_job(&old.uid);
                }
                self.unindex_job(&old);
            }
        }
        if let Some(new) = self.jobs.get(&name) {
            if !new.is_made_by_suc() {
                self.keeps_replacement_policy = Some(new.has_replacement_policy);
            }
            if new.recorded {
                self.marking.remove(&new.uid);
                self.labelled.remove(&new.uid);
            }
            self.jobs_on.add(&new.node, &name);
            let (plan, node) = (&new.plan, &new.node);
            // If this Job is lost later, the node must be asked for its boot before another one is created.
            if new.verifies.is_none() {
                self.unstarted_slots.retain(|(of, uid)| {
                    of != plan || self.nodes.get(node).is_none_or(|node| node.uid != *uid)
                });
            }
        }
        self.file_job(&name);
        self.name_conflicts.remove(name.text());
        true
    }

    /// A delete request has succeeded. The Job is gone once the watch says so, which may have been earlier.
    pub(super) fn mark_job_deleting(&mut self, name: &str, uid: &str) -> bool {
        if self.deleted_unrecorded.contains(uid) {
            return false;
        }
        self.jobs.alter(name, |job| {
            let change = *job.uid == *uid && !job.deleting;
            job.deleting |= change;
            change
        })
    }

    /// Removes a Job. If it has ended and its result is not recorded, it stays known until then, because its upgrade
    /// has run and must not run again. The step that records it finds it missing and drops it.
    pub(super) fn remove_job(&mut self, name: &str, uid: &str) -> bool {
        if let Some(job) = self.jobs.get(name)
            && *job.uid == *uid
            && self.is_needed(job)
            && self.deleted_unrecorded.insert(uid.into())
        {
            // Not deleting, so that the next decision treats it as an ended Job and records its result.
            return self.jobs.alter(name, |job| std::mem::take(&mut job.deleting));
        }
        self.forget_job(uid);
        let Some(old) = self.jobs.remove(name, uid, |j| &j.uid) else {
            return false;
        };
        self.unindex_job(&old);
        true
    }

    fn forget_job(&mut self, uid: &str) {
        self.deleted_unrecorded.remove(uid);
        self.marking.remove(uid);
        self.labelled.remove(uid);
        self.termination_messages.remove(uid);
    }

    /// Whether the Job has ended and its result is not recorded on its machine.
    fn is_needed(&self, job: &JobFacts) -> bool {
        let plan = self.plans.get(&job.plan);
        let node = self.nodes.get(&job.node);
        !job.recorded
            && !self.marking.contains(&job.uid)
            && job.outcome.ended().is_some()
            && plan.is_some_and(|plan| plan.facts.uid == job.plan_uid)
            && node.is_some_and(|node| job.node_uid.as_ref().is_none_or(|uid| *uid == node.uid))
    }

    fn unindex_job(&mut self, old: &JobFacts) {
        self.open_jobs.drop(&old.plan, &old.name);
        if let Some(at) = old.outcome.ended() {
            self.unmarked.remove(&(at, old.name.clone()));
        }
        self.jobs_on.drop(&old.node, &old.name);
    }

    /// A Job was requested, and it is not known whether it was created.
    pub(super) fn mark_create_unconfirmed(&mut self, job: &str) {
        if self.jobs.get(job).is_some() {
            return;
        }
        let asked = self
            .pending_creates
            .values_mut()
            .filter(|pending_create| *pending_create.job == *job);
        asked.for_each(|pending_create| pending_create.unknown = true);
    }

    /// A lookup has not found the Job.
    pub(super) fn mark_create_absent(&mut self, job: &str) {
        let asked = self
            .pending_creates
            .values_mut()
            .filter(|pending_create| *pending_create.job == *job);
        asked.for_each(|pending_create| pending_create.unknown = false);
    }

    /// Someone else's Job had this name at that time.
    pub(super) fn record_name_conflict(&mut self, job: &JobName, now: Timestamp) {
        self.pending_creates
            .retain(|_, pending_create| pending_create.job != *job);
        self.name_conflicts.insert(job.text().clone(), now);
    }
}
