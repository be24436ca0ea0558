//! `refit explain`: why a Plan or a node does not go on.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use kube::Client;

use super::output;
use super::target::{Format, Place, check_nodes, find, with_client};
use crate::view::{explain_node, explain_plan};

pub(super) const EXAMPLES: &str = "Examples:
  refit explain server
      what holds the Plan, down to the object, and the command that would release it
  refit explain server node-7
      the same for one node, with its history";

#[derive(Args, Clone, Debug)]
pub(super) struct Flags {
    /// The Plan
    #[arg(value_name = "[NAMESPACE/]PLAN")]
    plan: String,

    /// A node, selected by the Plan or not
    #[arg(value_name = "NODE")]
    node: Option<String>,

    /// Format of the output
    #[arg(short = 'o', long, value_name = "FORMAT", value_enum, default_value = "text")]
    output: Format,

    #[command(flatten)]
    place: Place,
}

pub(super) fn run(flags: &Flags) -> anyhow::Result<ExitCode> {
    with_client(&flags.place.connection, async |client: Client| {
        let snapshot = flags.place.read(&client, Some(&flags.plan)).await?;
        let view = find(&snapshot, flags.place.namespace.as_deref(), &flags.plan)?;
        let explanation = match &flags.node {
            Some(node) => {
                check_nodes(&view, std::slice::from_ref(node))?;
                explain_node(&view, node)
            }
            None => explain_plan(&view),
        };
        for gap in &snapshot.gaps {
            output::note(format_args!("note: {gap}"));
        }
        if flags.output.is_data() {
            flags.output.print(&explanation.to_json())?;
        } else {
            output::text(&explanation.to_text()).context("the explanation cannot be printed")?;
        }
        Ok(if explanation.held {
            ExitCode::FAILURE
        } else {
            ExitCode::SUCCESS
        })
    })
}
