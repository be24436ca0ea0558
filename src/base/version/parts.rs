//! A version, taken apart.

use std::fmt::{self, Write as _};

/// Maximum length of a quoted invalid version.
pub(super) const SHOWN: usize = 63;

/// A version that can be compared with others of its kind.
///
/// Versions of the same release are equal, however they are written: `1.31.4` and `v1.31.4`, `v1.31.4+k3s1` and
/// `v1.31.4-k3s1`, `22.4` and `22.04.0`.
#[derive(Clone, Debug)]
pub struct Version {
    pub(super) text: String,
    pub(super) numbers: Numbers,
    /// How many numbers are written.
    pub(super) written: usize,
    pub(super) suffix: Suffix,
}

/// The numbers; missing ones are zero.
pub(super) type Numbers = [u64; 4];

/// The first year that is one. No other version number is as large, except for counts of days and builds, which cannot be
/// compared with other versions either.
const YEAR: u64 = 1990;

/// Whether the first number is a year, or a whole date: `2026.08.1`, `20260801`.
pub(super) fn is_dated(numbers: &Numbers) -> bool {
    numbers[0] >= YEAR
}

/// The part after the numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Suffix {
    /// The prerelease: `rc1`.
    pub(super) before: Vec<Token>,
    /// Builder and number of the build: `k3s1`, `rke2r2`.
    pub(super) build: Option<(String, u64)>,
    /// An unknown part, which makes it another variant: `amd64`.
    pub(super) rest: Vec<Token>,
    /// Whether `rest` follows a `+`, and so is a build instead of a prerelease.
    pub(super) is_build: bool,
}

/// A word or a number of a suffix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Word(String),
    Number(u64),
}

/// Why a text is not a version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAVersion {
    #[error("{} does not begin with a number, such as v1.31.4 or 2026.08.1", quoted(.0))]
    NoNumber(String),
    #[error("{} has more than four numbers", quoted(.0))]
    TooMany(String),
    #[error("{} has a number that is too large", quoted(.0))]
    TooLarge(String),
    /// The text after the numbers is not a suffix.
    #[error("{} has something else after its numbers than a suffix such as -rc1, +k3s1 or -rke2r1", quoted(.0))]
    Suffix(String),
}

impl Version {
    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn major(&self) -> u64 {
        self.numbers[0]
    }

    pub fn minor(&self) -> Option<u64> {
        (self.written > 1).then_some(self.numbers[1])
    }

    /// Number of minor versions between two versions of one major version; `None` if they have none in common.
    pub fn minors_from(&self, other: &Self) -> Option<u64> {
        let same = self.major() == other.major() && !self.is_dated() && !other.is_dated();
        let (one, other) = (self.minor()?, other.minor()?);
        same.then(|| one.abs_diff(other))
    }

    /// Whether it is a prerelease, or may be one: an unknown suffix after `-` could be either.
    pub fn is_prerelease(&self) -> bool {
        !self.suffix.before.is_empty() || !self.suffix.rest.is_empty() && !self.suffix.is_build
    }

    /// Whether it is one of several variants of a release: `v1.31.4-k3s1-amd64`, `3.20-alpine`.
    pub fn is_variant(&self) -> bool {
        !self.suffix.rest.is_empty()
    }

    /// Whether both have the same builder and variant.
    pub fn is_alike(&self, other: &Self) -> bool {
        self.is_dated() == other.is_dated() && self.suffix.is_alike(&other.suffix)
    }

    /// Whether it begins with a year. Such versions are compared only with each other.
    pub fn is_dated(&self) -> bool {
        is_dated(&self.numbers)
    }

    /// The builder in the suffix: `k3s`, `rke2`.
    pub fn builder(&self) -> Option<&str> {
        let (word, _) = self.suffix.build.as_ref()?;
        Some(if word == RKE2 { "rke2" } else { word })
    }

    /// Whether it is written as a release of Kubernetes: three numbers, no date, and no suffix.
    pub fn is_plain(&self) -> bool {
        self.written == 3 && !self.is_dated() && self.suffix == Suffix::default()
    }

    /// Why this version belongs to another distribution than `current`, if it does. A version without a suffix may
    /// belong to any.
    pub fn other_distribution(&self, current: &Self) -> Option<String> {
        let (offered, known) = (quoted(&self.text), quoted(&current.text));
        match (self.builder(), current.builder()) {
            (Some(one), Some(other)) if one != other => Some(format!(
                "{offered} is a version of {one}, and {known} is one of {other}"
            )),
            (None, Some(other)) => Some(format!("{offered} is not a version of {other}, and {known} is")),
            // The major version of a distribution is that of Kubernetes.
            (Some(one), None)
                if current.is_variant() || current.is_dated() || current.major() != self.major() =>
            {
                Some(format!("{offered} is a version of {one}, and {known} is not"))
            }
            _ => None,
        }
    }

    /// Whether it is a semantic version (semver.org 2.0.0), apart from a leading `v`.
    pub fn is_semantic(&self) -> bool {
        semver::Version::parse(self.text.strip_prefix('v').unwrap_or(&self.text)).is_ok()
    }

    /// A key that sorts versions for display. It does not tell which version is newer.
    pub fn sort_key(&self) -> (bool, [u64; 4], bool) {
        (self.is_dated(), self.numbers, self.suffix.before.is_empty())
    }

    /// Number of written numbers, and whether a `v` precedes them. Of equal versions, the one with the same spelling is
    /// preferred.
    pub(super) fn spelling(&self) -> (usize, bool) {
        (self.written, self.text.starts_with('v'))
    }
}

/// The word before the number of RKE2's builds.
pub(super) const RKE2: &str = "rke2r";
pub(super) const BUILDERS: [&str; 2] = ["k3s", RKE2];

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Quotes a text, without characters that affect a terminal, and truncated.
pub fn quoted(text: &str) -> String {
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
