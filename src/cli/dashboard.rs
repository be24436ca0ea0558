//! `refit dashboard`: the roll-outs of a cluster as a page, for the browser of this machine or as a file.

mod document;
mod follow;
mod server;
mod summary;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use clap::Args;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::target::{self, ClusterFlags, with_client};
use super::{USAGE, html, output};
use refit_cluster::clock::Clock;

pub(super) const EXAMPLES: &str = "Examples:
  refit dashboard
      serve the page of the current context until Ctrl-C, and print its address
  refit dashboard -A --port 0
      the Plans of all namespaces, at any free port
  refit dashboard --html rollouts.html
      write the page as it is now, to send it to someone";

#[derive(Args, Clone, Debug)]
pub(super) struct Flags {
    /// Port on 127.0.0.1; 0 means any free one
    #[arg(long, value_name = "PORT", default_value_t = 8090, conflicts_with = "html")]
    port: u16,

    /// Write the page as it is now to this file, or to standard output for -, and end
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    #[command(flatten)]
    place: ClusterFlags,
}

pub(super) fn run(flags: &Flags) -> anyhow::Result<ExitCode> {
    match &flags.html {
        Some(path) => write(flags, path),
        None => serve(flags),
    }
}

/// Writes the page, without a timeline before now.
fn write(flags: &Flags, path: &Path) -> anyhow::Result<ExitCode> {
    let is_stdout = path == Path::new("-");
    if !is_stdout && let Err(error) = html::check(path) {
        output::error(error);
        return Ok(ExitCode::from(USAGE));
    }
    let snapshot = with_client(&flags.place.connection, async |client| {
        let scope = flags.place.scope(&client, None).await;
        target::read(&client, &scope).await
    })?;
    let document = document::document(&snapshot, &BTreeMap::new(), None);
    if is_stdout {
        output::data(&html::text(&document)?).context("the page cannot be printed")?;
    } else {
        html::write(path, &document)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn serve(flags: &Flags) -> anyhow::Result<ExitCode> {
    with_client(&flags.place.connection, async |client| {
        // Loopback alone: the page shows what the user of this kubeconfig may read, to whoever reaches the port.
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, flags.port))
            .await
            .with_context(|| {
                format!(
                    "cannot listen on port {} of 127.0.0.1; --port sets another one, 0 any free one",
                    flags.port
                )
            })?;
        let scope = flags.place.scope(&client, None).await;
        let snapshot = target::read_plans(&client, &scope).await?;
        let mut follower = follow::Follower::new(client, Clock::system(), snapshot);
        let first = follower.first().await?;
        output::text(&format!("http://{}/\n", listener.local_addr()?))
            .context("the address cannot be printed")?;
        let (publish, live) = watch::channel(Arc::new(first));
        tokio::select! {
            () = follower.run(&publish) => {}
            () = server::serve(listener, live) => {}
        }
        Ok(ExitCode::SUCCESS)
    })
}
