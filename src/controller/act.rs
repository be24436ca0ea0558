//! Carries out the steps of a decision. Each is one write, preceded by its events, or one query. Responses of the API
//! server are treated like observations, so that the next decision has them before a watch delivers them.
//!
//! Nothing is decided here. After a write whose outcome is unknown, or a conflict, the object is read once.

mod check;
mod events;
mod manifest;
pub mod permissions;
mod pod_blockers;
mod pods;
mod poll;
mod refusal;
mod workload;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::Secret;
use kube::api::{
    Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy,
};
use kube::core::Request;
use kube::{Client, Resource, ResourceExt};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

pub use manifest::{Prepared, prepare};

use super::events::Source;
use super::outbox::Outbox;
use refit_channel::ChannelClient;
use refit_cluster::clock::Clock;
use refit_cluster::kube::read::get;
use refit_cluster::kube::{Answer, Failure, brief, failure};
use refit_facts::objects::{Intern, RawPlan, SlimJob, SlimNode, SlimPod, version};
use refit_facts::{JobName, JobUid, NodeName, NodeUid, PlanName, PodFacts, PodStage, Text};
use refit_job::digest;
use refit_rollout::{Event, Key, Observation, Query, StepEffect};

#[derive(Debug)]
pub struct FinishedStep {
    pub key: Key,
    /// Facts to apply to the state.
    pub effects: Vec<StepEffect>,
    pub error: Option<StepError>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepError {
    pub message: String,
    pub kind: StepErrorKind,
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
    /// The API server refuses it.
    Refused,
    /// The API server refuses it because a permission is missing.
    Forbidden,
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
    pub waiting_for_events: Mutex<BTreeMap<JobUid, Instant>>,
    /// Set once a list or a watch was refused. Until then, permissions for them need no check.
    pub degraded: watch::Sender<bool>,
}

type StepResult = Result<Vec<StepEffect>, (Vec<StepEffect>, StepError)>;

impl Actor {
    pub async fn carry_out(self: Arc<Self>, key: Key, prepared: Prepared) -> FinishedStep {
        match self.attempt(prepared).await {
            Ok(effects) => FinishedStep {
                key,
                effects,
                error: None,
            },
            Err((effects, step_error)) => FinishedStep {
                key,
                effects,
                error: Some(step_error),
            },
        }
    }

    async fn attempt(&self, prepared: Prepared) -> StepResult {
        match prepared {
            Prepared::Status {
                plan,
                uid,
                body,
                events,
            } => self.write_status(plan, &uid, &body, &events).await,
            Prepared::Plan { plan, uid, body } => self.patch_plan(&plan, &uid, &body).await,
            Prepared::WriteEvents { plan, events } => {
                let mut effects = self.write_events(&events).await;
                let keys = events.into_iter().map(|event| event.key);
                effects.extend(keys.map(|key| StepEffect::Event(plan.clone(), key)));
                Ok(effects)
            }
            Prepared::CreateJob { job, body } => self.create_job(&job, body).await,
            Prepared::DeleteJob {
                job,
                uid,
                only_unbound,
            } => self.delete_job(&job, &uid, only_unbound).await,
            Prepared::CreatePod { pod, bodies } => self.create_pod(&pod, bodies).await,
            Prepared::DeletePod { pod, uid } => self.delete_pod(&pod, &uid).await,
            Prepared::Job {
                job,
                uid,
                body,
                events,
            } => {
                // Nothing waits for this patch, and once it is stored, no successor of this process writes the events.
                let (effects, unwritten) = self.try_events(&events).await;
                if !unwritten.is_empty() && self.waits_for_events(&uid) {
                    let message = "its events cannot be written yet".to_owned();
                    let kind = StepErrorKind::Unanswered;
                    return Err((effects, StepError { message, kind }));
                }
                self.defer(unwritten);
                let answer = self
                    .jobs()
                    .patch(&job, &PatchParams::default(), &Patch::Merge(&body))
                    .await;
                let result = match answer {
                    Ok(job) => Ok(vec![self.observed_job(&job)]),
                    Err(error) => self.reread_job(&job, &uid, &error).await,
                };
                prepend_effects(effects, result)
            }
            Prepared::Node {
                node,
                uid,
                body,
                events,
            } => {
                let effects = self.write_events(&events).await;
                let answer = self
                    .nodes()
                    .patch(&node, &PatchParams::default(), &Patch::Merge(&body))
                    .await;
                let result = match answer {
                    Ok(node) => Ok(vec![self.observed_node(&node)]),
                    Err(error) => self.reread_node(&node, &uid, &error).await,
                };
                prepend_effects(effects, result)
            }
            Prepared::Query(query) => self.query(query).await,
            Prepared::AskPermissions(optional) => {
                let mut refused = self.degraded.subscribe();
                let degraded = *refused.borrow_and_update();
                match permissions::ask(&self.unguarded, &self.source.namespace, degraded, optional).await {
                    // A watch was refused meanwhile, and it may not have been asked about: the next decision asks again.
                    Ok(missing) if missing.is_empty() && refused.has_changed().unwrap_or_default() => {
                        Ok(Vec::new())
                    }
                    // All permissions are there again: the lists that were refused may be tried.
                    Ok(missing) if missing.is_empty() => {
                        self.degraded.send_replace(false);
                        Ok(vec![StepEffect::Permissions(missing)])
                    }
                    // Retried after a delay, because someone may grant the permission.
                    Ok(missing) => {
                        let step_error = StepError {
                            message: permissions::sentence(&missing),
                            kind: StepErrorKind::Refused,
                        };
                        Err((vec![StepEffect::Permissions(missing)], step_error))
                    }
                    Err(error) => Err((Vec::new(), step_error(&error))),
                }
            }
        }
    }

