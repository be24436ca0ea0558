//! The wall clock as a value, so that whoever needs the time of day says so and a test or a rehearsal can set it.
//! Waiting and measuring are not its business: those go by `tokio::time`, which can be paused.

use std::fmt;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// A handle on a wall clock.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    /// The system's clock. It can be set, and it goes on while the machine is suspended.
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads the system's clock"
    )]
    pub fn system() -> Self {
        Self::new(Timestamp::now)
    }

    /// A clock that shows what `read` says.
    pub fn new(read: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    /// A clock that shows `epoch` now and from then on goes with `tokio::time`: paused and leaping as that does.
    /// Called within a tokio runtime.
    pub fn following_tokio(epoch: Timestamp) -> Self {
        let start = Instant::now();
        Self::new(move || {
            let elapsed = SignedDuration::try_from(start.elapsed()).unwrap_or(SignedDuration::MAX);
            epoch.checked_add(elapsed).unwrap_or(Timestamp::MAX)
        })
    }

    /// The time of day.
    pub fn now(&self) -> Timestamp {
        (self.0)()
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
