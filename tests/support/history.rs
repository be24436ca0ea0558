//! Every state that a Plan had, in order: what a test needs to say that something was never there.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::{StreamExt as _, TryStreamExt as _};
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use refit::api::{Plan, PlanCondition};
use tokio::task::AbortHandle;

use super::wait;
use super::world::{World, find_condition};

/// A record of all versions of one Plan, from before it exists. It ends when dropped.
pub struct History {
    record: Arc<Mutex<Record>>,
    task: AbortHandle,
}

#[derive(Default)]
struct Record {
    states: Vec<(Instant, Plan)>,
    /// Why something may be missing.
    gap: Option<String>,
}

impl History {
    /// Begins the record. What happens after this returns is in it.
    pub async fn of(world: &World, plan: &str) -> Self {
        let plans = world.plans();
        let list = plans.list(&ListParams::default()).await;
        let list = list.unwrap_or_else(|error| panic!("cannot list Plans: {error}"));
        let known = list
            .items
            .into_iter()
            .filter(|it| it.metadata.name.as_deref() == Some(plan));
        let states = known.map(|it| (Instant::now(), it)).collect();
        let record = Arc::new(Mutex::new(Record { states, gap: None }));
        let from = list.metadata.resource_version.unwrap_or_default();
        let task = tokio::spawn(keep(plans, plan.to_owned(), from, record.clone())).abort_handle();
        Self { record, task }
    }

    /// Waits until the Plan is as `good` wants it, and returns all states up to then.
    pub async fn until(&self, what: &str, limit: Duration, good: impl Fn(&Plan) -> bool) -> Vec<Plan> {
        wait::eventually(what, limit, async || {
            let states = self.states();
            match states.iter().position(&good) {
                Some(at) => Ok(states[..=at].to_vec()),
                None => Err(format!(
                    "{:#?}",
                    states.last().and_then(|plan| plan.status.clone())
                )),
            }
        })
        .await
    }

    /// When the Plan was seen to be as `good` wants it first, if it was.
    pub fn since(&self, good: impl Fn(&Plan) -> bool) -> Option<Instant> {
        self.seen()
            .into_iter()
            .find(|(_, plan)| good(plan))
            .map(|(at, _)| at)
    }

    /// All states so far.
    pub fn states(&self) -> Vec<Plan> {
        self.seen().into_iter().map(|(_, plan)| plan).collect()
    }

    /// How long after the last change of its spec it was that the Plan had a status about it, as seen from here. A busy API
    /// server tells this record of both as late as it tells the controller of the first.
    pub fn answered_within(&self) -> Duration {
        let seen = self.seen();
        let generation = seen.last().and_then(|(_, plan)| plan.metadata.generation);
        let about = |plan: &Plan| plan.metadata.generation == generation;
        let observed = |plan: &Plan| {
            plan.status
                .as_ref()
                .is_some_and(|it| it.observed_generation == generation)
        };
        let asked = seen
            .iter()
            .find(|(_, plan)| about(plan))
            .expect("the Plan was seen");
        let answer = seen
            .iter()
            .find(|(_, plan)| about(plan) && observed(plan))
            .expect("it has a status by now");
        answer.0.duration_since(asked.0)
    }

    fn seen(&self) -> Vec<(Instant, Plan)> {
        let record = lock(&self.record);
        assert_eq!(record.gap, None, "the record has a gap");
        record.states.clone()
    }

    /// The different values that a condition has had, as `status/reason/message`, in order; those states aside that do not
    /// have it.
    pub fn said(&self, condition: &str) -> Vec<String> {
        let mut said: Vec<_> = self
            .states()
            .iter()
            .filter_map(|plan| find_condition(plan, condition).map(text))
            .collect();
        said.dedup();
        said
    }
}

impl Drop for History {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// `status/reason/message` of a condition.
pub fn text(condition: &PlanCondition) -> String {
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    format!(
        "{}/{}/{}",
        condition.status,
        part(&condition.reason),
        part(&condition.message)
    )
}

async fn keep(plans: Api<Plan>, name: String, mut from: String, record: Arc<Mutex<Record>>) {
    let only = WatchParams::default().fields(&format!("metadata.name={name}"));
    loop {
        let Ok(watch) = plans.watch(&only, &from).await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let mut watch = watch.boxed();
        while let Ok(Some(event)) = watch.try_next().await {
            match event {
                WatchEvent::Added(plan) | WatchEvent::Modified(plan) => {
                    from = plan.metadata.resource_version.clone().unwrap_or_default();
                    lock(&record).states.push((Instant::now(), plan));
                }
                WatchEvent::Error(status) => {
                    lock(&record).gap = Some(status.message);
                    return;
                }
                WatchEvent::Deleted(_) | WatchEvent::Bookmark(_) => {}
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
