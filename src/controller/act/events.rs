//! Writes the events of a step. They never hold it up for long.

use std::sync::PoisonError;
use std::time::Duration;

use k8s_openapi::api::core::v1::Event as CoreEvent;
use kube::api::{Api, PostParams};
use tokio::time::{Instant, timeout_at};

use super::Actor;
use refit_api::Reason;
use refit_cluster::kube::{Answer, Failure, brief, failure};
use refit_facts::Text;
use refit_rollout::{Event, Observation, StepEffect};

/// Attempts to write an event before it waits apart from its step.
const EVENT_TRIES: u32 = 3;
/// Time for all events of a step, after which they wait apart from it.
const EVENT_PATIENCE: Duration = Duration::from_secs(2);

/// How long a Job waits for its events before it is recorded.
const RECORD_PATIENCE: Duration = Duration::from_secs(60);

impl Actor {
    /// Events are written before the write that they describe, so that they appear in order. They never hold it up: an
    /// event that cannot be written now waits apart, and one that the API server refuses is only logged.
    pub(super) async fn write_events(&self, events: &[Event]) -> Vec<StepEffect> {
        let (effects, unwritten) = self.try_events(events).await;
        self.defer(unwritten);
        effects
    }

    /// Has events written later.
    pub(super) fn defer(&self, events: Vec<CoreEvent>) {
        for event in events {
            self.outbox.put(event);
        }
    }

    /// Whether a Job is still to wait for its events. A webhook or a quota that keeps them from being written must not keep
    /// the Job for ever.
    pub(super) fn waits_for_events(&self, job: &Text) -> bool {
        let now = Instant::now();
        let mut waiting = self
            .waiting_for_events
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|_, since| now - *since < 2 * RECORD_PATIENCE);
        let since = *waiting.entry(job.clone()).or_insert(now);
        now - since < RECORD_PATIENCE
    }

    /// Also returns the events that cannot be written now.
    pub(super) async fn try_events(&self, events: &[Event]) -> (Vec<StepEffect>, Vec<CoreEvent>) {
        let (mut effects, mut unwritten) = (Vec::new(), Vec::new());
        if events.is_empty() {
            return (effects, unwritten);
        }
        let (now, end) = (self.clock.now(), Instant::now() + EVENT_PATIENCE);
        for event in events {
            let object = self.source.event(event, now);
            // Events about Nodes are in the namespace default.
            let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
            let api = Api::<CoreEvent>::namespaced(self.client.clone(), namespace);
            match timeout_at(end, self.write_event(&api, event.reason, &object)).await {
                Ok(Ok(effect)) => effects.extend(effect),
                Ok(Err(_)) | Err(_) => unwritten.push(object),
            }
        }
        (effects, unwritten)
    }

    /// Each event has a unique name, so that it can be written again after a lost response without a duplicate.
    async fn write_event(
        &self,
        api: &Api<CoreEvent>,
        reason: Reason,
        object: &CoreEvent,
    ) -> Result<Option<StepEffect>, kube::Error> {
        let mut tries = 1;
        loop {
            match api.create(&PostParams::default(), object).await {
                Ok(_) => return Ok(None),
                // The name contains the key of the occurrence, so this is the event that an earlier attempt has
                // written.
                Err(error) if Answer::of(&error) == Answer::Exists => return Ok(None),
                Err(error)
                    if matches!(failure(&error), Failure::Refused)
                        && Answer::of(&error) != Answer::Overload =>
                {
                    tracing::warn!(
                        reason = reason.name(),
                        error = brief(&error),
                        "an event was refused"
                    );
                    let may_not = Answer::of(&error) == Answer::Forbidden;
                    return Ok(may_not.then_some(StepEffect::Observed(Observation::Forbidden)));
                }
                // An event has a unique name, so to write it again is safe, unlike for other objects.
                Err(error) if failure(&error) == Failure::Unknown && tries < EVENT_TRIES => tries += 1,
                Err(error) => return Err(error),
            }
        }
    }
}
