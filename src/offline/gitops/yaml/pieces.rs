//! Splits a text into documents as kubectl does, before YAML is parsed.
//!
//! `YAMLOrJSONDecoder` of k8s.io/apimachinery splits at lines that begin with `---`, even within a block scalar, and
//! reads concatenated JSON objects where a piece begins with `{`. It uses YAML 1.1, which has more line breaks than the
//! parser used here.

use std::ops::Range;

use serde::de::IgnoredAny;

use super::node::{Kind, Node, Style, SyntaxError};

const SEPARATOR: &str = "---";
/// Line breaks of YAML 1.1 that YAML 1.2 does not have.
const BREAKS: [char; 3] = ['\u{85}', '\u{2028}', '\u{2029}'];

/// A piece with at most one document.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) range: Range<usize>,
    pub(super) is_json: bool,
    /// A mistake in the separator before it.
    pub(super) error: Option<SyntaxError>,
}

pub(super) fn pieces(text: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut at = 0;
    let mut follows_json = false;
    let mut error = None;
    while at < text.len() {
        let rest = &text[at..];
        let begin = at + rest.len()
            - rest
                .trim_start_matches(|c: char| c.is_whitespace() || c == '\u{feff}')
                .len();
        if let Some(length) = json(&text[begin..]) {
            let range = begin..begin + length;
            at = range.end;
            follows_json = true;
            let error = error.take();
            pieces.push(Piece {
                range,
                is_json: true,
                error,
            });
            continue;
        }
        let (end, next, separator) = separator(text, at);
        let is_blank = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
        // Jsonnet ends a stream of objects with the end marker of YAML.
        let is_end =
            |line: &str| line.strip_prefix("...").is_some_and(is_blank) && !is_first_piece_json(&pieces);
        if follows_json && !text[at..end].lines().all(|line| is_blank(line) || is_end(line)) {
            error = Some(SyntaxError {
                offset: begin,
                message: "only another JSON object or a separator may follow a JSON object".to_owned(),
            });
        }
        let error_here = error.take();
        pieces.push(Piece {
            range: at..end,
            is_json: false,
            error: error_here,
        });
        error = separator;
        at = next;
        follows_json = false;
    }
    pieces
}

/// Whether kubectl reads the whole stream as JSON, because it begins with an object.
fn is_first_piece_json(pieces: &[Piece]) -> bool {
    pieces.first().is_some_and(|piece| piece.is_json)
}

/// The length of the JSON object at the start of the text.
fn json(text: &str) -> Option<usize> {
    if !text.starts_with('{') {
        return None;
    }
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<IgnoredAny>();
    values.next()?.ok()?;
    Some(values.byte_offset())
}

/// The end of a piece, the start of the next one, and a mistake in the separator.
fn separator(text: &str, at: usize) -> (usize, usize, Option<SyntaxError>) {
    let mut line = at;
    loop {
        let is_start = line == 0 || text.as_bytes().get(line - 1) == Some(&b'\n');
        let end = text[line..].find('\n').map_or(text.len(), |at| line + at + 1);
        if is_start && let Some(rest) = text[line..end].strip_prefix(SEPARATOR) {
            let rest = rest.trim();
            if rest.is_empty() || rest.starts_with('#') {
                return (line, end, None);
            }
            let error = SyntaxError {
                offset: line,
                message: format!("kubectl takes only a comment after `---`, not {rest}"),
            };
            return (line, line + SEPARATOR.len(), Some(error));
        }
        if end == text.len() {
            return (end, end, None);
        }
        line = end;
    }
}

