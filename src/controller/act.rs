//! Carries out the steps of a decision: each is one write that is preceded by its events, or one question. What the API
//! server answers is told like something seen, so that the next decision knows of it before a watch does.
//!
//! Nothing is decided here. A write of unknown outcome, and one that came too late, is followed by one read.

mod manifest;
pub mod permissions;
mod pods;
mod poll;
mod workload;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event as CoreEvent, Secret};
use kube::api::{
    Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy,
};
use kube::core::Request;
use kube::{Client, Resource, ResourceExt};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

pub use manifest::{Prepared, prepare};

use super::client::{Failure, brief, failure};
use super::events::Source;
use super::objects::{Intern, RawPlan, SlimJob, SlimNode, SlimPod, version};
use super::observe::Seen;
use crate::channel::{ChannelClient, Named, Offer};
use crate::clock::Clock;
use crate::job::digest;
use crate::rollout::facts::Text;
use crate::rollout::{Event, Key, Missing, PodFacts, Stage, WorkloadFacts};

/// What came of a step.
#[derive(Debug)]
pub struct Done {
    /// What it was about.
    pub key: Key,
    /// What is known now.
    pub told: Vec<Told>,
    /// Why it did not work.
    pub trouble: Option<Trouble>,
}

/// Why a step did not work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// What was said.
    pub message: String,
    /// How it went wrong.
    pub kind: TroubleKind,
}

/// How a step went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TroubleKind {
    /// Somebody else was first: decide again at once.
    Stale,
    /// Nobody answered, or the request did not leave: nothing is wrong with it.
    Unanswered,
    /// The API server cannot do it now, and may soon.
    Passing,
    /// The API server refuses it.
    Refused,
    /// The API server refuses it for want of a permission.
    Forbidden,
}

/// Something that an answer has told.
#[derive(Debug)]
pub enum Told {
    /// As if it had been seen.
    Seen(Seen),
    /// A Job has been told to go: name and UID.
    JobLeaving(Text, Text),
    /// A pod has been told to go: name and UID.
    PodLeaving(Text, Text),
    /// A Job of somebody else has the name.
    NameTaken(Text),
    /// Whether a Job of this name has been made is not known.
    JobUnknown(Text),
    /// There is no Job of this name.
    JobAbsent(Text),
    /// The status of a Plan was sent then, and written, which took so long with the events before it.
    StatusWritten(Text, Timestamp, Duration),
    /// The API server has dropped our own fields of status.
    StatusPruned,
    /// An event with this key was written on its own, on this Plan.
    Event(Text, String),
    /// Name, version and hash of a Secret.
    Secret(Text, u64, String),
    /// A Secret is not there.
    SecretMissing(Text),
    /// A channel answered: which, when, what, and who had it asked at once.
    Channel(Named, Timestamp, Result<Offer, String>, BTreeMap<Text, String>),
    /// What the tag of an image of a Plan stands for, at a hash.
    Digest(Text, Text, String, String),
    /// A controller whose pods were evicted: when it was read, and how many are ready of how many.
    Workload(Text, WorkloadFacts),
    /// What the controller may not do.
    Permissions(Missing),
    /// Something that the step can do without was refused for want of a permission.
    Forbidden,
}

/// What the steps are carried out with.
pub struct Actor {
    /// Handle that writes only while this process leads.
    pub client: Client,
    /// Handle that asks for permissions.
    pub unguarded: Client,
    /// Who tells events.
    pub source: Source,
    /// Channels are asked with it.
    pub channels: ChannelClient,
    /// The time of day.
    pub clock: Clock,
    /// Texts that are kept once.
    pub intern: Intern,
    /// `SYSTEM_UPGRADE_JOB_TTL_SECONDS_AFTER_FINISH`.
    pub ttl: i64,
    /// A list or a watch was refused. As long as none was, they need not be asked for.
    pub blind: watch::Sender<bool>,
}

/// How often an event is written whose answer does not come, before its step is put off with it: several events go with
/// one step, and one answer that is lost again and again must not hold up all of them for ever.
const EVENT_TRIES: u32 = 3;

type Outcome = Result<Vec<Told>, (Vec<Told>, Trouble)>;

impl Actor {
    /// Carries out a step.
    pub async fn carry_out(self: Arc<Self>, key: Key, prepared: Prepared) -> Done {
        match self.attempt(prepared).await {
            Ok(told) => Done {
                key,
                told,
                trouble: None,
            },
            Err((told, trouble)) => Done {
                key,
                told,
                trouble: Some(trouble),
            },
        }
    }

