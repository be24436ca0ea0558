//! Carries out the steps of a decision. Each is one write, preceded by its events, or one query. Responses of the API
//! server are treated like observations, so that the next decision has them before a watch delivers them.
//!
//! Nothing is decided here. What follows from an answer to a write is one table ([`write`]).

mod check;
mod daemon_pods;
mod events;
pub mod permissions;
mod pod_blockers;
mod poll;
mod refusal;
mod remediation;
mod request;
mod workload;
mod write;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use permissions::Checked;
pub use request::{Request, prepare};
use write::Written as _;

use super::events::Source;
use super::outbox::Outbox;
use refit_channel::ChannelClient;
use refit_cluster::clock::Clock;
use refit_cluster::kube::read::get;
use refit_cluster::kube::{Answer, brief, is_too_large, is_unauthorized};
use refit_cluster::scale::ScaleReader;
use refit_facts::Text;
use refit_facts::objects::{Intern, SlimJob, version};
use refit_job::digest;
use refit_rollout::{Key, MaintenanceTurn, Query, StepEffect};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepError {
    pub message: String,
    pub kind: StepErrorKind,
}

impl StepError {
    pub fn new(kind: StepErrorKind, message: String) -> Self {
        Self { message, kind }
    }
}

/// The kind of a failure, which determines the retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepErrorKind {
    /// Another writer was first: decide again at once.
    Stale,
    /// No response, or the request was not sent. Nothing is wrong with it.
    Unanswered,
    /// The API server cannot handle it now, but may soon.
    Transient,
    /// etcd refuses its size, with an answer that is otherwise transient.
    TooLarge,
    /// The API server refuses it.
    Refused,
    /// An admission plugin refuses it.
    Denied,
    /// A permission is missing.
    Unauthorized,
}

impl StepErrorKind {
    /// Whether the answer is 403: a permission may be missing.
    pub fn may_lack_permission(self) -> bool {
        matches!(self, Self::Denied | Self::Unauthorized)
    }

    pub fn is_refusal(self) -> bool {
        self == Self::Refused || self.may_lack_permission()
    }
}

pub struct Actor {
    /// Client that writes only while this process leads.
    pub client: Client,
    /// Client for permission checks, which need no leadership.
    pub unguarded: Client,
    pub source: Source,
    pub channels: ChannelClient,
    pub clock: Clock,
    /// Interns texts, so that each is stored once.
    pub intern: Intern,
    /// `SYSTEM_UPGRADE_JOB_TTL_SECONDS_AFTER_FINISH`.
    pub ttl: i64,
    /// Events that could not be written at once.
    pub outbox: Outbox,
    /// Since when Jobs have waited for their events before they are recorded.
    pub waiting_for_events: Mutex<BTreeMap<Text, Instant>>,
    /// Set once a list or a watch was refused. Until then, permissions for them need no check.
    pub degraded: watch::Sender<bool>,
    /// Reads the controllers of evicted pods.
    pub scales: ScaleReader,
}

/// What a request has taught, and why it failed if it did.
#[derive(Debug)]
pub struct Outcome {
    /// Facts to apply to the state.
    pub effects: Vec<StepEffect>,
    pub error: Option<StepError>,
}

impl Outcome {
    fn done(effects: Vec<StepEffect>) -> Self {
        Self { effects, error: None }
    }

    fn failed(effects: Vec<StepEffect>, error: StepError) -> Self {
        let error = Some(error);
        Self { effects, error }
    }
}

impl From<StepEffect> for Outcome {
    fn from(effect: StepEffect) -> Self {
        Self::done(vec![effect])
    }
}

impl From<StepError> for Outcome {
    fn from(error: StepError) -> Self {
        Self::failed(Vec::new(), error)
    }
}

impl Actor {
    /// `stopped` completes when a drain must end.
    pub async fn carry_out(
        self: Arc<Self>,
        key: Key,
        request: Request,
        stopped: oneshot::Receiver<()>,
    ) -> (Key, Outcome) {
        let outcome = match request {
            Request::Write(write) => self.write(write).await,
            Request::Events { plan, events } => {
                let mut effects = self.write_events(&events).await;
                let keys = events.into_iter().map(|event| event.key);
                effects.extend(keys.map(|key| StepEffect::Event(plan.clone(), key)));
                Outcome::done(effects)
            }
            Request::Query(query) => self.query(query).await,
            Request::Maintain(turn) => {
                let MaintenanceTurn { id, task, progress } = *turn;
                let uid = task.object.uid().into();
                let (progress, again) = Box::pin(self.maintain(task, *progress, stopped)).await;
                StepEffect::Maintained(id, uid, Box::new(progress), again).into()
            }
            Request::Remediation(step) if step.pause => {
                self.pause_remediation(step.node, step.uid, &step.holder).await
            }
            Request::Remediation(step) => self.resume_remediation(step.node, step.uid, &step.holder).await,
            Request::Permissions(checked) => self.ask_permissions(checked).await,
        };
        (key, outcome)
    }

