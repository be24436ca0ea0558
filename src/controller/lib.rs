//! The controller around the pure core: watches fill `ClusterState`, `decide` decides, and `act` carries out the steps.
//!
//! The pipeline is observe → validate → resolve → decide → act → report. Only this module and its submodules write to
//! the cluster, and only while this process leads.

#![forbid(unsafe_code)]

pub mod act;
mod clock_watch;
pub mod crd;
pub mod engine;
pub mod events;
#[cfg(test)]
mod fixture;
pub mod lanes;
mod leader_tasks;
pub mod lease;
mod maintenance;
pub mod metrics;
mod node_lease;
mod node_ops;
mod notify;
mod observe;
pub mod outbox;
pub mod own_image;
mod reports;
pub mod server;
pub mod settings;
mod story;
pub mod telemetry;
mod wanted;
mod watches;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event as CoreEvent, Namespace};
use kube::Client;
use kube::api::{Api, PostParams};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crd::CrdError;
use events::Source;
use leader_tasks::{LeaderTasks, Shared};
use lease::{Elector, Progress};
use metrics::Metrics;
use server::{Listener, ServerError};
use settings::Settings;

use refit_api::Reason;
use refit_channel::{ChannelClient, SetupError};
use refit_cluster::clock::Clock;
use refit_cluster::kube::client::{AGENT, ApiServer, ClientError};
use refit_cluster::kube::{Leadership, brief};

/// Name and version of refit in Events.
const PROGRAM: &str = concat!("refit ", env!("CARGO_PKG_VERSION"));
/// Time for steps in flight to end after a shutdown signal. Less than the 30 seconds that kubelets give by default.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(8);
/// How long the loop computes before `/livez` fails, at least; otherwise twice the renew deadline. Later than the election,
/// which gives the Lease back and ends the process by itself: this is for a controller without one.
const MIN_LIVE_LIMIT: Duration = Duration::from_secs(60);

