//! Numbers that look like chance, and are the same for the same seed.

use crate::rehearse::ids::Ids;

#[derive(Clone, Debug)]
pub(super) struct Dice(Ids);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(Ids::new(seed))
    }

    /// A number below `sides`.
    pub(super) fn roll(&mut self, sides: u64) -> u64 {
        self.0.next() % sides
    }

    /// True in so many of a hundred cases.
    pub(super) fn chance(&mut self, percent: u64) -> bool {
        self.roll(100) < percent
    }

    pub(super) fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        let sides = u64::try_from(from.len()).unwrap();
        (sides > 0).then(|| &from[usize::try_from(self.roll(sides)).unwrap()])
    }
}
