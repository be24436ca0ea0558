//! `refit reboot`: reboots the host once, however often it runs.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::host::{self, Message, OpenMessage};
use super::output;
use refit_api::sentinel::is_boot_id;
use refit_api::{RebootFault, SentinelName};
use refit_cluster::node::{Commands, Failure, Order, Outcome, ask, enter_host, reboot};

/// Exit code if another attempt in this boot cannot succeed.
const EXIT_FINAL: u8 = 3;

#[derive(Args, Clone, Debug)]
pub(super) struct Flags {
    /// Boot ID of the boot to end. In any other boot the command does nothing
    #[arg(long, value_name = "ID", value_parser = boot_id, required_unless_present = "ask")]
    boot_id: Option<String>,

    /// Name of the sentinel: <plan uid>.<node uid>.<hash>
    #[arg(long, value_name = "NAME")]
    sentinel: SentinelName,

    /// Only print the content of the sentinel, as refit sentinel did when it wrote it
    #[arg(long, conflicts_with_all = ["boot_id", "command"])]
    ask: bool,

    /// Where the host's root directory is mounted: for --ask, and for testing. Without it refit enters the mount
    /// namespace of process 1, and runs the command there
    #[arg(long, value_name = "DIR")]
    host: Option<PathBuf>,

    #[command(flatten)]
    message: Message,

    /// Command that reboots the host [default: systemctl reboot, or reboot]
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

fn boot_id(value: &str) -> Result<String, String> {
    if is_boot_id(value) {
        Ok(value.to_owned())
    } else {
        Err("must be a boot ID as in /proc/sys/kernel/random/boot_id".to_owned())
    }
}

pub(super) fn run(flags: Flags) -> anyhow::Result<ExitCode> {
    // Opened first, because the file is not in the host's mount namespace.
    let message = flags.message.open()?;
    let host = match &flags.host {
        Some(dir) => host::mounted(dir).map_err(|error| error.to_string()),
        None => enter_host().map_err(|error| error.to_string()),
    };
    let host = match host {
        Ok(host) => host,
        Err(sentence) => return failed(message, &Failure::new(RebootFault::HostUnreadable, sentence)),
    };
    let Some(boot_id) = flags.boot_id else {
        return match ask(&host, &flags.sentinel) {
            Ok(report) => {
                message.write(&report.to_text())?;
                output::json(&format!("{}\n", report.to_text()))?;
                Ok(ExitCode::SUCCESS)
            }
            Err(failure) => failed(message, &failure),
        };
    };
    let order = Order {
        boot_id,
        sentinel: flags.sentinel,
        commands: Commands::new(flags.command),
    };
    match reboot(&host, &order, &|text| output::note(text)) {
        Ok(Outcome::Rebooted { boot_id }) => {
            output::note(format_args!("the node is in boot {boot_id} now"));
            Ok(ExitCode::SUCCESS)
        }
        Ok(Outcome::Requested { command }) => {
            output::note(format_args!("{command} has been run; waiting for the end"));
            wait_for_reboot()
        }
        Err(failure) => failed(message, &failure),
    }
}

/// Exit code 0 would mean that the node has rebooted, and any other requests another attempt. So the process waits to
/// be killed.
fn wait_for_reboot() -> ! {
    loop {
        std::thread::park();
    }
}

fn failed(message: OpenMessage, failure: &Failure) -> anyhow::Result<ExitCode> {
    output::error(failure);
    message.write(&failure.to_string())?;
    Ok(if failure.fault.is_final() {
        ExitCode::from(EXIT_FINAL)
    } else {
        ExitCode::FAILURE
    })
}
