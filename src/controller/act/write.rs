//! The one sender of writes, and the one table of what follows from an answer of the API server ([`Next::after`]).
//!
//! Four things are the exception, each named where it is: a patch of a Plan that an API server would prune, a Job of which
//! it is not known whether it was created, a Job that must not be deleted once a pod is bound, and a Job that waits for its
//! events before it is recorded.

use std::fmt::Debug;

use kube::api::{
    Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy,
};
use kube::core::{NamespaceResourceScope, Request};
use kube::{Resource, ResourceExt as _};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Actor, Outcome, StepError, StepErrorKind, stale, step_error};
use refit_cluster::kube::{Answer, Failure, failure, would_prune};
use refit_facts::objects::{SlimJob, SlimNode, SlimPod, version};
use refit_facts::{PlanFacts, PodFacts, PodStage, Text};
use refit_rollout::{Event, Kind, Observation, StepEffect};

/// Grace period of a reboot Pod, in seconds. It only sleeps, or has finished.
/// With 0 the API server would remove the pod before the kubelet has stopped it.
const POD_GRACE_SECONDS: u32 = 1;

/// One write of one object, and the events that describe it.
#[derive(Debug)]
pub struct Write {
    pub target: Target,
    pub verb: Verb,
    /// Written first, so that they appear in order.
    pub events: Vec<Event>,
}

/// The object of a write.
#[derive(Debug)]
pub struct Target {
    pub kind: Kind,
    pub name: Text,
    /// Empty if the object is to be created. Otherwise the write is for no other object of this name.
    pub uid: Text,
}

#[derive(Debug)]
pub enum Verb {
    /// Create it from the first of these bodies that the API server does not forbid.
    Create(Vec<Vec<u8>>),
    /// A merge patch.
    Patch(Value),
    /// A JSON patch of the subresource `status`.
    PatchStatus(Value),
    /// A strategic merge patch of the subresource `status` of a Node: of the list of conditions it changes only those that it
    /// has.
    PatchConditions(Value),
    Delete {
        /// Of a Job: only if a fresh list shows that no pod of it is bound to a node.
        only_unbound: bool,
    },
    /// A merge patch of a Job whose result is stored. Nothing waits for it, and once it is written, no successor of this
    /// process writes the events.
    MarkRecorded(Value),
}

/// What follows from an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// The object may be another one, or another version, than the decision assumed, or the write may have been applied:
    /// read it once.
    Read,
    /// No write of this kind is possible: an API server does not know refit's fields.
    Pruned,
    /// Nothing was written.
    Fail,
}

impl Next {
    fn after(verb: &Verb, error: &kube::Error) -> Self {
        let answer = Answer::of(error);
        match (verb, answer) {
            _ if failure(error) == Failure::Unknown => Self::Read,
            (Verb::Create(_), Answer::Exists) => Self::Read,
            (Verb::Create(_), _) => Self::Fail,
            (Verb::Patch(_) | Verb::PatchStatus(_), _) if would_prune(error) => Self::Pruned,
            // It is gone, it has another version, or the name is that of another object, because a patch cannot change a
            // UID.
            (_, Answer::NotFound | Answer::Conflict | Answer::Exists | Answer::Invalid) => Self::Read,
            _ => Self::Fail,
        }
    }
}

/// A kind that the controller writes.
pub(super) trait Written: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned {
    fn api(actor: &Actor) -> Api<Self>;

    /// What the controller learns from the object.
    fn effect(self, actor: &Actor) -> StepEffect;
}

/// What follows if there is no object of this name, or another one; `None` if that must not count as a deletion.
fn deleted(target: &Target) -> Option<Observation> {
    let (name, uid) = (target.name.clone(), target.uid.clone());
    Some(match target.kind {
        // A 404 for a Plan does not mean that it was deleted until the watch says so: while its definition is being
        // replaced, every Plan returns 404, and the Jobs must survive that.
        Kind::Plan => return None,
        Kind::Job => Observation::JobDeleted(name.into(), uid.into()),
        Kind::Node => Observation::NodeDeleted(name.into(), uid.into()),
        Kind::Pod => Observation::PodDeleted(name, uid.into()),
    })
}

