//! Findings for people: a line that editors can jump to, and below it the line of the file with a caret below the place.

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

use crate::cli::output::one_line;
use refit_offline::gitops::{Finding, Severity, Source};

/// A finding, colored for a terminal with `styled`. All text of files is escaped.
pub(super) fn text(found: &Finding, source: Option<&Source>, styled: bool) -> String {
    let level = match found.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
        Severity::Note => Level::NOTE,
    };
    let (line, column) = (found.position.line, found.position.column);
    let (file, message) = (one_line(&found.file), one_line(&found.message));
    let (severity, rule) = (found.severity.word(), found.rule);
    let title = format!("{file}:{line}:{column}: {severity}: {message} [{rule}]");
    let mut group = Group::with_title(level.no_name().primary_title(title));
    if let Some(source) = source {
        // A byte order mark has no column.
        let text = source.line(line).trim_start_matches('\u{feff}');
        let start = text.char_indices().nth(column.saturating_sub(1));
        let start = start.map_or(text.len(), |(at, _)| at);
        let (before, rest) = text.split_at(start);
        let (place, after) = rest.split_at(place(rest));
        let [before, place, after] = [before, place, after].map(one_line);
        let marked = before.len()..before.len() + place.len().max(1);
        let snippet = Snippet::source(format!("{before}{place}{after}")).line_start(line);
        group = group.element(snippet.annotation(AnnotationKind::Primary.span(marked)));
    }
    if let Some(hint) = &found.hint {
        group = group.element(Level::HELP.with_name("hint").message(one_line(hint)));
    }
    let renderer = if styled {
        Renderer::styled()
    } else {
        Renderer::plain()
    };
    format!("{}\n", renderer.render(&[group]))
}

/// The length of the key or the value at the start of a text.
fn place(text: &str) -> usize {
    let first = text.chars().next();
    if let Some(quote @ ('"' | '\'')) = first {
        let end = text[1..].find(quote);
        return end.map_or(text.len(), |end| end + 2);
    }
    let is_end = |(at, c): (usize, char)| match c {
        ',' | ']' | '}' => true,
        ':' => text[at + 1..].starts_with(' ') || at + 1 == text.len(),
        '#' => text[..at].ends_with(' '),
        _ => false,
    };
    let end = text.char_indices().skip(1).find(|at| is_end(*at));
    let end = end.map_or(text.len(), |(at, _)| at);
    text[..end].trim_end().len()
}
