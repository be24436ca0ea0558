//! The garbage collector: what is owned goes with its owners, or is left behind where that was asked for.

use crate::rehearse::agenda::Work;
use crate::rehearse::deletion::Deletion;
use crate::rehearse::json::Value;
use crate::rehearse::resources::Kind;
use crate::rehearse::rules::{FOREGROUND, ORPHAN, TRACKING};
use crate::rehearse::state::State;
use crate::rehearse::store::Key;
use crate::rehearse::write::Part;

impl State {
    /// An object is not there any more: nor is what only it owned.
    pub(in crate::rehearse) fn collect(&mut self, gone: &str) {
        if self.store.find(gone).is_some() {
            return;
        }
        let owned: Vec<(Kind, Key)> = self.store.owned_by(gone).cloned().collect();
        for (kind, key) in owned {
            let Some(object) = self.store.get(kind, &key).cloned() else {
                continue;
            };
            if kind == Kind::Pod {
                self.soon(Work::Stray(key.clone()));
            }
            if object.owners().any(|other| self.store.find(other).is_some()) {
                self.disown(kind, &key, gone);
            } else if !object.is_leaving() {
                let deletion = Deletion {
                    uid: Some(object.uid().to_owned()),
                    propagation: Some("Background".to_owned()),
                    ..Deletion::default()
                };
                // Nobody can have been faster.
                let _ = self.delete(kind, &key, &deletion);
            }
        }
    }

    /// An object is to go, and waits for what becomes of its dependents.
    pub(in crate::rehearse) fn release(&mut self, uid: &str) {
        let Some((kind, key)) = self.store.find(uid).cloned() else {
            return;
        };
        let Some(object) = self.store.get(kind, &key).cloned() else {
            return;
        };
        let waits_for = |finalizer: &str| has(&object.value, finalizer);
        let owned: Vec<(Kind, Key)> = self.store.owned_by(uid).cloned().collect();
        if waits_for(ORPHAN) {
            for (kind, key) in owned {
                self.disown(kind, &key, uid);
                if kind == Kind::Pod {
                    self.soon(Work::Stray(key));
                }
            }
            self.let_go(kind, &key, ORPHAN);
        } else if waits_for(FOREGROUND) {
            if owned.is_empty() {
                self.let_go(kind, &key, FOREGROUND);
                return;
            }
            for (kind, key) in owned {
                let leaving = self.store.get(kind, &key).is_some_and(|one| one.is_leaving());
                if !leaving {
                    let deletion = Deletion {
                        propagation: Some("Background".to_owned()),
                        ..Deletion::default()
                    };
                    let _ = self.delete(kind, &key, &deletion);
                }
                if kind == Kind::Pod {
                    self.soon(Work::Stray(key));
                }
            }
        }
    }

    /// A pod whose Job is gone, going, or its Job no more: nobody will count it.
    pub(in crate::rehearse) fn let_stray_go(&mut self, key: &Key) {
        let Some(pod) = self.store.get(Kind::Pod, key).cloned() else {
            return;
        };
        let job = pod.controller().and_then(|uid| self.store.find(uid)).cloned();
        let looked_after = job.is_some_and(|(kind, key)| {
            kind == Kind::Job && self.store.get(kind, &key).is_some_and(|job| !job.is_leaving())
        });
        if !looked_after && has(&pod.value, TRACKING) {
            self.let_go(Kind::Pod, key, TRACKING);
        }
    }

    /// Takes a finalizer away.
    pub(in crate::rehearse) fn let_go(&mut self, kind: Kind, key: &Key, finalizer: &str) {
        let _ = self.update(kind, key, Part::Whole, false, |old| {
            let mut new = old.clone();
            if let Some(finalizers) = new["metadata"]["finalizers"].as_array_mut() {
                finalizers.retain(|one| one != finalizer);
            }
            Ok(new)
        });
    }

    fn disown(&mut self, kind: Kind, key: &Key, owner: &str) {
        let _ = self.update(kind, key, Part::Whole, false, |old| {
            let mut new = old.clone();
            if let Some(owners) = new["metadata"]["ownerReferences"].as_array_mut() {
                owners.retain(|one| one["uid"] != owner);
            }
            Ok(new)
        });
    }
}

/// Whether an object has a finalizer.
pub(in crate::rehearse) fn has(value: &Value, finalizer: &str) -> bool {
    let finalizers = value["metadata"]["finalizers"].as_array();
    finalizers.into_iter().flatten().any(|one| one == finalizer)
}
