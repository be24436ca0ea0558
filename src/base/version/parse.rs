//! Parses versions.

use std::str::FromStr;

use super::{BUILDERS, NotAVersion, Suffix, Token, Version};

/// Words of prereleases.
pub(super) const BEFORE: [&str; 12] = [
    "alpha",
    "beta",
    "rc",
    "canary",
    "dev",
    "ea",
    "milestone",
    "nightly",
    "pre",
    "preview",
    "snapshot",
    "unstable",
];
/// First numbers that count as years. No other version number is as large.
const YEARS: std::ops::RangeInclusive<u64> = 1990..=2999;

impl FromStr for Version {
    type Err = NotAVersion;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let body = text.strip_prefix(['v', 'V']).unwrap_or(text);
        let (numbers, rest) = numbers(body).map_err(|problem| problem.of(text))?;
        let (numbers, rest) = with_iso_date(numbers, rest);
        let suffix = suffix(rest).ok_or_else(|| NotAVersion::Suffix(text.to_owned()))?;
        let mut all = [0; 4];
        all[..numbers.len()].copy_from_slice(&numbers);
        Ok(Self {
            text: text.to_owned(),
            numbers: all,
            written: numbers.len(),
            dated: is_dated(&numbers),
            suffix,
        })
    }
}

/// Whether the numbers begin with a year (`2026.08.1`), or are a date (`20260801`).
pub(super) fn is_dated(numbers: &[u64]) -> bool {
    match numbers {
        [day] => is_day(*day),
        [year, ..] => is_year(*year),
        [] => false,
    }
}

pub(super) fn is_year(number: u64) -> bool {
    YEARS.contains(&number)
}

fn is_day(number: u64) -> bool {
    let (year, month, day) = (number / 10_000, number / 100 % 100, number % 100);
    is_year(year) && (1..=12).contains(&month) && (1..=31).contains(&day)
}

/// Parses `2026-08-01` as the numbers of `2026.08.01`.
fn with_iso_date(mut numbers: Vec<u64>, rest: &str) -> (Vec<u64>, &str) {
    let part = |rest: &str| -> Option<u64> {
        let digits = rest.strip_prefix('-')?.get(..2)?;
        let is_complete = !rest.get(3..)?.starts_with(|c: char| c.is_ascii_alphanumeric());
        let is_number = is_complete && digits.bytes().all(|b| b.is_ascii_digit());
        digits.parse().ok().filter(|_| is_number)
    };
    let month = part(rest).filter(|month| (1..=12).contains(month));
    let day = rest.get(3..).and_then(part).filter(|day| (1..=31).contains(day));
    match (numbers.as_slice(), month, day) {
        ([year], Some(month), Some(day)) if is_year(*year) => {
            numbers.extend([month, day]);
            (numbers, rest.get(6..).unwrap_or_default())
        }
        _ => (numbers, rest),
    }
}

/// An error in the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Problem {
    NoNumber,
    TooMany,
    TooLarge,
}

impl Problem {
    fn of(self, text: &str) -> NotAVersion {
        let text = text.to_owned();
        match self {
            Self::NoNumber => NotAVersion::NoNumber(text),
            Self::TooMany => NotAVersion::TooMany(text),
            Self::TooLarge => NotAVersion::TooLarge(text),
        }
    }
}

/// Parses one to four numbers separated by points, and returns the rest. A point without a following number is part of
/// the rest.
pub(super) fn numbers(text: &str) -> Result<(Vec<u64>, &str), Problem> {
    let mut numbers = Vec::with_capacity(4);
    let mut rest = text;
    loop {
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        if end == 0 {
            return Err(Problem::NoNumber);
        }
        if numbers.len() == 4 {
            return Err(Problem::TooMany);
        }
        numbers.push(rest[..end].parse().map_err(|_| Problem::TooLarge)?);
        rest = &rest[end..];
        match rest.strip_prefix('.') {
            Some(next) if next.starts_with(|c: char| c.is_ascii_digit()) => rest = next,
            _ => return Ok((numbers, rest)),
        }
    }
}

/// Parses the text after the numbers; `None` if it is not a suffix. `rc1` needs no separator, all else does.
pub(super) fn suffix(text: &str) -> Option<Suffix> {
    let mut suffix = Suffix::default();
    if text.is_empty() {
        return Some(suffix);
    }
    let body = match text.strip_prefix(['-', '+', '_']) {
        Some(body) => body,
        None if begins_before(text) => text,
        None => return None,
    };
    let is_sign = |c: char| matches!(c, '-' | '+' | '_' | '.');
    let known = |c: char| c.is_ascii_alphanumeric() || is_sign(c);
    if body.is_empty() || !body.chars().all(known) || body.split(is_sign).any(str::is_empty) {
        return None;
    }
    let pieces: Vec<&str> = body.split(['-', '+', '_']).collect();
    let build = pieces.iter().position(|piece| builder(piece).is_some());
    let (before, rest): (&[&str], &[&str]) = match build {
        Some(at) => {
            suffix.build = builder(pieces[at]);
            (&pieces[..at], &pieces[at + 1..])
        }
        None if begins_before(body) => (&pieces, &[]),
        None => (&[], &pieces),
    };
    suffix.before = tokens(before);
    suffix.rest = tokens(rest);
    // After `+` it is a build. A tag has `-` instead, and then it is unknown.
    suffix.is_build = suffix.build.is_some() || text.starts_with(['+', '_']);
    Some(suffix)
}

/// Splits `k3s1` into its word and its number.
fn builder(piece: &str) -> Option<(String, u64)> {
    BUILDERS.iter().find_map(|word| {
        let digits = piece.strip_prefix(word)?;
        let all = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        let number = all.then(|| digits.parse().ok()).flatten()?;
        Some(((*word).to_owned(), number))
    })
}

fn begins_before(text: &str) -> bool {
    let end = text
        .find(|c: char| !c.is_ascii_alphabetic())
        .unwrap_or(text.len());
    BEFORE.iter().any(|word| word.eq_ignore_ascii_case(&text[..end]))
}

fn tokens(pieces: &[&str]) -> Vec<Token> {
    let mut tokens = Vec::new();
    for part in pieces.iter().flat_map(|piece| piece.split('.')) {
        let mut rest = part;
        while let Some(first) = rest.chars().next() {
            let digits = first.is_ascii_digit();
            let end = rest
                .find(|c: char| c.is_ascii_digit() != digits)
                .unwrap_or(rest.len());
            let (token, next) = rest.split_at(end);
            tokens.push(match token.parse() {
                Ok(number) if digits => Token::Number(number),
                _ => Token::Word(token.to_ascii_lowercase()),
            });
            rest = next;
        }
    }
    tokens
}
