//! `refit sentinel`: notes on the host that the upgrade has succeeded, and says whether it has to reboot.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{ArgGroup, Args};

use super::host::{self, Message};
use super::output;
use crate::api::SentinelName;
use crate::node::{Wish, keep};

/// Arguments of `refit sentinel`.
#[derive(Args, Clone, Debug)]
#[command(group = ArgGroup::new("wish").required(true).args(["always", "required_files"]))]
pub(super) struct Flags {
    /// Name of the sentinel: <plan uid>.<node uid>.<hash>
    #[arg(long, value_name = "NAME")]
    name: SentinelName,

    /// The host has to reboot, whatever is there
    #[arg(long)]
    always: bool,

    /// The host has to reboot if this file is there, or another one that is named so
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
    let wish = if flags.always {
        Wish::Always
    } else {
        Wish::IfPresent(flags.required_files)
    };
    let report = keep(&host, &flags.name, &wish)?.to_text();
    message.write(&report)?;
    output::data(&format!("{report}\n"))?;
    Ok(ExitCode::SUCCESS)
}
