//! The controller around the pure core: watches fill `ClusterState`, `decide` decides, and `act` carries out the steps.
//!
//! The pipeline is observe → validate → resolve → decide → act → report. Only this module and its submodules write to
//! the cluster, and only while this process leads.

pub mod act;
pub mod crd;
pub mod engine;
pub mod events;
mod front_end;
pub mod lanes;
pub mod lease;
mod maintenance;
pub mod metrics;
mod node_ops;
mod notify;
pub mod observe;
pub mod outbox;
pub(crate) mod own_image;
pub mod server;
pub mod settings;
mod timeline;

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{Event as CoreEvent, Namespace};
use kube::Client;
use kube::api::{Api, PostParams};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;

use act::Actor;
use crd::{CrdError, Registered};
use engine::{Engine, Wanted};
use events::Source;
use lease::{Elector, LeaseLost, PlansNote, Progress};
use maintenance::FrontEnd;
use metrics::Metrics;
use node_ops::NodeOps;
use notify::{NotifyConfig, OutlookClient};
use observe::{Observer, QUEUE, Reports};
use outbox::Outbox;
use own_image::OwnImage;
use server::{Listener, ServerError};
use settings::{FrontEndName, Settings};

use crate::api::Reason;
use crate::channel::{ChannelClient, SetupError};
use crate::clock::Clock;
use crate::job::JobSettings;
use crate::kube::client::{AGENT, ApiServer, ClientError};
use crate::kube::objects::Intern;
use crate::kube::{Leadership, brief};
use crate::notify::Context;
use crate::rollout::facts::Text;
use crate::rollout::{ClusterState, Defaults, Grants, Kind, Observation};

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
    #[error(transparent)]
    LeaseLost(#[from] LeaseLost),
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
/// Fails if the controller cannot start or continue.
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
    let (leadership, mut lease) = if settings.leader_elect {
        let text = format!(
            "{PROGRAM} starting leader election for {}/{}",
            settings.namespace, settings.name
        );
        write_node_event(&unguarded, &source, Reason::Starting, &text, &clock).await;
        let elector = elector(&settings, unguarded.clone(), clock.clone())
            .depending_on(progress.clone(), Arc::clone(&restored));
        let (leadership, lost) = (elector.leadership(), elector.lost());
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
        (leadership, Some((lease, lost)))
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
        let ended = tokio::select! {
            biased;
            () = leadership.lost() => Ended::LeadershipLost,
            () = tasks.run() => Ended::Watches,
            () = restored.notified() => Ended::Restored,
            () = &mut shutdown => Ended::Shutdown,
        };
        match (ended, lease) {
            (Ended::Restored, waits) => {
                tracing::warn!(
                    "the resource versions of the API server went back, as after a restore of etcd; refit drops its state and reads everything again"
                );
                tasks.stop().await;
                lease = waits;
            }
            (Ended::LeadershipLost, Some((_, error))) => return Err(error.into()),
            (_, lease) => {
                tracing::info!("ending");
                tasks.stop().await;
                if let Some((lease, _)) = lease {
                    lease.release().await;
                }
                return Ok(());
            }
        }
    }
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
    if settings.serving.as_ref().is_some_and(|serving| serving.dashboard) {
        metrics.keep_timeline();
    }
    let mut serving = JoinSet::new();
    serving.spawn(listener.serve(
        metrics.clone(),
        client.clone(),
        settings.namespace.clone(),
        live_limit,
    ));
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

/// Why the tasks of a leader ended.
enum Ended {
    LeadershipLost,
    Watches,
    Restored,
    Shutdown,
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
    let api = Api::<CoreEvent>::namespaced(client.clone(), "default");
    if let Err(error) = api.create(&PostParams::default(), &event).await {
        tracing::warn!(
            reason = reason.name(),
            error = brief(&error),
            "cannot write an event"
        );
    }
}

/// What the tasks of a leader share with the rest of the process.
#[derive(Clone)]
struct Shared {
    source: Source,
    channels: ChannelClient,
    clock: Clock,
    progress: Progress,
    restored: Arc<Notify>,
    metrics: Metrics,
    /// Whether anyone can ask for metrics.
    is_served: bool,
    /// Absent without leader election.
    plans_note: Option<PlansNote>,
    leadership: Leadership,
    /// UID of the namespace `kube-system`.
    cluster_id: String,
}

/// The tasks that run while this process leads.
struct LeaderTasks {
    /// The loop, in a task of its own: if it is stuck, the loss of the leadership still ends the process.
    engine: JoinSet<Engine>,
    /// Ends the loop.
    stop: watch::Sender<bool>,
    watches: JoinSet<()>,
    client: Client,
    source: Source,
    clock: Clock,
    listed: watch::Receiver<BTreeSet<Kind>>,
    observer: Observer,
    outbox: Outbox,
    maintenance: Option<FrontEnd>,
    node_ops: Option<NodeOps>,
    may_watch_pods: bool,
    pods_wanted: watch::Receiver<bool>,
    secrets_wanted: watch::Receiver<Arc<BTreeSet<Text>>>,
    relist_plans: watch::Receiver<()>,
    degraded: watch::Receiver<bool>,
}

/// Runs the loop in a task of its own until it is stopped.
fn spawn_until(mut engine: Engine, mut stopped: watch::Receiver<bool>) -> JoinSet<Engine> {
    let mut engines = JoinSet::new();
    engines.spawn(async move {
        tokio::select! {
            biased;
            () = engine.run() => {}
            _ = stopped.wait_for(|stopped| *stopped) => {}
        }
        engine
    });
    engines
}

async fn may_watch_pods(client: &Client, settings: &Settings) -> Result<bool, Error> {
    let may = act::permissions::may_watch_pods(client, &settings.namespace)
        .await
        .map_err(|error| Error::Permissions(brief(&error)))?;
    if !may {
        tracing::info!("the controller may not watch pods; it lists them while Jobs run");
    }
    Ok(may)
}

/// What sends notifications and keeps silences; nothing without a network.
fn notifier(
    settings: &Settings,
    client: &Client,
    shared: &Shared,
    outbox: &Outbox,
    outlook: OutlookClient,
) -> Option<notify::Shared> {
    Some(notify::Shared {
        client: client.clone(),
        webhooks: shared.channels.webhooks()?,
        leadership: shared.leadership.clone(),
        context: Arc::new(Context {
            cluster_id: shared.cluster_id.clone(),
            namespace: settings.namespace.clone(),
            controller: settings.name.clone(),
        }),
        clock: shared.clock.clone(),
        source: shared.source.clone(),
        outbox: outbox.clone(),
        metrics: shared.metrics.clone(),
        outlook,
    })
}

/// Searches for the controller's own image, and tells the loop.
async fn search_own_image(client: Client, settings: Settings, observations: mpsc::Sender<Observation>) {
    let OwnImage { image, pull_secrets } = own_image::search(&client, &settings).await;
    // Fails only if the loop has ended.
    let _ = observations
        .send(Observation::OwnImage(image, pull_secrets))
        .await;
}

/// What all Plans share.
fn defaults(settings: &Settings, job: JobSettings) -> Defaults {
    Defaults {
        namespace: settings.namespace.clone(),
        job,
        polling_interval: SignedDuration::try_from(settings.polling_interval).unwrap_or(SignedDuration::MAX),
        own_node: settings.node_name.as_str().into(),
        local_zone: jiff::tz::TimeZone::system(),
        has_front_ends: settings.enable.contains(&FrontEndName::Maintenance),
    }
}

impl LeaderTasks {
    async fn open(
        settings: &Settings,
        [client, unguarded]: [Client; 2],
        shared: Shared,
        registered: Registered,
    ) -> Result<Self, Error> {
        let (outlook_server, outlook) = notify::link();
        let (config_tx, config) = watch::channel(NotifyConfig::default());
        let (outbox, postman) = outbox::outbox();
        let notifier = notifier(settings, &client, &shared, &outbox, outlook);
        let Shared {
            source,
            channels,
            clock,
            progress,
            restored,
            metrics,
            is_served,
            plans_note,
            ..
        } = shared;
        let mut jobs = settings.jobs.clone();
        own_image::fill_in(&mut jobs, &unguarded, settings).await;
        let may_watch_pods = may_watch_pods(&unguarded, settings).await?;
        let intern = Intern::default();
        let ttl = i64::from(jobs.ttl_seconds_after_finish);
        let (observations, inbox) = mpsc::channel(QUEUE);
        let (pods_tx, pods_wanted) = watch::channel(false);
        let (secrets_tx, secrets_wanted) = watch::channel(Arc::default());
        let wanted = Wanted {
            pods: pods_tx,
            secrets: secrets_tx,
        };
        let (listed_tx, listed) = watch::channel(BTreeSet::new());
        let (relist_tx, relist_plans) = watch::channel(());
        let (degraded_tx, degraded) = watch::channel(false);
        let mut watches = JoinSet::new();
        watches.spawn(postman.run(client.clone()));
        if jobs.own_image.is_empty() && settings.api.in_cluster {
            let search = search_own_image(unguarded.clone(), settings.clone(), observations.clone());
            watches.spawn(search);
        }
        let observer = Observer {
            client: client.clone(),
            namespace: settings.namespace.clone(),
            controller: settings.name.clone(),
            ttl,
            observations,
            intern: intern.clone(),
            reports: Reports::new(outbox.clone(), source.clone(), clock.clone()),
            restored,
            metrics: metrics.clone(),
            notify: Arc::new(config_tx),
        };
        if let Some(notifier) = notifier {
            notifier.spawn(&mut watches, config, observer.observations.clone());
        }
        let (grants_tx, grants) = watch::channel(Grants::new());
        let maintenance = FrontEnd::if_enabled(settings, &observer, &outbox, &clock, grants);
        let node_ops = NodeOps::if_enabled(settings, &observer, &outbox, &clock);
        let cluster = ClusterState::new(defaults(settings, jobs));
        let actor = Actor {
            client: client.clone(),
            unguarded,
            source: source.clone(),
            channels,
            clock: clock.clone(),
            intern,
            ttl,
            outbox: outbox.clone(),
            waiting_for_events: Mutex::default(),
            degraded: degraded_tx,
        };
        let mut engine = Engine::new(cluster, actor, inbox, wanted, listed_tx, relist_tx, progress);
        // Without a listener nobody asks.
        if is_served {
            engine = engine.reporting_to(metrics.reporter(listed.clone()));
        }
        engine.answer_outlooks(outlook_server);
        engine.granting(grants_tx);
        if let Some(note) = plans_note {
            engine.keep_note(note);
        }
        if registered == Registered::Updated {
            engine.distrust_lists();
        }
        let (stop, stopped) = watch::channel(false);
        Ok(Self {
            engine: spawn_until(engine, stopped),
            stop,
            watches,
            client,
            source,
            clock,
            listed,
            observer,
            outbox,
            maintenance,
            node_ops,
            may_watch_pods,
            pods_wanted,
            secrets_wanted,
            relist_plans,
            degraded,
        })
    }

    /// Runs until it is dropped. The first lists run one after the other (see `observe`).
    async fn run(&mut self) {
        let Self {
            engine,
            watches,
            client,
            source,
            clock,
            listed,
            observer,
            maintenance,
            node_ops,
            may_watch_pods,
            pods_wanted,
            secrets_wanted,
            relist_plans,
            degraded,
            ..
        } = self;
        let opening = async {
            let until = async |kind: Kind| {
                let _ = listed.clone().wait_for(|listed| listed.contains(&kind)).await;
            };
            let watching = observer.clone();
            let (defined_tx, mut defined) = watch::channel(false);
            watches.spawn(watching.clone().schema(defined_tx));
            watches.spawn(watching.clone().secrets(secrets_wanted.clone()));
            if let Some(front_end) = maintenance.take() {
                watches.spawn(front_end.run());
            }
            if let Some(front_end) = node_ops.take() {
                watches.spawn(front_end.run());
            }
            watches.spawn(watching.clone().limits());
            watches.spawn(watching.clone().pods(*may_watch_pods, pods_wanted.clone()));
            watches.spawn(watching.clone().jobs());
            let (mut nodes, mut refused) = (listed.clone(), degraded.clone());
            let (plans, again) = (watching.clone(), relist_plans.clone());
            watches.spawn(async move {
                // If a kind cannot be listed, Plans are listed nevertheless, to report it on them.
                tokio::select! {
                    biased;
                    _ = nodes.wait_for(|listed| listed.contains(&Kind::Node)) => {}
                    _ = refused.wait_for(|degraded| *degraded) => {}
                }
                let _ = defined.wait_for(|defined| *defined).await;
                plans.plans(again).await;
            });
            until(Kind::Pod).await;
            until(Kind::Job).await;
            watches.spawn(watching.nodes());
            until(Kind::Node).await;
            until(Kind::Plan).await;
            let text = format!("{PROGRAM} running as {}/{}", source.namespace, source.controller);
            write_node_event(client, source, Reason::Started, &text, clock).await;
            tracing::info!("watching");
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            // A panic is a bug. The process ends rather than continue in an unknown state.
            ended = engine.join_next() => if let Some(Err(error)) = ended
                && error.is_panic()
            {
                std::panic::resume_unwind(error.into_panic());
            },
            () = opening => {}
        }
    }

    /// Starts no step, and waits for the steps in flight.
    async fn stop(mut self) {
        self.stop.send_replace(true);
        let finish = async {
            if let Some(Ok(mut engine)) = self.engine.join_next().await {
                engine.finish().await;
            }
        };
        if tokio::time::timeout(SHUTDOWN_GRACE, finish).await.is_err() {
            tracing::warn!("some requests got no answer");
        }
        self.watches.abort_all();
        let waiting = self.outbox.waiting();
        if waiting > 0 {
            tracing::warn!(waiting, "events that could not be written are lost");
        }
    }
}
