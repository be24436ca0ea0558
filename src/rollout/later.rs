//! Sums of times and durations.

use jiff::{SignedDuration, Timestamp};

/// A time plus a duration, limited to the maximum.
pub(super) fn later(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.saturating_add(by).unwrap_or(Timestamp::MAX)
}
