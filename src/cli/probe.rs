//! `refit probe`: checks that this node can be rebooted, before the node is touched.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::{host, output};
use refit_api::SentinelName;
use refit_cluster::node::{Commands, probe};

#[derive(Args, Clone, Debug)]
pub(super) struct Flags {
    /// Where the host's root directory is mounted
    #[arg(long, value_name = "DIR", default_value = "/host")]
    host: PathBuf,

    /// Name of the sentinel that the upgrade will write: <plan uid>.<node uid>.<hash>. One from an earlier attempt is
    /// removed
    #[arg(long, value_name = "NAME")]
    sentinel: Option<SentinelName>,

    /// File on the host that requests a reboot. It may be absent, but its folder must be readable
    #[arg(long = "required-file", value_name = "PATH")]
    required_files: Vec<String>,

    /// Command that reboots the host [default: systemctl reboot, or reboot]
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
