//! Ranges of versions in the syntax of npm and cargo: `>=1.30 <1.32`, `1.31.x`, `~1.31`, `^1`, `1.30 - 1.32`, and
//! alternatives with `||`.
//!
//! A bound without a build applies to all builds of a release: `<=1.31.4` includes `v1.31.4+k3s1`. As in npm and cargo,
//! a prerelease is in a range only if the range names one of the same release (`>=1.32.0-rc1`). Pure.

#[cfg(test)]
mod tests;

use std::cmp::{Ordering, Reverse};
use std::fmt;
use std::str::FromStr;

use super::parse::{self, is_year};
use super::{SHOWN, Suffix, Version, quoted};

/// Maximum length of a range in bytes.
pub const MAX_LEN: usize = 1 << 10;
/// Maximum number of bounds. Each is compared with every version that a channel offers, in one go.
const MAX_BOUNDS: usize = 64;

#[derive(Clone, Debug, PartialEq)]
pub struct Range {
    text: String,
    /// Alternatives, each a conjunction of bounds.
    ways: Vec<Vec<Bound>>,
}

/// Why a text is not a range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} is not a version range: {why}; write for example \">=1.30 <1.32\", \"1.31.x\" or \"~1.31\"", quoted(.text))]
pub struct RangeError {
    text: String,
    why: String,
}

#[derive(Clone, Debug, PartialEq)]
struct Bound {
    side: Side,
    numbers: [u64; 4],
    /// Whether the first number is a year; `None` for a single number, which may be anything.
    dated: Option<bool>,
    /// If a bound has a suffix, builds are compared and prereleases included.
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

/// A possibly incomplete version in a range.
struct Partial {
    /// The given numbers; none for `*`.
    numbers: Vec<u64>,
    /// Whether the version is complete.
    is_complete: bool,
    dated: Option<bool>,
    suffix: Option<Suffix>,
}

impl Range {
    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn has(&self, version: &Version) -> bool {
        self.ways.iter().any(|bounds| {
            bounds.iter().all(|bound| bound.holds(version))
                && (!version.is_prerelease() || bounds.iter().any(|bound| bound.names(version)))
        })
    }

    /// Whether the version may be in the range: in a tag a build may look like a prerelease.
    pub fn may_have(&self, tag: &Version) -> bool {
        self.has(tag) || tag.suffix.before.is_empty() && self.has_release_of(tag)
    }

    /// Whether only being a prerelease excludes the version.
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
        if text.len() > MAX_LEN {
            let why = format!("it has {} bytes, and at most {MAX_LEN} are read", text.len());
            return Err(RangeError {
                text: text.chars().take(SHOWN + 1).collect(),
                why,
            });
        }
        let mut ways = Vec::new();
        for way in text.split("||") {
            ways.push(bounds(way).map_err(error)?);
        }
        let count: usize = ways.iter().map(Vec::len).sum();
        if count > MAX_BOUNDS {
            return Err(error(format!(
                "it has {count} bounds, and at most {MAX_BOUNDS} are read"
            )));
        }
        if ways.iter().all(|bounds| is_empty(bounds)) {
            return Err(error("it contains no version".to_owned()));
        }
        Ok(Self {
            text: text.trim().to_owned(),
            ways,
        })
    }
}

/// Parses one alternative.
fn bounds(way: &str) -> Result<Vec<Bound>, String> {
    // cargo separates bounds by commas, npm by spaces.
    let spaced = way.replace(',', " ");
    let mut words = spaced.split_whitespace().peekable();
    if words.peek().is_none() {
        return Err("it is empty, or has an empty side of a \"||\"".to_owned());
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
            ">" if from.is_complete => bounds.extend(from.bound(Side::Above)),
            // As in npm, `>1.31` excludes all of 1.31.
            ">" => match from.next(from.numbers.len()) {
                Some(next) => bounds.push(next.turned(Side::From)),
                None => return Err("nothing is above \"*\"".to_owned()),
            },
            "<" => match from.bound(Side::Below) {
                Some(bound) => bounds.push(bound),
                None => return Err("nothing is below \"*\"".to_owned()),
            },
            "<=" => bounds.extend(from.up_to()),
            // `~1.31.4` keeps 1.31, and `~1` keeps 1.
            "~" => bounds.extend(from.reach(from.numbers.len().min(2))),
            "^" => bounds.extend(from.reach(from.first_that_counts())),
            _ if from.is_complete => bounds.extend(from.bound(Side::Just)),
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
                "{} is not an operator; the operators are: = > >= < <= ~ ^",
                quoted(other)
            ));
        }
    };
    Ok((operator, version))
}

