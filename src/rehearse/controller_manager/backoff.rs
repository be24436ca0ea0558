//! The back-off of a Job after a failed pod: 10 seconds, doubled up to 10 minutes
//! (`pkg/controller/job/backoff_utils.go`).

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

const FIRST: SignedDuration = SignedDuration::from_secs(10);
const LONGEST: SignedDuration = SignedDuration::from_mins(10);

/// Consecutive failures, by the UID of the Job.
#[derive(Clone, Debug, Default)]
pub(crate) struct Backoffs(BTreeMap<String, (u32, Timestamp)>);

impl Backoffs {
    /// Records failed pods of a Job, and the time of the last one.
    pub(crate) fn record_failures(&mut self, job: &str, pods: usize, last: Timestamp) {
        let (count, at) = self.0.entry(job.to_owned()).or_insert((0, last));
        *count = count.saturating_add(u32::try_from(pods).unwrap_or(u32::MAX));
        *at = last.max(*at);
    }

    /// Resets a Job after a success or its deletion.
    pub(crate) fn forget(&mut self, job: &str) {
        self.0.remove(job);
    }

    /// The time before which the Job creates no pod.
    pub(crate) fn until(&self, job: &str) -> Option<Timestamp> {
        let (count, last) = self.0.get(job)?;
        // Ten doublings exceed the maximum already, and more of them could overflow the shift.
        let doublings = count.saturating_sub(1).min(10);
        let wait = FIRST.saturating_mul(1_i32 << doublings).min(LONGEST);
        last.checked_add(wait).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_in_a_row_doubles_the_wait_up_to_ten_minutes() {
        let start = Timestamp::UNIX_EPOCH;
        let mut backoffs = Backoffs::default();
        assert_eq!(backoffs.until("a"), None);
        for seconds in [10, 20, 40, 80, 160, 320, 600, 600] {
            backoffs.record_failures("a", 1, start);
            let wait = backoffs.until("a").map(|at| at.duration_since(start).as_secs());
            assert_eq!(wait, Some(seconds));
        }
        backoffs.forget("a");
        assert_eq!(backoffs.until("a"), None);
    }
}
