//! Reboots the node. The command may run several times, but reboots once.
//!
//! It depends on the current boot: any other boot than the expected one means that an earlier run has succeeded. It
//! never reboots a node without the sentinel of an upgrade in this boot.

use std::sync::mpsc;
use std::time::Duration;

use super::command::{CommandFailure, Commands, run};
use super::host::{Found, Host, HostError};
use refit_api::sentinel::{IN_BOOT, SENTINEL_DIR};
use refit_api::{RebootFault, SentinelName, SentinelReport};

/// Time limit for syncing file systems. A network file system that does not respond would block without limit; the
/// host's own shutdown syncs again.
const SYNC_LIMIT: Duration = Duration::from_secs(30);

#[derive(Clone, Debug)]
pub struct Order {
    /// The boot in which the upgrade succeeded.
    pub boot_id: String,
    pub sentinel: SentinelName,
    /// The commands that reboot the host.
    pub commands: Commands,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The node is in another boot.
    Rebooted { boot_id: String },
    /// The reboot was requested. The process must not exit, but wait for it.
    Requested {
        /// The command that requested it.
        command: String,
    },
}

/// Why the node was not rebooted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {sentence}", .fault.reason())]
pub struct Failure {
    pub fault: RebootFault,
    pub sentence: String,
}

impl From<HostError> for Failure {
    fn from(error: HostError) -> Self {
        Self::new(RebootFault::HostUnreadable, error.to_string())
    }
}

impl Failure {
    pub fn new(fault: RebootFault, sentence: String) -> Self {
        Self { fault, sentence }
    }
}

/// Reboots the host, unless that was done. `note` receives progress messages.
///
/// # Errors
/// Fails if the reboot was not requested.
pub fn reboot(host: &Host, order: &Order, note: &dyn Fn(&str)) -> Result<Outcome, Failure> {
    let boot_id = host.boot_id()?;
    if boot_id != order.boot_id {
        return Ok(Outcome::Rebooted { boot_id });
    }
    // The order alone proves nothing: a reboot Pod may be created from a record that is wrong, and an upgrade that
    // has not succeeded must not be interrupted.
    let report = ask(host, &order.sentinel)?;
    if report.boot_id != boot_id {
        // /run outlives a boot on this host.
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
            "not all data is on the disks after {} s",
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

/// Reads the sentinel.
///
/// # Errors
/// Fails if it is missing or invalid.
pub fn ask(host: &Host, name: &SentinelName) -> Result<SentinelReport, Failure> {
    let missing = |sentence| Failure::new(RebootFault::SentinelMissing, sentence);
    let boot_id = host.boot_id()?;
    match host.read_sentinel(name)? {
        Found::Report(report) => Ok(report),
        Found::Nothing => Err(missing(format!(
            "there is no {SENTINEL_DIR}/{name} on the host: nothing shows that the upgrade succeeded {IN_BOOT}{boot_id}"
        ))),
        Found::Garbage(error) => Err(missing(format!(
            "{SENTINEL_DIR}/{name} is not a sentinel: {error}"
        ))),
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

/// Syncs file systems, and returns whether that ended in time.
fn is_synced() -> bool {
    let (sender, receiver) = mpsc::channel();
    // On a thread, because `sync` cannot be interrupted, and hangs with a network file system whose server is gone.
    std::thread::spawn(move || {
        rustix::fs::sync();
        let _ = sender.send(());
    });
    receiver.recv_timeout(SYNC_LIMIT).is_ok()
}

#[cfg(test)]
mod tests;
