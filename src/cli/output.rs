//! What the program prints: data on stdout, talk on stderr. A reader that has gone away is no error.

use std::fmt::Display;
use std::io::{self, ErrorKind, IsTerminal as _, Write};

/// Prints data as it is.
pub fn data(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    pipe(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()))
}

/// Whether somebody watches standard output.
pub fn is_watched() -> bool {
    io::stdout().is_terminal()
}

/// Lines and columns of the terminal that standard output is; what old ones have where it does not say.
pub fn size() -> (usize, usize) {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok();
    let size = size.filter(|size| size.ws_row > 0 && size.ws_col > 0);
    size.map_or((24, 80), |size| {
        (usize::from(size.ws_row), usize::from(size.ws_col))
    })
}

/// Says something that is no data.
pub fn note(message: impl Display) {
    // With nobody to tell, there is nothing left to do.
    let _ = pipe(writeln!(io::stderr().lock(), "{message}"));
}

/// Says what went wrong.
pub fn error(message: impl Display) {
    // With nobody to tell, there is nothing left to do.
    let _ = pipe(writeln!(io::stderr().lock(), "error: {message}"));
}

/// An error with its causes, each said once: some say their cause themselves.
pub fn with_causes(error: &anyhow::Error) -> String {
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
    fn a_cause_that_was_said_is_not_said_again() {
        let error = anyhow::Error::new(Outer(io::Error::other("of the disk"))).context("no file");
        assert_eq!(with_causes(&error), "no file: outer, since of the disk");
        let error = anyhow::anyhow!("of the disk").context("no file");
        assert_eq!(with_causes(&error), "no file: of the disk");
    }

    #[test]
    fn a_reader_that_has_gone_away_is_no_error() {
        assert!(pipe(Err(ErrorKind::BrokenPipe.into())).is_ok());
        assert!(pipe(Err(ErrorKind::StorageFull.into())).is_err());
    }
}
