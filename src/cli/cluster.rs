//! What the commands that talk to a cluster have in common: where it is, what is told and how, and how they end.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use kube::Client;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::output;
use crate::clock::Clock;
use crate::controller::client::{ApiServer, ApiSource};
use crate::drain::{DryRun, Event, Failure, PlanRun, Session, Which};
use crate::proxy::ProxyEnv;

/// Where the cluster is.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Cluster")]
pub(super) struct Connection {
    /// Kubeconfig file [default: the pod's service account, or outside of a pod $KUBECONFIG or ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig, in place of its current one
    #[arg(long, value_name = "NAME")]
    pub(super) context: Option<String>,
}

impl Connection {
    /// A handle on the API server that tries no write twice.
    pub(super) async fn client(&self) -> anyhow::Result<Client> {
        let lookup = |name: &str| std::env::var(name).ok();
        let source = ApiSource {
            kubeconfig: self.kubeconfig.clone(),
            master: None,
            context: self.context.clone(),
            in_cluster: lookup("KUBERNETES_SERVICE_HOST").is_some_and(|host| !host.is_empty()),
        };
        let server = ApiServer::find(&source, &ProxyEnv::read(lookup)?).await?;
        Ok(server.on_node()?)
    }
}

/// What is told, and how.
#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Format {
    /// Lines as kubectl writes them
    #[default]
    Text,
    /// An object per line, on standard output
    Json,
}

/// Which nodes, and how.
#[derive(Args, Clone, Debug)]
pub(super) struct Nodes {
    /// Names of nodes
    #[arg(
        value_name = "NODE",
        required_unless_present = "selector",
        conflicts_with = "selector"
    )]
    pub(super) names: Vec<String>,

    /// Nodes with these labels, in place of names: a=b,c!=d,e in (f,g),!h
    #[arg(short = 'l', long, allow_hyphen_values = true, value_parser = selector)]
    pub(super) selector: Option<String>,

    /// none, client (only tell) or server (ask the API server, and change nothing)
    #[arg(long, value_name = "none|client|server", num_args = 0..=1, require_equals = true, default_value = "none",
          default_missing_value = "client", hide_default_value = true, value_parser = dry_run)]
    pub(super) dry_run: DryRun,

    /// How it is told what happens
    #[arg(short = 'o', long, value_name = "FORMAT", value_enum, default_value = "text")]
    pub(super) output: Format,
}

impl Nodes {
    /// The nodes that are meant. As with kubectl, `node/one` is the node `one`.
    pub(super) fn which(&self) -> Which {
        let name = |name: &String| match name.split_once('/') {
            Some(("node" | "nodes" | "no", name)) => name.to_owned(),
            _ => name.clone(),
        };
        match &self.selector {
            Some(selector) => Which::Selector(selector.clone()),
            None => Which::Names(self.names.iter().map(name).collect()),
        }
    }
}

/// kubectl takes a bool for client and none as well.
fn dry_run(value: &str) -> Result<DryRun, String> {
    match value {
        "none" | "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(DryRun::None),
        "client" | "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(DryRun::Client),
        "server" => Ok(DryRun::Server),
        _ => Err("must be none, client or server".to_owned()),
    }
}

/// A label selector as kubectl writes it, checked.
pub(super) fn selector(value: &str) -> Result<String, String> {
    let parsed: Result<crate::api::selector::Selector, _> = value.parse();
    match parsed {
        Ok(_) => Ok(value.to_owned()),
        Err(error) => Err(format!("must be a valid label selector: {error}")),
    }
}

/// Runs `work` in a session, and turns how it ended into an exit code: 0, 1, or as the shell tells of a signal.
pub(super) fn run(
    connection: &Connection,
    nodes: &Nodes,
    work: impl AsyncFnOnce(Session) -> Result<(), Failure>,
) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the runtime cannot be started")?;
    let ended = runtime.block_on(async {
        let stop = signals().context("signals cannot be handled")?;
        let session = session(connection, nodes, stop).await?;
        Ok::<_, anyhow::Error>(work(session).await)
    })?;
    // What still runs on a thread of its own, such as a name being looked up, is not waited for.
    runtime.shutdown_background();
    Ok(match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::error(&failure);
            match failure {
                Failure::Stopped { signal: "SIGINT", .. } => ExitCode::from(128 + 2),
                Failure::Stopped { .. } => ExitCode::from(128 + 15),
                Failure::Failed(_) => ExitCode::FAILURE,
            }
        }
    })
}

async fn session(
    connection: &Connection,
    nodes: &Nodes,
    stop: watch::Receiver<Option<&'static str>>,
) -> anyhow::Result<Session> {
    let client = connection.client().await?;
    let clock = Clock::system();
    let (format, dry_run, times) = (nodes.output, nodes.dry_run, clock.clone());
    let tell = move |event: Event| match format {
        // With nobody to tell, there is nothing left to do but the work.
        Format::Json => drop(output::data(&format!(
            "{}\n",
            event.to_json(dry_run, times.now())
        ))),
        Format::Text if event.is_data() => drop(output::data(&format!("{}\n", event.to_line(dry_run)))),
        Format::Text => output::note(event.to_line(dry_run)),
    };
    Ok(Session {
        client,
        clock,
        plan: PlanRun::read(|name| std::env::var(name).ok()),
        dry_run,
        tell: Arc::new(tell),
        stop,
    })
}

/// Signals that come so soon after the first one say nothing new.
const SAME_WISH: Duration = Duration::from_secs(1);

/// Tells of the first SIGTERM or SIGINT. One that comes later ends the process on the spot.
fn signals() -> std::io::Result<watch::Receiver<Option<&'static str>>> {
    let mut term = signal(SignalKind::terminate())?;
    let mut int = signal(SignalKind::interrupt())?;
    let (tell, told) = watch::channel(None);
    tokio::spawn(async move {
        let mut first = None;
        loop {
            let name = tokio::select! {
                _ = term.recv() => "SIGTERM",
                _ = int.recv() => "SIGINT",
            };
            let first = *first.get_or_insert_with(tokio::time::Instant::now);
            if first.elapsed() > SAME_WISH {
                std::process::exit(1);
            }
            tell.send_if_modified(|known| known.is_none() && known.replace(name).is_none());
        }
    });
    Ok(told)
}
