//! Common parts of the commands that talk to a cluster: connection, output format, dry run and exit codes.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use kube::Client;
use kube::api::ListParams;
use kube::config::Kubeconfig;
use kube::core::Request;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::output;
use super::output_format::{OutputFormat, any_of};
use refit_base::go::GoDuration;
use refit_base::proxy::ProxyEnv;
use refit_cluster::clock::Clock;
use refit_cluster::drain::{DryRun, Event, Failure, PlanRun, Session};
use refit_cluster::kube::client::{ApiServer, ApiSource};
use refit_cluster::kube::read;
use refit_rehearse::json::Value;

/// Items per page of a list: the default of `kubectl get --chunk-size`.
const PAGE: u32 = 500;
/// The time limit of a request without one.
const NO_LIMIT: Duration = Duration::from_secs(24 * 60 * 60);
/// Where a pod finds its namespace.
const POD_NAMESPACE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Cluster")]
pub(super) struct Connection {
    /// Kubeconfig file [default: the pod's service account, or outside of a pod $KUBECONFIG or ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig, instead of its current one
    #[arg(long, value_name = "NAME")]
    pub(super) context: Option<String>,

    /// User to impersonate
    #[arg(long = "as", value_name = "USER")]
    pub(super) impersonate: Option<String>,

    /// Group to impersonate, with --as; can be repeated
    #[arg(long = "as-group", value_name = "GROUP", requires = "impersonate")]
    pub(super) impersonate_groups: Vec<String>,

    /// Time limit of each request, such as 30s [default: 10s]
    #[arg(long, value_name = "DURATION")]
    pub(super) request_timeout: Option<GoDuration>,
}

impl Connection {
    /// A client that never retries a write.
    pub(super) async fn client(&self) -> anyhow::Result<Client> {
        let lookup = |name: &str| std::env::var(name).ok();
        let source = ApiSource {
            kubeconfig: self.kubeconfig.clone(),
            master: None,
            context: self.context.clone(),
            in_cluster: is_in_cluster(),
            impersonate: self.impersonate.clone(),
            impersonate_groups: self.impersonate_groups.clone(),
            request_timeout: self.request_timeout.and_then(limit),
        };
        let server = ApiServer::find(&source, &ProxyEnv::read(lookup)?).await?;
        Ok(server.on_node()?)
    }

    /// The namespace that the context names, or in a pod that of the pod.
    pub(super) fn namespace(&self) -> Option<String> {
        let namespace = if self.kubeconfig.is_none() && self.context.is_none() && is_in_cluster() {
            std::fs::read_to_string(POD_NAMESPACE).ok()?.trim().to_owned()
        } else {
            let path = self.kubeconfig.as_ref();
            let read = path.map_or_else(Kubeconfig::read, Kubeconfig::read_from).ok()?;
            let current = self.context.clone().or(read.current_context)?;
            let mut contexts = read.contexts.into_iter();
            contexts.find(|one| one.name == current)?.context?.namespace?
        };
        Some(namespace).filter(|namespace| !namespace.is_empty())
    }
}

/// As in kubectl, 0 means no limit.
fn limit(timeout: GoDuration) -> Option<Duration> {
    let limit = timeout.to_std()?;
    Some(if limit.is_zero() { NO_LIMIT } else { limit })
}

fn is_in_cluster() -> bool {
    std::env::var_os("KUBERNETES_SERVICE_HOST").is_some_and(|host| !host.is_empty())
}

/// Lists objects. `path` ends with the plural, after group, version and namespace.
pub(super) async fn list(client: &Client, path: &str, kind: &str) -> Result<Vec<Value>, kube::Error> {
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let version = match parts.as_slice() {
        ["api", version, ..] => (*version).to_owned(),
        ["apis", group, version, ..] => format!("{group}/{version}"),
        _ => String::new(),
    };
    let pages = ListParams::default().limit(PAGE);
    let items: Vec<Value> = read::list(client, &Request::new(path), pages, false).await?;
    // Items of a list have neither apiVersion nor kind.
    let whole = items.into_iter().map(|mut item| {
        item["apiVersion"] = version.as_str().into();
        item["kind"] = kind.into();
        item
    });
    Ok(whole.collect())
}

