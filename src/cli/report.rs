//! `refit report`: what was done where and when, for audits.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use kube::Client;

use super::output;
use super::output_format::{OutputFormat, any_of};
use super::target::{self, ClusterFlags, find, with_client};
use refit_view::report::Report;

pub(super) const EXAMPLES: &str = "Examples:
  refit report k3s-agent > k3s-agent.md
      which nodes were upgraded, when and how, as Markdown
  refit report k3s-agent -o html > k3s-agent.html
      as a page";

#[derive(Args, Clone, Debug)]
pub(super) struct Flags {
    /// Plan by name; NAMESPACE/ is needed only if Plans of several namespaces have this name
    #[arg(value_name = "[NAMESPACE/]PLAN")]
    plan: String,

    /// Format of the output
    #[arg(short = 'o', long, value_name = "FORMAT", default_value = "markdown", value_parser = any_of(&[OutputFormat::Markdown, OutputFormat::Json, OutputFormat::Html]))]
    output: OutputFormat,

    #[command(flatten)]
    place: ClusterFlags,
}

pub(super) fn run(flags: &Flags) -> anyhow::Result<ExitCode> {
    with_client(&flags.place.connection, async |client: Client| {
        let scope = flags.place.scope(&client, Some(&flags.plan)).await;
        let snapshot = target::read(&client, &scope).await?;
        let view = find(&snapshot, &flags.plan)?;
        let report = Report::new(&view);
        let printed = match flags.output {
            OutputFormat::Json => output::json(&format!("{:#}\n", report.to_json())),
            OutputFormat::Html => output::text(&report.to_html()),
            _ => output::text(&report.to_markdown()),
        };
        printed.context("the report cannot be printed")?;
        Ok(ExitCode::SUCCESS)
    })
}
