//! The one back-off: how long to wait after each of several failures in a row.

use std::time::Duration;

/// Failures in a row. Each pause is twice as long as the one before, up to the longest.
#[derive(Clone, Copy, Debug, Default)]
pub struct Backoff {
    failures: u32,
}

impl Backoff {
    pub fn failures(self) -> u32 {
        self.failures
    }

    /// The pause after another failure. After the first one it is `first`.
    pub fn pause(&mut self, first: Duration, longest: Duration) -> Duration {
        let doubled = first.saturating_mul(2_u32.saturating_pow(self.failures));
        self.failures = self.failures.saturating_add(1);
        doubled.min(longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pause_is_twice_as_long_as_the_one_before_up_to_the_longest() {
        let (first, longest) = (Duration::from_secs(1), Duration::from_secs(30));
        let mut backoff = Backoff::default();
        let seconds = [(); 7].map(|()| backoff.pause(first, longest).as_secs());
        assert_eq!(seconds, [1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(backoff.failures(), 7);
        let mut endless = Backoff { failures: u32::MAX };
        assert_eq!(endless.pause(first, longest), longest);
    }
}
