//! Ranges of versions in the syntax of npm and cargo: `>=1.30 <1.32`, `1.31.x`, `~1.31`, `^1`, `1.30 - 1.32`, and
//! alternatives with `||`.
//!
//! A bound without a build applies to all builds of a release: `<=1.31.4` includes `v1.31.4+k3s1`. As in npm and cargo,
//! a prerelease is in a range only if the range names one of the same release (`>=1.32.0-rc1`). Pure.

#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use super::parse;
use super::parts::{Numbers, SHOWN, Suffix, Version, is_dated, quoted};

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
    numbers: Numbers,
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
    /// Those that are written: one to four.
    numbers: Vec<u64>,
    /// Whether the version is complete.
    is_complete: bool,
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
            text: text.chars().take(SHOWN + 1).collect(),
            why,
        };
        if text.len() > MAX_LEN {
            let why = format!("it has {} bytes, and at most {MAX_LEN} are read", text.len());
            return Err(error(why));
        }
        let ways: Result<Vec<_>, _> = text.split("||").map(bounds).collect();
        let ways = ways.map_err(error)?;
        let count: usize = ways.iter().map(Vec::len).sum();
        if count > MAX_BOUNDS {
            let why = format!("it has {count} bounds, and at most {MAX_BOUNDS} are read");
            return Err(error(why));
        }
        if ways.iter().all(|bounds| is_empty(bounds)) {
            return Err(error("it contains no version".to_owned()));
        }
        let text = text.trim().to_owned();
        Ok(Self { text, ways })
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
        let at = word.find(|c| !"<>=~^!".contains(c)).unwrap_or(word.len());
        let (operator, version) = word.split_at(at);
        let version = Some(version).filter(|version| !version.is_empty());
        let version = version.or_else(|| words.next());
        let version = version.ok_or_else(|| format!("no version follows {}", quoted(operator)))?;
        let from = Partial::parse(version)?;
        if operator.is_empty() && words.next_if_eq(&"-").is_some() {
            let to = Partial::parse(words.next().ok_or("no version follows \"-\"")?)?;
            bounds.extend(from.map(|from| from.bound(Side::From)));
            bounds.extend(to.map(|to| to.up_to()));
            continue;
        }
        let Some(from) = from else {
            match operator {
                ">" => return Err("nothing is above \"*\"".to_owned()),
                "<" => return Err("nothing is below \"*\"".to_owned()),
                _ => continue,
            }
        };
        let count = from.numbers.len();
        match operator {
            ">=" => bounds.push(from.bound(Side::From)),
            ">" if from.is_complete => bounds.push(from.bound(Side::Above)),
            // As in npm, `>1.31` excludes all of 1.31.
            ">" => bounds.push(Bound {
                side: Side::From,
                ..from.next(count)
            }),
            "<" => bounds.push(from.bound(Side::Below)),
            "<=" => bounds.push(from.up_to()),
            // `~1.31.4` keeps 1.31, and `~1` keeps 1.
            "~" | "~>" => bounds.extend(from.reach(count.min(2))),
            "^" => bounds.extend(from.reach(from.first_that_counts())),
            "" | "=" | "==" if from.is_complete => bounds.push(from.bound(Side::Just)),
            "" | "=" | "==" => bounds.extend(from.reach(count)),
            other => {
                return Err(format!(
                    "{} is not an operator; the operators are: = > >= < <= ~ ^",
                    quoted(other)
                ));
            }
        }
    }
    Ok(bounds)
}