fn namespaced<K>(actor: &Actor) -> Api<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    Api::namespaced(actor.client.clone(), &actor.source.namespace)
}

impl Written for PlanFacts {
    fn api(actor: &Actor) -> Api<Self> {
        namespaced(actor)
    }

    fn effect(self, _: &Actor) -> StepEffect {
        StepEffect::Observed(Observation::plan(self))
    }
}

impl Written for SlimJob {
    fn api(actor: &Actor) -> Api<Self> {
        namespaced(actor)
    }

    /// A Job without this controller's label belongs to a user or to another controller. refit must neither adopt nor
    /// delete it, only avoid its name.
    fn effect(self, actor: &Actor) -> StepEffect {
        if !self.is_of(&actor.source.controller) {
            return StepEffect::NameTaken(self.name_any().as_str().into());
        }
        let facts = Box::new(self.facts(&actor.intern, actor.ttl));
        StepEffect::Observed(Observation::Job(version(self.meta()), facts))
    }
}

impl Written for SlimNode {
    fn api(actor: &Actor) -> Api<Self> {
        Api::all(actor.client.clone())
    }

    fn effect(self, actor: &Actor) -> StepEffect {
        let facts = Box::new(self.facts(&actor.intern));
        StepEffect::Observed(Observation::Node(version(self.meta()), facts))
    }
}

/// Reboot Pods, which belong to no Job.
impl Written for SlimPod {
    fn api(actor: &Actor) -> Api<Self> {
        namespaced(actor)
    }

    /// The name is unique to the Plan, the node and the hash: a pod that has it is the wanted one, or another client has
    /// given one this name.
    fn effect(self, actor: &Actor) -> StepEffect {
        if !self.is_of(&actor.source.controller) {
            return StepEffect::PodNameTaken(self.name_any().as_str().into());
        }
        let facts = Box::new(self.facts(&actor.intern));
        StepEffect::Observed(Observation::Pod(version(self.meta()), facts))
    }
}

impl Actor {
    /// Writes the events, and then the object.
    pub(super) async fn write(&self, write: Write) -> Outcome {
        let (mut effects, unwritten) = self.try_events(&write.events).await;
        if matches!(write.verb, Verb::MarkRecorded(_))
            && !unwritten.is_empty()
            && self.waits_for_events(&write.target.uid)
        {
            let message = "its events cannot be written yet".to_owned();
            return Outcome::failed(effects, StepError::new(StepErrorKind::Unanswered, message));
        }
        self.defer(unwritten);
        let (target, verb) = (&write.target, write.verb);
        let outcome = match target.kind {
            Kind::Plan => self.write_object::<PlanFacts>(target, verb).await,
            Kind::Job => self.write_object::<SlimJob>(target, verb).await,
            Kind::Node => self.write_object::<SlimNode>(target, verb).await,
            Kind::Pod => self.write_object::<SlimPod>(target, verb).await,
        };
        effects.extend(outcome.effects);
        Outcome { effects, ..outcome }
    }

    async fn write_object<K: Written>(&self, target: &Target, verb: Verb) -> Outcome {
        if matches!(verb, Verb::Delete { only_unbound: true })
            && let Some(outcome) = self.bound_pods(target).await
        {
            return outcome;
        }
        let error = match self.send::<K>(target, &verb).await {
            Ok(effects) => return Outcome::done(effects),
            Err(error) => error,
        };
        match Next::after(&verb, &error) {
            Next::Read => self.read_after::<K>(target, &verb, &error).await,
            Next::Pruned => {
                let message = "this API server does not know all fields of a Plan".to_owned();
                let error = StepError::new(StepErrorKind::Stale, message);
                Outcome::failed(vec![StepEffect::StatusPruned], error)
            }
            Next::Fail => Outcome::failed(Vec::new(), write_error(&verb, &error)),
        }
    }

