//! What is looked at on the host: files, whose presence counts, commands, whose exit codes do, the update engine, and
//! the files of Kairos.

mod kairos;
mod update_engine;

use std::process::Stdio;
use std::time::Duration;

use jiff::Timestamp;
use tokio::process::Command;
use tokio::time::timeout;

use super::command::SentinelCommand;
use super::request::{Answer, Boot, Finding};
use crate::node::{Host, HostError};
pub use kairos::KairosFiles;
pub use update_engine::UpdateEngine;

/// Time limit of a command. `dnf` may have to read its repositories.
const COMMAND_LIMIT: Duration = Duration::from_secs(5 * 60);

/// Appended to a file's name: the file with the names of packages, one a line (`update-notifier-common` of Debian).
const PACKAGES: &str = ".pkgs";

/// Files on the host, below the folder where it is mounted.
#[derive(Debug)]
pub struct Files {
    pub host: Host,
    /// Absolute paths on the host.
    pub paths: Vec<String>,
}

/// Everything that is looked at.
#[derive(Debug)]
pub struct Sources {
    /// The container's own root, for what Linux reports about the host.
    pub own: Host,
    pub files: Files,
    pub commands: Vec<SentinelCommand>,
    pub update_engine: Option<UpdateEngine>,
    /// What the labels `kairos.io/*` follow from, if the agent keeps them up to date.
    pub kairos: Option<KairosFiles>,
    /// The program and its first arguments that run a command on the host.
    pub runner: Vec<String>,
}

impl Sources {
    /// The current boot. The boot ID and the time are those of the host in any container.
    pub(super) fn boot(&self) -> Result<Boot, HostError> {
        let stat = self.own.read_whole("/proc/stat", 1 << 20).ok().flatten();
        let stat = stat.unwrap_or_default();
        let began = stat.lines().find_map(|line| line.strip_prefix("btime "));
        Ok(Boot {
            id: self.own.boot_id()?,
            began: began.and_then(|text| timestamp(text.trim().parse().ok()?)),
        })
    }

    /// Whether anything could say that the host needs a reboot.
    pub(super) fn has_reboot_sources(&self) -> bool {
        !self.files.paths.is_empty() || !self.commands.is_empty() || self.update_engine.is_some()
    }

    /// Looks at all that could say that the host needs a reboot. `note` receives what could not be found out.
    pub(super) async fn look(&self, note: &dyn Fn(&str)) -> Vec<Finding> {
        let mut findings: Vec<_> = self
            .files
            .paths
            .iter()
            .map(|path| self.file(path, note))
            .collect();
        for command in &self.commands {
            findings.push(self.command(command, note).await);
        }
        if let Some(engine) = &self.update_engine {
            findings.push(engine.look(note).await);
        }
        findings
    }

    fn file(&self, path: &str, note: &dyn Fn(&str)) -> Finding {
        let host = &self.files.host;
        let (answer, packages) = match host.modified(path) {
            Ok(Some(seconds)) => {
                let since = timestamp(seconds);
                let packages = host.read_whole(&format!("{path}{PACKAGES}"), 1 << 16);
                let packages = packages.ok().flatten().unwrap_or_default();
                let names = packages.lines().map(str::trim).filter(|name| !name.is_empty());
                (Answer::Needed { since }, names.map(str::to_owned).collect())
            }
            Ok(None) => (Answer::NotNeeded, Vec::new()),
            Err(error) => {
                note(&error.to_string());
                (Answer::Unknown, Vec::new())
            }
        };
        Finding {
            reason: path.to_owned(),
            answer,
            packages,
        }
    }

    async fn command(&self, command: &SentinelCommand, note: &dyn Fn(&str)) -> Finding {
        let answer = match self.run(command).await {
            Ok(answer) => answer,
            Err(why) => {
                note(&format!("{command} says nothing: {why}"));
                Answer::Unknown
            }
        };
        Finding {
            reason: command.to_string(),
            answer,
            packages: Vec::new(),
        }
    }

    async fn run(&self, command: &SentinelCommand) -> Result<Answer, String> {
        let mut words = self.runner.iter().chain(command.words());
        let program = words.next().ok_or("there is no program")?;
        let mut child = Command::new(program);
        child
            .args(words)
            // A tool that asks a question gets the end of its input, instead of waiting until the time limit.
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            // The time limit and the end of the agent drop the future; by default tokio lets the process run on.
            .kill_on_drop(true);
        let status = timeout(COMMAND_LIMIT, child.status()).await;
        let status = status.map_err(|_| format!("it takes more than {} s", COMMAND_LIMIT.as_secs()))?;
        let status = status.map_err(|error| error.to_string())?;
        let answer = status.code().and_then(|code| command.answer(code));
        answer.ok_or_else(|| format!("it ended with {status}"))
    }
}

/// A time of a file, if the clock can name it.
fn timestamp(seconds: i64) -> Option<Timestamp> {
    Timestamp::from_second(seconds).ok()
}

#[cfg(test)]
mod tests;
