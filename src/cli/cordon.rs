//! `refit cordon` and `refit uncordon`: make nodes unschedulable, or schedulable again.

use std::process::ExitCode;

use clap::Args;

use super::cluster::{self, Connection, Mode};
use refit_cluster::drain::flags::NodeArgs;

#[derive(Args, Clone, Debug)]
pub(super) struct Flags {
    #[command(flatten)]
    nodes: NodeArgs,
    #[command(flatten)]
    mode: Mode,
    #[command(flatten)]
    connection: Connection,
}

pub(super) fn cordon(flags: &Flags) -> anyhow::Result<ExitCode> {
    let which = flags.nodes.which();
    cluster::run(&flags.connection, &flags.mode, async move |session| {
        session.cordon(&which).await
    })
}

pub(super) fn uncordon(flags: &Flags) -> anyhow::Result<ExitCode> {
    let which = flags.nodes.which();
    cluster::run(&flags.connection, &flags.mode, async move |session| {
        session.uncordon(&which).await
    })
}
