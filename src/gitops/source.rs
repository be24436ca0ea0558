//! A file that has been read: its text, its documents, and where its lines are.

use std::path::{Path, PathBuf};

use super::place::{Lines, Place};
use super::yaml::{self, Stream};

/// What standard input is called in messages.
pub const STDIN: &str = "<stdin>";

/// A text with its documents.
#[derive(Debug)]
pub struct Source {
    /// What it is called in messages: the path as it was given.
    pub name: String,
    /// Where it is; nowhere for standard input.
    pub path: Option<PathBuf>,
    /// What is in it.
    pub text: String,
    /// Its documents.
    pub stream: Stream,
    lines: Lines,
}

impl Source {
    /// Reads the documents of a text.
    pub fn new(name: impl Into<String>, path: Option<&Path>, text: String) -> Self {
        Self {
            name: name.into(),
            path: path.map(Path::to_owned),
            stream: yaml::read(&text),
            lines: Lines::new(&text),
            text,
        }
    }

    /// The same place of another text.
    #[must_use]
    pub fn with_text(&self, text: String) -> Self {
        Self::new(self.name.clone(), self.path.as_deref(), text)
    }

    /// The place of a byte.
    pub fn place(&self, offset: usize) -> Place {
        self.lines.place(&self.text, offset)
    }

    /// The bytes of the line in which a byte is, its line break included.
    pub fn line_of(&self, offset: usize) -> std::ops::Range<usize> {
        self.lines.line_of(&self.text, offset)
    }
}
