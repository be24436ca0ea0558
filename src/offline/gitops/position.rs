//! Lines and columns of a text.

/// A location for people: both count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Position {
    pub line: usize,
    /// Counted in characters, without a byte order mark.
    pub column: usize,
}

/// Offsets of the lines of a text.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    starts: Vec<usize>,
}

impl Lines {
    /// Splits at LF, CR LF and CR, as YAML does.
    pub fn new(text: &str) -> Self {
        let bytes = text.as_bytes();
        let ends = bytes.iter().enumerate().filter_map(|(at, byte)| match byte {
            b'\n' => Some(at + 1),
            b'\r' if bytes.get(at + 1) != Some(&b'\n') => Some(at + 1),
            _ => None,
        });
        Self {
            starts: std::iter::once(0).chain(ends).collect(),
        }
    }

    pub fn position(&self, text: &str, offset: usize) -> Position {
        let line = self.starts.partition_point(|start| *start <= offset);
        let start = self.starts.get(line - 1).copied().unwrap_or_default();
        let before = text.get(start..offset).unwrap_or_default();
        Position {
            line,
            column: 1 + before.trim_start_matches('\u{feff}').chars().count(),
        }
    }

    /// The line of this number, counted from 1.
    pub fn line<'t>(&self, text: &'t str, number: usize) -> &'t str {
        let start = self.starts.get(number - 1).copied().unwrap_or(text.len());
        let end = self.starts.get(number).copied().unwrap_or(text.len());
        text.get(start..end).unwrap_or_default()
    }

    /// Byte range of the line around an offset, with its line break.
    pub fn line_of(&self, text: &str, offset: usize) -> std::ops::Range<usize> {
        let line = self.starts.partition_point(|start| *start <= offset);
        let start = self.starts.get(line - 1).copied().unwrap_or_default();
        start..self.starts.get(line).copied().unwrap_or(text.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(text: &str, at: &str) -> (usize, usize) {
        let position = Lines::new(text).position(text, text.find(at).unwrap());
        (position.line, position.column)
    }

    #[test]
    fn lines_end_as_in_yaml_and_columns_are_characters() {
        for newline in ["\n", "\r\n", "\r"] {
            let text = format!("\u{feff}a: 1{newline}{newline}ä: b");
            assert_eq!(position(&text, "a"), (1, 1), "{newline:?}");
            assert_eq!(position(&text, "1"), (1, 4), "{newline:?}");
            assert_eq!(position(&text, "b"), (3, 4), "{newline:?}");
        }
    }

    #[test]
    fn the_end_of_the_text_has_a_place_and_a_line() {
        let (text, lines) = ("a\nb", Lines::new("a\nb"));
        assert_eq!(lines.position(text, 3), Position { line: 2, column: 2 });
        assert_eq!(lines.line_of(text, 3), 2..3);
        assert_eq!(lines.line_of(text, 0), 0..2);
        assert_eq!(Lines::new("").position("", 0), Position { line: 1, column: 1 });
    }
}
