//! Which reads a drain may leave out, because their answer cannot have changed.
//!
//! A real cluster does not say that, so a drain asks again and again. The simulated cluster does: of the processor time of a
//! rehearsal with drains, these reads would take a third.

use std::sync::{Arc, Mutex, PoisonError};

/// When a node, and when the pods on it, last changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeVersions {
    pub node: u64,
    pub pods: u64,
}

/// Tells these versions of a node by its name.
pub type Changes = Arc<dyn Fn(&str) -> NodeVersions + Send + Sync>;

/// The last answer to a read, and the version before it was asked for.
#[derive(Debug)]
pub(super) struct LastAnswer<T>(Arc<Mutex<Option<(u64, T)>>>);

impl<T> Clone for LastAnswer<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Default for LastAnswer<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T: Clone> LastAnswer<T> {
    /// The answer, unless something has changed since.
    pub(super) fn at(&self, version: Option<u64>) -> Option<T> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (of, answer) = known.as_ref()?;
        (Some(*of) == version).then(|| answer.clone())
    }

    pub(super) fn keep(&self, version: Option<u64>, answer: &T) {
        if let Some(version) = version {
            let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            *known = Some((version, answer.clone()));
        }
    }
}
