//! `refit reboot`: reboots the host once, however often it is started.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::host::{self, Message, OpenMessage};
use super::output;
use crate::api::sentinel::is_boot_id;
use crate::api::{RebootFault, SentinelName};
use crate::node::{Commands, Failure, Order, Outcome, ask, enter_host, reboot};

/// To try again in this boot cannot help.
const FINAL: u8 = 3;

/// Arguments of `refit reboot`.
#[derive(Args, Clone, Debug)]
pub(super) struct Flags {
    /// The boot that is to end. In any other one there is nothing to do
    #[arg(long, value_name = "ID", value_parser = boot_id, required_unless_present = "ask")]
    boot_id: Option<String>,

    /// Name of the sentinel: <plan uid>.<node uid>.<hash>
    #[arg(long, value_name = "NAME")]
    sentinel: SentinelName,

    /// Only say what the sentinel says, as refit sentinel did when it wrote it
    #[arg(long, conflicts_with_all = ["boot_id", "command"])]
    ask: bool,

    /// Where the host's root directory is mounted: for --ask, and to try commands out. Without it refit goes into the mount
    /// namespace of process 1, where the command then runs
    #[arg(long, value_name = "DIR")]
    host: Option<PathBuf>,

    #[command(flatten)]
    message: Message,

    /// What reboots the host [default: systemctl reboot, or reboot]
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
    // Before the host's mount namespace, where the file is not.
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
                output::data(&format!("{}\n", report.to_text()))?;
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
            wait_for_the_end()
        }
        Err(failure) => failed(message, &failure),
    }
}

/// Exit code 0 would say that the node has rebooted, any other that it is to be asked again. The end comes from outside.
fn wait_for_the_end() -> ! {
    loop {
        std::thread::park();
    }
}

fn failed(message: OpenMessage, failure: &Failure) -> anyhow::Result<ExitCode> {
    output::error(failure);
    message.write(&failure.to_string())?;
    Ok(if failure.fault.is_final() {
        ExitCode::from(FINAL)
    } else {
        ExitCode::FAILURE
    })
}
