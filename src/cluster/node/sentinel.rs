//! The sentinel: proof that the upgrade succeeded, with its boot, and whether the node must reboot. The command runs
//! only after the upgrade, so that it runs at all is the proof.

use super::host::{Host, HostError};
use refit_api::{SentinelName, SentinelReport};

/// When the node must reboot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RebootWhen {
    Always,
    /// If one of these files exists on the host.
    IfPresent(Vec<String>),
}

/// Decides whether to reboot, and writes the sentinel to the host, because a container's termination message can be
/// lost with its pod.
///
/// # Errors
/// Fails if a file could not be checked or the sentinel could not be written; then there is none.
pub fn keep(host: &Host, name: &SentinelName, when: &RebootWhen) -> Result<SentinelReport, HostError> {
    let boot_id = host.boot_id()?;
    let required = match when {
        RebootWhen::Always => true,
        RebootWhen::IfPresent(files) => {
            let mut found = false;
            for file in files {
                // All files are checked, so that one that cannot be read is an error even if another one exists.
                found |= host.exists(file)?;
            }
            found
        }
    };
    let report = SentinelReport { boot_id, required };
    // Last, because the file is the proof of success.
    host.write_sentinel(name, &report)?;
    Ok(report)
}

#[cfg(test)]
mod tests;
