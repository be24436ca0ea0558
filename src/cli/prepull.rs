//! `refit prepull`: does nothing in the image that a kubelet is to pull, and lends that image the program to do so.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;

#[derive(Args, Clone, Debug)]
pub(super) struct Flags {
    /// Copy this program into a folder, as `refit`, for a container of another image
    #[arg(long, value_name = "DIR")]
    lend: Option<PathBuf>,
}

pub(super) fn run(flags: &Flags) -> anyhow::Result<ExitCode> {
    let Some(folder) = &flags.lend else {
        return Ok(ExitCode::SUCCESS);
    };
    let own = std::env::current_exe().context("the path of this program is not known")?;
    let copy = folder.join("refit");
    fs::copy(&own, &copy).with_context(|| format!("{} cannot be written", copy.display()))?;
    // Whatever user the other image has.
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755))
        .with_context(|| format!("{} cannot be made executable", copy.display()))?;
    Ok(ExitCode::SUCCESS)
}
