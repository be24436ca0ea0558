//! Who leads: client-go's leader election over one `coordination.k8s.io/v1` Lease (S6), so that refit and
//! system-upgrade-controller keep each other out.
//!
//! The Lease says who holds it; it never says for how long in terms of a clock of ours. A follower takes over only when
//! the record has not changed for the holder's lease duration, as measured here. A leader counts as one only while its
//! last renewal, dated before the request left, is younger than the renew deadline; the reader works that out, so that
//! a frozen process, a dead API and a dead election task all look the same: not leading. Leadership that has lapsed
//! never comes back in this process.
//!
//! Every write is a PUT with the resourceVersion that was seen: a conflict means that somebody else was first.

mod elector;
mod standing;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use elector::{Elector, LeaseHandle};
pub use standing::Leadership;

/// How client-go jitters the wait between two tries to get the Lease: up to this many retry periods are added.
const JITTER_FACTOR: f64 = 1.2;

/// The three times of leader election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTiming {
    /// How long a follower waits on a record that does not change before it takes over.
    pub lease_duration: Duration,
    /// How long a leader leads after its last renewal.
    pub renew_deadline: Duration,
    /// Wait between two tries to get or renew the Lease.
    pub retry_period: Duration,
}

impl Default for LeaseTiming {
    /// wrangler's, which system-upgrade-controller uses (S6).
    fn default() -> Self {
        Self {
            lease_duration: Duration::from_secs(45),
            renew_deadline: Duration::from_secs(30),
            retry_period: Duration::from_secs(2),
        }
    }
}

impl LeaseTiming {
    /// Checks what client-go checks: a leader must have stopped before a follower may start, and must have had the time
    /// to try again.
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
        // The Lease holds whole seconds: what a follower waits must not be less than what was asked for.
        if self.lease_duration.as_secs() > i32::MAX.unsigned_abs().into() {
            return Err(TimingError::DurationTooLong(*self));
        }
        Ok(())
    }

    /// `spec.leaseDurationSeconds`, rounded up.
    fn lease_duration_seconds(&self) -> i32 {
        let seconds = self.lease_duration.as_secs() + u64::from(self.lease_duration.subsec_nanos() > 0);
        i32::try_from(seconds).unwrap_or(i32::MAX)
    }
}

/// Why times of leader election cannot work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimingError {
    /// No wait between tries.
    #[error("the retry period must be more than 0")]
    NoRetryPeriod,
    /// One lost request would cost the leadership.
    #[error("the renew deadline ({:?}) must be more than 1.2 times the retry period ({:?})", .0.renew_deadline, .0.retry_period)]
    DeadlineTooShort(LeaseTiming),
    /// Two could lead at once.
    #[error("the lease duration ({:?}) must be more than the renew deadline ({:?})", .0.lease_duration, .0.renew_deadline)]
    DurationTooShort(LeaseTiming),
    /// `leaseDurationSeconds` is an int32.
    #[error("the lease duration ({:?}) must be at most 2147483647 seconds", .0.lease_duration)]
    DurationTooLong(LeaseTiming),
}

/// The leadership is gone: the process must end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("leaderelection lost for {name}")]
pub struct LeaseLost {
    /// Name of the Lease.
    pub name: String,
}
