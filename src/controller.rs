//! The shell round the core: watches fill the world, `decide` answers, `act` carries it out.
//!
//! The pipeline is observe → validate → resolve → decide → act → report. Only this module and what is below it write to
//! the cluster, and only while this process leads.

pub mod act;
pub mod client;
pub mod crd;
pub mod engine;
pub mod events;
pub mod lease;
pub mod objects;
pub mod observe;
pub(crate) mod own_image;
pub mod put_off;
pub mod settings;

use std::collections::BTreeSet;
use std::future::Future;
use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{Event as CoreEvent, Namespace};
use kube::Client;
use kube::api::{Api, PostParams};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use act::Actor;
use client::{AGENT, ApiServer, ClientError, brief};
use crd::{CrdError, Registered};
use engine::Engine;
use events::Source;
use lease::{Elector, Leadership, LeaseHandle, LeaseLost};
use objects::Intern;
use observe::{Observer, QUEUE};
use settings::Settings;

use crate::channel::{ChannelClient, SetupError};
use crate::clock::Clock;
use crate::rollout::{Defaults, EventType, Kind, World};

/// What refit calls itself in Events.
const PROGRAM: &str = concat!("refit ", env!("CARGO_PKG_VERSION"));
/// How long steps that are under way may take to end when the process is told to.
const FAREWELL: Duration = Duration::from_secs(8);

