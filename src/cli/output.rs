//! All printing: data to stdout, messages to stderr. A closed pipe is not an error.
//!
//! Names and messages come from files, channels and clusters, and may be malicious. Characters that control a terminal
//! or are invisible are escaped here and nowhere else.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, ErrorKind, IsTerminal as _, Write};

/// Prints bytes for programs unchanged: the text of a file, a script. A terminal is not a program, and gets the text
/// escaped.
///
/// # Errors
/// Fails if standard output cannot be written, except for a reader that has gone away.
pub fn data(text: &str) -> io::Result<()> {
    raw(&shown_on(text, is_terminal()))
}

fn shown_on(text: &str, terminal: bool) -> Cow<'_, str> {
    if terminal {
        plain(text)
    } else {
        Cow::Borrowed(text)
    }
}

/// Prints what contains control characters of our own, around text that is escaped.
///
/// # Errors
/// Fails if standard output cannot be written, except for a reader that has gone away.
pub fn raw(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    pipe(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()))
}

/// Prints text for people, escaped.
///
/// # Errors
/// Fails if standard output cannot be written, except for a reader that has gone away.
pub fn text(text: &str) -> io::Result<()> {
    data(&plain(text))
}

/// Prints JSON. JSON strings already escape the ASCII control characters; this escapes the others.
///
/// # Errors
/// Fails if standard output cannot be written, except for a reader that has gone away.
pub fn json(text: &str) -> io::Result<()> {
    let escaped = escape(
        text,
        |_, c| !c.is_ascii() && is_obeyed(c),
        |c| format!("\\u{:04x}", u32::from(c)),
    );
    data(&escaped)
}

/// Prints a diff. What `patch` needs stays: carriage returns at line ends, and a byte order mark at the start of a
/// file. Returns false if something else was escaped, so that the diff cannot be applied.
///
/// # Errors
/// Fails if standard output cannot be written, except for a reader that has gone away.
pub fn diff(text: &str) -> io::Result<bool> {
    let shown = plain_diff(text);
    data(&shown)?;
    Ok(matches!(shown, Cow::Borrowed(_)))
}

fn plain_diff(text: &str) -> Cow<'_, str> {
    let stays = |at: usize, c: char| match c {
        '\r' => text[at..].starts_with("\r\n"),
        '\u{feff}' => ["\n-", "\n+", "\n "]
            .iter()
            .any(|start| text[..at].ends_with(start)),
        _ => false,
    };
    escape(text, |at, c| is_obeyed(c) && !stays(at, c), escaped)
}

/// Escapes characters that control a terminal or are invisible.
pub fn plain(text: &str) -> Cow<'_, str> {
    escape(text, |_, c| is_obeyed(c), escaped)
}

/// Like [`plain`], on one line: a name or a key with a line feed must not forge a line of its own.
pub fn one_line(text: &str) -> Cow<'_, str> {
    escape(text, |_, c| c == '\n' || is_obeyed(c), escaped)
}

/// True for control characters other than line feed and tab; for characters that change the direction of text, which
/// can make a line look like another one; and for those without width. The joiners of letters and emoji are allowed.
fn is_obeyed(c: char) -> bool {
    c.is_control() && !matches!(c, '\n' | '\t')
        || matches!(
            c,
            '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        )
}

fn escaped(c: char) -> String {
    match c {
        '\n' => "\\n".to_owned(),
        '\r' => "\\r".to_owned(),
        '\0'..='\u{ff}' => format!("\\x{:02x}", u32::from(c)),
        c => format!("\\u{{{:x}}}", u32::from(c)),
    }
}

fn escape(
    text: &str,
    is_hidden: impl Fn(usize, char) -> bool,
    escaped: impl Fn(char) -> String,
) -> Cow<'_, str> {
    if !text.char_indices().any(|(at, c)| is_hidden(at, c)) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for (at, c) in text.char_indices() {
        if is_hidden(at, c) {
            shown.push_str(&escaped(c));
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

/// Whether standard output shows colors (<https://no-color.org>).
pub fn is_colored() -> bool {
    let is_off = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    is_terminal() && !is_off
}

pub fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Lines and columns of the terminal at standard output; 24 by 80 if unknown.
pub fn size() -> (usize, usize) {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok();
    let size = size.filter(|size| size.ws_row > 0 && size.ws_col > 0);
    size.map_or((24, 80), |size| {
        (usize::from(size.ws_row), usize::from(size.ws_col))
    })
}

/// Prints a message to standard error.
pub fn note(message: impl Display) {
    // If standard error is closed, the message is lost.
    let _ = pipe(writeln!(io::stderr().lock(), "{}", plain(&message.to_string())));
}

pub fn error(message: impl Display) {
    // If standard error is closed, the message is lost.
    let _ = pipe(writeln!(
        io::stderr().lock(),
        "error: {}",
        plain(&message.to_string())
    ));
}

/// An error with its causes. Some errors repeat their cause, so duplicates are removed.
pub fn error_chain(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

fn pipe(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("outer, since {0}")]
    struct Outer(#[source] io::Error);

    #[test]
    fn a_cause_that_its_error_names_is_not_printed_again() {
        let error = anyhow::Error::new(Outer(io::Error::other("of the disk"))).context("no file");
        assert_eq!(error_chain(&error), "no file: outer, since of the disk");
        let error = anyhow::anyhow!("of the disk").context("no file");
        assert_eq!(error_chain(&error), "no file: of the disk");
    }

    #[test]
    fn control_characters_are_printed_escaped() {
        assert_eq!(plain("a\tb\nç"), "a\tb\nç");
        assert_eq!(
            plain("\x1b[31mred\x07\r\u{9b}x\x7f"),
            "\\x1b[31mred\\x07\\r\\x9bx\\x7f"
        );
    }

    #[test]
    fn a_terminal_gets_no_control_characters_of_a_file_and_a_program_gets_the_file() {
        let file = "name: \x1b]0;title\x07\r\n";
        assert_eq!(shown_on(file, true), "name: \\x1b]0;title\\x07\\r\n");
        assert_eq!(shown_on(file, false), file);
    }

    #[test]
    fn text_without_width_and_of_another_direction_is_shown() {
        assert_eq!(
            plain("a\u{202e}b\u{2066}c\u{200b}d\u{feff}e\u{2028}"),
            "a\\u{202e}b\\u{2066}c\\u{200b}d\\u{feff}e\\u{2028}"
        );
        let joined = "👩\u{200d}💻 می\u{200c}خواهم";
        assert_eq!(plain(joined), joined);
    }

    #[test]
    fn a_diff_keeps_what_a_patch_needs_and_shows_the_rest() {
        for whole in [
            "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\r\n+b\r\n",
            "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-\u{feff}a\n+\u{feff}b\n",
            "-a\t1\n+b\t1\n",
        ] {
            assert_eq!(plain_diff(whole), whole);
        }
        assert_eq!(
            plain_diff("-a\rb\r\n+c\u{202e}d\x1b[2K\n x\u{feff}\n"),
            "-a\\rb\r\n+c\\u{202e}d\\x1b[2K\n x\\u{feff}\n"
        );
    }

    #[test]
    fn a_reader_that_has_gone_away_is_no_error() {
        assert!(pipe(Err(ErrorKind::BrokenPipe.into())).is_ok());
        assert!(pipe(Err(ErrorKind::StorageFull.into())).is_err());
    }
}
