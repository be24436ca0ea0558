//! The last wave that has begun.

use jiff::Timestamp;

use crate::blocker::Blocker;
use crate::open_waves::OpenWaves;
use refit_api::text::seconds;
use refit_api::{WavePhase, WaveStatus};

/// The last wave that has begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaveProgress {
    pub(super) index: usize,
    pub(super) name: String,
    pub(super) hash: String,
    pub(super) phase: WavePhase,
    pub(super) since: Timestamp,
    /// When the soak ends.
    pub(super) until: Option<Timestamp>,
    /// What the wave waits for.
    pub(super) message: String,
    /// Why the nodes of later waves wait; `None` in the last wave.
    pub(super) blocker: Option<Blocker>,
    /// How many more nodes the wave takes.
    pub(super) room: i64,
    pub(super) reach: OpenWaves,
}

impl WaveProgress {
    /// Why no node starts at all.
    pub(crate) fn gate(&self) -> Option<&Blocker> {
        self.blocker
            .as_ref()
            .filter(|_| self.phase != WavePhase::Progressing)
    }

    pub(crate) fn is_soaking(&self) -> bool {
        self.phase == WavePhase::Soaking
    }

    /// Why the nodes of later waves wait.
    pub(crate) fn blocker(&self) -> Option<&Blocker> {
        self.blocker.as_ref()
    }

    /// How many more nodes the wave takes.
    pub(crate) fn room(&self) -> i64 {
        self.room
    }

    /// The nodes that the wave may start.
    pub(crate) fn reach(&self) -> OpenWaves {
        self.reach
    }

    /// When the soak ends.
    pub(crate) fn until(&self) -> Option<Timestamp> {
        self.until
    }

    pub(crate) fn status(&self) -> WaveStatus {
        WaveStatus {
            index: i64::try_from(self.index).unwrap_or(i64::MAX),
            name: self.name.clone(),
            hash: self.hash.clone(),
            phase: self.phase.into(),
            since: Some(seconds(rounded_up(self.since))),
            until: self.until.map(seconds),
            message: Some(self.message.clone()).filter(|message| !message.is_empty()),
        }
    }
}

/// Status stores whole seconds. A successor that read an earlier time would end the soak early.
pub(super) fn rounded_up(at: Timestamp) -> Timestamp {
    match at.subsec_nanosecond() {
        0 => at,
        _ => Timestamp::from_second(at.as_second().saturating_add(1)).unwrap_or(at),
    }
}
