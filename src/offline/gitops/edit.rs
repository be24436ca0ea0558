//! Edits of YAML text that change one value and no other byte.
//!
//! This module only proposes edits, the best one first. `pin` reads the edited text again and checks that nothing else
//! changed, because no edit is safe in every corner of YAML.
//!
//! Two crates that edit YAML were tried on the files of `tests/gitops/pin`. Each got fewer than half of them right, byte
//! for byte. `yamlpatch` 1.24 reads one document only, and of `{a: 1, version: v1}` it keeps one entry. `yaml-edit` 0.3.6
//! keeps several documents, but replaces an alias by a value. Both drop quotes, tags and anchors of the value, and put a
//! new field at the end of its object and not below `channel`.

use std::ops::Range;

use super::source::Source;
use super::yaml::{Entry, Node, Object, Style, is_text_to_all};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// The replaced bytes; empty for an insertion.
    pub range: Range<usize>,
    pub text: String,
}

/// Edits that give the field `key` of `parent` this value. A missing field is inserted after the field `after`, or
/// before all others.
pub fn candidates(source: &Source, parent: &Node, key: &str, value: &str, after: &str) -> Vec<Edit> {
    let Some(object) = parent.object() else {
        return Vec::new();
    };
    // A value from an alias or a merge key is changed at its anchor. An overriding value would leave the old version in
    // the anchor, where people look for it.
    match object.entry(key) {
        Some(entry) => {
            let is_json = parent.style == Style::Flow && entry.key.style == Style::Double;
            in_place(source, entry, value, is_json)
        }
        None => insertion(source, parent.style, object, key, value, after)
            .into_iter()
            .collect(),
    }
}

fn in_place(source: &Source, entry: &Entry, value: &str, is_json: bool) -> Vec<Edit> {
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
        // A null or a number becomes text, which needs quotes in JSON.
        Style::Plain if is_json && node.text().is_none() => {
            vec![whole(scalar(value, Style::Double))]
        }
        Style::Plain | Style::Single | Style::Double => vec![whole(scalar(value, node.style))],
        Style::Block => {
            let mut candidates = Vec::new();
            // Replaces the text within its line, which keeps the block indicator and the indentation.
            let known = node.text().unwrap_or_default().trim();
            if !known.is_empty() && written.matches(known).count() == 1 {
                let at = node.span.start + written.find(known).unwrap_or_default();
                candidates.push(Edit {
                    range: at..at + known.len(),
                    text: value.to_owned(),
                });
            }
            candidates.extend(in_place_of_block(text, entry, value));
            candidates
        }
        Style::Indented | Style::Flow => Vec::new(),
    }
}

/// Replaces a block scalar by a plain one: `|` adds a line break, which no version may have.
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

/// Inserts a value after a key that has none.
fn after_colon(text: &str, entry: &Entry, value: &str) -> Option<Edit> {
    let rest = text.get(entry.key.span.end..)?;
    let colon = rest.find(':').filter(|at| rest[..*at].trim().is_empty())?;
    let at = entry.key.span.end + colon + 1;
    Some(Edit {
        range: at..at,
        text: format!(" {}", scalar(value, Style::Plain)),
    })
}

fn insertion(
    source: &Source,
    style: Style,
    object: &Object,
    key: &str,
    value: &str,
    after: &str,
) -> Option<Edit> {
    // A merged entry is written at its anchor. A line inserted there would change every object that merges it.
    let own = || object.entries.iter().filter(|entry| entry.merged.is_none());
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

/// A new line with the indentation and the line break of its neighbour.
fn new_line(source: &Source, neighbour: &Entry, is_after: bool, key: &str, value: &str) -> Edit {
    let text = source.text.as_str();
    let start = neighbour.key.span.start;
    let indent = indentation(source, start);
    let entry = format!("{key}: {}", scalar(value, Style::Plain));
    let end = value_end(&neighbour.value);
    // The end of a block scalar is not exact (see `Node::span`), so the field is inserted before its key.
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

/// A new entry in braces, formatted like its neighbour: quoted as in JSON, on a line of its own.
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
    let before = text.get(line.start..start).unwrap_or_default();
    let has_own_line = before.trim().is_empty();
    if is_after
        && (has_own_line || before.trim() == ",")
        && let Some(edit) = below_comment(source, neighbour, before, &entry)
    {
        return edit;
    }
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

/// A new line below the neighbour's in braces, where a comment ends that line, or commas begin the lines: `before` is the
/// blanks and the comma before the neighbour. Beside the neighbour, the new entry would get its comment.
fn below_comment(source: &Source, neighbour: &Entry, before: &str, entry: &str) -> Option<Edit> {
    let text = source.text.as_str();
    let end = value_end(&neighbour.value);
    let line = source.line_of(end.saturating_sub(1));
    let ending = line_end(text, &line);
    let rest = text.get(end..line.end)?.strip_suffix(ending)?;
    let (comma, comment) = match rest.trim_start().strip_prefix(',') {
        Some(comment) => (",", comment.trim_start()),
        None => ("", rest.trim_start()),
    };
    let leads = before.trim() == ",";
    let is_last = comment.is_empty() || comment.starts_with('#');
    if ending.is_empty() || !is_last || comment.is_empty() && !leads {
        return None;
    }
    let before = before.trim_start_matches('\u{feff}');
    let new = match (leads, comma) {
        (true, "") => format!("{rest}{ending}{before}{entry}"),
        (true, _) => return None,
        (false, "") => format!(",{rest}{ending}{before}{entry}"),
        (false, _) => format!("{rest}{ending}{before}{entry},"),
    };
    Some(Edit {
        range: end..end + rest.len(),
        text: new,
    })
}

/// The value as a scalar in that style, quoted if a YAML reader might not take the plain scalar for a string.
fn scalar(value: &str, style: Style) -> String {
    match style {
        Style::Single => format!("'{value}'"),
        Style::Plain if is_text_to_all(value) || is_plain_image(value) => value.to_owned(),
        _ => format!("\"{value}\""),
    }
}

/// Whether every YAML reader takes the unquoted image for a string: it has no `: ` and is not a base-60 number (YAML
/// 1.1).
fn is_plain_image(value: &str) -> bool {
    let known = |c: char| c.is_ascii_alphanumeric() || "._+-/:@".contains(c);
    let (first, last) = (value.chars().next(), value.chars().next_back());
    let is_word = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    value.chars().all(known)
        && is_word(first)
        && is_word(last)
        && value.contains(|c: char| c.is_ascii_alphabetic())
        && value.contains(['/', ':', '@'])
}

fn value_end(node: &Node) -> usize {
    node.alias.as_ref().unwrap_or(&node.span).end
}

/// The indentation of a key in blanks, with `- ` as blanks of the same width.
fn indentation(source: &Source, key: usize) -> String {
    let line = source.line_of(key);
    let before = source.text.get(line.start..key).unwrap_or_default();
    let blank = |c: char| if c == '\t' { '\t' } else { ' ' };
    before.trim_start_matches('\u{feff}').chars().map(blank).collect()
}

/// The line break of a line; empty for a last line without one.
fn line_end<'t>(text: &'t str, line: &Range<usize>) -> &'t str {
    let line = text.get(line.clone()).unwrap_or_default();
    &line[line.trim_end_matches(['\n', '\r']).len()..]
}

/// The line break that the rest of the text uses.
fn usual_line_end(text: &str) -> &'static str {
    match text.find('\n') {
        Some(at) if text[..at].ends_with('\r') => "\r\n",
        None if text.contains('\r') => "\r",
        _ => "\n",
    }
}
