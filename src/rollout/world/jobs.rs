//! Jobs, and indexes of them.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::index::Index;
use refit_facts::store::{Put, Store};
use refit_facts::{JobFacts, JobName, JobUid, NodeName, PlanName};

#[derive(Debug, Default)]
pub(crate) struct Jobs {
    pub(crate) table: Store<JobName, JobUid, JobFacts>,
    on: Index<NodeName, JobName>,
    /// Jobs whose result is not recorded, by Plan name, except those in `unmarked`.
    open: Index<PlanName, JobName>,
    /// Jobs for which only the annotation `refit.rs/recorded` is missing, by end time and name.
    lacking_annotation: BTreeSet<(Timestamp, JobName)>,
    /// Jobs that belong to no node, by Plan name. They are in no other index.
    hooks: Index<PlanName, JobName>,
}

impl Jobs {
    pub(crate) fn get(&self, name: &str) -> Option<&JobFacts> {
        self.table.get(name)
    }

    pub(crate) fn is_being_listed(&self) -> bool {
        self.table.is_being_listed()
    }

    /// All Jobs of this controller that upgrade the node of this name.
    pub(crate) fn on(&self, node: &str) -> impl Iterator<Item = &JobFacts> {
        self.all_on(node).filter(|job| job.verifies.is_none())
    }

    /// All Jobs of this controller that verify the node.
    pub(crate) fn verifying(&self, node: &str) -> impl Iterator<Item = &JobFacts> {
        self.all_on(node).filter(|job| job.verifies.is_some())
    }

    /// All Jobs of this controller for the node.
    pub(crate) fn all_on(&self, node: &str) -> impl Iterator<Item = &JobFacts> {
        self.on.of(node).filter_map(|job| self.table.get(job))
    }

    /// The Jobs of a Plan whose result is not recorded.
    pub(crate) fn open_of(&self, plan: &str) -> impl Iterator<Item = &JobFacts> {
        self.open.of(plan).filter_map(|job| self.table.get(job))
    }

    /// The Jobs of all Plans whose result is not recorded, by Plan name.
    pub(crate) fn all_open(&self) -> impl Iterator<Item = &JobFacts> {
        let jobs = self.open.iter().flat_map(|(_, jobs)| jobs);
        jobs.filter_map(|job| self.table.get(job))
    }

    pub(crate) fn has_open(&self) -> bool {
        !self.open.is_empty() || self.hooks().any(JobFacts::is_live)
    }

    /// The Jobs of a Plan that belong to no node.
    pub(crate) fn hooks_of(&self, plan: &str) -> impl Iterator<Item = &JobFacts> {
        self.hooks.of(plan).filter_map(|job| self.table.get(job))
    }

    /// All Jobs that belong to no node.
    pub(crate) fn hooks(&self) -> impl Iterator<Item = &JobFacts> {
        let jobs = self.hooks.iter().flat_map(|(_, jobs)| jobs);
        jobs.filter_map(|job| self.table.get(job))
    }

    /// Whether only the annotation is missing.
    pub(crate) fn lacks_annotation(&self, job: &JobFacts) -> bool {
        let ended = job.outcome.ended();
        ended.is_some_and(|at| self.lacking_annotation.contains(&(at, job.name.clone())))
    }

    /// Jobs for which only the annotation is missing, ordered by their end.
    pub(crate) fn lacking_annotation(&self) -> impl Iterator<Item = &JobFacts> {
        let jobs = self.lacking_annotation.iter();
        jobs.filter_map(|(_, job)| self.table.get(job).filter(|job| !job.deleting))
    }

    /// Stores a Job.
    pub(crate) fn put(&mut self, version: u64, mut facts: JobFacts) -> Put<JobFacts> {
        let (name, uid) = (facts.name.clone(), facts.uid.clone());
        // After a successful delete request the Job counts as deleting, even if the watch still delivers older
        // versions.
        facts.deleting |= self
            .table
            .get(&name)
            .is_some_and(|known| known.uid == facts.uid && known.deleting);
        let (node, hook) = (
            facts.node.clone(),
            facts.hook.is_some().then(|| facts.plan.clone()),
        );
        let put = self.table.put(&name, &uid, version, facts);
        match &put {
            Put::Unchanged => return put,
            Put::Inserted => {}
            Put::Replaced(old) => self.unindex(old),
        }
        match hook {
            Some(plan) => self.hooks.add(&plan, &name),
            None => self.on.add(&node, &name),
        }
        put
    }

    /// A delete request has succeeded.
    pub(crate) fn mark_deleting(&mut self, name: &str, uid: &str) -> bool {
        self.table.alter(name, |job| {
            let change = *job.uid == *uid && !job.deleting;
            job.deleting |= change;
            change
        })
    }

    /// A deleted Job counts as an ended one again, because its result is not recorded.
    pub(crate) fn keep(&mut self, name: &str) -> bool {
        self.table.alter(name, |job| std::mem::take(&mut job.deleting))
    }

    pub(crate) fn remove(&mut self, name: &str, uid: &str) -> bool {
        let Some(old) = self.table.remove(name, uid) else {
            return false;
        };
        self.unindex(&old);
        true
    }

    fn unindex(&mut self, old: &JobFacts) {
        if old.hook.is_some() {
            return self.hooks.drop(&old.plan, &old.name);
        }
        self.open.drop(&old.plan, &old.name);
        if let Some(at) = old.outcome.ended() {
            self.lacking_annotation.remove(&(at, old.name.clone()));
        }
        self.on.drop(&old.node, &old.name);
    }

    /// Makes each decision look at the node of this Job, because a node may wait for its annotation.
    pub(crate) fn file_as_open(&mut self, name: &JobName) {
        let is_open = |job: &&JobFacts| !job.recorded && job.hook.is_none();
        let Some(job) = self.table.get(name).filter(is_open) else {
            return;
        };
        if let Some(at) = job.outcome.ended() {
            self.lacking_annotation.remove(&(at, name.clone()));
        }
        self.open.add(&job.plan, name);
    }

    /// Only the annotation of this Job is missing, which has ended at this time.
    pub(crate) fn file_as_lacking_annotation(&mut self, name: &JobName, ended: Timestamp) {
        if let Some(job) = self.table.get(name) {
            self.open.drop(&job.plan, name);
            self.lacking_annotation.insert((ended, name.clone()));
        }
    }
}
