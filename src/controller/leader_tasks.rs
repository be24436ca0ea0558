//! The tasks that run while this process leads: the loop, the watches, and the front ends.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use jiff::SignedDuration;
use kube::Client;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;

use super::act::{self, Actor};
use super::crd::Registered;
use super::engine::Engine;
use super::events::Source;
use super::lease::{PlansNote, Progress};
use super::metrics::Metrics;
use super::node_ops::NodeOps;
use super::notify::{self, NotifyConfig, Plans};
use super::observe::{Observer, QUEUE};
use super::outbox::{self, Outbox};
use super::own_image::{self, OwnImage};
use super::reports::Reports;
use super::settings::{FrontEndName, Settings};
use super::wanted::{Wanted, Wishes};
use super::watches::Watches;
use super::{Error, PROGRAM, SHUTDOWN_GRACE, write_node_event};
use refit_api::Reason;
use refit_channel::ChannelClient;
use refit_cluster::clock::Clock;
use refit_cluster::kube::{Leadership, brief};
use refit_cluster::scale::ScaleReader;
use refit_facts::objects::Intern;
use refit_formats::notify::Context;
use refit_job::JobSettings;
use refit_rollout::{ClusterState, Defaults, Kind, Observation};

/// What the tasks of a leader share with the rest of the process.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) source: Source,
    pub(super) channels: ChannelClient,
    pub(super) clock: Clock,
    pub(super) progress: Progress,
    pub(super) restored: Arc<Notify>,
    pub(super) metrics: Metrics,
    /// Whether anyone can ask for metrics.
    pub(super) is_served: bool,
    /// Absent without leader election.
    pub(super) plans_note: Option<PlansNote>,
    pub(super) leadership: Leadership,
    /// UID of the namespace `kube-system`.
    pub(super) cluster_id: String,
}

/// The tasks that run while this process leads.
pub(super) struct LeaderTasks {
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
    has_maintenances: bool,
    node_ops: Option<NodeOps>,
    may_watch_pods: bool,
    wishes: Wishes,
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
    plans: watch::Receiver<Option<Plans>>,
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
        plans,
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
fn defaults(settings: &Settings, channels: &ChannelClient, job: JobSettings) -> Defaults {
    Defaults {
        namespace: settings.namespace.clone(),
        job,
        polling_interval: SignedDuration::try_from(settings.polling_interval).unwrap_or(SignedDuration::MAX),
        min_node_age: SignedDuration::try_from(settings.min_node_age).unwrap_or(SignedDuration::MAX),
        checks_images: settings.check_images && channels.knows_images(),
        checks_drains: settings.check_drains,
        own_node: settings.node_name.as_str().into(),
        local_zone: jiff::tz::TimeZone::system(),
        // Node operations do not count: they become Plans, and reserve no nodes.
        has_front_ends: settings.enable.contains(&FrontEndName::Maintenance),
        node_conditions: settings.node_conditions,
    }
}

impl LeaderTasks {
    pub(super) async fn open(
        settings: &Settings,
        [client, unguarded]: [Client; 2],
        shared: Shared,
        registered: Registered,
    ) -> Result<Self, Error> {
        let (plans_tx, plans) = watch::channel(None);
        let (config_tx, config) = watch::channel(NotifyConfig::default());
        let (outbox, event_writer) = outbox::outbox();
        let notifier = notifier(settings, &client, &shared, &outbox, plans);
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
        let wanted = Wanted::default();
        let wishes = wanted.wishes();
        let (listed_tx, listed) = watch::channel(BTreeSet::new());
        let (relist_tx, relist_plans) = watch::channel(());
        let (degraded_tx, degraded) = watch::channel(false);
        let mut watches = JoinSet::new();
        watches.spawn(event_writer.run(client.clone()));
        if jobs.own_image.is_empty() && settings.api.in_cluster {
            let search = search_own_image(unguarded.clone(), settings.clone(), observations.clone());
            watches.spawn(search);
        }
        let observer = Observer {
            watches: Watches {
                client: client.clone(),
                restored,
                reports: Reports::new(outbox.clone(), source.clone(), clock.clone()),
                metrics: metrics.clone(),
            },
            namespace: settings.namespace.clone(),
            controller: settings.name.clone(),
            ttl,
            observations,
            intern: intern.clone(),
            notify: Arc::new(config_tx),
        };
        if let Some(notifier) = notifier {
            notifier.spawn(&mut watches, config, observer.observations.clone());
        }
        let has_maintenances = settings.enable.contains(&FrontEndName::Maintenance);
        let node_ops = NodeOps::if_enabled(settings, &observer, &outbox, &clock);
        let cluster = ClusterState::new(defaults(settings, &channels, jobs));
        let actor = Actor {
            client: client.clone(),
            scales: ScaleReader::new(client.clone(), unguarded.clone()),
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
        // Without a listener there are no requests.
        if is_served {
            engine = engine.reporting_to(metrics.reporter(listed.clone()));
        }
        engine.hand_plans_to(plans_tx);
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
            has_maintenances,
            node_ops,
            may_watch_pods,
            wishes,
            relist_plans,
            degraded,
        })
    }

    /// Runs until it is dropped. The first lists run one after the other (see `observe`).
    pub(super) async fn run(&mut self) {
        let Self {
            engine,
            watches,
            client,
            source,
            clock,
            listed,
            observer,
            has_maintenances,
            node_ops,
            may_watch_pods,
            wishes,
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
            watches.spawn(watching.clone().secrets(wishes.secrets.clone()));
            if *has_maintenances {
                watches.spawn(watching.clone().maintenances());
            }
            if let Some(front_end) = node_ops.take() {
                watches.spawn(front_end.run());
            }
            watches.spawn(watching.clone().limits());
            watches.spawn(watching.clone().etcd());
            watches.spawn(watching.clone().api_server(wishes.api_server.clone()));
            watches.spawn(watching.clone().pods(*may_watch_pods, wishes.pods.clone()));
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
                // Under a CRD without refit's fields, the API server drops them when it reads Plans. The loop must know
                // that before it gets Plans.
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
    pub(super) async fn stop(mut self) {
        self.stop.send_replace(true);
        let finish = async {
            if let Some(Ok(mut engine)) = self.engine.join_next().await {
                engine.finish().await;
            }
        };
        if tokio::time::timeout(SHUTDOWN_GRACE, finish).await.is_err() {
            tracing::warn!("some requests got no answer");
        }
        // After the steps, whose events go to the outbox: its writer is one of these tasks.
        self.watches.abort_all();
        let waiting = self.outbox.waiting();
        if waiting > 0 {
            tracing::warn!(waiting, "events that could not be written are lost");
        }
    }
}
