//! The garbage collector: deletes dependents with their owners, or orphans them.

use crate::delete::DeleteOptions;
use crate::json::Value;
use crate::resources::Kind;
use crate::state::State;
use crate::store::Key;
use crate::strategy::{FOREGROUND, ORPHAN, TRACKING};
use crate::work_queue::Work;
use crate::write::WriteTarget;

impl State {
    /// Deletes the dependents of a deleted object that have no other owner.
    pub(crate) fn collect_dependents(&mut self, gone: &str) {
        if self.store.find(gone).is_some() {
            return;
        }
        let owned: Vec<(Kind, Key)> = self.store.owned_by(gone).cloned().collect();
        for (kind, key) in owned {
            let Some(object) = self.store.get(kind, &key).cloned() else {
                continue;
            };
            if kind == Kind::Pod {
                self.enqueue(Work::FinalizeStrayPod(key.clone()));
            }
            // One existing owner is enough to keep an object (`attemptToDeleteItem`).
            if object.owners().any(|other| self.store.find(other).is_some()) {
                self.disown(kind, &key, gone);
            } else if !object.is_being_deleted() {
                let deletion = DeleteOptions {
                    uid: Some(object.uid().to_owned()),
                    // By default, the deletion of a Job would orphan its pods.
                    propagation: Some("Background".to_owned()),
                    ..DeleteOptions::default()
                };
                // The object cannot have changed since it was read.
                let _ = self.delete(kind, &key, &deletion);
            }
        }
    }

    /// Processes an object that waits for its dependents to be deleted or orphaned.
    pub(crate) fn finalize_owner(&mut self, uid: &str) {
        let Some((kind, key)) = self.store.find(uid).cloned() else {
            return;
        };
        let Some(object) = self.store.get(kind, &key).cloned() else {
            return;
        };
        let waits_for = |finalizer: &str| has_finalizer(&object.value, finalizer);
        let owned: Vec<(Kind, Key)> = self.store.owned_by(uid).cloned().collect();
        if waits_for(ORPHAN) {
            for (kind, key) in owned {
                self.disown(kind, &key, uid);
                if kind == Kind::Pod {
                    self.enqueue(Work::FinalizeStrayPod(key));
                }
            }
            self.remove_finalizer(kind, &key, ORPHAN);
        } else if waits_for(FOREGROUND) {
            if owned.is_empty() {
                self.remove_finalizer(kind, &key, FOREGROUND);
                return;
            }
            for (kind, key) in owned {
                let leaving = self
                    .store
                    .get(kind, &key)
                    .is_some_and(|one| one.is_being_deleted());
                if !leaving {
                    let deletion = DeleteOptions {
                        propagation: Some("Background".to_owned()),
                        ..DeleteOptions::default()
                    };
                    let _ = self.delete(kind, &key, &deletion);
                }
                if kind == Kind::Pod {
                    self.enqueue(Work::FinalizeStrayPod(key));
                }
            }
        }
    }

    /// Removes the finalizer of a pod whose Job is gone, or no longer owns it, and will not count it. No other
    /// controller would, so the pod could never be deleted (`syncOrphanPod`).
    pub(crate) fn finalize_stray_pod(&mut self, key: &Key) {
        let Some(pod) = self.store.get(Kind::Pod, key).cloned() else {
            return;
        };
        let job = pod.controller().and_then(|uid| self.store.find(uid)).cloned();
        let looked_after = job.is_some_and(|(kind, key)| {
            kind == Kind::Job
                && self
                    .store
                    .get(kind, &key)
                    .is_some_and(|job| !job.is_being_deleted())
        });
        if !looked_after && has_finalizer(&pod.value, TRACKING) {
            self.remove_finalizer(Kind::Pod, key, TRACKING);
        }
    }

    pub(crate) fn remove_finalizer(&mut self, kind: Kind, key: &Key, finalizer: &str) {
        let _ = self.change(kind, key, WriteTarget::Whole, |new| {
            if let Some(finalizers) = new["metadata"]["finalizers"].as_array_mut() {
                finalizers.retain(|one| one != finalizer);
            }
        });
    }

    fn disown(&mut self, kind: Kind, key: &Key, owner: &str) {
        let _ = self.change(kind, key, WriteTarget::Whole, |new| {
            if let Some(owners) = new["metadata"]["ownerReferences"].as_array_mut() {
                owners.retain(|one| one["uid"] != owner);
            }
        });
    }
}

pub(crate) fn has_finalizer(value: &Value, finalizer: &str) -> bool {
    let finalizers = value["metadata"]["finalizers"].as_array();
    finalizers.into_iter().flatten().any(|one| one == finalizer)
}
