//! The annotation `refit.rs/notified` of a Plan: which notifications were sent to which receiver, so that a successor
//! does not send them again.

use std::fmt;

use super::digest::short_digest;

/// Length of a mark, in hex digits.
const LENGTH: usize = 12;
/// Marks that are kept, the last ones: 13 KB of the 256 KiB that the annotations of an object may have.
const MAX_MARKS: usize = 1_000;

/// The marks of a Plan, in the order in which they were set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notified(Vec<String>);

/// The mark of a notification that a receiver has got.
pub fn mark(receiver: &str, id: &str) -> String {
    short_digest(&[receiver, id], LENGTH)
}

impl Notified {
    /// Reads the annotation. Anything that is not a mark is ignored.
    pub fn parse(text: &str) -> Self {
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let is_mark = |word: &&str| word.len() == LENGTH && word.bytes().all(is_hex);
        let mut marks = Self::default();
        marks.add(text.split_ascii_whitespace().filter(is_mark).map(str::to_owned));
        marks
    }

    pub fn contains(&self, mark: &str) -> bool {
        self.0.iter().any(|known| known == mark)
    }

    /// Adds marks, and forgets the oldest ones beyond the limit.
    pub fn add(&mut self, marks: impl IntoIterator<Item = String>) {
        for mark in marks {
            if !self.contains(&mark) {
                self.0.push(mark);
            }
        }
        let excess = self.0.len().saturating_sub(MAX_MARKS);
        self.0.drain(..excess);
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    pub fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.0.retain(|mark| keep(mark));
    }
}

impl fmt::Display for Notified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_read_as_they_were_written_and_anything_else_is_ignored() {
        let (first, second) = (mark("slack", "a"), mark("slack", "b"));
        assert_eq!(first.len(), LENGTH);
        assert_ne!(mark("slack", "a"), mark("slac", "ka"));
        let mut marks = Notified::default();
        marks.add([first.clone(), second.clone(), first.clone()]);
        assert_eq!(marks.to_string(), format!("{first} {second}"));
        let text = format!("  {first} <b>x</b> 0123 {second} ABCDEFABCDEF ");
        assert_eq!(Notified::parse(&text), marks);
        assert_eq!(Notified::parse("nonsense"), Notified::default());
    }

    #[test]
    fn the_annotation_has_a_limit_and_the_last_marks_stay() {
        let mut marks = Notified::default();
        marks.add((0..MAX_MARKS + 10).map(|number| mark("slack", &number.to_string())));
        assert!(marks.to_string().len() <= 13_000);
        assert!(!marks.contains(&mark("slack", "9")));
        assert!(marks.contains(&mark("slack", "10")));
    }
}
