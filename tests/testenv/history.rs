//! All states of a Plan in order, for tests that something never happened.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use refit_api::{Plan, PlanCondition};
use tokio::task::AbortHandle;

use super::context::{TestContext, find_condition};
use super::wait;

/// All versions of a Plan, which may not exist at the start.
pub struct History {
    record: Arc<Mutex<Record>>,
    task: AbortHandle,
}

#[derive(Default)]
struct Record {
    states: Vec<Plan>,
    /// Why a version may be missing.
    gap: Option<String>,
}

impl History {
    /// Starts. All later versions are included.
    pub async fn of(ctx: &TestContext, plan: &str) -> Self {
        let plans = ctx.plans();
        let list = plans.list(&ListParams::default()).await;
        let list = list.unwrap_or_else(|error| panic!("cannot list Plans: {error}"));
        let known = list
            .items
            .into_iter()
            .filter(|it| it.metadata.name.as_deref() == Some(plan));
        let states = known.collect();
        let record = Arc::new(Mutex::new(Record { states, gap: None }));
        let from = list.metadata.resource_version.unwrap_or_default();
        let task = tokio::spawn(keep(plans, plan.to_owned(), from, record.clone())).abort_handle();
        Self { record, task }
    }

    /// Waits until a state satisfies `good`, and returns all states up to that.
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

    /// All states so far.
    pub fn states(&self) -> Vec<Plan> {
        let record = lock(&self.record);
        assert_eq!(record.gap, None, "the record has a gap");
        record.states.clone()
    }

    /// The different values of a condition as `status/reason/message`, in order.
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
    let [reason, message] = [condition.reason.as_deref(), condition.message.as_deref()];
    format!(
        "{}/{}/{}",
        condition.status,
        reason.unwrap_or_default(),
        message.unwrap_or_default()
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
                    lock(&record).states.push(plan);
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
