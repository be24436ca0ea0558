//! What a plain scalar is: text, a number, a bool, or nothing.
//!
//! By the rules of the reader in kubectl and the API server (sigs.k8s.io/yaml over go-yaml v2), which are those of YAML
//! 1.1 with exceptions: `yes` is true and `010` is eight, but `12:30` is text and so is a date.

use serde_json::Number;

use super::Kind;

/// What `text` is when it stands there without quotes.
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

/// Whether readers of YAML 1.1 and of YAML 1.2 see the same bool in this text.
pub fn is_plain_bool(text: &str) -> bool {
    matches!(text, "true" | "True" | "TRUE" | "false" | "False" | "FALSE")
}

/// Whether the text, without quotes, is this very text to every reader: no number, no bool, no date, no time, no null.
pub fn is_text_to_all(text: &str) -> bool {
    let safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '+' | '-');
    let mut chars = text.chars();
    let starts_with_letter = chars.next().is_some_and(|c| c.is_ascii_alphabetic());
    // A digit further on may make a number of it (`1.33`), a date (`2026-08-01`) or, in YAML 1.1, a number in base 60.
    let several_dots = text.split('.').count() > 2 && text.bytes().all(|b| b != b'_');
    (starts_with_letter || (several_dots && text.starts_with(|c: char| c.is_ascii_digit())))
        && text.chars().all(safe)
        && matches!(resolve(text), Kind::Text(_))
}

fn number(text: &str) -> Option<Number> {
    let first = text.bytes().next()?;
    if !(first.is_ascii_digit() || matches!(first, b'+' | b'-' | b'.')) {
        return None;
    }
    let plain = text.replace('_', "");
    integer(&plain).or_else(|| float(if first == b'.' { text } else { &plain }))
}

/// An integer as Go reads it in base 0: `0x1f`, `0o17`, `017`, `0b1`, `31`.
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
    Some(Number::from(magnitude))
}

/// `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`. What is no number in JSON, such as `.inf`, stays text.
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
            ("18446744073709551615", "18446744073709551615"),
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
