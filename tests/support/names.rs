//! Names and numbers that no other test has.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::ops::Range;

/// Six characters that a Kubernetes name may hold. About two thousand million possibilities.
pub fn random() -> String {
    const ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let mut bits = random_bits();
    (0..6)
        .map(|_| {
            let letter = ALPHABET[usize::try_from(bits % 36).expect("below 36")];
            bits /= 36;
            char::from(letter)
        })
        .collect()
}

/// The numbers of a range, each once, from a random one on.
pub fn shuffled(range: Range<u16>) -> impl Iterator<Item = u16> {
    let length = u64::from(range.end - range.start);
    // Any stride without a common factor with the length meets every number once.
    let (first, stride) = (random_bits() % length, 7919);
    (0..length).map(move |step| {
        range.start
            + u16::try_from((first + step * stride) % length).expect("below the length of a u16 range")
    })
}

/// The standard library seeds every `RandomState` anew; for names that is random enough.
pub fn random_bits() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_number_of_a_range_comes_once() {
        let numbers: Vec<_> = shuffled(20_000..30_000).collect();
        assert_eq!(numbers.len(), 10_000);
        assert_eq!(numbers.iter().collect::<BTreeSet<_>>().len(), 10_000);
        assert!(numbers.iter().all(|number| (20_000..30_000).contains(number)));
    }

    #[test]
    fn names_are_what_kubernetes_allows() {
        let name = random();
        assert_eq!(name.len(), 6);
        assert!(
            name.bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        );
        assert_ne!(name, random());
    }
}
