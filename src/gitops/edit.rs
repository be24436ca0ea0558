//! Edits of a YAML text that change one value and no other byte.
//!
//! This proposes, the best way first; it does not judge. Whether a text that comes out still says the same otherwise is
//! found out by reading it again, which is `pin`'s to do: YAML has more corners than anybody thinks of.

use std::ops::Range;

use super::Source;
use super::yaml::{Entry, Node, Object, Style, is_text_to_all};

/// A piece of text in place of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// The bytes that go; none where something is put in.
    pub range: Range<usize>,
    /// What comes in their place.
    pub text: String,
}

impl Edit {
    /// The text with the edit made.
    pub fn apply(&self, text: &str) -> Option<String> {
        let (before, after) = (text.get(..self.range.start)?, text.get(self.range.end..)?);
        Some([before, &self.text, after].concat())
    }
}

/// Ways to give the field `key` of `parent` this value. Where it is not there, it is put behind the field `after`, or
/// before all others.
pub fn ways(source: &Source, parent: &Node, key: &str, value: &str, after: &str) -> Vec<Edit> {
    let Some(object) = parent.object() else {
        return Vec::new();
    };
    let mut ways = Vec::new();
    if let Some(entry) = object.entry(key) {
        ways.extend(in_place(source, entry, value));
        if let Some(alias) = &entry.value.alias {
            ways.push(Edit {
                range: alias.clone(),
                text: scalar(value, Style::Plain),
            });
        }
        if !entry.merged {
            return ways;
        }
    }
    // A field of its own counts before what a merge key brings.
    ways.extend(insertion(source, parent.style, object, key, value, after));
    ways
}

/// The scalar where it stands.
fn in_place(source: &Source, entry: &Entry, value: &str) -> Vec<Edit> {
    let (node, text) = (&entry.value, source.text.as_str());
    let written = text.get(node.span.clone()).unwrap_or_default();
    if node.is_null() && written.is_empty() {
        return after_colon(text, entry, value).into_iter().collect();
    }
    let whole = |text: String| Edit {
        range: node.span.clone(),
        text,
    };
    match node.style {
        Style::Plain | Style::Single | Style::Double => vec![whole(scalar(value, node.style))],
        Style::Block => {
            let mut ways = Vec::new();
            // The text in its line, which keeps indicator and indentation.
            let known = node.text().unwrap_or_default().trim();
            if !known.is_empty() && written.matches(known).count() == 1 {
                let at = node.span.start + written.find(known).unwrap_or_default();
                ways.push(Edit {
                    range: at..at + known.len(),
                    text: value.to_owned(),
                });
            }
            ways.extend(in_place_of_block(text, entry, value));
            ways
        }
        Style::Indented | Style::Flow => Vec::new(),
    }
}

/// A plain scalar in place of a block: `|` keeps a line break that no version may have.
fn in_place_of_block(text: &str, entry: &Entry, value: &str) -> Option<Edit> {
    let span = &entry.value.span;
    let header = text.get(entry.key.span.end..span.start)?;
    let start = entry.key.span.end + header.find(['|', '>']).filter(|_| !header.contains('#'))?;
    let end = span.start + text.get(span.clone())?.trim_end().len();
    Some(Edit {
        range: start..end,
        text: scalar(value, Style::Plain),
    })
}

/// A value for a key that has none.
fn after_colon(text: &str, entry: &Entry, value: &str) -> Option<Edit> {
    let rest = text.get(entry.key.span.end..)?;
    let colon = rest.find(':').filter(|at| rest[..*at].trim().is_empty())?;
    let at = entry.key.span.end + colon + 1;
    Some(Edit {
        range: at..at,
        text: format!(" {}", scalar(value, Style::Plain)),
    })
}

/// The field, put in.
fn insertion(
    source: &Source,
    style: Style,
    object: &Object,
    key: &str,
    value: &str,
    after: &str,
) -> Option<Edit> {
    let own = || object.entries.iter().filter(|entry| !entry.merged);
    let neighbour = own()
        .find(|entry| entry.key.name == after)
        .or_else(|| own().min_by_key(|entry| entry.key.span.start))?;
    let is_after = neighbour.key.name == after;
    match style {
        Style::Indented => Some(new_line(source, neighbour, is_after, key, value)),
        Style::Flow => Some(in_flow(source, neighbour, is_after, key, value)),
        _ => None,
    }
}

