//! A time of day that is set, or stands still while the machine is suspended.

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// Finds out when the time of day was set.
#[derive(Default)]
pub(super) struct ClockWatch(Option<(Instant, Timestamp)>);

/// A smaller step is left alone: it shortens or lengthens a wait by so much.
const SMALLEST_STEP: SignedDuration = SignedDuration::from_secs(10);

impl ClockWatch {
    /// How far the time of day was set since the last call, if it was.
    pub(super) fn step(&mut self, now: Timestamp) -> Option<SignedDuration> {
        let instant = Instant::now();
        let (then, was) = self.0.replace((instant, now))?;
        let elapsed = SignedDuration::try_from(instant - then).ok()?;
        let step = now.duration_since(was) - elapsed;
        (step.abs() >= SMALLEST_STEP).then_some(step)
    }
}
