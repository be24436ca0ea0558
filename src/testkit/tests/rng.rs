//! Pseudo-random numbers from a seed.

use refit_rehearse::ids::Ids;

#[derive(Clone, Debug)]
pub(super) struct Rng(Ids);

impl Rng {
    pub(super) fn new(seed: u64) -> Self {
        Self(Ids::new(seed))
    }

    /// A number below `sides`.
    pub(super) fn below(&mut self, sides: u64) -> u64 {
        self.0.number() % sides
    }

    /// True with this probability.
    pub(super) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(super) fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        let sides = u64::try_from(from.len()).unwrap();
        (sides > 0).then(|| &from[usize::try_from(self.below(sides)).unwrap()])
    }
}