    async fn query(&self, query: Query) -> StepResult {
        match query {
            Query::GetJob { job, .. } => match self.jobs().get_opt(&job).await {
                Ok(Some(job)) => Ok(vec![self.observed_job(&job)]),
                Ok(None) => Ok(vec![StepEffect::JobNotFound(job)]),
                Err(error) => Err((Vec::new(), step_error(&error))),
            },
            Query::Poll {
                channel,
                latest_version,
                asked_by,
            } => Ok(self.ask_channel(channel, latest_version, asked_by).await),
            Query::ReadDigest {
                plan,
                hash,
                image,
                access,
                pins,
            } => self.ask_image(plan, hash, image, &access, pins).await,
            Query::Check { plan, check } => Ok(self.ask_check(plan, check).await),
            Query::ReadSecret { name } => self.read_secret(name).await,
            Query::ReadRefusal { job, uid } => self.read_refusal(job, uid).await,
            Query::ReadWorkload { workload } => self.read_workload(workload).await,
            Query::ListPods {
                plan,
                node,
                generation,
                blockers,
            } => self.list_pod_blockers(plan, node, generation, &blockers).await,
        }
    }

    fn plans(&self) -> Api<RawPlan> {
        Api::namespaced(self.client.clone(), &self.source.namespace)
    }

    fn jobs(&self) -> Api<SlimJob> {
        Api::namespaced(self.client.clone(), &self.source.namespace)
    }

    fn nodes(&self) -> Api<SlimNode> {
        Api::all(self.client.clone())
    }

    fn observed_job(&self, job: &SlimJob) -> StepEffect {
        // A Job without this controller's label belongs to a user or to another controller. refit must neither adopt
        // nor delete it, only avoid its name.
        if !job.is_of(&self.source.controller) {
            return StepEffect::NameTaken(job.name_any().as_str().into());
        }
        StepEffect::Observed(Observation::Job(
            version(job.meta()),
            Box::new(job.facts(&self.intern, self.ttl)),
        ))
    }

    fn observed_node(&self, node: &SlimNode) -> StepEffect {
        StepEffect::Observed(Observation::Node(
            version(node.meta()),
            Box::new(node.facts(&self.intern)),
        ))
    }

    async fn patch_plan(&self, plan: &PlanName, uid: &str, body: &Value) -> StepResult {
        match self.plans().patch(plan, &strict(), &Patch::Merge(body)).await {
            Ok(plan) => Ok(vec![observed_plan(plan)]),
            Err(error) if would_prune(&error) => Err(pruned()),
            Err(error) => self.reread_plan(plan, uid, &error).await,
        }
    }

    async fn write_status(&self, plan: PlanName, uid: &str, body: &Value, events: &[Event]) -> StepResult {
        let effects = self.write_events(events).await;
        let answer = self
            .plans()
            .patch_status(&plan, &strict(), &Patch::Merge(body))
            .await;
        let result = match answer {
            Ok(written) => {
                let (version, facts) = (version(written.meta()), Box::new(written.facts()));
                // The response is what was stored. An API server that does not know the field has dropped it, with or
                // without strict validation.
                let is_pruned = facts.status().observed_generation.is_none();
                let mut effects = vec![
                    StepEffect::Observed(Observation::Plan(version, facts)),
                    StepEffect::StatusWritten(plan),
                ];
                effects.extend(is_pruned.then_some(StepEffect::StatusPruned));
                Ok(effects)
            }
            Err(error) if would_prune(&error) => Err(pruned()),
            Err(error) => self.reread_plan(&plan, uid, &error).await,
        };
        prepend_effects(effects, result)
    }

