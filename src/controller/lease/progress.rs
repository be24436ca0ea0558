//! Whether the loop makes progress. A process whose loop is stuck must not keep the Lease: it would renew it for hours,
//! and no other replica could take over.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Since when the loop computes; absent while it waits.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<Mutex<Option<Instant>>>);

impl Progress {
    /// The loop waits for something to do.
    pub fn set_idle(&self) {
        self.set(None);
    }

    /// The loop has something to do.
    pub fn set_busy(&self) {
        self.set(Some(Instant::now()));
    }

    fn set(&self, since: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = since;
    }

    /// How long the loop has not waited.
    pub(crate) fn stuck_for(&self) -> Duration {
        let since = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}
