//! What refit's own containers do on a node that may reboot: the sentinel and its report, and the reboot that is asked for.
//!
//! They are known by what they are started with, as the node itself would; their files are the machine's.

use k8s_openapi::api::core::v1::Container;

use super::{Exit, Machine};
use crate::api::sentinel::{IN_BOOT, RebootFault, SENTINEL_DIR};
use crate::api::{SentinelName, SentinelReport};

/// Exit code of `refit reboot` where trying again cannot help.
const FINAL: i32 = 3;

/// What a container was started for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Errand {
    /// `refit probe`, which removes what an earlier try has left.
    Probe { name: SentinelName },
    /// `refit sentinel`.
    Keep { name: SentinelName, always: bool },
    /// `refit reboot --ask`.
    Ask { name: SentinelName },
    /// `refit reboot`.
    Reboot { name: SentinelName, boot_id: String },
}

/// How the reboot container goes on.
pub(super) enum Ending {
    /// It ends.
    Exit(Exit),
    /// It has asked for the reboot, and waits for it.
    Waits,
}

impl Errand {
    /// None for everything that is not refit, or not one of its errands.
    pub(super) fn of(container: &Container) -> Option<Self> {
        let args = container.args.as_deref().unwrap_or_default();
        let value = |flag: &str| {
            args.iter()
                .find_map(|arg| arg.strip_prefix(flag)?.strip_prefix('='))
        };
        let has = |flag: &str| args.iter().any(|arg| arg == flag);
        let name = |flag: &str| value(flag)?.parse::<SentinelName>().ok();
        if container.command.is_some() {
            return None;
        }
        match args.first()?.as_str() {
            "probe" => Some(Self::Probe {
                name: name("--sentinel")?,
            }),
            "sentinel" => Some(Self::Keep {
                name: name("--name")?,
                always: has("--always"),
            }),
            "reboot" if has("--ask") => Some(Self::Ask {
                name: name("--sentinel")?,
            }),
            "reboot" => Some(Self::Reboot {
                name: name("--sentinel")?,
                boot_id: value("--boot-id")?.to_owned(),
            }),
            _ => None,
        }
    }
}

/// How `refit reboot` ends where its command would end as `command`, if it ends.
pub(super) fn reboot(machine: &Machine, name: &SentinelName, boot_id: &str, command: Exit) -> Ending {
    if machine.boot_id != boot_id {
        return Ending::Exit(Exit::default());
    }
    match machine.sentinels.get(name) {
        Some(report) if report.boot_id == boot_id => {}
        _ => return Ending::Exit(missing(machine, name)),
    }
    if command.code == 0 {
        return Ending::Waits;
    }
    let message = command.message.unwrap_or_else(|| {
        format!(
            "{}: it ended with exit status: {}",
            RebootFault::CommandFailed.reason(),
            command.code
        )
    });
    Ending::Exit(Exit {
        message: Some(message),
        ..command
    })
}

/// How `refit reboot --ask` ends.
pub(super) fn ask(machine: &Machine, name: &SentinelName) -> Exit {
    machine
        .sentinels
        .get(name)
        .map_or_else(|| missing(machine, name), reported)
}

/// A report as a termination message.
pub(super) fn reported(report: &SentinelReport) -> Exit {
    Exit {
        code: 0,
        message: Some(report.to_text()),
    }
}

fn missing(machine: &Machine, name: &SentinelName) -> Exit {
    let (reason, boot_id) = (RebootFault::SentinelMissing.reason(), &machine.boot_id);
    Exit {
        code: FINAL,
        message: Some(format!(
            "{reason}: there is no {SENTINEL_DIR}/{name} on the host {IN_BOOT}{boot_id}"
        )),
    }
}