    async fn create_job(&self, name: &JobName, body: Vec<u8>) -> StepResult {
        let path = SlimJob::url_path(&(), Some(&self.source.namespace));
        let request = Request::new(path)
            .create(&PostParams::default(), body)
            .map_err(kube::Error::BuildRequest);
        let answer = match request {
            Ok(request) => self.client.request::<SlimJob>(request).await,
            Err(error) => Err(error),
        };
        match answer {
            Ok(job) => Ok(vec![self.observed_job(&job)]),
            // Either an earlier attempt of refit succeeded and its response was lost, or a Job of someone else has
            // the name. Only reading it tells.
            Err(error) if matches!(&error, kube::Error::Api(status) if status.is_already_exists()) => {
                match self.jobs().get_opt(name).await {
                    Ok(Some(job)) => Err((vec![self.observed_job(&job)], stale(&error))),
                    Ok(None) => Err((Vec::new(), stale(&error))),
                    Err(again) => Err((
                        vec![StepEffect::CreateUnconfirmed(name.clone())],
                        step_error(&again),
                    )),
                }
            }
            // The Job may have been created. To read it at once avoids a second request later, and if that fails too,
            // the state remembers the doubt (`CreateUnconfirmed`).
            Err(error) if failure(&error) == Failure::Unknown => match self.jobs().get_opt(name).await {
                Ok(Some(job)) => Ok(vec![self.observed_job(&job)]),
                Ok(None) => Err((Vec::new(), step_error(&error))),
                Err(again) => Err((
                    vec![StepEffect::CreateUnconfirmed(name.clone())],
                    step_error(&again),
                )),
            },
            Err(error) => Err((Vec::new(), step_error(&error))),
        }
    }

    async fn delete_job(&self, name: &JobName, uid: &JobUid, only_unbound: bool) -> StepResult {
        if only_unbound {
            let api = Api::<SlimPod>::namespaced(self.client.clone(), &self.source.namespace);
            // A list from the API server, not from the watch: a watch that is late would show a pod as unbound that
            // already works on the node.
            // The API server sets this label (pkg/registry/batch/job/strategy.go). By its UID it leaves out the pods of
            // an earlier Job of this name.
            let of_job = ListParams::default().labels(&format!("batch.kubernetes.io/controller-uid={uid}"));
            let pods = api
                .list(&of_job)
                .await
                .map_err(|error| (Vec::new(), step_error(&error)))?;
            let facts: Vec<_> = pods
                .items
                .iter()
                .map(|pod| (version(pod.meta()), pod.facts(&self.intern)))
                .collect();
            // A pod that has ended makes room for the next one only if it is still there, because it may have
            // succeeded.
            let at_work = |pod: &PodFacts| pod.node.is_some() && pod.stage != PodStage::Ended;
            let ended = facts.iter().any(|(_, pod)| pod.stage == PodStage::Ended);
            let next = facts
                .iter()
                .any(|(_, pod)| pod.node.is_none() && pod.stage != PodStage::Ended);
            if facts.iter().any(|(_, pod)| at_work(pod)) || ended && !next {
                let effects = facts
                    .into_iter()
                    .map(|(version, pod)| StepEffect::Observed(Observation::Pod(version, Box::new(pod))));
                let step_error = StepError {
                    message: "a pod of the Job has been bound meanwhile".to_owned(),
                    kind: StepErrorKind::Stale,
                };
                return Err((effects.collect(), step_error));
            }
        }
        let params = DeleteParams {
            // Without this, batch/v1 orphans the pods.
            propagation_policy: Some(PropagationPolicy::Background),
            preconditions: Some(Preconditions {
                uid: Some(uid.to_string()),
                ..Preconditions::default()
            }),
            ..DeleteParams::default()
        };
        match self.jobs().delete(name, &params).await {
            Ok(_) => Ok(vec![StepEffect::JobDeleting(name.clone(), uid.clone())]),
            Err(error) => self.reread_job(name, uid, &error).await,
        }
    }

    async fn read_secret(&self, name: Text) -> StepResult {
        match get::<Secret>(&self.client, Some(&self.source.namespace), &name).await {
            Ok(Some(secret)) => {
                let hash = digest::secret_hash(&secret);
                Ok(vec![StepEffect::Secret(name, version(&secret.metadata), hash)])
            }
            // If the state still knows it, it is deleted or about to appear again; the watch decides.
            Ok(None) => {
                let message = format!("secrets {name:?} not found");
                let kind = StepErrorKind::Stale;
                Err((vec![StepEffect::SecretMissing(name)], StepError { message, kind }))
            }
            // Repeating the request does not help, so the Plan must say why it waits.
            Err(kube::Error::SerdeError(error)) => {
                let (message, kind) = (error.to_string(), StepErrorKind::Refused);
                Err((Vec::new(), StepError { message, kind }))
            }
            Err(error) => Err((Vec::new(), step_error(&error))),
        }
    }

