//! What refit's own containers do on a node that may reboot: the sentinel, its report, and the reboot.
//!
//! They are recognised by their arguments. Their files are those of the machine.

use k8s_openapi::api::core::v1::Container;

use super::{Exit, Machine};
use refit_api::sentinel::{IN_BOOT, RebootFault, SENTINEL_DIR};
use refit_api::{SentinelName, SentinelReport};

/// Exit code of `refit reboot` if another attempt cannot succeed.
const FINAL: i32 = 3;

/// What a container runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RefitContainer {
    /// `refit probe`, which removes the sentinel of an earlier attempt.
    Probe { name: SentinelName },
    /// `refit sentinel`.
    Keep { name: SentinelName, always: bool },
    /// `refit reboot --ask`.
    Ask { name: SentinelName },
    /// `refit reboot`.
    Reboot { name: SentinelName, boot_id: String },
}

/// How the reboot container continues.
pub(super) enum RebootEnd {
    Exit(Exit),
    /// It has requested the reboot, and waits for it.
    Waits,
}

impl RefitContainer {
    /// `None` for any other container.
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

/// How `refit reboot` ends if its command ends as `command`.
pub(super) fn reboot(machine: &Machine, name: &SentinelName, boot_id: &str, command: Exit) -> RebootEnd {
    if machine.boot_id != boot_id {
        return RebootEnd::Exit(Exit::default());
    }
    match machine.sentinels.get(name) {
        Some(report) if report.boot_id == boot_id => {}
        _ => return RebootEnd::Exit(missing(machine, name)),
    }
    if command.code == 0 {
        return RebootEnd::Waits;
    }
    let message = command.message.unwrap_or_else(|| {
        format!(
            "{}: it ended with exit status: {}",
            RebootFault::CommandFailed.reason(),
            command.code
        )
    });
    RebootEnd::Exit(Exit {
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

/// A report as termination message.
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
