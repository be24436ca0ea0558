//! The last wave that has begun.

use jiff::Timestamp;

use crate::blocker::Blocker;
use crate::open_waves::OpenWaves;
use refit_api::{WavePhase, WaveStatus};

/// The last wave that has begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaveProgress {
    pub(crate) status: WaveStatus,
    /// When the soak ends.
    pub(crate) until: Option<Timestamp>,
    /// Why the nodes of later waves wait; `None` in the last wave.
    pub(crate) blocker: Option<Blocker>,
    /// How many more nodes the wave takes.
    pub(crate) room: i64,
    /// The nodes that the wave may start.
    pub(crate) reach: OpenWaves,
}

impl WaveProgress {
    /// Why no node starts at all.
    pub(crate) fn gate(&self) -> Option<&Blocker> {
        self.blocker
            .as_ref()
            .filter(|_| self.status.phase != WavePhase::Progressing)
    }

    pub(crate) fn is_soaking(&self) -> bool {
        self.status.phase == WavePhase::Soaking
    }
}
