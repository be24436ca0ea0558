//! Digests of several texts: keys of events, notifications and caches.

use sha2::{Digest as _, Sha256};

/// The SHA-256 of texts, in this order.
pub fn digest<'a>(parts: impl IntoIterator<Item = &'a str>) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        // Without the length, `ab`, `c` and `a`, `bc` would have the same digest.
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

/// The first digits of [`digest`] in hexadecimal, at most 64.
pub fn short_digest(parts: &[&str], digits: usize) -> String {
    let mut text = hex::encode(digest(parts.iter().copied()));
    text.truncate(digits);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stored as marks of notifications and keys of events, so a change would repeat them.
    #[test]
    fn a_digest_stays_the_same_and_tells_lists_of_texts_apart() {
        assert_eq!(short_digest(&["ab", "c"], 12), "601d5476e2cc");
        assert_ne!(short_digest(&["a", "bc"], 12), short_digest(&["ab", "c"], 12));
        assert_ne!(digest(["ab"]), digest(["ab", ""]));
    }
}
