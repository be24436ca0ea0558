//! What the program prints: data on stdout, talk on stderr. A reader that has gone away is no error.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

/// Prints data as it is.
pub fn data(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    pipe(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()))
}

/// Says what went wrong.
pub fn error(message: impl Display) {
    // With nobody to tell, there is nothing left to do.
    let _ = pipe(writeln!(io::stderr().lock(), "error: {message}"));
}

fn pipe(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}
