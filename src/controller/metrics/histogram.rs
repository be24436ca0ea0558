//! A histogram with fixed bounds.

use std::time::Duration;

#[derive(Clone, Debug)]
pub(super) struct Histogram {
    bounds: &'static [f64],
    /// One more than bounds: the last one counts what exceeds them all.
    counts: Vec<u64>,
    sum: f64,
}

/// From seconds to hours: steps on a node.
pub(super) const STEP_BOUNDS: &[f64] = &[5.0, 15.0, 60.0, 120.0, 300.0, 600.0, 1_800.0, 3_600.0, 21_600.0];
/// From a tenth of a millisecond to seconds: decisions.
pub(super) const DECISION_BOUNDS: &[f64] = &[0.000_1, 0.001, 0.005, 0.01, 0.05, 0.1, 1.0];

impl Histogram {
    pub(super) fn new(bounds: &'static [f64]) -> Self {
        Self {
            bounds,
            counts: vec![0; bounds.len() + 1],
            sum: 0.0,
        }
    }

    pub(super) fn observe(&mut self, took: Duration) {
        let seconds = took.as_secs_f64();
        self.sum += seconds;
        // A bucket includes its upper bound (`le`).
        let bucket = self.bounds.partition_point(|bound| *bound < seconds);
        if let Some(count) = self.counts.get_mut(bucket) {
            *count += 1;
        }
    }

    pub(super) fn sum(&self) -> f64 {
        self.sum
    }

    pub(super) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Upper bound and count of each bucket, not cumulated.
    pub(super) fn buckets(&self) -> Vec<(f64, u64)> {
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        bounds.zip(self.counts.iter().copied()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_counts_in_the_first_bucket_whose_bound_is_not_below_it() {
        let mut histogram = Histogram::new(&[1.0, 5.0]);
        for seconds in [0, 1, 2, 5, 6] {
            histogram.observe(Duration::from_secs(seconds));
        }
        let counts: Vec<_> = histogram.buckets().into_iter().map(|(_, count)| count).collect();
        assert_eq!(counts, [2, 2, 1]);
        assert_eq!(histogram.count(), 5);
        assert!((histogram.sum() - 14.0).abs() < 1e-9);
    }
}
