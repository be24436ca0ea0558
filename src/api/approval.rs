//! The annotation `refit.rs/approve` of a Plan: a list of approvals, separated by commas. An item without `@` is a
//! version, for `versionPolicy.propose`. An item `<wave>@<hash>` approves that the roll-out of this hash continues
//! after the wave; the hash is `status.latestHash`, or its first characters. Who approved it, and when, may follow each
//! item. So an approval never applies to the next version.

use std::fmt;

use super::annotation::{Entry, entries};

/// Characters of the hash in an approval that refit proposes.
const HASH_LEN: usize = 12;
/// The least number of characters of a hash that identify it.
const MIN_HASH_LEN: usize = 8;

/// The approval of a wave, as an item of the annotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaveApproval {
    wave: String,
    hash: String,
}

impl WaveApproval {
    /// The approval of this wave at this hash.
    pub fn new(wave: &str, hash: &str) -> Self {
        let (wave, hash) = (wave.to_owned(), short_hash(hash).to_owned());
        Self { wave, hash }
    }

    /// The entries of the annotation that approve a wave at this hash.
    pub fn all<'a>(annotation: &'a str, hash: &'a str) -> impl Iterator<Item = Entry<'a>> {
        entries(annotation).filter(move |entry| is_hash(entry.version, hash))
    }

    /// Whether the value of the annotation contains an approval of this wave at this hash.
    pub fn is_in(annotation: &str, wave: &str, hash: &str) -> bool {
        Self::all(annotation, hash).any(|entry| entry.plan == wave)
    }
}

/// As much of the hash as an annotation needs to identify it.
pub(super) fn short_hash(hash: &str) -> &str {
    let end = hash.char_indices().nth(HASH_LEN);
    end.map_or(hash, |(end, _)| &hash[..end])
}

/// Whether it is the beginning of the hash.
pub(super) fn is_hash(written: Option<&str>, hash: &str) -> bool {
    written.is_some_and(|written| written.len() >= MIN_HASH_LEN && hash.starts_with(written))
}

impl fmt::Display for WaveApproval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.wave, self.hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "21c75c607087495cc7f2c945c508a36de1f8661ce8c6b4d5989a883c";

    #[test]
    fn an_approval_of_a_wave_is_an_item_with_its_name_and_the_start_of_the_hash() {
        let item = WaveApproval::new("canary", HASH).to_string();
        assert_eq!(item, "canary@21c75c607087");
        for annotation in [
            item.as_str(),
            "canary@21c75c60",
            "v1 by bob at 2026-01-01T09:00:00Z,canary@21c75c60 by alice at 2026-01-01T09:00:00Z",
            " v1.34.1+k3s1 , canary@21c75c607087 ",
            "tenth@aaaaaaaaaaaa,canary@21c75c607087495cc7f2c945c508a36de1f8661ce8c6b4d5989a883c",
        ] {
            assert!(WaveApproval::is_in(annotation, "canary", HASH), "{annotation}");
        }
        for annotation in [
            "",
            "canary",
            "canary@",
            "canary@21c75c6",
            "canary@31c75c607087",
            "tenth@21c75c607087",
            "canary@21c75c607087495cc7f2c945c508a36de1f8661ce8c6b4d5989a883c0",
            "21c75c607087",
        ] {
            assert!(!WaveApproval::is_in(annotation, "canary", HASH), "{annotation}");
        }
    }
}
