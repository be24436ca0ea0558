//! `refit report`: what was done where and when, for audits.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use kube::Client;

use super::output;
use super::target::{ClusterFlags, find, with_client};
use refit_view::report::Report;

#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Format {
    /// A document with tables
    #[default]
    Markdown,
    /// One object
    Json,
    /// A page without scripts or references
    Html,
}

#[derive(Args, Clone, Debug)]
pub(super) struct Flags {
    /// Plan by name; NAMESPACE/ is needed only if Plans of several namespaces have this name
    #[arg(value_name = "[NAMESPACE/]PLAN")]
    plan: String,

    /// Format of the output
    #[arg(
        short = 'o',
        long,
        value_name = "FORMAT",
        value_enum,
        default_value = "markdown"
    )]
    output: Format,

    #[command(flatten)]
    place: ClusterFlags,
}

pub(super) fn run(flags: &Flags) -> anyhow::Result<ExitCode> {
    with_client(&flags.place.connection, async |client: Client| {
        let snapshot = flags.place.read(&client, Some(&flags.plan)).await?;
        let view = find(&snapshot, flags.place.namespace.as_deref(), &flags.plan)?;
        let report = Report::new(&view);
        let printed = match flags.output {
            Format::Markdown => output::text(&report.to_markdown()),
            Format::Json => output::json(&format!("{:#}\n", report.to_json())),
            Format::Html => output::text(&report.to_html()),
        };
        printed.context("the report cannot be printed")?;
        Ok(ExitCode::SUCCESS)
    })
}
