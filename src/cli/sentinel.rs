//! `refit sentinel`: records on the host that the upgrade has succeeded, and whether a reboot is required.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{ArgGroup, Args};

use super::host::{self, Message};
use super::output;
use refit_api::SentinelName;
use refit_cluster::node::{RebootWhen, keep};

#[derive(Args, Clone, Debug)]
#[command(group = ArgGroup::new("when").required(true).args(["always", "required_files"]))]
pub(super) struct Flags {
    /// Name of the sentinel: <plan uid>.<node uid>.<hash>
    #[arg(long, value_name = "NAME")]
    name: SentinelName,

    /// Require a reboot in any case
    #[arg(long)]
    always: bool,

    /// Require a reboot if this file exists on the host. May be repeated
    #[arg(long = "required-file", value_name = "PATH")]
    required_files: Vec<String>,

    /// Where the host's root directory is mounted
    #[arg(long, value_name = "DIR", default_value = "/host")]
    host: PathBuf,

    #[command(flatten)]
    message: Message,
}

pub(super) fn run(flags: Flags) -> anyhow::Result<ExitCode> {
    let host = host::mounted(&flags.host)?;
    let message = flags.message.open()?;
    let when = if flags.always {
        RebootWhen::Always
    } else {
        RebootWhen::IfPresent(flags.required_files)
    };
    let report = keep(&host, &flags.name, &when)?.to_text();
    message.write(&report)?;
    output::json(&format!("{report}\n"))?;
    Ok(ExitCode::SUCCESS)
}