    async fn attempt(&self, prepared: Prepared) -> Outcome {
        match prepared {
            Prepared::Status {
                plan,
                uid,
                body,
                events,
            } => self.write_status(plan, &uid, &body, &events).await,
            Prepared::Plan { plan, uid, body } => self.patch_plan(&plan, &uid, &body).await,
            Prepared::Tell { plan, events } => {
                let mut told = self.write_events(&events).await?;
                let keys = events.into_iter().map(|event| event.key);
                told.extend(keys.map(|key| Told::Event(plan.clone(), key)));
                Ok(told)
            }
            Prepared::CreateJob { job, body } => self.create_job(&job, body).await,
            Prepared::LookForJob { job } => match self.jobs().get_opt(&job).await {
                Ok(Some(job)) => Ok(vec![self.job_seen(&job)]),
                Ok(None) => Ok(vec![Told::JobAbsent(job)]),
                Err(error) => Err((Vec::new(), trouble(&error))),
            },
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
                let told = self.write_events(&events).await?;
                let answer = self
                    .jobs()
                    .patch(&job, &PatchParams::default(), &Patch::Merge(&body))
                    .await;
                let outcome = match answer {
                    Ok(job) => Ok(vec![self.job_seen(&job)]),
                    Err(error) => self.look_at_job(&job, &uid, &error).await,
                };
                after(told, outcome)
            }
            Prepared::Node {
                node,
                uid,
                body,
                events,
            } => {
                let told = self.write_events(&events).await?;
                let answer = self
                    .nodes()
                    .patch(&node, &PatchParams::default(), &Patch::Merge(&body))
                    .await;
                let outcome = match answer {
                    Ok(node) => Ok(vec![self.node_seen(&node)]),
                    Err(error) => self.look_at_node(&node, &uid, &error).await,
                };
                after(told, outcome)
            }
            Prepared::Poll {
                channel,
                latest_version,
                asked_by,
            } => Ok(self.ask_channel(channel, latest_version, asked_by).await),
            Prepared::ReadDigest {
                plan,
                hash,
                image,
                access,
            } => self.ask_digest(plan, hash, image, &access).await,
            Prepared::ReadSecret { name } => self.read_secret(name).await,
            Prepared::ReadWorkload { workload } => self.read_workload(workload).await,
            Prepared::AskPermissions(wishes) => {
                let blind = *self.blind.borrow();
                match permissions::ask(&self.unguarded, &self.source.namespace, blind, wishes).await {
                    Ok(missing) if missing.is_empty() => {
                        self.blind.send_replace(false);
                        Ok(vec![Told::Permissions(missing)])
                    }
                    // Asked again after a pause: somebody may grant it.
                    Ok(missing) => {
                        let trouble = Trouble {
                            message: permissions::sentence(&missing),
                            kind: TroubleKind::Refused,
                        };
                        Err((vec![Told::Permissions(missing)], trouble))
                    }
                    Err(error) => Err((Vec::new(), trouble(&error))),
                }
            }
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

    fn job_seen(&self, job: &SlimJob) -> Told {
        if !job.is_of(&self.source.controller) {
            return Told::NameTaken(job.name_any().as_str().into());
        }
        Told::Seen(Seen::Job(
            version(job.meta()),
            Box::new(job.facts(&self.intern, self.ttl)),
        ))
    }

    fn node_seen(&self, node: &SlimNode) -> Told {
        Told::Seen(Seen::Node(
            version(node.meta()),
            Box::new(node.facts(&self.intern)),
        ))
    }

    /// Events come before the write that they tell of. One that cannot be written now keeps the write back, so that it is
    /// not lost; one that is refused does not, because no node may be left half done for it.
    async fn write_events(&self, events: &[Event]) -> Outcome {
        let mut told = Vec::new();
        if events.is_empty() {
            return Ok(told);
        }
        let api = Api::<CoreEvent>::namespaced(self.client.clone(), &self.source.namespace);
        let now = self.clock.now();
        for event in events {
            match self.write_event(&api, event, now).await {
                Ok(more) => told.extend(more),
                Err(trouble) => return Err((told, trouble)),
            }
        }
        Ok(told)
    }

    /// An event has a name of its own, so that it can be written again when no answer came.
    async fn write_event(
        &self,
        api: &Api<CoreEvent>,
        event: &Event,
        now: Timestamp,
    ) -> Result<Option<Told>, Trouble> {
        let object = self.source.event(event, now);
        let mut tries = 1;
        loop {
            match api.create(&PostParams::default(), &object).await {
                Ok(_) => return Ok(None),
                Err(kube::Error::Api(status)) if status.is_already_exists() => return Ok(None),
                Err(error) if matches!(failure(&error), Failure::Refused) && !is_overload(&error) => {
                    tracing::warn!(
                        reason = event.reason,
                        error = brief(&error),
                        "an event was refused"
                    );
                    return Ok(is_forbidden(&error).then_some(Told::Forbidden));
                }
                Err(error) if failure(&error) == Failure::Unknown && tries < EVENT_TRIES => tries += 1,
                Err(error) => return Err(trouble(&error)),
            }
        }
    }

    async fn patch_plan(&self, plan: &Text, uid: &str, body: &Value) -> Outcome {
        match self.plans().patch(plan, &exactly(), &Patch::Merge(body)).await {
            Ok(plan) => Ok(vec![plan_seen(plan)]),
            Err(error) if would_prune(&error) => Err(pruned()),
            Err(error) => self.look_at_plan(plan, uid, &error).await,
        }
    }

    async fn write_status(&self, plan: Text, uid: &str, body: &Value, events: &[Event]) -> Outcome {
        let began = Instant::now();
        let told = self.write_events(events).await?;
        let sent = self.clock.now();
        let answer = self
            .plans()
            .patch_status(&plan, &exactly(), &Patch::Merge(body))
            .await;
        let outcome = match answer {
            Ok(written) => {
                let (version, facts) = (version(written.meta()), Box::new(written.facts()));
                let is_pruned = facts.status().observed_generation.is_none();
                let took = began.elapsed();
                let mut told = vec![
                    Told::Seen(Seen::Plan(version, facts)),
                    Told::StatusWritten(plan, sent, took),
                ];
                told.extend(is_pruned.then_some(Told::StatusPruned));
                Ok(told)
            }
            Err(error) if would_prune(&error) => Err(pruned()),
            Err(error) => self.look_at_plan(&plan, uid, &error).await,
        };
        after(told, outcome)
    }

    async fn create_job(&self, name: &Text, body: Vec<u8>) -> Outcome {
        let path = SlimJob::url_path(&(), Some(&self.source.namespace));
        let request = Request::new(path)
            .create(&PostParams::default(), body)
            .map_err(kube::Error::BuildRequest);
        let answer = match request {
            Ok(request) => self.client.request::<SlimJob>(request).await,
            Err(error) => Err(error),
        };
        match answer {
            Ok(job) => Ok(vec![self.job_seen(&job)]),
            Err(error) if matches!(&error, kube::Error::Api(status) if status.is_already_exists()) => {
                match self.jobs().get_opt(name).await {
                    Ok(Some(job)) => Err((vec![self.job_seen(&job)], stale(&error))),
                    Ok(None) => Err((Vec::new(), stale(&error))),
                    Err(again) => Err((vec![Told::JobUnknown(name.clone())], trouble(&again))),
                }
            }
            Err(error) if failure(&error) == Failure::Unknown => match self.jobs().get_opt(name).await {
                Ok(Some(job)) => Ok(vec![self.job_seen(&job)]),
                Ok(None) => Err((Vec::new(), trouble(&error))),
                Err(again) => Err((vec![Told::JobUnknown(name.clone())], trouble(&again))),
            },
            Err(error) => Err((Vec::new(), trouble(&error))),
        }
    }

    async fn delete_job(&self, name: &Text, uid: &Text, only_unbound: bool) -> Outcome {
        if only_unbound {
            let api = Api::<SlimPod>::namespaced(self.client.clone(), &self.source.namespace);
            let of_job = ListParams::default().labels(&format!("batch.kubernetes.io/controller-uid={uid}"));
            let pods = api
                .list(&of_job)
                .await
                .map_err(|error| (Vec::new(), trouble(&error)))?;
            let facts: Vec<_> = pods
                .items
                .iter()
                .map(|pod| (version(pod.meta()), pod.facts(&self.intern)))
                .collect();
            // One that has ended leaves room for the next only if that is there: it may as well have succeeded.
            let at_work = |pod: &PodFacts| pod.node.is_some() && pod.stage != Stage::Ended;
            let ended = facts.iter().any(|(_, pod)| pod.stage == Stage::Ended);
            let next = facts
                .iter()
                .any(|(_, pod)| pod.node.is_none() && pod.stage != Stage::Ended);
            if facts.iter().any(|(_, pod)| at_work(pod)) || ended && !next {
                let told = facts
                    .into_iter()
                    .map(|(version, pod)| Told::Seen(Seen::Pod(version, Box::new(pod))));
                let trouble = Trouble {
                    message: "a pod of it was bound by now".to_owned(),
                    kind: TroubleKind::Stale,
                };
                return Err((told.collect(), trouble));
            }
        }
        let params = DeleteParams {
            // batch/v1 orphans the pods unless told otherwise.
            propagation_policy: Some(PropagationPolicy::Background),
            preconditions: Some(Preconditions {
                uid: Some(uid.to_string()),
                ..Preconditions::default()
            }),
            ..DeleteParams::default()
        };
        match self.jobs().delete(name, &params).await {
            Ok(_) => Ok(vec![Told::JobLeaving(name.clone(), uid.clone())]),
            Err(error) => self.look_at_job(name, uid, &error).await,
        }
    }

    async fn read_secret(&self, name: Text) -> Outcome {
        let api = Api::<Secret>::namespaced(self.client.clone(), &self.source.namespace);
        match api.get_opt(&name).await {
            Ok(Some(secret)) => {
                let hash = digest::secret_hash(&secret);
                Ok(vec![Told::Secret(name, version(&secret.metadata), hash)])
            }
            // If it is known all the same, it is gone or about to be there again: the watch says which.
            Ok(None) => {
                let message = format!("secrets {name:?} not found");
                let kind = TroubleKind::Stale;
                Err((vec![Told::SecretMissing(name)], Trouble { message, kind }))
            }
            Err(error) => Err((Vec::new(), trouble(&error))),
        }
    }

    /// A Plan that is not found is not believed to be gone before the watch says so: while its definition is put in
    /// place anew, none is found, and their Jobs must not die of that.
    async fn look_at_plan(&self, name: &Text, uid: &str, error: &kube::Error) -> Outcome {
        if !worth_a_look(error) {
            return Err((Vec::new(), trouble(error)));
        }
        match self.plans().get_opt(name).await {
            Ok(Some(plan)) if plan.meta().uid.as_deref() == Some(uid) => {
                Err((vec![plan_seen(plan)], trouble(error)))
            }
            Ok(plan) => Err((plan.into_iter().map(plan_seen).collect(), stale(error))),
            Err(again) => Err((Vec::new(), trouble(&again))),
        }
    }

    /// Where the Job that was meant is gone, there is nothing left to do.
    async fn look_at_job(&self, name: &Text, uid: &Text, error: &kube::Error) -> Outcome {
        if !worth_a_look(error) {
            return Err((Vec::new(), trouble(error)));
        }
        let gone = Told::Seen(Seen::JobGone(name.clone(), uid.clone()));
        match self.jobs().get_opt(name).await {
            Ok(Some(job)) if job.meta().uid.as_deref() == Some(&**uid) => {
                Err((vec![self.job_seen(&job)], trouble(error)))
            }
            Ok(Some(other)) => Ok(vec![gone, self.job_seen(&other)]),
            Ok(None) => Ok(vec![gone]),
            Err(again) => Err((Vec::new(), trouble(&again))),
        }
    }

    async fn look_at_node(&self, name: &Text, uid: &Text, error: &kube::Error) -> Outcome {
        if !worth_a_look(error) {
            return Err((Vec::new(), trouble(error)));
        }
        let gone = Told::Seen(Seen::NodeGone(name.clone(), uid.clone()));
        match self.nodes().get_opt(name).await {
            Ok(Some(node)) if node.meta().uid.as_deref() == Some(&**uid) => {
                Err((vec![self.node_seen(&node)], trouble(error)))
            }
            Ok(Some(other)) => Ok(vec![gone, self.node_seen(&other)]),
            Ok(None) => Ok(vec![gone]),
            Err(again) => Err((Vec::new(), trouble(&again))),
        }
    }
}

/// What the events of a step have told comes before what its write has.
fn after(mut told: Vec<Told>, outcome: Outcome) -> Outcome {
    match outcome {
        Ok(more) => {
            told.extend(more);
            Ok(told)
        }
        Err((more, trouble)) => {
            told.extend(more);
            Err((told, trouble))
        }
    }
}

fn plan_seen(plan: RawPlan) -> Told {
    Told::Seen(Seen::Plan(version(plan.meta()), Box::new(plan.facts())))
}

/// Plans are written whole or not at all: an API server that knows no such field as one of ours refuses the write. Without
/// this it would drop the fields from what it stores, those of the spec too.
fn exactly() -> PatchParams {
    PatchParams::default().validation_strict()
}

fn would_prune(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 400 | 422)
        && status.message.contains("strict decoding error: unknown field"))
}

fn pruned() -> (Vec<Told>, Trouble) {
    let trouble = Trouble {
        message: "the API server that was asked does not know all fields of a Plan".to_owned(),
        kind: TroubleKind::Stale,
    };
    (vec![Told::StatusPruned], trouble)
}

/// The object may be another one than was thought, or in another version.
fn worth_a_look(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => matches!(status.code, 404 | 409 | 422) || status.code >= 500,
        _ => failure(error) == Failure::Unknown,
    }
}

fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403)
}

fn is_overload(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 429)
}

fn stale(error: &kube::Error) -> Trouble {
    Trouble {
        message: brief(error),
        kind: TroubleKind::Stale,
    }
}

fn trouble(error: &kube::Error) -> Trouble {
    let kind = match error {
        kube::Error::Api(status) => match status.code {
            409 => TroubleKind::Stale,
            403 => TroubleKind::Forbidden,
            429 | 500.. => TroubleKind::Passing,
            _ => TroubleKind::Refused,
        },
        _ => TroubleKind::Unanswered,
    };
    Trouble {
        message: brief(error),
        kind,
    }
}
