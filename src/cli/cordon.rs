//! `refit cordon` and `refit uncordon`: make nodes unschedulable, or schedulable again.

use std::process::ExitCode;

use clap::Args;

use super::cluster::{self, Connection, Nodes};
use crate::drain::Which;

/// Arguments of `refit cordon` and `refit uncordon`.
#[derive(Args, Clone, Debug)]
pub(super) struct Flags {
    #[command(flatten)]
    nodes: Nodes,
    #[command(flatten)]
    connection: Connection,
}

impl Flags {
    /// The nodes that are meant.
    pub(super) fn which(&self) -> Which {
        self.nodes.which()
    }
}

pub(super) fn cordon(flags: &Flags) -> anyhow::Result<ExitCode> {
    let which = flags.nodes.which();
    cluster::run(&flags.connection, &flags.nodes, async move |session| {
        session.cordon(&which).await
    })
}

pub(super) fn uncordon(flags: &Flags) -> anyhow::Result<ExitCode> {
    let which = flags.nodes.which();
    cluster::run(&flags.connection, &flags.nodes, async move |session| {
        session.uncordon(&which).await
    })
}
