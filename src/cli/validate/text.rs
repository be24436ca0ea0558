//! Findings for people: a line that editors can jump to, and below it the line of the file with a caret below the place.

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

use crate::cli::output::one_line;
use refit_offline::gitops::{Finding, Severity, Source};

/// Characters of a line that are shown on each side of a place, at most.
const CONTEXT: usize = 200;

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
        let [before, place, after] = [end(before), start_of(place), start_of(after)].map(one_line);
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

/// The part of a line before a place, without the beginning of a line such as a whole file of JSON.
fn end(text: &str) -> &str {
    let start = text.char_indices().rev().nth(CONTEXT - 1);
    &text[start.map_or(0, |(at, _)| at)..]
}

fn start_of(text: &str) -> &str {
    let end = text.char_indices().nth(CONTEXT);
    &text[..end.map_or(text.len(), |(at, _)| at)]
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::validate::tests::finding;

    fn shown(text: &str, at: &str, styled: bool) -> String {
        let source = Source::new("a,b:c.yaml", None, text.to_owned());
        let found = Finding {
            position: source.position(text.find(at).unwrap()),
            ..finding()
        };
        super::text(&found, Some(&source), styled)
    }

    #[test]
    fn the_first_line_is_what_editors_can_jump_to_and_the_caret_is_below_the_place() {
        assert_eq!(
            shown("\u{feff}a: {b: ä, c: \"d, e\"} # f\r\n", "\"d", false),
            "a,b:c.yaml:1:14: error: 100% wrong,\\nall of it [wrong-type]
  |
1 | a: {b: ä, c: \"d, e\"} # f
  |              ^^^^^^
  |
  = hint: try: again
"
        );
    }

    #[test]
    fn hidden_text_is_escaped_and_only_our_colors_reach_a_terminal() {
        let plain = shown("a: \x1b[31mb\n", "\x1b", false);
        assert!(plain.contains("1 | a: \\x1b[31mb\n"), "{plain}");
        assert!(!plain.contains('\x1b'));
        let styled = shown("a: \x1b[31mb\n", "\x1b", true);
        assert!(
            styled.contains('\x1b') && !styled.contains("\x1b[31mb"),
            "{styled:?}"
        );
    }

    #[test]
    fn a_very_long_line_costs_little() {
        let long = format!("[{}\"here\", {}]", "1, ".repeat(100_000), "1, ".repeat(100_000));
        let text = shown(&long, "\"here", false);
        assert!(text.len() < 2_000 && text.contains("\"here\""), "{text}");
    }
}
