//! The sentinel: proof that the upgrade succeeded, with its boot, and whether the node must reboot. The command runs
//! only after the upgrade, so that it runs at all is the proof.

use super::host::{Host, HostError};
use crate::api::{SentinelName, SentinelReport};

/// When the node must reboot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Always.
    Always,
    /// If one of these files exists on the host.
    IfPresent(Vec<String>),
}

/// Decides whether to reboot, and writes the sentinel to the host, because a container's termination message can be
/// lost with its pod.
///
/// # Errors
/// Fails if a file could not be checked or the sentinel could not be written; then there is none.
pub fn keep(host: &Host, name: &SentinelName, wish: &Wish) -> Result<SentinelReport, HostError> {
    let boot_id = host.boot_id()?;
    let required = match wish {
        Wish::Always => true,
        Wish::IfPresent(files) => {
            let mut found = false;
            for file in files {
                found |= host.exists(file)?;
            }
            found
        }
    };
    let report = SentinelReport { boot_id, required };
    host.write_sentinel(name, &report)?;
    Ok(report)
}

#[cfg(test)]
mod tests;
