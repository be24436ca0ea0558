//! Limits of texts that others write: kubelets, payloads, API servers, admission webhooks. They are shortened where they
//! enter, so that no status, event or log line grows with them.

use std::borrow::Cow;

use jiff::Timestamp;

/// Bytes of a name, an ID or a version: Kubernetes' own have at most 253.
pub const MAX_NAME: usize = 256;
/// Bytes of a message about a node: as many as in an event.
pub const MAX_MESSAGE: usize = 1_024;
/// Bytes of the message of a condition, which may name several objects.
pub const MAX_CONDITION_MESSAGE: usize = 4_096;

/// A time in the format of conditions: RFC 3339, whole seconds.
pub fn seconds(at: Timestamp) -> String {
    format!("{at:.0}")
}

/// The text with at most `limit` bytes, cut between two characters. A text that was cut ends with `…`.
pub fn shorten(text: &str, limit: usize) -> Cow<'_, str> {
    if text.len() <= limit {
        return Cow::Borrowed(text);
    }
    let room = limit.saturating_sub('…'.len_utf8());
    let end = (0..=room).rev().find(|at| text.is_char_boundary(*at));
    Cow::Owned(format!("{}…", &text[..end.unwrap_or_default()]))
}

pub fn shorten_in_place(text: &mut String, limit: usize) {
    if let Cow::Owned(short) = shorten(text, limit) {
        *text = short;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_two_characters_and_says_so() {
        assert_eq!(shorten("short", 5), "short");
        assert_eq!(shorten("longer", 5), "lo…");
        assert_eq!(shorten("ä→x", 5), "ä…");
        assert_eq!(shorten("→→→", 4), "…");
        let long = "→".repeat(1_000);
        for limit in 3..100 {
            let cut = shorten(&long, limit);
            assert!(cut.len() <= limit && cut.ends_with('…'), "{limit}: {cut}");
        }
    }
}
