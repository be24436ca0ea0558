//! How many pods each controller has.

use std::collections::HashMap;

use crate::pods::{has_ended, is_ready};
use crate::store::{Change, Object};

/// Number of pods of each controller, updated with each change, as in [`Budgets`](super::selected_pods::Budgets).
#[derive(Debug, Default)]
pub(crate) struct Replicas(HashMap<String, PodCounts>);

/// Pods of one controller that have not ended and are not being deleted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PodCounts {
    pub(super) active: usize,
    pub(super) ready: usize,
}

impl Replicas {
    /// Counts a changed pod.
    pub(crate) fn apply(&mut self, change: &Change) {
        // A pod that is being deleted does not count, so its replacement does not wait for it (`FilterActivePods`).
        let counted = |pod: &Object| !has_ended(pod) && !pod.is_being_deleted();
        if let Some(old) = change.old.as_ref().filter(|pod| counted(pod))
            && let Some(counts) = old.controller().and_then(|uid| self.0.get_mut(uid))
        {
            counts.active -= 1;
            counts.ready -= usize::from(is_ready(&old.value));
        }
        let new = &change.new;
        if !change.gone
            && counted(new)
            && let Some(uid) = new.controller()
        {
            let counts = self.0.entry(uid.to_owned()).or_default();
            counts.active += 1;
            counts.ready += usize::from(is_ready(&new.value));
        }
        // A controller that has no pods is forgotten: there are as many Jobs as nodes.
        if let Some(uid) = new.controller()
            && self.0.get(uid).is_some_and(|counts| counts.active == 0)
        {
            self.0.remove(uid);
        }
    }

    pub(super) fn of(&self, controller: &str) -> PodCounts {
        self.0.get(controller).copied().unwrap_or_default()
    }
}
