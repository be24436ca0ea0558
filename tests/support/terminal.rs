//! Words for the person who waits, while something long happens.
//!
//! libtest captures what `print!` and `eprintln!` write, and shows it only when the test fails: a build of
//! ten minutes would look like a test that hangs. The capture sits in those macros, so this writes to the
//! handle of standard error itself. Not to `/dev/tty`: who redirects standard error, as CI does, wants the
//! words in that file.

use std::io::{IsTerminal as _, Write as _};

/// One finished line.
pub fn say(text: &str) {
    let clear = if std::io::stderr().is_terminal() {
        "\r\x1b[K"
    } else {
        ""
    };
    let _ = writeln!(std::io::stderr(), "{clear}refit test bed: {text}");
}

/// A line that the next [`say`] or [`overwrite`] replaces. Not shown where nobody can watch it change.
pub fn overwrite(text: &str) {
    let mut out = std::io::stderr();
    if out.is_terminal() {
        let _ = write!(out, "\r\x1b[Krefit test bed: {text}");
        let _ = out.flush();
    }
}
