//! The wall clock as a value, so that dependencies on the time of day are explicit, and tests and rehearsals can set
//! it. Waiting and measuring use `tokio::time`, which can be paused.

use std::fmt;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

#[derive(Clone)]
pub struct Clock {
    wall: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    running: Arc<dyn Fn() -> SignedDuration + Send + Sync>,
}

impl Clock {
    /// The system's clock. It can be set, and continues while the machine is suspended.
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads the system's clock"
    )]
    pub fn system() -> Self {
        let running = || {
            let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
            SignedDuration::new(time.tv_sec, i32::try_from(time.tv_nsec).unwrap_or_default())
        };
        Self {
            wall: Arc::new(Timestamp::now),
            running: Arc::new(running),
        }
    }

    /// A clock that returns the result of `read`, and is never set.
    pub fn new(read: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        let wall = Arc::new(read);
        let running = Arc::clone(&wall);
        Self {
            wall,
            running: Arc::new(move || running().duration_since(Timestamp::UNIX_EPOCH)),
        }
    }

    /// As [`Clock::new`], but the time of day is set by `step`.
    #[must_use]
    pub fn stepped(self, step: impl Fn() -> SignedDuration + Send + Sync + 'static) -> Self {
        let wall = self.wall;
        Self {
            wall: Arc::new(move || wall().saturating_add(step()).unwrap_or(Timestamp::MAX)),
            running: self.running,
        }
    }

    /// A clock that shows `epoch` now, and then advances with `tokio::time`, also when that is paused. Must be called
    /// within a tokio runtime.
    pub fn following_tokio(epoch: Timestamp) -> Self {
        let start = Instant::now();
        Self::new(move || {
            let elapsed = SignedDuration::try_from(start.elapsed()).unwrap_or(SignedDuration::MAX);
            epoch.checked_add(elapsed).unwrap_or(Timestamp::MAX)
        })
    }

    pub fn now(&self) -> Timestamp {
        (self.wall)()
    }

    /// Time since some moment in the past. Unlike the time of day it cannot be set, and unlike `Instant` it continues
    /// while the machine is suspended.
    pub fn running(&self) -> SignedDuration {
        (self.running)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Clock({})", self.now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_follows_tokio_leaps_with_it() {
        let epoch: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        let clock = Clock::following_tokio(epoch);
        tokio::time::sleep(std::time::Duration::from_secs(3600)).await;
        assert_eq!(clock.now(), "2026-01-02T04:04:05Z".parse().unwrap());
    }
}