impl Partial {
    /// `None` for `*`.
    fn parse(text: &str) -> Result<Option<Self>, String> {
        let invalid = |why: String| Err(format!("{} is not a version: {why}", quoted(text)));
        let body = text.strip_prefix(['v', 'V']).unwrap_or(text);
        if matches!(body, "x" | "X" | "*") {
            return Ok(None);
        }
        let Ok((numbers, mut rest)) = parse::numbers(body) else {
            return invalid("numbers such as 1.31.4 are expected".to_owned());
        };
        let wild = |rest: &str| [".x", ".X", ".*"].into_iter().any(|wild| rest.starts_with(wild));
        let is_open = wild(rest);
        while wild(rest) {
            rest = &rest[2..];
        }
        if rest.starts_with('.') || is_open && !rest.is_empty() {
            return invalid("a point must be followed by a number or \"x\"".to_owned());
        }
        let Some(suffix) = parse::suffix(rest) else {
            return invalid(format!("{} is not a suffix such as -rc1 or +k3s1", quoted(rest)));
        };
        if suffix.starts_with_number() {
            return invalid(
                "a range between two versions is written with spaces: \"1.30 - 1.32\"".to_owned(),
            );
        }
        let suffix = Some(suffix).filter(|suffix| *suffix != Suffix::default());
        Ok(Some(Self {
            is_complete: !is_open && (numbers.len() >= 3 || suffix.is_some()),
            numbers,
            suffix,
        }))
    }

    fn bound(&self, side: Side) -> Bound {
        Bound {
            side,
            numbers: parse::filled(&self.numbers),
            suffix: self.suffix.clone(),
        }
    }

    /// The end of all versions that share the first `count` numbers.
    fn next(&self, count: usize) -> Bound {
        let mut numbers = parse::filled(&self.numbers[..count]);
        if let Some(last) = numbers[..count].last_mut() {
            *last = last.saturating_add(1);
        }
        Bound {
            side: Side::Below,
            numbers,
            suffix: None,
        }
    }

    fn up_to(&self) -> Bound {
        if self.is_complete {
            self.bound(Side::UpTo)
        } else {
            self.next(self.numbers.len())
        }
    }

    /// From here on, while the first `count` numbers stay the same.
    fn reach(&self, count: usize) -> [Bound; 2] {
        [self.bound(Side::From), self.next(count)]
    }

    /// Number of leading numbers that `^` keeps: up to the first that is not zero. As in npm and cargo, a minor version
    /// of 0.x may break what the one before had.
    fn first_that_counts(&self) -> usize {
        let first = self.numbers.iter().position(|number| *number != 0);
        first.map_or(self.numbers.len(), |at| at + 1)
    }
}

impl Bound {
    fn holds(&self, version: &Version) -> bool {
        if is_dated(&self.numbers) != version.is_dated() {
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
        order.is_some_and(|order| match self.side {
            Side::Above => order.is_gt(),
            Side::From => order.is_ge(),
            Side::UpTo => order.is_le(),
            Side::Below => order.is_lt(),
            Side::Just => order.is_eq(),
        })
    }

    /// Whether the bound names a prerelease of the version's numbers.
    fn names(&self, version: &Version) -> bool {
        let is_named = |suffix: &Suffix| !suffix.before.is_empty() || !suffix.rest.is_empty();
        self.numbers == version.numbers && self.suffix.as_ref().is_some_and(is_named)
    }

    /// Whether no version is both above this bound and below another one. With suffixes there may be one in between.
    fn excludes(&self, upper: &Self) -> bool {
        if matches!(self.side, Side::Below | Side::UpTo) || matches!(upper.side, Side::Above | Side::From) {
            return false;
        }
        let is_strict = self.side == Side::Above || upper.side == Side::Below;
        match self.numbers.cmp(&upper.numbers) {
            Ordering::Equal => is_strict && self.suffix.is_none() && upper.suffix.is_none(),
            order => order.is_gt(),
        }
    }
}

/// Whether no version can satisfy all bounds.
fn is_empty(bounds: &[Bound]) -> bool {
    let clash = |one: &Bound, other: &Bound| {
        one.excludes(other) || is_dated(&one.numbers) != is_dated(&other.numbers)
    };
    bounds
        .iter()
        .any(|one| bounds.iter().any(|other| clash(one, other)))
}
