//! The reboot of the node, asked for as often as the pod is started, and had once.
//!
//! It goes by the boot that it finds: another one than was expected is the success of an earlier start. It reboots nothing
//! whose upgrade in this very boot has no sentinel.

use std::sync::mpsc;
use std::time::Duration;

use super::command::{CommandFailure, Commands, run};
use super::host::{Found, Host, HostError};
use crate::api::sentinel::{IN_BOOT, SENTINEL_DIR};
use crate::api::{RebootFault, SentinelName, SentinelReport};

/// How long what is not yet on the disks is written for. A network file system that does not answer never ends; the host's
/// own shutdown writes again.
const SYNC_LIMIT: Duration = Duration::from_secs(30);

/// What is to be done.
#[derive(Clone, Debug)]
pub struct Order {
    /// The boot under which the upgrade succeeded.
    pub boot_id: String,
    /// Its sentinel.
    pub sentinel: SentinelName,
    /// What reboots the host.
    pub commands: Commands,
}

/// What has become of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The node is in another boot.
    Rebooted {
        /// Which.
        boot_id: String,
    },
    /// The host has been asked. Whoever asked waits for the end, and must not exit.
    Requested {
        /// With which command.
        command: String,
    },
}

/// Why the node does not reboot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {sentence}", .fault.reason())]
pub struct Failure {
    /// Which kind.
    pub fault: RebootFault,
    /// What happened.
    pub sentence: String,
}

impl From<HostError> for Failure {
    fn from(error: HostError) -> Self {
        Self::new(RebootFault::HostUnreadable, error.to_string())
    }
}

impl Failure {
    /// A failure, with a sentence about it.
    pub fn new(fault: RebootFault, sentence: String) -> Self {
        Self { fault, sentence }
    }
}

/// Reboots the host, unless that has been done. `note` is told what happens.
///
/// # Errors
/// It was not asked to, and why.
pub fn reboot(host: &Host, order: &Order, note: &dyn Fn(&str)) -> Result<Outcome, Failure> {
    let boot_id = host.boot_id()?;
    if boot_id != order.boot_id {
        return Ok(Outcome::Rebooted { boot_id });
    }
    let report = ask(host, &order.sentinel)?;
    if report.boot_id != boot_id {
        // Where /run outlives a boot.
        return Err(Failure::new(
            RebootFault::SentinelMissing,
            format!(
                "{SENTINEL_DIR}/{} is of the boot {}, and the node is in {boot_id}",
                order.sentinel, report.boot_id
            ),
        ));
    }
    note(&format!(
        "the upgrade succeeded in boot {boot_id}, and the node is still in it"
    ));
    if !is_synced() {
        note(&format!(
            "what is not on the disks is not all written after {} s",
            SYNC_LIMIT.as_secs()
        ));
    }
    let mut failures = Vec::new();
    for command in order.commands.each() {
        match run(host, command) {
            Ok(()) => {
                let command = command.join(" ");
                return Ok(Outcome::Requested { command });
            }
            Err(failure) => {
                note(&failure.to_string());
                failures.push(failure);
            }
        }
    }
    Err(all_failed(&failures))
}

/// What the sentinel says.
///
/// # Errors
/// There is none, or it says nothing that can be understood.
pub fn ask(host: &Host, name: &SentinelName) -> Result<SentinelReport, Failure> {
    let missing = |sentence| Failure::new(RebootFault::SentinelMissing, sentence);
    let boot_id = host.boot_id()?;
    match host.read_sentinel(name)? {
        Found::Report(report) => Ok(report),
        Found::Nothing => Err(missing(format!(
            "there is no {SENTINEL_DIR}/{name} on the host: nothing shows that the upgrade succeeded {IN_BOOT}{boot_id}"
        ))),
        Found::Garbage(error) => Err(missing(format!("{SENTINEL_DIR}/{name} is no sentinel: {error}"))),
    }
}

fn all_failed(failures: &[CommandFailure]) -> Failure {
    let fault = if failures.iter().all(CommandFailure::is_missing) {
        RebootFault::CommandMissing
    } else {
        RebootFault::CommandFailed
    };
    let sentences: Vec<_> = failures.iter().map(ToString::to_string).collect();
    Failure::new(fault, sentences.join("; "))
}

/// Writes what is not yet on the disks, and says whether that came to an end in time.
fn is_synced() -> bool {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        rustix::fs::sync();
        let _ = tell.send(());
    });
    told.recv_timeout(SYNC_LIMIT).is_ok()
}

#[cfg(test)]
mod tests;
