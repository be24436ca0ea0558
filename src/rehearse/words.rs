//! Numbers and times in the words of texts and pages.

use jiff::SignedDuration;

/// Shorter waits are normal in a roll-out, and so are smaller differences, in seconds.
pub const MIN_WAIT: i64 = 15;
/// Maximum number of nodes in a line.
pub const SHOWN: usize = 8;

/// Joins the lines of a message.
pub fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

pub fn pluralized(number: usize, word: &str) -> String {
    format!("{number} {word}{}", if number == 1 { "" } else { "s" })
}

/// `3h12m`, `4m10s`, `7s`: the two largest units.
pub fn duration(duration: SignedDuration) -> String {
    let seconds = duration.as_secs().max(0);
    let (days, hours, minutes, rest) = (
        seconds / 86_400,
        seconds / 3_600 % 24,
        seconds / 60 % 60,
        seconds % 60,
    );
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{rest}s"),
        (0, 0, _) if rest == 0 => format!("{minutes}m"),
        (0, 0, _) => format!("{minutes}m{rest}s"),
        (0, _, 0) => format!("{hours}h"),
        (0, _, _) => format!("{hours}h{minutes}m"),
        (_, 0, _) => format!("{days}d"),
        (_, _, _) => format!("{days}d{hours}h"),
    }
}