/// The text with all YAML 1.1 line breaks replaced by line feeds, at unchanged offsets; `None` if there are none. Those
/// within quotes are kept, because the parser would otherwise require indentation after them.
pub(super) fn with_line_feeds(text: &str) -> Option<String> {
    if !text.contains(BREAKS) {
        return None;
    }
    let mut lines = String::with_capacity(text.len());
    let mut line = LineStart::default();
    for c in text.chars() {
        if BREAKS.contains(&c) && !line.is_in_quotes() {
            // Trailing blanks are ignored, so they fill the bytes of the longer character.
            lines.push_str(&" ".repeat(c.len_utf8() - 1));
            lines.push('\n');
        } else {
            lines.push(c);
        }
        line.add(c);
    }
    Some(lines)
}

/// The beginning of a line, up to a character.
#[derive(Default)]
struct LineStart {
    /// Whether an odd number of each of the two quotes is in it.
    odd: [bool; 2],
    has_comment: bool,
    has_text: bool,
    after_space: bool,
}

impl LineStart {
    fn add(&mut self, c: char) {
        if c == '\n' {
            *self = Self::default();
            return;
        }
        match c {
            '"' => self.odd[0] ^= true,
            '\'' => self.odd[1] ^= true,
            '#' if self.after_space || !self.has_text => self.has_comment = true,
            _ => {}
        }
        self.has_text |= !c.is_whitespace();
        self.after_space = c == ' ';
    }

    /// Whether a quoted scalar is open at its end.
    fn is_in_quotes(&self) -> bool {
        !self.has_comment && self.odd.contains(&true)
    }
}

/// The value of a quoted scalar: one of these line breaks is folded, several are kept.
pub(super) fn folded(value: &str, written: &str) -> String {
    if written.contains('\u{85}') {
        value.replace('\u{85}', " ")
    } else {
        value.to_owned()
    }
}

/// Whether the double-quoted text has an escape of JSON that YAML 1.1 lacks: `\/`, or half of a surrogate pair.
pub(super) fn has_escape_of_json(written: &str) -> bool {
    let mut rest = written;
    while let Some(at) = rest.find('\\') {
        let mut escape = rest[at + 1..].chars();
        match escape.next() {
            Some('/') => return true,
            Some('u')
                if matches!(escape.next(), Some('d' | 'D'))
                    && matches!(escape.next(), Some('8'..='9' | 'a'..='f' | 'A'..='F')) =>
            {
                return true;
            }
            _ => {}
        }
        rest = rest.get(at + 2..).unwrap_or_default();
    }
    false
}

/// The first tab that YAML 1.1 refuses: in indentation, or after a dash.
pub(super) fn tab(text: &str, range: &Range<usize>, document: &Node) -> Option<usize> {
    let piece = text.get(range.clone())?;
    if !piece.contains('\t') {
        return None;
    }
    let mut inner = Vec::new();
    spans(document, &mut inner);
    inner.sort_unstable_by_key(|span| span.start);
    let mut spans = inner.into_iter().peekable();
    // The end of the values that begin before the tab.
    let mut end = 0;
    let mut line = range.start;
    for text in piece.split_inclusive('\n') {
        let lead = text.trim_start_matches([' ', '\t', '-']);
        let lead = &text[..text.len() - lead.len()];
        if let Some(tab) = lead.find('\t') {
            let at = line + tab;
            while let Some(span) = spans.next_if(|span| span.start < at) {
                end = end.max(span.end);
            }
            if end <= at {
                return Some(at);
            }
        }
        line += text.len();
    }
    None
}

/// Ranges where tabs are allowed: within values, and between the items of a flow list.
fn spans(node: &Node, found: &mut Vec<Range<usize>>) {
    match &node.kind {
        _ if node.alias.is_some() => {}
        Kind::List(items) if node.style == Style::Indented => {
            for item in items {
                spans(item, found);
            }
        }
        Kind::Map(object) if node.style == Style::Indented => {
            object.entries.iter().for_each(|entry| spans(&entry.value, found));
        }
        // The header line of a block scalar begins before its text.
        _ if node.style == Style::Block => found.push(node.span.start.saturating_sub(64)..node.span.end),
        _ => found.push(node.span.clone()),
    }
}
