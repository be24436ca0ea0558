//! `refit probe`: whether this node could be rebooted, before anything is disturbed.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::{host, output};
use crate::api::SentinelName;
use crate::node::{Commands, probe};

/// Arguments of `refit probe`.
#[derive(Args, Clone, Debug)]
pub(super) struct Flags {
    /// Where the host's root directory is mounted
    #[arg(long, value_name = "DIR", default_value = "/host")]
    host: PathBuf,

    /// Name of the sentinel that the upgrade is to leave: <plan uid>.<node uid>.<hash>. One that an earlier try has left is
    /// removed
    #[arg(long, value_name = "NAME")]
    sentinel: Option<SentinelName>,

    /// File on the host that may ask for a reboot. It need not be there, but it must be possible to look
    #[arg(long = "required-file", value_name = "PATH")]
    required_files: Vec<String>,

    /// What reboots the host [default: systemctl reboot, or reboot]
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub(super) fn run(flags: Flags) -> anyhow::Result<ExitCode> {
    let host = host::mounted(&flags.host)?;
    let commands = Commands::new(flags.command);
    match probe(&host, flags.sentinel.as_ref(), &flags.required_files, &commands) {
        Ok(probed) => {
            output::note(format_args!(
                "the node is in boot {}, and {} can reboot it",
                probed.boot_id, probed.program
            ));
            Ok(ExitCode::SUCCESS)
        }
        Err(wrong) => {
            host::errors(&wrong);
            Ok(ExitCode::FAILURE)
        }
    }
}
