//! The commands that reboot the host: where their programs are, and what came of running them.

use std::io::Read as _;
use std::process::{ChildStderr, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use super::host::Host;
use crate::api::reboot::COMMANDS;

/// Where programs are looked for: as on a login of root, and on NixOS, which has none of the others.
const SEARCH: [&str; 7] = [
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
    "/run/current-system/sw/bin",
];

/// How much of what a failed command said is told, in bytes.
const MAX_TOLD: usize = 1024;

/// What a command left behind may keep its standard error open for so long.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Commands of which the first one that works is enough.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commands(Vec<Vec<String>>);

/// A command that did not work.
#[derive(Debug, thiserror::Error)]
pub enum CommandFailure {
    /// Its program is not there.
    #[error("{program} is not on the host{}", searched(.program))]
    Missing {
        /// The program.
        program: String,
    },
    /// It could not be started.
    #[error("{command}: {error}")]
    NotStarted {
        /// The command.
        command: String,
        /// Why not.
        error: std::io::Error,
    },
    /// It ended with something else than 0.
    #[error("{command} ended with {status}{}", words(.said))]
    Failed {
        /// The command.
        command: String,
        /// How it ended.
        status: ExitStatus,
        /// The last that it said on standard error.
        said: String,
    },
}

impl CommandFailure {
    /// Whether there was nothing to run.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Missing { .. })
    }
}

impl Commands {
    /// The Plan's command, or where it has none, those that reboot most hosts.
    pub fn new(command: Vec<String>) -> Self {
        if command.is_empty() {
            let owned = |command: &[&str]| command.iter().map(|part| (*part).to_owned()).collect();
            Self(COMMANDS.map(owned).into())
        } else {
            Self(vec![command])
        }
    }

    /// The commands, in their order.
    pub(super) fn each(&self) -> impl Iterator<Item = &[String]> {
        self.0.iter().map(Vec::as_slice)
    }

    /// The programs, in their order.
    pub(super) fn programs(&self) -> impl Iterator<Item = &str> {
        self.each()
            .filter_map(|command| command.first())
            .map(String::as_str)
    }
}

/// Path of a program on the host.
pub(super) fn find(host: &Host, program: &str) -> Option<String> {
    if program.starts_with('/') {
        return host.is_program(program).then(|| program.to_owned());
    }
    let paths = SEARCH.iter().map(|dir| format!("{dir}/{program}"));
    // A name with a slash in it is none.
    let mut paths = paths.filter(|_| !program.contains('/') && !program.is_empty());
    paths.find(|path| host.is_program(path))
}

/// Runs a command of the host's, and waits for its end. It gets nothing of refit's environment.
pub(super) fn run(host: &Host, command: &[String]) -> Result<(), CommandFailure> {
    let program = command.first().map_or("", String::as_str);
    let path = find(host, program).ok_or_else(|| CommandFailure::Missing {
        program: program.to_owned(),
    })?;
    let shown = command.join(" ");
    let not_started = |error| CommandFailure::NotStarted {
        command: shown.clone(),
        error,
    };
    let mut child = Command::new(host.dir().join(path.trim_start_matches('/')))
        .args(command.iter().skip(1))
        .env_clear()
        .env("PATH", SEARCH.join(":"))
        .env("HOME", "/root")
        .current_dir(host.dir())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(not_started)?;
    let said = child.stderr.take().map(listen);
    let status = child.wait().map_err(not_started)?;
    if status.success() {
        return Ok(());
    }
    let said = said.and_then(|said| said.recv_timeout(LAST_WORDS).ok());
    Err(CommandFailure::Failed {
        command: shown,
        status,
        said: said.unwrap_or_default(),
    })
}

/// Reads all that a command says, so that it need not wait for a reader, and keeps the end of it.
fn listen(mut stderr: ChildStderr) -> Receiver<String> {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let (mut kept, mut buffer) = (Vec::new(), [0; 1024]);
        while let Ok(length @ 1..) = stderr.read(&mut buffer) {
            kept.extend_from_slice(&buffer[..length]);
            kept.drain(..kept.len().saturating_sub(MAX_TOLD));
        }
        let text = String::from_utf8_lossy(&kept);
        let _ = tell.send(text.split_whitespace().collect::<Vec<_>>().join(" "));
    });
    told
}

fn words(said: &str) -> String {
    if said.is_empty() {
        String::new()
    } else {
        format!(": {said}")
    }
}

fn searched(program: &str) -> String {
    if program.starts_with('/') {
        String::new()
    } else {
        format!(", in none of {}", SEARCH.join(", "))
    }
}

#[cfg(test)]
mod tests;
