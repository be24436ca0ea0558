//! Names and numbers that no other test has.

use std::ops::Range;

/// Six characters that a Kubernetes name may contain, which are about two thousand million possibilities.
pub fn random() -> String {
    let mut random = fastrand::Rng::new();
    std::iter::repeat_with(|| random.digit(36)).take(6).collect()
}

/// The numbers of a range in random order.
pub fn shuffled(range: Range<u16>) -> Vec<u16> {
    let mut numbers: Vec<_> = range.collect();
    fastrand::Rng::new().shuffle(&mut numbers);
    numbers
}
