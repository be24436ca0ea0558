//! Parses versions.

use std::str::FromStr;

use super::parts::{BUILDERS, NotAVersion, Numbers, Suffix, Token, Version};

/// Words of prereleases.
const BEFORE: [&str; 12] = [
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

impl FromStr for Version {
    type Err = NotAVersion;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let body = text.strip_prefix(['v', 'V']).unwrap_or(text);
        let (numbers, rest) = numbers(body).map_err(|problem| problem(text.to_owned()))?;
        let suffix = suffix(rest).ok_or_else(|| NotAVersion::Suffix(text.to_owned()))?;
        Ok(Self {
            text: text.to_owned(),
            numbers: filled(&numbers),
            written: numbers.len(),
            suffix,
        })
    }
}

/// Missing numbers are zero.
pub(super) fn filled(numbers: &[u64]) -> Numbers {
    std::array::from_fn(|at| numbers.get(at).copied().unwrap_or_default())
}

/// The error of a text.
pub(super) type Problem = fn(String) -> NotAVersion;

/// Parses one to four numbers separated by points, and returns the rest. A point without a following number is part of
/// the rest.
pub(super) fn numbers(text: &str) -> Result<(Vec<u64>, &str), Problem> {
    let mut numbers = Vec::with_capacity(4);
    let mut rest = text;
    loop {
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        if end == 0 {
            return Err(NotAVersion::NoNumber);
        }
        if numbers.len() == 4 {
            return Err(NotAVersion::TooMany);
        }
        numbers.push(
            rest[..end]
                .parse()
                .map_err(|_| NotAVersion::TooLarge as Problem)?,
        );
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
