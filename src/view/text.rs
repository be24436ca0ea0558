//! Text for terminals: times as people count them, and lines that fit.

use std::fmt::Write as _;

use jiff::Timestamp;

use super::time;

/// Bytes of a date before the `T` of RFC 3339.
const DATE: usize = "2026-01-01".len();

/// Times in a text as how long ago they were, or will be: `since 2026-01-01T09:00:00Z` becomes `for 5m`.
pub(super) fn relative(text: &str, now: Timestamp) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((start, end, at)) = first_time(rest) {
        let before = &rest[..start];
        let distance = time::short(now.duration_since(at).abs());
        let is_past = at <= now;
        if let Some(before) = before.strip_suffix("since ").filter(|_| is_past) {
            out.push_str(before);
            let _ = write!(out, "for {distance}");
        } else if let Some(before) = before.strip_suffix("until ").filter(|_| !is_past) {
            out.push_str(before);
            let _ = write!(out, "for {distance} more");
        } else {
            out.push_str(before.strip_suffix("at ").unwrap_or(before));
            let text = if is_past {
                format!("{distance} ago")
            } else {
                format!("in {distance}")
            };
            out.push_str(&text);
        }
        rest = &rest[end..];
    }
    out + rest
}

/// Where the first time begins and ends.
fn first_time(text: &str) -> Option<(usize, usize, Timestamp)> {
    text.match_indices('T').find_map(|(t, _)| {
        let start = t.checked_sub(DATE)?;
        let is_alone = text
            .get(..start)?
            .chars()
            .next_back()
            .is_none_or(|c| !c.is_alphanumeric());
        let length = text[t..].find('Z')?;
        let end = t + length + 1;
        let at = text.get(start..end).filter(|_| is_alone && length <= 16)?;
        Some((start, end, at.parse().ok()?))
    })
}

/// Breaks lines at blanks, so that they fit the columns; a line that is continued is indented. Commands stay whole, so that
/// they can be copied.
pub(super) fn wrapped(text: &str, columns: usize) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        wrap(line, columns, &mut out);
    }
    out
}

fn wrap(line: &str, columns: usize, out: &mut String) {
    let trimmed = line.trim_start();
    let is_command = trimmed.starts_with("kubectl ") || trimmed.starts_with("refit ");
    let indent = line.chars().count() - trimmed.chars().count();
    let indent = indent + if trimmed.starts_with('└') { 3 } else { 2 };
    let (mut rest, mut margin) = (line, String::new());
    while !is_command && margin.len() + rest.chars().count() > columns {
        let limit = rest.char_indices().nth(columns.saturating_sub(margin.len()));
        let (limit, next) = limit.map_or((rest.len(), 0), |(at, c)| (at, c.len_utf8()));
        let first_word = rest.len() - rest.trim_start().len();
        // A word that is too long for a line stays whole.
        let at = rest[..limit + next].rfind(' ').filter(|at| *at > first_word);
        let at = at.or_else(|| rest[limit..].find(' ').map(|at| limit + at));
        let Some(at) = at else { break };
        out.push_str(&margin);
        out.push_str(rest[..at].trim_end());
        out.push('\n');
        rest = rest[at..].trim_start();
        margin = " ".repeat(indent.min(columns / 2));
    }
    out.push_str(&margin);
    out.push_str(rest);
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_as_long_ago_as_people_count_them() {
        let now = "2026-01-01T09:05:00Z".parse().unwrap();
        for (text, expected) in [
            ("since 2026-01-01T09:00:00Z (x)", "for 5m (x)"),
            ("by alice at 2026-01-01T08:55:00Z: why", "by alice 10m ago: why"),
            ("opens at 2026-01-03T22:05:00Z", "opens in 2d13h"),
            ("soaks, until 2026-01-01T09:25:00Z", "soaks, for 20m more"),
            ("2026-01-01T09:00:00.123456Z a", "4m59s ago a"),
            ("a job-2026-01-01T x, Tz", "a job-2026-01-01T x, Tz"),
            ("é2026-01-01T09:00:00Z", "é2026-01-01T09:00:00Z"),
        ] {
            assert_eq!(relative(text, now), expected);
        }
    }

    #[test]
    fn lines_break_between_words_and_commands_do_not() {
        assert_eq!(wrapped("  one two three\n", 11), "  one two\n    three\n");
        assert_eq!(wrapped("└─ a: bcd efg", 10), "└─ a: bcd\n   efg\n");
        assert_eq!(wrapped("abcdefghijkl mn", 5), "abcdefghijkl\n  mn\n");
        assert_eq!(wrapped("  kubectl get plans -A", 8), "  kubectl get plans -A\n");
        assert_eq!(wrapped("ééé ééé", 4), "ééé\n  ééé\n");
        assert_eq!(wrapped("\n", 4), "\n");
    }
}
