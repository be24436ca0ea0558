//! The order of versions: partial, and honest about it.
//!
//! It is made of orders that are total or say nothing, one after the other, so that it is antisymmetric and transitive:
//! numbers, then what comes before a release, then builds.

use std::cmp::Ordering;

use super::{RKE2, Suffix, Token, Version, quoted};

/// Two versions of which nobody knows which is newer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} and {} cannot be compared: {why}", quoted(.one), quoted(.other))]
pub struct Incomparable {
    /// One of them.
    pub one: String,
    /// The other one.
    pub other: String,
    /// Why not.
    pub why: String,
}

impl Version {
    /// How this version stands to another one.
    ///
    /// # Errors
    /// They are of different kinds, and nobody knows.
    pub fn compare(&self, other: &Self) -> Result<Ordering, Incomparable> {
        let none = |why: String| {
            Err(Incomparable {
                one: self.text.clone(),
                other: other.text.clone(),
                why,
            })
        };
        if self.dated != other.dated {
            return none("one is a date and the other is not".to_owned());
        }
        match self.numbers.cmp(&other.numbers) {
            Ordering::Equal => match self.suffix.compare(&other.suffix) {
                Some(order) => Ok(order),
                None => none(self.suffix.apart(&other.suffix)),
            },
            order => Ok(order),
        }
    }

    /// How the numbers stand, whatever comes after them and whatever they mean.
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
        if self.dated != other.dated {
            return None;
        }
        match self.numbers.cmp(&other.numbers) {
            Ordering::Equal => self.suffix.compare(&other.suffix),
            order => Some(order),
        }
    }
}

impl Suffix {
    /// The order of suffixes to the same numbers.
    pub(super) fn compare(&self, other: &Self) -> Option<Ordering> {
        if self.is_unknown() || other.is_unknown() {
            // `x2` comes after `x1`, and nothing else is known of it: not even whether it comes before the release.
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

    /// Nothing but what comes before a release.
    pub(super) fn is_before_only(&self) -> bool {
        self.build.is_none() && self.rest.is_empty()
    }

    /// The order of what comes before a release, whoever built it.
    pub(super) fn compare_before(&self, other: &Self) -> Option<Ordering> {
        if self.is_unknown() {
            return None;
        }
        before(&self.before, &other.before)
    }

    /// The same builder, and the same words beside it.
    pub(super) fn is_alike(&self, other: &Self) -> bool {
        let word = |suffix: &Self| suffix.build.as_ref().map(|(word, _)| word.clone());
        word(self) == word(other) && by_numbers(&self.rest, &other.rest).is_some()
    }

    /// It has something that is neither a known build nor known to come before the release.
    fn is_unknown(&self) -> bool {
        self.before.is_empty() && self.build.is_none() && !self.rest.is_empty()
    }

    /// A number comes first, as in `1.30-1.32`.
    pub(super) fn starts_with_number(&self) -> bool {
        self.before.is_empty() && matches!(self.rest.first(), Some(Token::Number(_)))
    }

    /// Why nobody knows which of the two is newer.
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
            _ => "nothing says which of the two suffixes is newer".to_owned(),
        }
    }
}

/// Words before a release whose order everybody agrees on.
const STAGES: [&str; 3] = ["alpha", "beta", "rc"];

/// The order of what comes before a release; nothing is the release itself, which comes last.
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
    // As in semver.org 2.0.0: what says less comes first.
    Some(one.len().cmp(&other.len()))
}

/// The order by numbers of what is the same otherwise.
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