/// A line of its own, with the indentation and the line end of its neighbour.
fn new_line(source: &Source, neighbour: &Entry, is_after: bool, key: &str, value: &str) -> Edit {
    let text = source.text.as_str();
    let start = neighbour.key.span.start;
    let indent = indentation(source, start);
    let entry = format!("{key}: {}", scalar(value, Style::Plain));
    let end = value_end(&neighbour.value);
    let is_one_line = neighbour.value.style != Style::Block
        && end > start
        && source.line_of(start) == source.line_of(end - 1);
    if is_after && is_one_line {
        let line = source.line_of(start);
        let ending = line_end(text, &line);
        return match ending {
            "" => Edit {
                range: line.end..line.end,
                text: format!("{}{indent}{entry}", usual_line_end(text)),
            },
            ending => Edit {
                range: line.end..line.end,
                text: format!("{indent}{entry}{ending}"),
            },
        };
    }
    let ending = match line_end(text, &source.line_of(start)) {
        "" => usual_line_end(text),
        ending => ending,
    };
    Edit {
        range: start..start,
        text: format!("{entry}{ending}{indent}"),
    }
}

/// An entry among those in braces, written as its neighbour is: with quotes as in JSON, on a line of its own.
fn in_flow(source: &Source, neighbour: &Entry, is_after: bool, key: &str, value: &str) -> Edit {
    let text = source.text.as_str();
    let start = neighbour.key.span.start;
    let between = text
        .get(neighbour.key.span.end..neighbour.value.offset())
        .filter(|between| !between.contains(['\n', '\r', '#']) && between.trim() == ":")
        .unwrap_or(": ");
    let entry = match neighbour.key.style {
        Style::Double => format!("\"{key}\"{between}{}", scalar(value, Style::Double)),
        _ => format!("{key}: {}", scalar(value, Style::Plain)),
    };
    let line = source.line_of(start);
    let has_own_line = text
        .get(line.start..start)
        .is_some_and(|before| before.trim().is_empty());
    let separator = if has_own_line {
        let ending = match line_end(text, &line) {
            "" => usual_line_end(text),
            ending => ending,
        };
        format!(",{ending}{}", indentation(source, start))
    } else if text
        .get(value_end(&neighbour.value)..)
        .is_some_and(|rest| rest.starts_with(",\""))
        || between == ":"
    {
        ",".to_owned()
    } else {
        ", ".to_owned()
    };
    if is_after {
        let end = value_end(&neighbour.value);
        Edit {
            range: end..end,
            text: format!("{separator}{entry}"),
        }
    } else {
        Edit {
            range: start..start,
            text: format!("{entry}{separator}"),
        }
    }
}

/// The value as a scalar in that style; with quotes in place of none where a reader might take it for something else.
fn scalar(value: &str, style: Style) -> String {
    match style {
        Style::Single => format!("'{value}'"),
        Style::Plain if is_text_to_all(value) => value.to_owned(),
        _ => format!("\"{value}\""),
    }
}

fn value_end(node: &Node) -> usize {
    node.alias.as_ref().unwrap_or(&node.span).end
}

/// What stands before a key, as blanks: a `- ` counts as much as it is wide.
fn indentation(source: &Source, key: usize) -> String {
    let line = source.line_of(key);
    let before = source.text.get(line.start..key).unwrap_or_default();
    let blank = |c: char| if c == '\t' { '\t' } else { ' ' };
    before.trim_start_matches('\u{feff}').chars().map(blank).collect()
}

/// The line break of a line; nothing for the last one, if it has none.
fn line_end<'t>(text: &'t str, line: &Range<usize>) -> &'t str {
    let line = text.get(line.clone()).unwrap_or_default();
    &line[line.trim_end_matches(['\n', '\r']).len()..]
}

/// The line break that the text has elsewhere.
fn usual_line_end(text: &str) -> &'static str {
    match text.find('\n') {
        Some(at) if text[..at].ends_with('\r') => "\r\n",
        None if text.contains('\r') => "\r",
        _ => "\n",
    }
}
