//! Times to come.

use jiff::{SignedDuration, Timestamp};

/// A time plus a duration, limited to the maximum.
pub(super) fn later(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.saturating_add(by).unwrap_or(Timestamp::MAX)
}

/// Notes that something is due at a time, or no later than it was. `None` changes nothing.
pub(super) fn requeue(known: &mut Option<Timestamp>, at: impl Into<Option<Timestamp>>) {
    *known = known.iter().copied().chain(at.into()).min();
}