    async fn ask_permissions(&self, checked: Checked) -> Outcome {
        let mut refused = self.degraded.subscribe();
        let degraded = *refused.borrow_and_update();
        match permissions::ask(&self.unguarded, &self.source.namespace, degraded, checked).await {
            // A watch was refused meanwhile, and it may not have been asked about: the next decision asks again.
            Ok(missing) if missing.is_empty() && refused.has_changed().unwrap_or_default() => {
                Outcome::done(Vec::new())
            }
            // All permissions are there again: the lists that were refused may be tried.
            Ok(missing) if missing.is_empty() => {
                self.degraded.send_replace(false);
                StepEffect::Permissions(missing).into()
            }
            // Retried after a delay, because someone may grant the permission.
            Ok(missing) => {
                let error = StepError::new(StepErrorKind::Refused, permissions::sentence(&missing));
                Outcome::failed(vec![StepEffect::Permissions(missing)], error)
            }
            Err(error) => step_error(&error).into(),
        }
    }

    async fn query(&self, query: Query) -> Outcome {
        match query {
            Query::GetJob { job, .. } => match SlimJob::api(self).get_opt(&job).await {
                Ok(Some(job)) => job.effect(self).into(),
                Ok(None) => StepEffect::JobNotFound(job).into(),
                Err(error) => step_error(&error).into(),
            },
            Query::Poll {
                channel,
                latest_version,
                asked_by,
            } => self.ask_channel(channel, latest_version, asked_by).await.into(),
            Query::ReadDigest {
                plan,
                hash,
                image,
                access,
                pins,
            } => self.ask_image(plan, hash, image, &access, pins).await,
            Query::Check { plan, check } => self.ask_check(plan, check).await.into(),
            Query::ReadSecret { name } => self.read_secret(name).await,
            Query::ReadRefusal { job, uid } => self.read_refusal(job, uid).await,
            Query::ReadWorkload { workload } => self.read_workload(workload).await,
            Query::ReadLease { node, uid, holder } => self.read_node_lease(node, uid, &holder).await,
            Query::ListPods {
                plan,
                node,
                generation,
                blockers,
                drain,
            } => {
                self.list_pod_blockers((plan, node), generation, &blockers, drain.as_deref())
                    .await
            }
            Query::ListDaemonPods {
                plan,
                node,
                generation,
                pods,
            } => self.list_daemon_pods(plan, node, generation, &pods).await,
        }
    }

    async fn read_secret(&self, name: Text) -> Outcome {
        match get::<Secret>(&self.client, Some(&self.source.namespace), &name).await {
            Ok(Some(secret)) => {
                let hash = digest::secret_hash(&secret);
                StepEffect::Secret(name, version(&secret.metadata), hash).into()
            }
            // If the state still knows it, it is deleted or about to appear again; the watch decides.
            Ok(None) => {
                let error = StepError::new(StepErrorKind::Stale, format!("secrets {name:?} not found"));
                Outcome::failed(vec![StepEffect::SecretMissing(name)], error)
            }
            // Repeating the request does not help, so the Plan must say why it waits.
            Err(kube::Error::SerdeError(error)) => {
                StepError::new(StepErrorKind::Refused, error.to_string()).into()
            }
            Err(error) => step_error(&error).into(),
        }
    }
}

fn stale(error: &kube::Error) -> StepError {
    StepError::new(StepErrorKind::Stale, brief(error))
}

fn step_error(error: &kube::Error) -> StepError {
    let kind = match Answer::of(error) {
        Answer::Conflict | Answer::Exists => StepErrorKind::Stale,
        Answer::Forbidden if is_unauthorized(error) => StepErrorKind::Unauthorized,
        Answer::Forbidden => StepErrorKind::Denied,
        Answer::Unknown if is_too_large(error) => StepErrorKind::TooLarge,
        // kube-apiserver answers 429 from its priority levels, and 5xx while it restarts or while a webhook is down.
        Answer::Overload | Answer::Unknown => StepErrorKind::Transient,
        // A timeout or a broken connection: the write may have taken effect.
        Answer::None => StepErrorKind::Unanswered,
        _ => StepErrorKind::Refused,
    };
    StepError::new(kind, brief(error))
}
