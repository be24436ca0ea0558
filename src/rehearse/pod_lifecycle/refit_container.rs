//! What refit's own containers do on a node that may reboot: the sentinel, its report, and the reboot.
//!
//! They are recognised by their arguments. Their files are those of the machine.

use k8s_openapi::api::core::v1::Container;

use super::{Exit, Machine};
use refit_api::sentinel::{IN_BOOT, RebootFault, SENTINEL_DIR};
use refit_api::{SentinelName, SentinelReport};

/// Exit code of `refit reboot` if another attempt cannot succeed.
const FINAL: i32 = 3;

/// How a container continues whose time is over.
pub(super) enum Outcome {
    Ends(Exit),
    /// It has requested a reboot, and waits for it.
    Reboots,
}

/// How a container continues whose command ends as `steered`. `sentinels` gets the changes of sentinels.
pub(super) fn outcome(
    container: &Container,
    machine: &Machine,
    reboot_required: bool,
    steered: Exit,
    sentinels: &mut Vec<(SentinelName, Option<SentinelReport>)>,
) -> Outcome {
    let args = container.args.as_deref().unwrap_or_default();
    let has = |flag: &str| args.iter().any(|arg| arg == flag);
    let value = |flag: &str| {
        args.iter()
            .find_map(|arg| arg.strip_prefix(flag)?.strip_prefix('='))
    };
    let command = args.first().filter(|_| container.command.is_none());
    let command = command.map(String::as_str).unwrap_or_default();
    let flag = if command == "sentinel" {
        "--name"
    } else {
        "--sentinel"
    };
    let Some(name) = value(flag).and_then(|name| name.parse::<SentinelName>().ok()) else {
        return Outcome::Ends(steered);
    };
    let kept = machine.sentinels.get(&name);
    match (command, value("--boot-id")) {
        ("probe", _) if steered.code == 0 => {
            sentinels.push((name, None));
            Outcome::Ends(steered)
        }
        ("sentinel", _) if steered.code == 0 => {
            let report = SentinelReport {
                boot_id: machine.boot_id.clone(),
                required: has("--always") || reboot_required,
            };
            let message = steered.message.or_else(|| Some(report.to_text()));
            sentinels.push((name, Some(report)));
            Outcome::Ends(Exit { message, ..steered })
        }
        ("reboot", _) if has("--ask") && steered.code == 0 => Outcome::Ends(match kept {
            Some(report) => Exit {
                code: 0,
                message: Some(report.to_text()),
            },
            None => missing(machine, &name),
        }),
        ("reboot", Some(boot_id)) if machine.boot_id != boot_id => Outcome::Ends(Exit::default()),
        ("reboot", Some(boot_id)) if kept.is_none_or(|report| report.boot_id != boot_id) => {
            Outcome::Ends(missing(machine, &name))
        }
        ("reboot", Some(_)) if steered.code == 0 => Outcome::Reboots,
        ("reboot", Some(_)) => {
            let reason = RebootFault::CommandFailed.reason();
            let failed = format!("{reason}: it ended with exit status: {}", steered.code);
            Outcome::Ends(Exit {
                code: steered.code,
                message: steered.message.or(Some(failed)),
            })
        }
        _ => Outcome::Ends(steered),
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
