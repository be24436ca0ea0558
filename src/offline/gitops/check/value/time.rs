//! Durations and times of day, as people spell them.

use jiff::SpanRelativeTo;

use refit_base::go::GoDuration;

/// A longer number of seconds is probably one of milliseconds.
const MAX_SECONDS: f64 = 100_000.0;

/// Converts common spellings of a duration (`30`, `5 minutes`, `1d`, `PT1H`) to Go's syntax. A plain number means
/// seconds.
pub(in crate::gitops::check) fn duration(text: &str) -> Option<String> {
    let text = text.trim();
    let is_number = |c: char| c.is_ascii_digit() || c == '.';
    let in_seconds = format!("{text}s");
    // Not `5m`, which an `s` behind it makes five milliseconds.
    if text.starts_with(|c: char| c.is_ascii_digit())
        && text.chars().all(is_number)
        && text.parse::<f64>().is_ok_and(|seconds| seconds <= MAX_SECONDS)
        && in_seconds.parse::<GoDuration>().is_ok()
    {
        return Some(in_seconds);
    }
    if !text.starts_with(['-', '+']) && text.parse::<GoDuration>().is_ok() {
        return Some(text.to_owned());
    }
    let span: jiff::Span = text.parse().or_else(|_| text.to_lowercase().parse()).ok()?;
    // A duration of a Plan begins at no date, so a day has 24 hours.
    let span = span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?;
    let nanos = i64::try_from(span.as_nanos()).ok().filter(|nanos| *nanos >= 0)?;
    Some(GoDuration::from_nanos(nanos).short())
}

pub(super) fn seconds(text: &str) -> Option<i64> {
    let exact = text.trim().parse::<GoDuration>().ok();
    let duration = exact.or_else(|| duration(text)?.parse().ok())?;
    (duration.as_nanos() % 1_000_000_000 == 0).then(|| duration.as_secs())
}

/// Converts common spellings of a time of day (`22`, `2200`, `22.30`, `10 PM`) to `22:00`.
pub(in crate::gitops::check) fn time_of_day(text: &str) -> Option<String> {
    let lower = text.to_lowercase().replace(' ', "");
    let (clock, half) = match (lower.strip_suffix("am"), lower.strip_suffix("pm")) {
        (Some(clock), _) => (clock, Some(0)),
        (_, Some(clock)) => (clock, Some(12)),
        _ => (lower.as_str(), None),
    };
    let (hour, minute) = match clock.split_once([':', '.']) {
        Some(parts) => parts,
        None if clock.len() > 2 => clock.split_at_checked(clock.len() - 2)?,
        None => (clock, "0"),
    };
    let (mut hour, mut minute_number): (u8, u8) = (hour.parse().ok()?, minute.parse().ok()?);
    // YAML reads 22.30 as a number, and drops its last zero.
    if clock.contains('.') && minute.len() == 1 {
        minute_number = minute_number.checked_mul(10)?;
    }
    if let Some(half) = half {
        hour = (1..=12).contains(&hour).then(|| hour % 12 + half)?;
    }
    (hour < 24 && minute_number < 60).then(|| format!("{hour:02}:{minute_number:02}"))
}
