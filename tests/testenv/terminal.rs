//! Progress messages.
//!
//! libtest captures `print!` and `eprintln!` and shows their output only if the test fails, so a build of ten minutes
//! would look like a test that hangs. These functions write to the handle of standard error, which is not captured.

use std::io::{IsTerminal as _, Write as _};

/// One finished line.
pub fn say(text: &str) {
    let clear = if std::io::stderr().is_terminal() {
        "\r\x1b[K"
    } else {
        ""
    };
    let _ = writeln!(std::io::stderr(), "{clear}refit tests: {text}");
}

/// A line that the next [`say`] or [`overwrite`] replaces. Only shown on a terminal.
pub fn overwrite(text: &str) {
    let mut out = std::io::stderr();
    if out.is_terminal() {
        let _ = write!(out, "\r\x1b[Krefit tests: {text}");
        let _ = out.flush();
    }
}