impl Partial {
    fn parse(text: &str) -> Result<Self, String> {
        let whole = |why: String| format!("{} is not a version: {why}", quoted(text));
        let body = text.strip_prefix(['v', 'V']).unwrap_or(text);
        if is_wildcard(body) {
            return Ok(Self {
                numbers: Vec::new(),
                is_complete: false,
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
                return Err(whole(
                    "a point must be followed by a number or \"x\" is expected".to_owned(),
                ));
            }
            is_open = true;
            rest = &tail[end..];
        }
        let suffix = parse::suffix(rest)
            .ok_or_else(|| whole(format!("{} is not a suffix such as -rc1 or +k3s1", quoted(rest))))?;
        let has_suffix = suffix != Suffix::default();
        let is_complete = !is_open && (numbers.len() >= 3 || has_suffix);
        if suffix.starts_with_number() {
            return Err(whole(
                "a range between two versions is written with spaces: \"1.30 - 1.32\"".to_owned(),
            ));
        }
        Ok(Self {
            // A single number that could be a year may be any number.
            dated: (numbers.len() > 1 || !is_year(numbers[0])).then(|| parse::is_dated(&numbers)),
            numbers,
            is_complete,
            suffix: has_suffix.then_some(suffix),
        })
    }

    /// `None` for `*`.
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

    /// The end of all versions that share the first `count` numbers.
    fn next(&self, count: usize) -> Option<Bound> {
        let mut bound = self.bound(Side::Below)?;
        let last = count.checked_sub(1)?;
        bound.numbers[last] = bound.numbers[last].saturating_add(1);
        bound.numbers[count..].fill(0);
        bound.suffix = None;
        Some(bound)
    }

    fn up_to(&self) -> Option<Bound> {
        if self.is_complete {
            self.bound(Side::UpTo)
        } else {
            self.next(self.numbers.len())
        }
    }

    /// From here on, while the first `count` numbers stay the same.
    fn reach(&self, count: usize) -> impl Iterator<Item = Bound> {
        self.bound(Side::From).into_iter().chain(self.next(count))
    }

    /// Number of leading numbers that `^` keeps: up to the first that is not zero. As in npm and cargo, a minor version
    /// of 0.x may break what the one before had.
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
                // A prerelease without a build applies to all builds.
                Some(suffix) if suffix.is_before_only() => version.suffix.compare_before(suffix),
                Some(suffix) => version.suffix.compare(suffix),
                // A bound without a suffix is the release, of any builder.
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

    /// Whether the bound names a prerelease of the version's numbers.
    fn names(&self, version: &Version) -> bool {
        let is_named = |suffix: &Suffix| !suffix.before.is_empty() || !suffix.rest.is_empty();
        self.numbers == version.numbers && self.suffix.as_ref().is_some_and(is_named)
    }
}

/// Whether no version can satisfy all bounds. The highest of the lower bounds and the lowest of the upper ones decide.
fn is_empty(bounds: &[Bound]) -> bool {
    let lower = |bound: &&Bound| matches!(bound.side, Side::Above | Side::From | Side::Just);
    let upper = |bound: &&Bound| matches!(bound.side, Side::Below | Side::UpTo | Side::Just);
    // Of equal numbers, the stricter bound. With suffixes there may be a version in between.
    let strictness = |bound: &Bound, strict: Side| (bound.suffix.is_none(), bound.side == strict);
    let low = bounds.iter().filter(lower);
    let low = low.max_by_key(|bound| (bound.numbers, strictness(bound, Side::Above)));
    let high = bounds.iter().filter(upper);
    let high = high.min_by_key(|bound| (bound.numbers, Reverse(strictness(bound, Side::Below))));
    let apart = |low: &Bound, high: &Bound| match low.numbers.cmp(&high.numbers) {
        Ordering::Less => false,
        Ordering::Greater => true,
        Ordering::Equal => {
            low.suffix.is_none()
                && high.suffix.is_none()
                && (low.side == Side::Above || high.side == Side::Below)
        }
    };
    let has_kind = |dated| bounds.iter().any(|bound| bound.dated == Some(dated));
    low.zip(high).is_some_and(|(low, high)| apart(low, high)) || has_kind(true) && has_kind(false)
}
