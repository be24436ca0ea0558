//! Annotations that people write: entries separated by commas, each `<what>[@<version>] [by <who> at <when>]`. Everything
//! behind the first word only informs, so that `server` alone, written by hand, is an entry too.

use std::borrow::Cow;

use jiff::Timestamp;

use super::text::{MAX_CONDITION_MESSAGE, MAX_NAME, shorten};
use refit_base::version::tag::munge;

/// An entry of `refit.rs/retry`, `refit.rs/skip`, `refit.rs/approve` or `refit.rs/despite`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The entry as written, without spaces around it.
    pub text: &'a str,
    /// A Plan, or `*`; of an approval, a version or a wave; of an exemption, limits and nodes.
    pub plan: &'a str,
    /// The only version at which the entry counts; of an approval or an exemption, the beginning of the only hash.
    pub version: Option<&'a str>,
}

impl<'a> Entry<'a> {
    /// What follows the first word: who wrote it, and when.
    pub fn author(&self) -> Option<Cow<'a, str>> {
        author(self.text)
    }

    /// Whether it counts for a Plan at a version.
    pub fn concerns(&self, plan: &str, version: Option<&str>) -> bool {
        let wanted = self.version.map(munge);
        self.plan == plan && (wanted.is_none() || wanted == version.map(munge))
    }
}

/// The entries of an annotation; empty ones are skipped.
pub fn entries(text: &str) -> impl Iterator<Item = Entry<'_>> {
    text.split(',').filter_map(|text| {
        let text = text.trim();
        let what = first_word(text)?;
        let (plan, version) = match what.split_once('@') {
            Some((plan, version)) => (plan, Some(version)),
            None => (what, None),
        };
        Some(Entry { text, plan, version })
    })
}

/// The value of an annotation that holds one word, such as a version.
pub fn first_word(text: &str) -> Option<&str> {
    text.split_whitespace().next()
}

/// Who wrote an annotation and when, shortened: what follows its first word, or all of it if it begins with `by`.
pub fn author(text: &str) -> Option<Cow<'_, str>> {
    rest(text).map(|rest| shorten(rest, MAX_NAME))
}

/// The same, however long it is.
pub(super) fn rest(text: &str) -> Option<&str> {
    let text = text.trim();
    let rest = if text.starts_with("by ") {
        text
    } else {
        text.split_once(char::is_whitespace)?.1.trim()
    };
    (!rest.is_empty()).then_some(rest)
}

/// `by alice at 2026-01-01T09:00:00Z`. A name must not end its entry, so that commas and spaces in it are replaced.
pub fn signature(who: &str, at: Timestamp) -> String {
    let is_separator = |c: char| c == ',' || c.is_whitespace() || c.is_control();
    let who = shorten(who, MAX_NAME / 2).replace(is_separator, "_");
    format!("by {who} at {at:.0}")
}

/// How an entry that `preflight` has caused begins, behind its first word.
pub const BY_PREFLIGHT: &str = "preflight: ";

/// The value of `refit.rs/skip` with an entry for a Plan at a version, and without older ones that `preflight` has
/// caused for it. `None` if that would be longer than refit reads.
pub fn skipped_by_preflight(known: Option<&str>, plan: &str, version: &str, why: &str) -> Option<String> {
    let is_separator = |c: char| c == ',' || c.is_control();
    let why = shorten(why.trim(), MAX_NAME / 2).replace(is_separator, ";");
    let is_old = |entry: &Entry<'_>| {
        let by = entry.author().unwrap_or_default();
        entry.plan == plan && by.starts_with(BY_PREFLIGHT.trim())
    };
    let others = known.into_iter().flat_map(entries).filter(|entry| !is_old(entry));
    let mut all: Vec<String> = others.map(|entry| entry.text.to_owned()).collect();
    all.push(format!("{plan}@{version} {BY_PREFLIGHT}{why}"));
    let value = all.join(", ");
    (value.len() < MAX_CONDITION_MESSAGE).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_a_plan_and_perhaps_a_version_and_an_author() {
        let text = "server, agent@v1.34.1+k3s1 by alice at 2026-01-01T09:00:00Z,, *";
        let all: Vec<_> = entries(text).collect();
        let read: Vec<_> = all.iter().map(|entry| (entry.plan, entry.version)).collect();
        assert_eq!(
            read,
            [("server", None), ("agent", Some("v1.34.1+k3s1")), ("*", None)]
        );
        assert_eq!(all[0].author(), None);
        assert_eq!(all[1].author().unwrap(), "by alice at 2026-01-01T09:00:00Z");
    }

    #[test]
    fn an_entry_with_a_version_counts_only_at_that_version() {
        let entry = entries("agent@v1+k3s1").next().unwrap();
        assert!(entry.concerns("agent", Some("v1-k3s1")));
        assert!(!entry.concerns("agent", Some("v2-k3s1")) && !entry.concerns("agent", None));
        assert!(!entry.concerns("server", Some("v1-k3s1")));
        assert!(entries("agent").next().unwrap().concerns("agent", None));
    }

    #[test]
    fn a_signature_stays_one_entry_whatever_the_name() {
        let at = "2026-01-01T09:00:00.5Z".parse().unwrap();
        let text = signature("CN=a,O=b c", at);
        assert_eq!(text, "by CN=a_O=b_c at 2026-01-01T09:00:00Z");
        let entry = format!("server {text}");
        assert_eq!(entries(&entry).count(), 1);
        assert_eq!(author(&entry).unwrap(), text);
        assert_eq!(
            author(&text).unwrap(),
            text,
            "an annotation may be a signature alone"
        );
        assert_eq!((author("server"), author("")), (None, None));
        assert!(signature(&"x".repeat(10_000), at).len() < MAX_NAME);
    }
}
