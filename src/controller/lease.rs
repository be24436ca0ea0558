//! Leader election of client-go over a `coordination.k8s.io/v1` Lease (S6), so that refit and system-upgrade-controller
//! exclude each other.
//!
//! The clocks of candidates are never compared. A follower takes over only if the record has not changed for the
//! holder's lease duration, measured locally. A leader leads only while its last renewal, dated before the request was
//! sent, is younger than the renew deadline. The reader computes that, so a frozen process, an unreachable API server
//! and a dead election task all have the same result: not leading. A process never regains leadership that has lapsed.
//!
//! Every write is a PUT with the resourceVersion that was read; a conflict means that another candidate was first.

mod api;
mod elector;
mod plans_note;
mod progress;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use elector::{Elector, LeaseHandle};
pub use plans_note::PlansNote;
pub use progress::Progress;

/// Jitter of client-go between two attempts to acquire the Lease, in retry periods.
const JITTER_FACTOR: f64 = 1.2;
/// Most time between two looks of a follower at a Lease that is held, before jitter: it leads within a second after the
/// leader has released the Lease. client-go waits for the retry period, up to 4.4 s. A watch would take a permission
/// that system-upgrade-controller's roles do not grant.
const FOLLOW_PERIOD: Duration = Duration::from_millis(400);

/// The durations of leader election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTiming {
    /// How long a follower waits on an unchanged record before it takes over.
    pub lease_duration: Duration,
    /// How long a leader leads after its last renewal.
    pub renew_deadline: Duration,
    /// Delay between two attempts to acquire or renew the Lease.
    pub retry_period: Duration,
}

impl Default for LeaseTiming {
    /// The defaults of wrangler, which system-upgrade-controller uses (S6).
    fn default() -> Self {
        Self {
            lease_duration: Duration::from_secs(45),
            renew_deadline: Duration::from_secs(30),
            retry_period: Duration::from_secs(2),
        }
    }
}

impl LeaseTiming {
    /// Checks the same as client-go: a leader must have stopped before a follower may start, and must have time for a
    /// second attempt.
    ///
    /// # Errors
    /// Fails with the duration that is too short or too long.
    pub fn validate(&self) -> Result<(), TimingError> {
        if self.retry_period.is_zero() {
            return Err(TimingError::NoRetryPeriod);
        }
        if self.renew_deadline <= self.retry_period.mul_f64(JITTER_FACTOR) {
            return Err(TimingError::DeadlineTooShort(*self));
        }
        if self.lease_duration <= self.renew_deadline {
            return Err(TimingError::DurationTooShort(*self));
        }
        Ok(())
    }

    /// `spec.leaseDurationSeconds`, rounded up so that a follower does not wait less than configured.
    fn lease_duration_seconds(&self) -> i32 {
        let seconds = self.lease_duration.as_secs() + u64::from(self.lease_duration.subsec_nanos() > 0);
        i32::try_from(seconds).unwrap_or(i32::MAX)
    }
}

/// Why durations of leader election cannot work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimingError {
    /// No delay between attempts.
    #[error("the retry period must be more than 0")]
    NoRetryPeriod,
    /// One lost request would end the leadership.
    #[error("the renew deadline ({:?}) must be more than 1.2 times the retry period ({:?})", .0.renew_deadline, .0.retry_period)]
    DeadlineTooShort(LeaseTiming),
    /// Two processes could lead at once.
    #[error("the lease duration ({:?}) must be more than the renew deadline ({:?})", .0.lease_duration, .0.renew_deadline)]
    DurationTooShort(LeaseTiming),
}
