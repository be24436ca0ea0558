//! `refit crd`: prints the CRD of the Plan.

use std::process::ExitCode;

use anyhow::Context as _;

use super::output;

pub(super) fn run() -> anyhow::Result<ExitCode> {
    output::data(&refit_api::crd::to_yaml()?).context("the CRD cannot be printed")?;
    Ok(ExitCode::SUCCESS)
}