    /// A 404 for a Plan does not mean that it was deleted until the watch says so: while its definition is being
    /// replaced, every Plan returns 404, and the Jobs must survive that.
    async fn reread_plan(&self, name: &PlanName, uid: &str, error: &kube::Error) -> StepResult {
        if !should_reread(error) {
            return Err((Vec::new(), step_error(error)));
        }
        match self.plans().get_opt(name).await {
            Ok(Some(plan)) if plan.meta().uid.as_deref() == Some(uid) => {
                Err((vec![observed_plan(plan)], step_error(error)))
            }
            Ok(plan) => Err((plan.into_iter().map(observed_plan).collect(), stale(error))),
            Err(again) => Err((Vec::new(), step_error(&again))),
        }
    }

    /// If the Job no longer exists, nothing is left to do.
    async fn reread_job(&self, name: &JobName, uid: &JobUid, error: &kube::Error) -> StepResult {
        if !should_reread(error) {
            return Err((Vec::new(), step_error(error)));
        }
        let gone = StepEffect::Observed(Observation::JobDeleted(name.clone(), uid.clone()));
        match self.jobs().get_opt(name).await {
            Ok(Some(job)) if job.meta().uid.as_deref() == Some(&**uid) => {
                Err((vec![self.observed_job(&job)], step_error(error)))
            }
            Ok(Some(other)) => Ok(vec![gone, self.observed_job(&other)]),
            Ok(None) => Ok(vec![gone]),
            Err(again) => Err((Vec::new(), step_error(&again))),
        }
    }

    async fn reread_node(&self, name: &NodeName, uid: &NodeUid, error: &kube::Error) -> StepResult {
        if !should_reread(error) {
            return Err((Vec::new(), step_error(error)));
        }
        let gone = StepEffect::Observed(Observation::NodeDeleted(name.clone(), uid.clone()));
        match self.nodes().get_opt(name).await {
            Ok(Some(node)) if node.meta().uid.as_deref() == Some(&**uid) => {
                Err((vec![self.observed_node(&node)], step_error(error)))
            }
            Ok(Some(other)) => Ok(vec![gone, self.observed_node(&other)]),
            Ok(None) => Ok(vec![gone]),
            Err(again) => Err((Vec::new(), step_error(&again))),
        }
    }
}

/// Puts the facts from the events of a step before those from its write.
fn prepend_effects(mut effects: Vec<StepEffect>, result: StepResult) -> StepResult {
    match result {
        Ok(more) => {
            effects.extend(more);
            Ok(effects)
        }
        Err((more, step_error)) => {
            effects.extend(more);
            Err((effects, step_error))
        }
    }
}

fn observed_plan(plan: RawPlan) -> StepEffect {
    StepEffect::Observed(Observation::Plan(version(plan.meta()), Box::new(plan.facts())))
}

/// Requests strict field validation: an API server that does not know one of refit's fields refuses the write. Without
/// it, the server would drop the fields from what it stores, including those of the spec.
fn strict() -> PatchParams {
    PatchParams::default().validation_strict()
}

fn would_prune(error: &kube::Error) -> bool {
    // 422 is the answer to a patch, 400 that to a create or an update (apiserver's endpoints/handlers).
    // Not `brief`: the message begins with the whole patch.
    let says = |text| matches!(error, kube::Error::Api(status) if status.message.contains(text));
    Answer::of(error) == Answer::Invalid && says("strict decoding error: unknown field")
}

fn pruned() -> (Vec<StepEffect>, StepError) {
    let step_error = StepError {
        message: "this API server does not know all fields of a Plan".to_owned(),
        kind: StepErrorKind::Stale,
    };
    (vec![StepEffect::StatusPruned], step_error)
}

/// Whether the object may be another one, or another version, than the decision assumed.
fn should_reread(error: &kube::Error) -> bool {
    // It is gone, it has another version, or the name is that of another object, because a patch cannot change a UID.
    let is_another = matches!(
        Answer::of(error),
        Answer::NotFound | Answer::Conflict | Answer::Exists | Answer::Invalid
    );
    is_another || failure(error) == Failure::Unknown
}

fn stale(error: &kube::Error) -> StepError {
    StepError {
        message: brief(error),
        kind: StepErrorKind::Stale,
    }
}

fn step_error(error: &kube::Error) -> StepError {
    let kind = match error {
        kube::Error::Api(status) => match status.code {
            409 => StepErrorKind::Stale,
            // A quota answers 403, too. The permission check of the next decision tells which it is.
            403 => StepErrorKind::Forbidden,
            // kube-apiserver answers 429 from its priority levels, and 5xx while it restarts or while a webhook is
            // down.
            429 | 500.. => StepErrorKind::Transient,
            _ => StepErrorKind::Refused,
        },
        // A timeout or a broken connection: the write may have taken effect.
        _ => StepErrorKind::Unanswered,
    };
    StepError {
        message: brief(error),
        kind,
    }
}