#[derive(Args, Clone, Debug)]
pub(super) struct DryRunFlag {
    /// none, client (only print; also without a value) or server (send the requests as a dry run)
    #[arg(long, value_name = "none|client|server", num_args = 0..=1, require_equals = true, default_value = "none",
          default_missing_value = "client", hide_default_value = true, value_parser = dry_run)]
    pub(super) dry_run: DryRun,
}

#[derive(Args, Clone, Debug)]
pub(super) struct Mode {
    #[command(flatten)]
    pub(super) dry_run: DryRunFlag,

    /// Format of the output
    #[arg(short = 'o', long, value_name = "FORMAT", default_value = "text", value_parser = any_of(&[OutputFormat::Text, OutputFormat::Json]))]
    pub(super) output: OutputFormat,
}

/// kubectl also accepts a bool: `true` means client, `false` none.
fn dry_run(value: &str) -> Result<DryRun, String> {
    match value {
        "none" | "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(DryRun::None),
        "client" | "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(DryRun::Client),
        "server" => Ok(DryRun::Server),
        _ => Err("must be none, client or server".to_owned()),
    }
}

pub(super) fn runtime() -> anyhow::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the runtime cannot be started")
}

/// Runs `work` in a session and returns its exit code: 0, 1, or 128 plus the signal.
pub(super) fn run(
    connection: &Connection,
    mode: &Mode,
    work: impl AsyncFnOnce(Session) -> Result<(), Failure>,
) -> anyhow::Result<ExitCode> {
    let runtime = runtime()?;
    let ended = runtime.block_on(async {
        let stop = signals().context("signals cannot be handled")?;
        let session = session(connection, mode, stop).await?;
        Ok::<_, anyhow::Error>(work(session).await)
    })?;
    // A name resolution that hangs on its thread would delay the exit.
    runtime.shutdown_background();
    Ok(match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::error(&failure);
            ExitCode::from(failure.exit_code)
        }
    })
}

async fn session(
    connection: &Connection,
    mode: &Mode,
    stop: watch::Receiver<Option<&'static str>>,
) -> anyhow::Result<Session> {
    let client = connection.client().await?;
    let clock = Clock::system();
    let (format, dry_run, times) = (mode.output, mode.dry_run.dry_run, clock.clone());
    let sender = move |event: Event| match format {
        // If standard output is closed, the work continues without it.
        OutputFormat::Json => drop(output::json(&format!(
            "{}\n",
            event.to_json(dry_run, times.now())
        ))),
        _ if event.is_data() => drop(output::text(&format!("{}\n", event.to_line(dry_run)))),
        _ => output::note(event.to_line(dry_run)),
    };
    Ok(Session {
        client,
        clock,
        plan: PlanRun::read(|name| std::env::var(name).ok()),
        dry_run,
        report: Arc::new(sender),
        changes: None,
        stop,
    })
}

/// A second signal within this time is ignored: `timeout` and process managers signal a process and its group.
const SIGNAL_DEBOUNCE: Duration = Duration::from_secs(1);

/// Receives the first SIGTERM or SIGINT. A later one ends the process at once.
pub(super) fn signals() -> std::io::Result<watch::Receiver<Option<&'static str>>> {
    let mut term = signal(SignalKind::terminate())?;
    let mut int = signal(SignalKind::interrupt())?;
    let (sender, receiver) = watch::channel(None);
    tokio::spawn(async move {
        let mut first = None;
        loop {
            let name = tokio::select! {
                _ = term.recv() => "SIGTERM",
                _ = int.recv() => "SIGINT",
            };
            let first = *first.get_or_insert_with(tokio::time::Instant::now);
            if first.elapsed() > SIGNAL_DEBOUNCE {
                std::process::exit(1);
            }
            sender.send_if_modified(|known| known.is_none() && known.replace(name).is_none());
        }
    });
    Ok(receiver)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_namespace_is_that_of_the_chosen_context() {
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("config");
        let text = "{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: c, user: u, namespace: \
                    team}}, {name: b, context: {cluster: c, user: u}}]}";
        std::fs::write(&kubeconfig, text).unwrap();
        let of = |context: Option<&str>| {
            let connection = Connection {
                kubeconfig: Some(kubeconfig.clone()),
                context: context.map(str::to_owned),
                ..Connection::default()
            };
            connection.namespace()
        };
        assert_eq!(of(None).as_deref(), Some("team"));
        for other in ["b", "unknown"] {
            assert_eq!(of(Some(other)), None, "{other}");
        }
    }
}
