//! The sentinel: that the upgrade has succeeded, in which boot, and whether the node has to reboot. It runs after the upgrade
//! only, so that to have run is the proof.

use super::host::{Host, HostError};
use crate::api::{SentinelName, SentinelReport};

/// When the node has to reboot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Whatever is there.
    Always,
    /// If one of these files is on the host.
    IfPresent(Vec<String>),
}

/// Looks, and leaves what it saw on the host: the message of a container can be lost with its pod.
///
/// # Errors
/// Something could not be looked at, or the sentinel not be written; then there is none.
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
