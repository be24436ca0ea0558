//! Resolves a plain scalar to text, a number, a bool or null.
//!
//! The rules are those of kubectl and the API server (sigs.k8s.io/yaml over go-yaml v2): YAML 1.1 with exceptions.
//! `yes` is true and `010` is eight, but `12:30` and dates are text.

use serde_json::Number;

use super::node::Kind;

/// The value of `text` without quotes.
pub(super) fn resolve(text: &str) -> Kind {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Kind::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return Kind::Bool(true);
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Kind::Bool(false);
        }
        _ => {}
    }
    number(text).map_or_else(|| Kind::Text(text.to_owned()), Kind::Number)
}

/// The value of `text` with a YAML tag such as `!!int`; `None` if it does not have that type.
pub(super) fn tagged(tag: &str, text: &str) -> Option<Kind> {
    let kind = resolve(text);
    match (tag, &kind) {
        ("int", Kind::Number(number)) => (!number.is_f64()).then_some(kind),
        ("float", Kind::Number(_)) | ("bool", Kind::Bool(_)) | ("null", Kind::Null) => Some(kind),
        ("int" | "float" | "bool" | "null", _) => None,
        _ => Some(kind),
    }
}

/// Whether the number has no JSON form, so that kubectl refuses it.
pub(super) fn is_not_finite(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN")
}

/// A number as an object key, as Go prints it.
pub(super) fn key(number: &Number) -> String {
    let text = number.to_string();
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// Whether every YAML reader takes the unquoted text for a string: not a number, bool, date, time or null.
pub fn is_text_to_all(text: &str) -> bool {
    let safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '+' | '-');
    let mut chars = text.chars();
    let starts_with_letter = chars.next().is_some_and(|c| c.is_ascii_alphabetic());
    // Digits after these characters may make it a number (`1.33`), a date (`2026-08-01`) or, in YAML 1.1, a base-60
    // number.
    let several_dots = text.split('.').count() > 2 && text.bytes().all(|b| b != b'_');
    (starts_with_letter || (several_dots && text.starts_with(|c: char| c.is_ascii_digit())))
        && text.chars().all(safe)
        && matches!(resolve(text), Kind::Text(_))
}

/// The number that the unquoted `text` is.
pub fn number(text: &str) -> Option<Number> {
    let first = text.bytes().next()?;
    if !(first.is_ascii_digit() || matches!(first, b'+' | b'-' | b'.')) {
        return None;
    }
    let plain = text.replace('_', "");
    // go-yaml drops underscores, except where a number begins with `.`: it gives that to `ParseFloat`, which reads
    // `.1_1` and not `._1`.
    let is_fraction = text.starts_with("._");
    integer(&plain).or_else(|| float(if is_fraction { text } else { &plain }))
}

/// An integer in Go's base-0 syntax: `0x1f`, `0o17`, `017`, `0b1`, `31`.
fn integer(text: &str) -> Option<Number> {
    let (negative, digits) = match text.strip_prefix(['-', '+']) {
        Some(digits) => (text.starts_with('-'), digits),
        None => (false, text),
    };
    let (radix, digits) = match digits.get(..2) {
        Some("0x" | "0X") => (16, &digits[2..]),
        Some("0o" | "0O") => (8, &digits[2..]),
        Some("0b" | "0B") => (2, &digits[2..]),
        Some(_) if digits.starts_with('0') => (8, &digits[1..]),
        _ => (10, digits),
    };
    if digits.starts_with(['+', '-']) {
        return None;
    }
    let magnitude = u64::from_str_radix(digits, radix).ok()?;
    if negative {
        return 0_i64.checked_sub_unsigned(magnitude).map(Number::from);
    }
    // The API server receives a larger one as a floating-point number.
    i64::try_from(magnitude).map_or_else(
        |_| magnitude.to_string().parse().ok().and_then(Number::from_f64),
        |number| Some(Number::from(number)),
    )
}

/// `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`. A value without a JSON form, such as `.inf`, stays text.
fn float(text: &str) -> Option<Number> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let well_formed = match mantissa.split_once('.') {
        Some(("", fraction)) => !fraction.is_empty() && digits(fraction),
        Some((whole, fraction)) => digits(whole) && digits(fraction),
        None => !mantissa.is_empty() && digits(mantissa),
    };
    let exponent_fits = exponent.is_none_or(|exponent| {
        let exponent = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        !exponent.is_empty() && digits(exponent)
    });
    if !(well_formed && exponent_fits) {
        return None;
    }
    text.parse().ok().and_then(Number::from_f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> String {
        match resolve(text) {
            Kind::Null => "null".to_owned(),
            Kind::Bool(value) => value.to_string(),
            Kind::Number(number) => number.to_string(),
            Kind::Text(text) => format!("{text:?}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_scalar_is_what_kubectl_takes_it_for() {
        for (text, expected) in [
            ("v1.33.4+k3s1", r#""v1.33.4+k3s1""#),
            ("1.33", "1.33"),
            ("1.30", "1.3"),
            ("1.", "1.0"),
            (".5", "0.5"),
            ("-1.5e3", "-1500.0"),
            ("1.33.4", r#""1.33.4""#),
            ("2026.08.1", r#""2026.08.1""#),
            ("2026-08-01", r#""2026-08-01""#),
            ("22:00", r#""22:00""#),
            ("0755", "493"),
            ("0o755", "493"),
            ("0x1f", "31"),
            ("0b11", "3"),
            ("08", "8.0"),
            ("1_000", "1000"),
            ("+1", "1"),
            ("-9223372036854775808", "-9223372036854775808"),
            ("9223372036854775807", "9223372036854775807"),
            ("9223372036854775808", "9.223372036854776e+18"),
            (".1_1", "0.11"),
            ("._1", r#""._1""#),
            ("18446744073709551616", "1.8446744073709552e+19"),
            ("-", r#""-""#),
            ("+", r#""+""#),
            (".", r#"".""#),
            ("1e", r#""1e""#),
            ("0x", r#""0x""#),
            ("--1", r#""--1""#),
            ("0x-1", r#""0x-1""#),
            ("yes", "true"),
            ("Off", "false"),
            ("n", "false"),
            ("oN", r#""oN""#),
            ("~", "null"),
            ("", "null"),
            ("nil", r#""nil""#),
            (".inf", r#"".inf""#),
        ] {
            assert_eq!(json(text), expected, "{text}");
        }
    }

    #[test]
    fn text_that_a_reader_may_take_for_something_else_is_not_text_to_all() {
        for text in [
            "v1.33.4+k3s1",
            "1.33.4",
            "2026.08.1",
            "stable",
            "1.33.4-rke2r1",
            "v1",
        ] {
            assert!(is_text_to_all(text), "{text}");
        }
        for text in [
            "1.33",
            "24.04",
            "1",
            "2026-08-01",
            "0x1f",
            "1e3",
            "yes",
            "null",
            "",
            "-v1",
            ".5",
            "a b",
            "a: b",
            "#a",
            "1_0.0.0",
            "12:30",
            "{a}",
        ] {
            assert!(!is_text_to_all(text), "{text}");
        }
    }
}
