//! Pods of Jobs, and reboot Pods.

use std::collections::BTreeSet;

use super::index::Index;
use refit_facts::store::{Put, Store};
use refit_facts::{JobFacts, JobUid, NodeName, PodFacts, PodStage, PodUid, Text};

#[derive(Debug, Default)]
pub(crate) struct Pods {
    pub(crate) table: Store<Text, PodUid, PodFacts>,
    of_job: Index<JobUid, Text>,
    /// Pods that are bound and have not ended, by node name, except those in `hooks_on`.
    live_on: Index<NodeName, Text>,
    /// The same of pods that belong to no node, by the node on which they run.
    hooks_on: Index<NodeName, Text>,
    reboots: BTreeSet<Text>,
}

impl Pods {
    pub(crate) fn get(&self, name: &str) -> Option<&PodFacts> {
        self.table.get(name)
    }

    /// The pods that the Job controls. Only those on its node count: what happens elsewhere says nothing about it.
    pub(crate) fn of(&self, job: &JobFacts) -> impl Iterator<Item = &PodFacts> {
        let pods = self.of_job.of(&job.uid).filter_map(|pod| self.table.get(pod));
        pods.filter(|pod| pod.hook || pod.node.as_ref().is_none_or(|node| *node == job.node))
    }

    /// The pods that are bound to a node and have not ended.
    pub(crate) fn live_on(&self, node: &str) -> impl Iterator<Item = &PodFacts> {
        self.live_on.of(node).filter_map(|pod| self.table.get(pod))
    }

    /// The pods that belong to no node, but run on this one.
    pub(crate) fn hooks_on(&self, node: &str) -> impl Iterator<Item = &PodFacts> {
        self.hooks_on.of(node).filter_map(|pod| self.table.get(pod))
    }

    /// All pods that are bound to a node and have not ended.
    pub(crate) fn live(&self) -> impl Iterator<Item = &PodFacts> {
        let pods = self.live_on.iter().flat_map(|(_, pods)| pods);
        pods.filter_map(|pod| self.table.get(pod))
    }

    /// The pods that reboot nodes.
    pub(crate) fn reboots(&self) -> impl Iterator<Item = &PodFacts> {
        self.reboots.iter().filter_map(|name| self.table.get(name))
    }

    /// Whether a pod may run on a node.
    pub(crate) fn may_run(&self) -> bool {
        !self.live_on.is_empty() || !self.hooks_on.is_empty() || !self.reboots.is_empty()
    }

    /// Stores a pod. Returns whether it has changed.
    pub(crate) fn put(&mut self, version: u64, mut facts: PodFacts) -> bool {
        let (name, uid) = (facts.name.clone(), facts.uid.clone());
        // After a successful delete request the watch may still deliver older versions.
        facts.deleting |= self
            .table
            .get(&name)
            .is_some_and(|known| known.uid == facts.uid && known.deleting);
        match self.table.put(&name, &uid, version, facts) {
            Put::Unchanged => return false,
            Put::Inserted => {}
            Put::Replaced(old) => self.unindex(&old),
        }
        if let Some(new) = self.table.get(&name).filter(|pod| !pod.foreign) {
            self.of_job.add(&new.job_uid, &name);
            if new.reboot.is_some() {
                self.reboots.insert(name.clone());
            }
            if let Some(node) = new.node.as_ref().filter(|_| new.stage != PodStage::Ended) {
                let index = if new.hook {
                    &mut self.hooks_on
                } else {
                    &mut self.live_on
                };
                index.add(node, &name);
            }
        }
        true
    }

    /// A delete request has succeeded. The pod is gone once the watch says so.
    pub(crate) fn mark_deleting(&mut self, name: &str, uid: &str) -> bool {
        self.table.alter(name, |pod| {
            let change = *pod.uid == *uid && !pod.deleting;
            pod.deleting |= change;
            change
        })
    }

    pub(crate) fn remove(&mut self, name: &str, uid: &str) -> Option<PodFacts> {
        let old = self.table.remove(name, uid)?;
        self.unindex(&old);
        Some(old)
    }

    fn unindex(&mut self, old: &PodFacts) {
        self.of_job.drop(&old.job_uid, &old.name);
        self.reboots.remove(&old.name);
        if let Some(node) = &old.node {
            self.live_on.drop(node, &old.name);
            self.hooks_on.drop(node, &old.name);
        }
    }
}
