//! Versions as they are released, and their order: `v1.30.1+k3s1`, `v1.30.0-rc1+rke2r1`, `22.04`, `2026.08.1`.
//!
//! Two versions are compared by their numbers, then by what they are a release candidate of, then by the number of their
//! build. `+` and `-` before a build mean the same, since a tag cannot hold a `+`. What cannot be compared is refused, with the
//! reason: nothing is ever compared letter by letter. Pure.

mod order;
mod parse;
pub mod policy;
mod range;
#[cfg(test)]
mod tests;

use std::fmt::{self, Write as _};

pub use order::Incomparable;
pub use range::{Range, RangeError};

/// How much of a text that is no version is shown.
const SHOWN: usize = 63;

/// A version that can be compared with others of its kind.
///
/// Equal are those that mean the same release, however they are spelled: `1.31.4` and `v1.31.4`, `v1.31.4+k3s1` and
/// `v1.31.4-k3s1`, `22.4` and `22.04.0`.
#[derive(Clone, Debug)]
pub struct Version {
    text: String,
    /// The numbers, zero where there are fewer than four.
    numbers: [u64; 4],
    /// How many of them are written.
    written: usize,
    /// The first number is a year.
    dated: bool,
    suffix: Suffix,
}

/// What comes after the numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Suffix {
    /// Of a version that comes before the release of these numbers: `rc1`.
    before: Vec<Token>,
    /// Who built it, and which build it is: `k3s1`, `rke2r2`.
    build: Option<(String, u64)>,
    /// Anything else, of which nothing is known but that it makes another thing of it: `amd64`.
    rest: Vec<Token>,
    /// `rest` follows a `+`, so that it is a build and no prerelease.
    is_build: bool,
}

/// A word or a number of a suffix, what is between them aside.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Number(u64),
}

/// Why a text is no version that could be compared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAVersion {
    /// It is a word, such as `latest`.
    #[error("{} does not begin with a number, such as v1.31.4 or 2026.08.1", quoted(.0))]
    NoNumber(String),
    /// It has more numbers than anybody's versions.
    #[error("{} has more than four numbers", quoted(.0))]
    TooMany(String),
    /// A number of it is beyond all numbers.
    #[error("{} has a number that is too large", quoted(.0))]
    TooLarge(String),
    /// Something follows the numbers that is no suffix.
    #[error("{} has something else after its numbers than a suffix such as -rc1, +k3s1 or -rke2r1", quoted(.0))]
    Suffix(String),
}

impl Version {
    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The first number.
    pub fn major(&self) -> u64 {
        self.numbers[0]
    }

    /// The second number, if there is one.
    pub fn minor(&self) -> Option<u64> {
        (self.written > 1).then_some(self.numbers[1])
    }

    /// By how many minor versions two versions of one major version differ; nothing where they cannot be compared so.
    pub fn minors_from(&self, other: &Self) -> Option<u64> {
        let same = self.major() == other.major() && !self.dated && !other.dated;
        let (one, other) = (self.minor()?, other.minor()?);
        same.then(|| one.abs_diff(other))
    }

    /// It comes before the release of its numbers, or may: what is not known to be a build could be anything.
    pub fn is_prerelease(&self) -> bool {
        !self.suffix.before.is_empty() || !self.suffix.rest.is_empty() && !self.suffix.is_build
    }

    /// It is one of several of the same release, such as for one architecture: `v1.31.4-k3s1-amd64`, `3.20-alpine`.
    pub fn is_variant(&self) -> bool {
        !self.suffix.rest.is_empty()
    }

    /// Both come from the same builder, and are the same variant.
    pub fn is_alike(&self, other: &Self) -> bool {
        self.dated == other.dated && self.suffix.is_alike(&other.suffix)
    }

    /// The first number is a year: such a version is compared with others of which that is true.
    pub fn is_dated(&self) -> bool {
        self.dated
    }

    /// Who built it, as the suffix says: `k3s`, `rke2`.
    pub fn builder(&self) -> Option<&str> {
        let (word, _) = self.suffix.build.as_ref()?;
        Some(if word == RKE2 { "rke2" } else { word })
    }

    /// A semantic version (semver.org 2.0.0), a leading `v` aside.
    pub fn is_semantic(&self) -> bool {
        semver::Version::parse(self.text.strip_prefix('v').unwrap_or(&self.text)).is_ok()
    }

    /// What lists for people are sorted by, so that what belongs together is together. It says nothing of what is newer.
    pub fn sort_key(&self) -> (bool, [u64; 4], bool) {
        (self.dated, self.numbers, self.suffix.before.is_empty())
    }

    /// How many numbers are written, and whether after a `v`: of equal ones, those are alike that are spelled alike.
    fn spelling(&self) -> (usize, bool) {
        (self.written, self.text.starts_with('v'))
    }
}

/// The word before the number of a build of RKE2.
const RKE2: &str = "rke2r";
/// The words before the number of a build.
const BUILDERS: [&str; 2] = ["k3s", RKE2];

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The text in quotes, without what could upset a terminal and without its tail when it is long.
pub(crate) fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars().take(SHOWN) {
        // Writing to a String cannot fail.
        let _ = write!(quoted, "{}", c.escape_debug());
    }
    if text.chars().nth(SHOWN).is_some() {
        quoted.push('…');
    }
    quoted.push('"');
    quoted
}
