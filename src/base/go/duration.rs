//! Durations in Go's syntax (`time.ParseDuration`, `time.Duration.String`): `1h30m`, `1.5h`, `60ns`.
//!
//! Plans, environment variables and kubectl's flags use them, so accepted values, rounding of fractions and printed
//! results equal Go's to the nanosecond.

use std::fmt;
use std::str::FromStr;

/// A duration in nanoseconds, which may be negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GoDuration(i64);

/// Why a text is not a duration, with Go's messages.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// It has no number, exceeds 292 years, or is malformed.
    #[error("time: invalid duration {}", quote(.0))]
    Invalid(String),
    #[error("time: missing unit in duration {}", quote(.0))]
    MissingUnit(String),
    #[error("time: unknown unit {} in duration {}", quote(.unit), quote(.text))]
    UnknownUnit { unit: String, text: String },
}

const SECOND: u64 = 1_000_000_000;

/// The magnitude of the smallest `i64`. As in Go, it is a duration only with a minus sign.
const MAX_MAGNITUDE: u64 = 1 << 63;

impl GoDuration {
    pub const ZERO: Self = Self(0);
    pub const MINUTE: Self = Self::from_nanos(60_000_000_000);

    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// The whole seconds, rounded towards zero.
    pub const fn as_secs(self) -> i64 {
        self.0 / 1_000_000_000
    }

    pub const fn is_negative(self) -> bool {
        self.0 < 0
    }

    /// The sum, or the longest duration if the sum is longer.
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Without zero parts: `1h`, not `1h0m0s`.
    pub fn short(self) -> String {
        let text = self.to_string();
        let text = text
            .strip_suffix("m0s")
            .map_or(text.clone(), |minutes| format!("{minutes}m"));
        text.strip_suffix("h0m")
            .map_or(text.clone(), |hours| format!("{hours}h"))
    }

    /// As a `std` duration; `None` if it is negative.
    pub fn to_std(self) -> Option<std::time::Duration> {
        u64::try_from(self.0).ok().map(std::time::Duration::from_nanos)
    }
}

impl FromStr for GoDuration {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || DurationError::Invalid(text.to_owned());
        let (negative, mut rest) = match text.strip_prefix(['-', '+']) {
            Some(rest) => (text.starts_with('-'), rest),
            None => (false, text),
        };
        if rest == "0" {
            return Ok(Self::ZERO); // the only number that needs no unit
        }
        if rest.is_empty() {
            return Err(invalid());
        }
        let mut magnitude = 0_u64;
        while !rest.is_empty() {
            let term = Term::take(rest).ok_or_else(invalid)?;
            if term.unit.is_empty() {
                return Err(DurationError::MissingUnit(text.to_owned()));
            }
            let unit = nanos_of(term.unit).ok_or_else(|| DurationError::UnknownUnit {
                unit: term.unit.to_owned(),
                text: text.to_owned(),
            })?;
            magnitude = term
                .nanos(unit)
                .and_then(|nanos| add(magnitude, nanos))
                .ok_or_else(invalid)?;
            rest = term.rest;
        }
        let signed = if negative {
            0_i64.checked_sub_unsigned(magnitude)
        } else {
            i64::try_from(magnitude).ok()
        };
        signed.map(Self).ok_or_else(invalid)
    }
}

/// A number, its unit, and the rest of the text.
struct Term<'a> {
    whole: u64,
    /// Digits after the point as an integer, and the power of ten to divide it by.
    fraction: (u64, f64),
    unit: &'a str,
    rest: &'a str,
}

impl<'a> Term<'a> {
    /// Parses a term at the start of `text`; `None` if it does not start with a number, or with too large a one.
    fn take(text: &'a str) -> Option<Self> {
        let (whole, rest) = split_at(text, |c| !c.is_ascii_digit());
        let (fraction, rest) = match rest.strip_prefix('.') {
            Some(rest) => split_at(rest, |c| !c.is_ascii_digit()),
            None => ("", rest),
        };
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let (unit, rest) = split_at(rest, |c| c == '.' || c.is_ascii_digit());
        Some(Self {
            whole: magnitude(whole)?,
            fraction: parse_fraction(fraction),
            unit,
            rest,
        })
    }

