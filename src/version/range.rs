//! Ranges of versions, as npm and cargo write them: `>=1.30 <1.32`, `1.31.x`, `~1.31`, `^1`, `1.30 - 1.32`, and several with
//! `||` between.
//!
//! A bound without a build holds for all builds of a release: `<=1.31.4` has `v1.31.4+k3s1`. A prerelease is in a range only
//! if the range names one of the same release (`>=1.32.0-rc1`), as in npm and cargo. Pure.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use super::parse::{self, is_year};
use super::{Suffix, Version, quoted};

/// Versions that a Plan may have.
#[derive(Clone, Debug, PartialEq)]
pub struct Range {
    text: String,
    /// One of these is enough; of each, all bounds must hold.
    ways: Vec<Vec<Bound>>,
}

/// Why a text is no range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} is no range of versions: {why}; write for example \">=1.30 <1.32\", \"1.31.x\" or \"~1.31\"", quoted(.text))]
pub struct RangeError {
    /// The whole range.
    text: String,
    why: String,
}

#[derive(Clone, Debug, PartialEq)]
struct Bound {
    side: Side,
    numbers: [u64; 4],
    /// The first number is a year; nothing where that cannot be told, since it stands alone.
    dated: Option<bool>,
    /// With a suffix, builds count and prereleases are named.
    suffix: Option<Suffix>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Above,
    From,
    UpTo,
    Below,
    Just,
}

/// A version in a range, of which the end may be left open.
struct Partial {
    /// The numbers that are there, none for `*`.
    numbers: Vec<u64>,
    /// All are there that a release has.
    is_whole: bool,
    dated: Option<bool>,
    suffix: Option<Suffix>,
}

impl Range {
    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether the version is one of these.
    pub fn has(&self, version: &Version) -> bool {
        self.ways.iter().any(|bounds| {
            bounds.iter().all(|bound| bound.holds(version))
                && (!version.is_prerelease() || bounds.iter().any(|bound| bound.names(version)))
        })
    }

    /// Whether it may have been one of these: where a `+` has become a `-`, a build looks like a prerelease.
    pub fn may_have(&self, tag: &Version) -> bool {
        self.has(tag) || tag.suffix.before.is_empty() && self.has_release_of(tag)
    }

    /// Whether nothing but being a prerelease keeps the version out.
    pub fn has_release_of(&self, version: &Version) -> bool {
        let mut release = version.clone();
        release.suffix = Suffix::default();
        version.is_prerelease() && self.has(&release)
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Range {
    type Err = RangeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = |why: String| RangeError {
            text: text.to_owned(),
            why,
        };
        let mut ways = Vec::new();
        for way in text.split("||") {
            ways.push(bounds(way).map_err(error)?);
        }
        if ways.iter().all(|bounds| is_empty(bounds)) {
            return Err(error("no version is in it".to_owned()));
        }
        Ok(Self {
            text: text.trim().to_owned(),
            ways,
        })
    }
}

/// The bounds that are all to hold.
fn bounds(way: &str) -> Result<Vec<Bound>, String> {
    let spaced = way.replace(',', " ");
    let mut words = spaced.split_whitespace().peekable();
    if words.peek().is_none() {
        return Err("there is nothing in it, or beside a \"||\"".to_owned());
    }
    let mut bounds = Vec::new();
    while let Some(word) = words.next() {
        let (operator, version) = split_operator(word)?;
        let version = match version {
            "" => words
                .next()
                .ok_or_else(|| format!("no version follows {}", quoted(operator)))?,
            version => version,
        };
        let from = Partial::parse(version)?;
        if operator.is_empty() && words.next_if_eq(&"-").is_some() {
            let to = words.next().ok_or("no version follows \"-\"")?;
            let to = Partial::parse(to)?;
            bounds.extend(from.bound(Side::From));
            bounds.extend(to.up_to());
            continue;
        }
        match operator {
            ">=" => bounds.extend(from.bound(Side::From)),
            ">" if from.is_whole => bounds.extend(from.bound(Side::Above)),
            ">" => match from.next(from.numbers.len()) {
                Some(next) => bounds.push(next.turned(Side::From)),
                None => return Err("nothing is above \"*\"".to_owned()),
            },
            "<" => match from.bound(Side::Below) {
                Some(bound) => bounds.push(bound),
                None => return Err("nothing is below \"*\"".to_owned()),
            },
            "<=" => bounds.extend(from.up_to()),
            "~" => bounds.extend(from.reach(from.numbers.len().min(2))),
            "^" => bounds.extend(from.reach(from.first_that_counts())),
            _ if from.is_whole => bounds.extend(from.bound(Side::Just)),
            _ => bounds.extend(from.reach(from.numbers.len())),
        }
    }
    Ok(bounds)
}

fn split_operator(word: &str) -> Result<(&str, &str), String> {
    let at = word
        .find(|c: char| !matches!(c, '<' | '>' | '=' | '~' | '^' | '!'))
        .unwrap_or(word.len());
    let (operator, version) = word.split_at(at);
    let operator = match operator {
        "==" => "=",
        "~>" => "~",
        "" | "=" | ">" | ">=" | "<" | "<=" | "~" | "^" => operator,
        other => {
            return Err(format!(
                "{} is no operator; these are: = > >= < <= ~ ^",
                quoted(other)
            ));
        }
    };
    Ok((operator, version))
}

impl Partial {
    fn parse(text: &str) -> Result<Self, String> {
        let whole = |why: String| format!("{} is no version: {why}", quoted(text));
        let body = text.strip_prefix(['v', 'V']).unwrap_or(text);
        if is_wildcard(body) {
            return Ok(Self {
                numbers: Vec::new(),
                is_whole: false,
                dated: None,
                suffix: None,
            });
        }
        let (numbers, mut rest) =
            parse::numbers(body).map_err(|_| whole("numbers such as 1.31.4 are expected".to_owned()))?;
        let mut is_open = false;
        while let Some(tail) = rest.strip_prefix('.') {
            let end = tail.find('.').unwrap_or(tail.len());
            if !is_wildcard(&tail[..end]) {
                return Err(whole("after a point, a number or \"x\" is expected".to_owned()));
            }
            is_open = true;
            rest = &tail[end..];
        }
        let suffix = parse::suffix(rest)
            .ok_or_else(|| whole(format!("{} is no suffix such as -rc1 or +k3s1", quoted(rest))))?;
        let has_suffix = suffix != Suffix::default();
        let is_whole = !is_open && (numbers.len() >= 3 || has_suffix);
        if suffix.starts_with_number() {
            return Err(whole(
                "what lies between two versions is written with spaces: \"1.30 - 1.32\"".to_owned(),
            ));
        }
        Ok(Self {
            // A year that stands alone may be any number.
            dated: (numbers.len() > 1 || !is_year(numbers[0])).then(|| parse::is_dated(&numbers)),
            numbers,
            is_whole,
            suffix: has_suffix.then_some(suffix),
        })
    }