/// Why the controller ended without a shutdown signal.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the API server cannot be queried")]
    Client(#[from] ClientError),
    #[error("cannot get namespaces kube-system, whose UID names the cluster: {0}")]
    ClusterId(String),
    #[error("the CRD cannot be used")]
    Crd(#[from] CrdError),
    #[error("channels cannot be queried")]
    Channels(#[from] SetupError),
    #[error("cannot query the controller's permissions: {0}")]
    Permissions(String),
    #[error(transparent)]
    Server(#[from] ServerError),
    /// This process has lost the leadership and must exit.
    #[error("leaderelection lost for {0}")]
    LeaseLost(String),
}

/// External dependencies of the controller, which tests replace.
pub struct Dependencies {
    pub server: ApiServer,
    pub clock: Clock,
    /// Polls channels. If absent, over the network, as the settings say.
    pub channels: Option<ChannelClient>,
    /// Where metrics and probes are served, if anywhere.
    pub listener: Option<Listener>,
}

/// Runs the controller until `shutdown` (S4).
///
/// # Errors
/// Fails if the API server cannot be reached or refuses a read at the start, the CRD cannot be used, the address for metrics
/// cannot be bound, or the Lease is lost.
pub async fn run(
    settings: Settings,
    clock: Clock,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), Error> {
    let server = ApiServer::find(&settings.api, &settings.proxies).await?;
    // Before anything is written: an address that is taken ends the program, and not one that leads.
    let listener = match &settings.serving {
        Some(serving) => Listener::bind(serving).await?,
        None => None,
    };
    let dependencies = Dependencies {
        server,
        clock,
        channels: None,
        listener,
    };
    run_with(dependencies, settings, shutdown).await
}

/// As [`run`], with other dependencies.
///
/// # Errors
/// Fails as [`run`].
pub async fn run_with(
    dependencies: Dependencies,
    settings: Settings,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), Error> {
    let Dependencies {
        server,
        clock,
        channels,
        listener,
    } = dependencies;
    let unguarded = server.unguarded()?;
    // Lasts longer than the tasks of a leader, so that it is known which of them is stuck.
    let (progress, restored) = (Progress::default(), Arc::new(Notify::new()));
    let metrics = Metrics::new(Arc::clone(server.requests()), progress.clone());
    let serving = listener.map(|listener| serve(listener, &metrics, &unguarded, &settings));
    announce(&server, &settings);
    tokio::pin!(shutdown);
    let start = async {
        let cluster_id = cluster_id(&unguarded).await?;
        let registered = crd::register(unguarded.clone(), settings.manage_crd).await?;
        Ok::<_, Error>((cluster_id, registered))
    };
    // `biased` here and elsewhere: tokio polls in random order, and a simulation could not be repeated.
    let (cluster_id, registered) = tokio::select! {
        biased;
        started = start => started?,
        () = &mut shutdown => return Ok(()),
    };
    // Report errors in certificate files before this process leads.
    let channels = match channels {
        Some(channels) => channels,
        None => channel_client(&settings, &cluster_id)?,
    };

    let source = source(&settings);
    let mut plans_note = None;
    let (leadership, lease) = if settings.leader_elect {
        let text = format!(
            "{PROGRAM} starting leader election for {}/{}",
            settings.namespace, settings.name
        );
        write_node_event(&unguarded, &source, Reason::Starting, &text, &clock).await;
        let elector = elector(&settings, unguarded.clone(), clock.clone())
            .depending_on(progress.clone(), Arc::clone(&restored));
        let leadership = elector.leadership();
        metrics.set_leadership(leadership.clone());
        plans_note = Some(elector.plans_note());
        let lease = elector.start();
        tokio::select! {
            biased;
            () = leadership.wait_until_leader() => {}
            () = &mut shutdown => {
                lease.release().await;
                return Ok(());
            }
        }
        (leadership, Some(lease))
    } else {
        metrics.set_leadership(Leadership::always());
        (Leadership::always(), None)
    };

    let client = server.guarded(leadership.clone())?;
    let shared = Shared {
        source,
        channels,
        clock,
        progress,
        restored: Arc::clone(&restored),
        metrics,
        is_served: serving.is_some(),
        plans_note,
        leadership: leadership.clone(),
        cluster_id,
    };
    loop {
        let clients = [client.clone(), unguarded.clone()];
        let mut tasks = LeaderTasks::open(&settings, clients, shared.clone(), registered).await?;
        let is_over = tokio::select! {
            biased;
            // Nothing is waited for: another process may lead already, and the client's guard refuses all later writes.
            () = leadership.lost() => return Err(Error::LeaseLost(settings.name)),
            () = tasks.run() => true,
            () = restored.notified() => false,
            () = &mut shutdown => true,
        };
        if is_over {
            tracing::info!("ending");
            tasks.stop().await;
            break;
        }
        tracing::warn!(
            "the resource versions of the API server went back, as after a restore of etcd; refit drops its state and reads everything again"
        );
        tasks.stop().await;
    }
    if let Some(lease) = lease {
        lease.release().await;
    }
    Ok(())
}

fn announce(server: &ApiServer, settings: &Settings) {
    tracing::info!(
        server = server.url(),
        namespace = settings.namespace,
        name = settings.name,
        "{PROGRAM}"
    );
}

/// Serves metrics and probes until it is dropped. From the start of the process, because a kubelet ends one that does not
/// answer, however slow the API server is.
fn serve(listener: Listener, metrics: &Metrics, client: &Client, settings: &Settings) -> JoinSet<()> {
    let live_limit = MIN_LIVE_LIMIT.max(settings.lease.renew_deadline * 2);
    let mut serving = JoinSet::new();
    serving.spawn(listener.serve(metrics.clone(), client.clone(), live_limit));
    serving
}

/// The candidate for the Lease of this controller.
fn elector(settings: &Settings, client: Client, clock: Clock) -> Elector {
    let Settings {
        namespace,
        name,
        identity,
        lease,
        ..
    } = settings;
    Elector::new(client, namespace, name, identity, *lease, clock)
}

/// The source of this process' events.
fn source(settings: &Settings) -> Source {
    Source {
        controller: settings.name.clone(),
        node_name: settings.node_name.clone(),
        namespace: settings.namespace.clone(),
    }
}

fn channel_client(settings: &Settings, cluster_id: &str) -> Result<ChannelClient, Error> {
    let (proxies, hosts) = (settings.proxies.clone(), settings.channel_hosts.clone());
    Ok(ChannelClient::new(
        &settings.ca_files,
        cluster_id,
        AGENT,
        proxies,
        hosts,
    )?)
}

/// UID of the namespace `kube-system`, which identifies the cluster to channels (S4, S45).
async fn cluster_id(client: &Client) -> Result<String, Error> {
    let namespace = Api::<Namespace>::all(client.clone()).get("kube-system").await;
    let namespace = namespace.map_err(|error| Error::ClusterId(brief(&error)))?;
    Ok(namespace.metadata.uid.unwrap_or_default())
}

/// Writes an event about this process to its Node. A failure is only logged.
async fn write_node_event(client: &Client, source: &Source, reason: Reason, text: &str, clock: &Clock) {
    let event = source.node_event(reason, text, clock.now());
    // The API server demands this namespace for events about objects without one (pkg/apis/core/validation/events.go).
    let api = Api::<CoreEvent>::namespaced(client.clone(), "default");
    if let Err(error) = api.create(&PostParams::default(), &event).await {
        tracing::warn!(
            reason = reason.name(),
            error = brief(&error),
            "cannot write an event"
        );
    }
}
