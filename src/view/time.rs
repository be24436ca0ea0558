//! Durations for people.

use jiff::{SignedDuration, Timestamp};

/// `45s`, `12m`, `3h10m`, `2d4h`: at most two units.
pub(super) fn short(duration: SignedDuration) -> String {
    let seconds = duration.as_secs().max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    let two = |large: i64, unit: &str, small: i64, small_unit: &str| match small {
        0 => format!("{large}{unit}"),
        small => format!("{large}{unit}{small}{small_unit}"),
    };
    match seconds {
        0..60 => format!("{seconds}s"),
        60..600 => two(minutes, "m", seconds % 60, "s"),
        600..3_600 => format!("{minutes}m"),
        3_600..86_400 => two(hours, "h", minutes % 60, "m"),
        _ => two(days, "d", hours % 24, "h"),
    }
}

/// How long ago a time of status is; `None` if it is not a time.
pub(super) fn since(text: &str, now: Timestamp) -> Option<String> {
    let at: Timestamp = text.parse().ok()?;
    Some(short(now.duration_since(at)))
}

/// ` for 12m`, or nothing if there is no such time.
pub(super) fn lasting(since: Option<&str>, now: Timestamp) -> String {
    let since = since.and_then(|since| self::since(since, now));
    since.map_or_else(String::new, |since| format!(" for {since}"))
}

/// A time in the future: `in 12m`, or `now`.
pub(super) fn until(at: Timestamp, now: Timestamp) -> String {
    let left = at.duration_since(now);
    if left.is_positive() {
        format!("in {}", short(left))
    } else {
        "now".to_owned()
    }
}

/// A time in the future that is not known exactly: `in 12m to 20m`.
pub(super) fn range(earliest: Timestamp, latest: Timestamp, now: Timestamp) -> String {
    let last = short(latest.duration_since(now));
    if earliest <= now {
        return format!("within {last}");
    }
    match short(earliest.duration_since(now)) {
        first if first == last => format!("in {last}"),
        first => format!("in {first} to {last}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_that_is_not_known_exactly_is_a_range() {
        let now = Timestamp::UNIX_EPOCH;
        let of = |first, last| {
            range(
                now + SignedDuration::from_secs(first),
                now + SignedDuration::from_secs(last),
                now,
            )
        };
        assert_eq!(of(7, 21), "in 7s to 21s");
        assert_eq!(of(0, 21), "within 21s");
        assert_eq!(of(3_600, 3_601), "in 1h");
    }

    #[test]
    fn a_duration_has_at_most_two_units() {
        for (seconds, text) in [
            (-5, "0s"),
            (45, "45s"),
            (60, "1m"),
            (125, "2m5s"),
            (725, "12m"),
            (3_600, "1h"),
            (11_400, "3h10m"),
            (187_200, "2d4h"),
        ] {
            assert_eq!(short(SignedDuration::from_secs(seconds)), text);
        }
    }
}
