//! Finds and runs the commands that reboot the host.

use std::io::Read as _;
use std::process::{ChildStderr, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use super::host::Host;
use refit_api::reboot::COMMANDS;

/// Where programs are searched: root's usual PATH, and that of NixOS.
const SEARCH: [&str; 7] = [
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
    "/run/current-system/sw/bin",
];

/// Maximum length of a failed command's output in the message, in bytes. The kubelet keeps 4,096 bytes of a termination
/// message, which may name several commands.
const MAX_STDERR: usize = 1024;

/// How long to wait for output after a command has exited, because its children may keep standard error open.
const STDERR_TIMEOUT: Duration = Duration::from_secs(1);

/// Commands to try in order until one works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commands(Vec<Vec<String>>);

/// A command that failed.
#[derive(Debug, thiserror::Error)]
pub enum CommandFailure {
    /// Its program does not exist.
    #[error("{program} is not on the host{}", searched(.program))]
    Missing { program: String },
    /// It could not be started.
    #[error("{command}: {error}")]
    NotStarted { command: String, error: std::io::Error },
    /// Its exit code was not 0.
    #[error("{command} ended with {status}{}", with_stderr(.said))]
    Failed {
        command: String,
        status: ExitStatus,
        /// The end of its output on standard error.
        said: String,
    },
}

impl CommandFailure {
    /// Whether no program was found.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Missing { .. })
    }
}

impl Commands {
    /// The Plan's command, or the commands that reboot most hosts.
    pub fn new(command: Vec<String>) -> Self {
        if command.is_empty() {
            let owned = |command: &[&str]| command.iter().map(|part| (*part).to_owned()).collect();
            Self(COMMANDS.map(owned).into())
        } else {
            Self(vec![command])
        }
    }

    pub(super) fn each(&self) -> impl Iterator<Item = &[String]> {
        self.0.iter().map(Vec::as_slice)
    }

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
    // A name with a slash is not searched.
    let mut paths = paths.filter(|_| !program.contains('/') && !program.is_empty());
    paths.find(|path| host.is_program(path))
}

/// Runs a command on the host and waits for it, without refit's environment.
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
        // Variables of the container, such as the address of the API server, mean nothing on the host.
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
    let said = said.and_then(|said| said.recv_timeout(STDERR_TIMEOUT).ok());
    Err(CommandFailure::Failed {
        command: shown,
        status,
        said: said.unwrap_or_default(),
    })
}

/// Reads all output, so that the command does not block, and keeps the end of it.
fn listen(mut stderr: ChildStderr) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let (mut kept, mut buffer) = (Vec::new(), [0; 1024]);
        while let Ok(length @ 1..) = stderr.read(&mut buffer) {
            kept.extend_from_slice(&buffer[..length]);
            kept.drain(..kept.len().saturating_sub(MAX_STDERR));
        }
        let text = String::from_utf8_lossy(&kept);
        let _ = sender.send(text.split_whitespace().collect::<Vec<_>>().join(" "));
    });
    receiver
}

fn with_stderr(said: &str) -> String {
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
