//! Checks, before a node is disturbed, whether it can be rebooted and the reboot can be proven.
//!
//! That the probe runs shows that refit's image is on the node. It reports everything that is missing at once.

use super::command::{CommandFailure, Commands, find};
use super::host::Host;
use refit_api::SentinelName;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probed {
    pub boot_id: String,
    /// Path on the host of the program that reboots it.
    pub program: String,
}

/// Checks the boot ID, the folder of the sentinel, the files of `requiredFiles`, and the programs of the commands.
/// Removes the sentinel of an earlier attempt at the same hash in this boot.
///
/// # Errors
/// Fails with everything that is wrong, one sentence each.
pub fn probe(
    host: &Host,
    sentinel: Option<&SentinelName>,
    required_files: &[String],
    commands: &Commands,
) -> Result<Probed, Vec<String>> {
    let mut wrong = Vec::new();
    let boot_id = host.boot_id();
    wrong.extend(boot_id.as_ref().err().map(ToString::to_string));
    let place = host
        .try_sentinel()
        // A sentinel of an earlier attempt in this boot would prove a success that this attempt has yet to reach.
        .and_then(|()| sentinel.map_or(Ok(()), |name| host.remove_sentinel(name)));
    wrong.extend(place.err().map(|error| error.to_string()));
    let unseen = required_files.iter().filter_map(|path| host.exists(path).err());
    wrong.extend(unseen.map(|error| error.to_string()));
    let program = commands.programs().find_map(|program| find(host, program));
    match (boot_id, program) {
        (Ok(boot_id), Some(program)) if wrong.is_empty() => Ok(Probed { boot_id, program }),
        (_, Some(_)) => Err(wrong),
        (_, None) => {
            let missing = commands.programs().map(|program| CommandFailure::Missing {
                program: program.to_owned(),
            });
            wrong.extend(missing.map(|failure| failure.to_string()));
            Err(wrong)
        }
    }
}

#[cfg(test)]
mod tests;