    async fn send<K: Written>(&self, target: &Target, verb: &Verb) -> Result<Vec<StepEffect>, kube::Error> {
        let (api, name) = (K::api(self), &*target.name);
        match verb {
            Verb::Create(bodies) => {
                let mut answer = self.post::<K>(&api, &bodies[0]).await;
                for body in &bodies[1..] {
                    match &answer {
                        Err(error) if Answer::of(error) == Answer::Forbidden => {
                            answer = self.post::<K>(&api, body).await;
                        }
                        _ => break,
                    }
                }
                Ok(vec![answer?.effect(self)])
            }
            Verb::Patch(body) | Verb::MarkRecorded(body) => {
                let stored = api
                    .patch(name, &patch_params(target), &Patch::Merge(body))
                    .await?;
                Ok(vec![stored.effect(self)])
            }
            Verb::PatchStatus(body) => {
                let params = patch_params(target);
                let operations = Deserialize::deserialize(body).map_err(kube::Error::SerdeError)?;
                let stored = api
                    .patch_status(name, &params, &Patch::Json::<()>(operations))
                    .await?;
                let mut effects = vec![stored.effect(self)];
                // The response is what was stored. An API server that does not know the field has dropped it, with or
                // without strict validation.
                let is_pruned = matches!(
                    &effects[0],
                    StepEffect::Observed(Observation::Plan(_, plan)) if plan.status().observed_generation.is_none()
                );
                effects.push(StepEffect::StatusWritten(target.name.clone().into()));
                effects.extend(is_pruned.then_some(StepEffect::StatusPruned));
                Ok(effects)
            }
            Verb::PatchConditions(body) => {
                let params = patch_params(target);
                let stored = api.patch_status(name, &params, &Patch::Strategic(body)).await?;
                Ok(vec![stored.effect(self)])
            }
            // It is gone once a watch says so, because its node may be down.
            Verb::Delete { .. } => {
                api.delete(name, &delete_params(target)).await?;
                let (name, uid) = (target.name.clone(), target.uid.clone());
                Ok(vec![if target.kind == Kind::Pod {
                    StepEffect::PodDeleting(name, uid.into())
                } else {
                    StepEffect::JobDeleting(name.into(), uid.into())
                }])
            }
        }
    }

    async fn post<K: Written>(&self, api: &Api<K>, body: &[u8]) -> Result<K, kube::Error> {
        let request = Request::new(api.resource_url()).create(&PostParams::default(), body.to_vec());
        self.client
            .request(request.map_err(kube::Error::BuildRequest)?)
            .await
    }

    /// Reads the object once, after an answer that leaves open what it is now.
    async fn read_after<K: Written>(&self, target: &Target, verb: &Verb, error: &kube::Error) -> Outcome {
        let read = K::api(self).get_opt(&target.name).await;
        if matches!(verb, Verb::Create(_)) {
            return match read {
                Ok(Some(object)) if Answer::of(error) == Answer::Exists && target.kind == Kind::Job => {
                    // Either an earlier attempt succeeded whose response was lost, or the Job is someone else's.
                    Outcome::failed(vec![object.effect(self)], stale(error))
                }
                Ok(Some(object)) => Outcome::done(vec![object.effect(self)]),
                Ok(None) if Answer::of(error) == Answer::Exists => Outcome::failed(Vec::new(), stale(error)),
                Ok(None) => Outcome::failed(Vec::new(), step_error(error)),
                // The state remembers the doubt.
                Err(again) => {
                    let doubt = (target.kind == Kind::Job)
                        .then(|| StepEffect::CreateUnconfirmed(target.name.clone().into()));
                    Outcome::failed(doubt.into_iter().collect(), step_error(&again))
                }
            };
        }
        let found = match read {
            Ok(found) => found,
            Err(again) => return Outcome::failed(Vec::new(), step_error(&again)),
        };
        let is_same = |object: &K| object.meta().uid.as_deref() == Some(&*target.uid);
        let is_other = found.as_ref().is_some_and(|object| !is_same(object));
        let effect = found.map(|object| object.effect(self));
        if effect.is_some() && !is_other {
            return Outcome::failed(effect.into_iter().collect(), step_error(error));
        }
        match deleted(target) {
            // If the object no longer exists, nothing is left to do.
            Some(gone) => Outcome::done([StepEffect::Observed(gone)].into_iter().chain(effect).collect()),
            None => Outcome::failed(effect.into_iter().collect(), stale(error)),
        }
    }