/// Why the controller ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the API server cannot be asked")]
    Client(#[from] ClientError),
    #[error("cannot get namespaces kube-system, whose UID names the cluster: {0}")]
    ClusterId(String),
    #[error("the CRD cannot be used")]
    Crd(#[from] CrdError),
    #[error("channels cannot be asked")]
    Channels(#[from] SetupError),
    #[error("cannot ask what the controller may do: {0}")]
    Permissions(String),
    #[error(transparent)]
    LeaseLost(#[from] LeaseLost),
}

/// What the controller meets of the world outside of it.
pub struct Surroundings {
    /// The API server.
    pub server: ApiServer,
    /// The time of day.
    pub clock: Clock,
    /// Asks channels; absent means over the network, as the settings say.
    pub channels: Option<ChannelClient>,
}

/// Runs the controller until `shutdown` (S4), or until it cannot go on.
pub async fn run(
    settings: Settings,
    clock: Clock,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), Error> {
    let server = ApiServer::find(&settings.api, &settings.proxies).await?;
    let surroundings = Surroundings {
        server,
        clock,
        channels: None,
    };
    run_in(surroundings, settings, shutdown).await
}

/// As [`run`], in surroundings that may be others than the real ones.
pub async fn run_in(
    surroundings: Surroundings,
    settings: Settings,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), Error> {
    let Surroundings {
        server,
        clock,
        channels,
    } = surroundings;
    let unguarded = server.unguarded()?;
    tracing::info!(
        server = server.url(),
        namespace = settings.namespace,
        name = settings.name,
        "{PROGRAM}"
    );
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
    // What is wrong with its files is said before this process leads.
    let channels = match channels {
        Some(channels) => channels,
        None => ChannelClient::new(&settings.ca_files, &cluster_id, AGENT, settings.proxies.clone())?,
    };

    let source = Source {
        controller: settings.name.clone(),
        node_name: settings.node_name.clone(),
        namespace: settings.namespace.clone(),
    };
    let (leadership, lease) = if settings.leader_elect {
        let text = format!(
            "{PROGRAM} starting leader election for {}/{}",
            settings.namespace, settings.name
        );
        tell(&unguarded, &source, "Starting", &text, &clock).await;
        let elector = Elector::new(
            unguarded.clone(),
            &settings.namespace,
            &settings.name,
            &settings.identity,
            settings.lease,
            clock.clone(),
        );
        let (leadership, lost) = (elector.leadership(), elector.lost());
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
        (Leadership::always(), None)
    };

    let client = server.guarded(leadership.clone())?;
    let mut office = Office::open(&settings, client, unguarded, source, channels, clock).await?;
    if registered == Registered::Updated {
        office.engine.is_wary_of_lists();
    }
    let lost = tokio::select! {
        biased;
        () = leadership.lost() => true,
        () = office.work() => false,
        () = &mut shutdown => false,
    };
    match lease {
        Some((_, error)) if lost => Err(error.into()),
        lease => {
            office.close(lease.map(|(lease, _)| lease)).await;
            Ok(())
        }
    }
}

/// UID of the namespace `kube-system`, which channels are told as that of the cluster (S4, S45).
async fn cluster_id(client: &Client) -> Result<String, Error> {
    let namespace = Api::<Namespace>::all(client.clone()).get("kube-system").await;
    let namespace = namespace.map_err(|error| Error::ClusterId(brief(&error)))?;
    Ok(namespace.metadata.uid.unwrap_or_default())
}

/// Tells something about this process itself, on its Node. Nothing depends on it.
async fn tell(client: &Client, source: &Source, reason: &str, text: &str, clock: &Clock) {
    let event = source.node_event(EventType::Normal, reason, text, clock.now());
    let api = Api::<CoreEvent>::namespaced(client.clone(), "default");
    if let Err(error) = api.create(&PostParams::default(), &event).await {
        tracing::warn!(reason, error = brief(&error), "cannot write an event");
    }
}

/// Everything that works while this process leads.
struct Office {
    engine: Engine,
    watches: JoinSet<()>,
    client: Client,
    source: Source,
    clock: Clock,
    listed: watch::Receiver<BTreeSet<Kind>>,
    observer: Observer,
    may_watch_pods: bool,
    pods_wanted: watch::Receiver<bool>,
    plans_again: watch::Receiver<()>,
    blind: watch::Receiver<bool>,
}

impl Office {
    async fn open(
        settings: &Settings,
        client: Client,
        unguarded: Client,
        source: Source,
        channels: ChannelClient,
        clock: Clock,
    ) -> Result<Self, Error> {
        let mut jobs = settings.jobs.clone();
        own_image::fill_in(&mut jobs, &unguarded, settings).await;
        let may_watch_pods = act::permissions::may_watch_pods(&unguarded, &settings.namespace)
            .await
            .map_err(|error| Error::Permissions(brief(&error)))?;
        if !may_watch_pods {
            tracing::info!("pods may not be watched; they are listed while Jobs run");
        }
        let intern = Intern::default();
        let ttl = i64::from(jobs.ttl_seconds_after_finish);
        let (seen, inbox) = mpsc::channel(QUEUE);
        let (pods_tx, pods_wanted) = watch::channel(false);
        let (listed_tx, listed) = watch::channel(BTreeSet::new());
        let (again_tx, plans_again) = watch::channel(());
        let (blind_tx, blind) = watch::channel(false);
        let observer = Observer {
            client: client.clone(),
            namespace: settings.namespace.clone(),
            controller: settings.name.clone(),
            ttl,
            seen,
            intern: intern.clone(),
        };
        let world = World::new(Defaults {
            namespace: settings.namespace.clone(),
            job: jobs,
            polling_interval: SignedDuration::try_from(settings.polling_interval)
                .unwrap_or(SignedDuration::MAX),
            local_zone: jiff::tz::TimeZone::system(),
        });
        let actor = Actor {
            client: client.clone(),
            unguarded,
            source: source.clone(),
            channels,
            clock: clock.clone(),
            intern,
            ttl,
            blind: blind_tx,
        };
        let engine = Engine::new(world, actor, inbox, pods_tx, listed_tx, again_tx);
        Ok(Self {
            engine,
            watches: JoinSet::new(),
            client,
            source,
            clock,
            listed,
            observer,
            may_watch_pods,
            pods_wanted,
            plans_again,
            blind,
        })
    }

    /// Turns until it is dropped. The first lists come one after the other (see `observe`).
    async fn work(&mut self) {
        let Self {
            engine,
            watches,
            client,
            source,
            clock,
            listed,
            observer,
            may_watch_pods,
            pods_wanted,
            plans_again,
            blind,
        } = self;
        let opening = async {
            let until = async |kind: Kind| {
                let _ = listed.clone().wait_for(|listed| listed.contains(&kind)).await;
            };
            let watching = observer.clone();
            let (defined_tx, mut defined) = watch::channel(false);
            watches.spawn(watching.clone().schema(defined_tx));
            watches.spawn(watching.clone().secrets());
            watches.spawn(watching.clone().pods(*may_watch_pods, pods_wanted.clone()));
            watches.spawn(watching.clone().jobs());
            let (mut nodes, mut refused) = (listed.clone(), blind.clone());
            let (plans, again) = (watching.clone(), plans_again.clone());
            watches.spawn(async move {
                // Where something may not be listed, Plans are listed all the same, to be told of it.
                tokio::select! {
                    biased;
                    _ = nodes.wait_for(|listed| listed.contains(&Kind::Node)) => {}
                    _ = refused.wait_for(|blind| *blind) => {}
                }
                let _ = defined.wait_for(|defined| *defined).await;
                plans.plans(again).await;
            });
            until(Kind::Secret).await;
            until(Kind::Pod).await;
            until(Kind::Job).await;
            watches.spawn(watching.nodes());
            until(Kind::Node).await;
            until(Kind::Plan).await;
            let text = format!("{PROGRAM} running as {}/{}", source.namespace, source.controller);
            tell(client, source, "Started", &text, clock).await;
            tracing::info!("watching");
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = engine.run() => {}
            () = opening => {}
        }
    }

    /// Begins nothing more, lets what is under way end, and gives the Lease back.
    async fn close(mut self, lease: Option<LeaseHandle>) {
        tracing::info!("ending");
        self.watches.abort_all();
        if tokio::time::timeout(FAREWELL, self.engine.finish())
            .await
            .is_err()
        {
            tracing::warn!("some requests got no answer");
        }
        if let Some(lease) = lease {
            lease.release().await;
        }
    }
}
