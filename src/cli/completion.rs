//! `refit completion`: prints what a shell completes the commands and flags with.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Command};
use clap_complete::Shell;

use super::output;

pub(super) const EXAMPLES: &str = "\
Examples:
  # for this session of bash
  source <(refit completion bash)

  # for every session: bash, zsh (a folder of $fpath) and fish
  refit completion bash > /etc/bash_completion.d/refit
  refit completion zsh > \"${fpath[1]}/_refit\"
  refit completion fish > ~/.config/fish/completions/refit.fish";

#[derive(Args, Debug)]
pub(super) struct Flags {
    /// Shell to complete for
    shell: Shell,
}

pub(super) fn run(flags: &Flags, mut command: Command) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(flags.shell, &mut command, "refit", &mut script);
    let script = String::from_utf8(script).context("the completion script is not text")?;
    output::data(&script).context("the completion script cannot be printed")?;
    Ok(ExitCode::SUCCESS)
}