    /// The pods of a Job because of which it is not deleted: one is bound, or may have succeeded. They come from a list and
    /// not from the watch, because a watch that is late would show a pod as unbound that already works on the node.
    async fn bound_pods(&self, job: &Target) -> Option<Outcome> {
        // The API server sets this label (pkg/registry/batch/job/strategy.go). By its UID it leaves out the pods of an
        // earlier Job of this name.
        let of_job = ListParams::default().labels(&format!("batch.kubernetes.io/controller-uid={}", job.uid));
        let pods = match SlimPod::api(self).list(&of_job).await {
            Ok(pods) => pods,
            Err(error) => return Some(Outcome::failed(Vec::new(), step_error(&error))),
        };
        let facts: Vec<_> = pods
            .items
            .iter()
            .map(|pod| (version(pod.meta()), pod.facts(&self.intern)))
            .collect();
        // A pod that has ended makes room for the next one only if it is still there, because it may have succeeded.
        let has_ended = |pod: &PodFacts| pod.stage == PodStage::Ended;
        let is_bound = facts.iter().any(|(_, pod)| pod.node.is_some() && !has_ended(pod));
        let ended = facts.iter().any(|(_, pod)| has_ended(pod));
        let next = facts.iter().any(|(_, pod)| pod.node.is_none() && !has_ended(pod));
        if !is_bound && (!ended || next) {
            return None;
        }
        let effects = facts
            .into_iter()
            .map(|(version, pod)| StepEffect::Observed(Observation::Pod(version, Box::new(pod))));
        let message = "a pod of the Job has been bound meanwhile".to_owned();
        Some(Outcome::failed(
            effects.collect(),
            StepError::new(StepErrorKind::Stale, message),
        ))
    }
}

/// Without the permission for conditions nothing else is missing: Plans go on.
fn write_error(verb: &Verb, error: &kube::Error) -> StepError {
    let failed = step_error(error);
    if !matches!(verb, Verb::PatchConditions(_)) || !failed.kind.may_lack_permission() {
        return failed;
    }
    let message = format!(
        "the conditions of the node cannot be written: {}; grant `patch` on `nodes/status` \
         (deploy/overlays/node-conditions)",
        failed.message
    );
    StepError::new(StepErrorKind::Refused, message)
}

/// For Plans strict field validation: an API server that does not know one of refit's fields refuses the write. Without it,
/// the server would drop the fields from what it stores, including those of the spec.
fn patch_params(target: &Target) -> PatchParams {
    match target.kind {
        Kind::Plan => PatchParams::default().validation_strict(),
        _ => PatchParams::default(),
    }
}

fn delete_params(target: &Target) -> DeleteParams {
    let preconditions = Preconditions {
        uid: Some(target.uid.to_string()),
        ..Preconditions::default()
    };
    let params = DeleteParams {
        preconditions: Some(preconditions),
        ..DeleteParams::default()
    };
    match target.kind {
        Kind::Pod => DeleteParams {
            grace_period_seconds: Some(POD_GRACE_SECONDS),
            ..params
        },
        // Without this, batch/v1 orphans the pods.
        _ => DeleteParams {
            propagation_policy: Some(PropagationPolicy::Background),
            ..params
        },
    }
}