    /// Nothing for `*`.
    fn bound(&self, side: Side) -> Option<Bound> {
        let mut numbers = [0; 4];
        numbers[..self.numbers.len()].copy_from_slice(&self.numbers);
        (!self.numbers.is_empty()).then(|| Bound {
            side,
            numbers,
            dated: self.dated,
            suffix: self.suffix.clone(),
        })
    }

    /// The end of all that begins with its first numbers, as many as `count`.
    fn next(&self, count: usize) -> Option<Bound> {
        let mut bound = self.bound(Side::Below)?;
        let last = count.checked_sub(1)?;
        bound.numbers[last] = bound.numbers[last].saturating_add(1);
        bound.numbers[count..].fill(0);
        bound.suffix = None;
        Some(bound)
    }

    fn up_to(&self) -> Option<Bound> {
        if self.is_whole {
            self.bound(Side::UpTo)
        } else {
            self.next(self.numbers.len())
        }
    }

    /// From here on, as long as the first numbers stay, as many as `count`.
    fn reach(&self, count: usize) -> impl Iterator<Item = Bound> {
        self.bound(Side::From).into_iter().chain(self.next(count))
    }

    /// How many numbers `^` keeps: up to the first that is not zero.
    fn first_that_counts(&self) -> usize {
        let zeros = self.numbers.iter().take_while(|number| **number == 0).count();
        (zeros + 1).min(self.numbers.len())
    }
}

fn is_wildcard(text: &str) -> bool {
    matches!(text, "x" | "X" | "*")
}

impl Bound {
    fn turned(self, side: Side) -> Self {
        Self { side, ..self }
    }

    fn holds(&self, version: &Version) -> bool {
        if self.dated.is_some_and(|dated| dated != version.dated) {
            return false;
        }
        let order = match version.numbers.cmp(&self.numbers) {
            Ordering::Equal => match &self.suffix {
                // One that names no build holds for all builds.
                Some(suffix) if suffix.is_before_only() => version.suffix.compare_before(suffix),
                Some(suffix) => version.suffix.compare(suffix),
                // A bound without a suffix is the release, whoever built it.
                None if version.suffix.before.is_empty() => Some(Ordering::Equal),
                None => Some(Ordering::Less),
            },
            order => Some(order),
        };
        match self.side {
            Side::Above => order == Some(Ordering::Greater),
            Side::From => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
            Side::UpTo => matches!(order, Some(Ordering::Less | Ordering::Equal)),
            Side::Below => order == Some(Ordering::Less),
            Side::Just => order == Some(Ordering::Equal),
        }
    }

    /// It names a prerelease of the version's numbers.
    fn names(&self, version: &Version) -> bool {
        let is_named = |suffix: &Suffix| !suffix.before.is_empty() || !suffix.rest.is_empty();
        self.numbers == version.numbers && self.suffix.as_ref().is_some_and(is_named)
    }
}

/// No version is within all of these.
fn is_empty(bounds: &[Bound]) -> bool {
    let lower = |bound: &&Bound| matches!(bound.side, Side::Above | Side::From | Side::Just);
    let upper = |bound: &&Bound| matches!(bound.side, Side::Below | Side::UpTo | Side::Just);
    let apart = |low: &Bound, high: &Bound| match low.numbers.cmp(&high.numbers) {
        Ordering::Less => false,
        Ordering::Greater => true,
        // With suffixes there may be something between the two.
        Ordering::Equal => {
            low.suffix.is_none()
                && high.suffix.is_none()
                && (low.side == Side::Above || high.side == Side::Below)
        }
    };
    let kinds_differ = |one: &Bound, other: &Bound| matches!((one.dated, other.dated), (Some(one), Some(other)) if one != other);
    bounds
        .iter()
        .filter(lower)
        .any(|low| bounds.iter().filter(upper).any(|high| apart(low, high)))
        || bounds
            .iter()
            .any(|one| bounds.iter().any(|other| kinds_differ(one, other)))
}
