//! Parses and prints values as Go does. Plans, environment variables and kubectl's flags use this syntax.

mod duration;

pub use duration::{DurationError, GoDuration};

/// Parses a bool as Go's `strconv.ParseBool`.
///
/// # Errors
/// Fails with the allowed values, as the end of a sentence about the invalid one.
pub fn parse_bool(value: &str) -> Result<bool, String> {
    match value {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        _ => Err("must be true or false (also 1, t, T, TRUE, True, 0, f, F, FALSE, False)".to_owned()),
    }
}
