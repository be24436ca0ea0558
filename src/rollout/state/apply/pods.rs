//! Pods of Jobs, and reboot Pods.

use crate::state::table::Put;
use crate::state::{ClusterState, is_live};
use refit_facts::PodFacts;

impl ClusterState {
    pub(super) fn apply_pod(&mut self, version: u64, mut facts: PodFacts) -> bool {
        let (name, uid) = (facts.name.clone(), facts.uid.clone());
        // After a successful delete request the watch may still deliver older versions.
        facts.deleting |= self
            .pods
            .get(&name)
            .is_some_and(|known| known.uid == facts.uid && known.deleting);
        self.name_conflicts.remove(&name);
        match self.pods.put(&name, &uid, version, facts) {
            Put::Unchanged => return false,
            Put::Inserted => {}
            Put::Replaced(old) => self.unindex_pod(&old),
        }
        if let Some(new) = self.pods.get(&name).filter(|pod| !pod.foreign) {
            self.pods_of.add(&new.job_uid, &name);
            if new.reboot.is_some() {
                self.reboot_pods.insert(name.clone());
            }
            if let Some(node) = new.node.as_ref().filter(|_| is_live(new)) {
                self.live_pods_on.add(node, &name);
            }
        }
        true
    }

    /// A delete request has succeeded. The pod is gone once the watch says so.
    pub(super) fn mark_pod_deleting(&mut self, name: &str, uid: &str) -> bool {
        self.pods.alter(name, |pod| {
            let change = *pod.uid == *uid && !pod.deleting;
            pod.deleting |= change;
            change
        })
    }

    pub(super) fn remove_pod(&mut self, name: &str, uid: &str) -> bool {
        let Some(old) = self.pods.remove(name, uid, |p| &p.uid) else {
            return false;
        };
        self.unindex_pod(&old);
        // Kept as long as its Job is known.
        if let Some(message) = old.termination_message
            && let Some(node) = &old.node
            && self.all_jobs_on(node).any(|job| job.uid == old.job_uid)
        {
            self.termination_messages.insert(old.job_uid, message);
        }
        true
    }

    fn unindex_pod(&mut self, old: &PodFacts) {
        self.pods_of.drop(&old.job_uid, &old.name);
        self.reboot_pods.remove(&old.name);
        if let Some(node) = &old.node {
            self.live_pods_on.drop(node, &old.name);
        }
    }
}
