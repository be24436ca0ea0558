//! The partial order of versions.
//!
//! It is a lexicographic combination of orders (numbers, then prereleases, then builds). Each of them is total or
//! undecided, so the combination is antisymmetric and transitive.

use std::cmp::Ordering;

use super::parts::{RKE2, Suffix, Token, Version, quoted};

/// Two versions that cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} and {} cannot be compared: {why}", quoted(.one), quoted(.other))]
pub struct Incomparable {
    pub one: String,
    pub other: String,
    pub why: String,
}

impl Version {
    /// Compares two versions.
    ///
    /// # Errors
    /// Fails if they are of different kinds.
    pub fn compare(&self, other: &Self) -> Result<Ordering, Incomparable> {
        self.partial_cmp(other).ok_or_else(|| Incomparable {
            one: self.text.clone(),
            other: other.text.clone(),
            why: if self.is_dated() == other.is_dated() {
                self.suffix.apart(&other.suffix)
            } else {
                "one is a date and the other is not".to_owned()
            },
        })
    }

    pub fn compare_numbers(&self, other: &Self) -> Ordering {
        self.numbers.cmp(&other.numbers)
    }
}

impl PartialEq for Version {
    fn eq(&self, other: &Self) -> bool {
        self.partial_cmp(other) == Some(Ordering::Equal)
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        if self.is_dated() != other.is_dated() {
            return None;
        }
        match self.numbers.cmp(&other.numbers) {
            Ordering::Equal => self.suffix.compare(&other.suffix),
            order => Some(order),
        }
    }
}

impl Suffix {
    /// Compares suffixes of the same numbers.
    pub(super) fn compare(&self, other: &Self) -> Option<Ordering> {
        if self.is_unknown() || other.is_unknown() {
            // `x2` comes after `x1`, but an unknown suffix cannot be compared with the release itself.
            let alike = self.is_unknown() && other.is_unknown();
            return alike.then(|| by_numbers(&self.rest, &other.rest)).flatten();
        }
        match before(&self.before, &other.before)? {
            Ordering::Equal => {}
            order => return Some(order),
        }
        match (&self.build, &other.build) {
            (None, None) => by_numbers(&self.rest, &other.rest),
            (Some((word, number)), Some((other_word, other_number))) if word == other_word => {
                let rest = by_numbers(&self.rest, &other.rest)?;
                Some(number.cmp(other_number).then(rest))
            }
            _ => None,
        }
    }

    /// Whether it is only a prerelease.
    pub(super) fn is_before_only(&self) -> bool {
        self.build.is_none() && self.rest.is_empty()
    }

    /// Compares prereleases, for any builder.
    pub(super) fn compare_before(&self, other: &Self) -> Option<Ordering> {
        if self.is_unknown() {
            return None;
        }
        before(&self.before, &other.before)
    }

    /// Whether both have the same builder and variant.
    pub(super) fn is_alike(&self, other: &Self) -> bool {
        let word = |suffix: &Self| suffix.build.as_ref().map(|(word, _)| word.clone());
        word(self) == word(other) && by_numbers(&self.rest, &other.rest).is_some()
    }

    /// Whether it has a part that is neither a known build nor a known prerelease.
    fn is_unknown(&self) -> bool {
        self.before.is_empty() && self.build.is_none() && !self.rest.is_empty()
    }

    /// Whether it begins with a number, as in `1.30-1.32`.
    pub(super) fn starts_with_number(&self) -> bool {
        self.before.is_empty() && matches!(self.rest.first(), Some(Token::Number(_)))
    }

    /// Why the two cannot be compared.
    fn apart(&self, other: &Self) -> String {
        let builder = |suffix: &Self| {
            let (word, _) = suffix.build.as_ref()?;
            Some(if word == RKE2 { "rke2" } else { word }.to_owned())
        };
        match (builder(self), builder(other)) {
            (Some(one), Some(other)) if one != other => {
                format!("one is a build of {one}, the other of {other}")
            }
            (Some(one), None) | (None, Some(one)) if self.rest.is_empty() && other.rest.is_empty() => {
                format!("one is a build of {one}, and the other is not")
            }
            _ => "the order of the two suffixes is unknown".to_owned(),
        }
    }
}

/// Words of prereleases with a generally accepted order.
const STAGES: [&str; 3] = ["alpha", "beta", "rc"];

/// Compares prereleases. The release itself is empty, and comes last.
fn before(one: &[Token], other: &[Token]) -> Option<Ordering> {
    match (one, other) {
        ([], []) => return Some(Ordering::Equal),
        ([], _) => return Some(Ordering::Greater),
        (_, []) => return Some(Ordering::Less),
        _ => {}
    }
    let stage = |tokens: &[Token]| match tokens.first() {
        Some(Token::Word(word)) => STAGES.iter().position(|stage| stage == word),
        _ => None,
    };
    if let (Some(one), Some(other)) = (stage(one), stage(other))
        && one != other
    {
        return Some(one.cmp(&other));
    }
    for (one, other) in one.iter().zip(other) {
        match (one, other) {
            (Token::Number(one), Token::Number(other)) if one == other => {}
            (Token::Number(one), Token::Number(other)) => return Some(one.cmp(other)),
            (one, other) if one == other => {}
            _ => return None,
        }
    }
    // As in semver.org 2.0.0, the shorter one comes first.
    Some(one.len().cmp(&other.len()))
}

/// Compares the numbers of suffixes that are otherwise equal.
fn by_numbers(one: &[Token], other: &[Token]) -> Option<Ordering> {
    if one.len() != other.len() {
        return None;
    }
    let mut order = Ordering::Equal;
    for pair in one.iter().zip(other) {
        match pair {
            (Token::Number(one), Token::Number(other)) => order = order.then(one.cmp(other)),
            (one, other) if one == other => {}
            _ => return None,
        }
    }
    Some(order)
}