    /// The term in nanoseconds. As in Go, the fraction is computed as a float, for the same rounding.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "Go's arithmetic; the product is less than the nanoseconds of an hour"
    )]
    fn nanos(&self, unit: u64) -> Option<u64> {
        let (digits, scale) = self.fraction;
        let whole = self
            .whole
            .checked_mul(unit)
            .filter(|nanos| *nanos <= MAX_MAGNITUDE)?;
        add(whole, (digits as f64 * (unit as f64 / scale)) as u64)
    }
}

/// The digits after the point. Digits that do not fit are dropped, as in Go.
fn parse_fraction(digits: &str) -> (u64, f64) {
    let (mut value, mut scale) = (0_u64, 1.0);
    for digit in digits.bytes() {
        let longer = value
            .checked_mul(10)
            .and_then(|tens| tens.checked_add(u64::from(digit - b'0')));
        match longer.filter(|longer| *longer <= MAX_MAGNITUDE) {
            Some(longer) if value <= (MAX_MAGNITUDE - 1) / 10 => (value, scale) = (longer, scale * 10.0),
            _ => break,
        }
    }
    (value, scale)
}

/// The digits as a number of at most [`MAX_MAGNITUDE`]; 0 if there are none.
fn magnitude(digits: &str) -> Option<u64> {
    if digits.is_empty() {
        return Some(0);
    }
    digits.parse().ok().filter(|value| *value <= MAX_MAGNITUDE)
}

fn add(a: u64, b: u64) -> Option<u64> {
    a.checked_add(b).filter(|sum| *sum <= MAX_MAGNITUDE)
}

/// Splits `text` before the first character for which `ends` is true.
fn split_at(text: &str, ends: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(ends).unwrap_or(text.len()))
}

/// Nanoseconds in a unit. Micro is the micro sign or the Greek letter.
fn nanos_of(unit: &str) -> Option<u64> {
    Some(match unit {
        "ns" => 1,
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => SECOND,
        "m" => 60 * SECOND,
        "h" => 3_600 * SECOND,
        _ => return None,
    })
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.unsigned_abs();
        if self.is_negative() {
            f.write_str("-")?;
        }
        match nanos {
            0 => f.write_str("0s"),
            1..1_000 => write!(f, "{nanos}ns"),
            1_000..1_000_000 => write_fraction(f, nanos, 1_000, "\u{b5}s"),
            1_000_000..SECOND => write_fraction(f, nanos, 1_000_000, "ms"),
            _ => {
                let (minutes, below) = (nanos / (60 * SECOND), nanos % (60 * SECOND));
                match (minutes / 60, minutes % 60) {
                    (0, 0) => {}
                    (0, minutes) => write!(f, "{minutes}m")?,
                    (hours, minutes) => write!(f, "{hours}h{minutes}m")?,
                }
                write_fraction(f, below, SECOND, "s")
            }
        }
    }
}

/// Prints `nanos` in a unit of `per` nanoseconds, without trailing zeros.
fn write_fraction(f: &mut fmt::Formatter<'_>, nanos: u64, per: u64, unit: &str) -> fmt::Result {
    write!(f, "{}", nanos / per)?;
    if !nanos.is_multiple_of(per) {
        let width = per.ilog10() as usize;
        let digits = format!("{:0width$}", nanos % per);
        write!(f, ".{}", digits.trim_end_matches('0'))?;
    }
    f.write_str(unit)
}

/// Quotes as Go's `time`: prints what is not printable ASCII as the hex of its bytes.
fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => quoted.extend(['\\', char::from(byte)]),
            // 0x7f is not printable, but Go's `quote` escapes from 0x80 on only (`runeSelf` in src/time/format.go).
            b' '..=0x7f => quoted.push(char::from(byte)),
            _ => quoted.extend(format!("\\x{byte:02x}").chars()),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests;
