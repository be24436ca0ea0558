//! `refit probe`: whether this node could be rebooted, before anything is disturbed.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::{host, output};
use crate::node::{Commands, probe};

/// Arguments of `refit probe`.
#[derive(Args, Clone, Debug)]
pub(super) struct Flags {
    /// Where the host's root directory is mounted
    #[arg(long, value_name = "DIR", default_value = "/host")]
    host: PathBuf,

    /// File on the host that may ask for a reboot. It need not be there, but it must be possible to look
    #[arg(long = "required-file", value_name = "PATH")]
    required_files: Vec<String>,

    /// What reboots the host [default: systemctl reboot, or reboot]
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub(super) fn run(flags: Flags) -> anyhow::Result<ExitCode> {
    let host = host::mounted(&flags.host)?;
    match probe(&host, &flags.required_files, &Commands::new(flags.command)) {
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
