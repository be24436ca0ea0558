//! Waits, once the node is cordoned, until pods have ended by themselves, before anything is evicted.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::failure::{Failure, OVERDUE, SKIPPED};
use super::lister::PodLister;
use super::pods::{Pod, Rules, is_given_up};
use super::waiter::Waiter;
use refit_api::drain::WAITS_NAMED;
use refit_api::{AfterWait, DrainNote, RunningPod, WaitFor};
use refit_base::names::shortened;

/// Interval of lists: work that was waited for during minutes may end some seconds unnoticed.
const INTERVAL: Duration = Duration::from_secs(5);
const SHORTEST: Duration = Duration::from_millis(200);
/// Interval of progress messages.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(60);

/// The pods of an entry that run, by namespace and name.
type Running = Vec<String>;

/// Waits until no such pod runs any more. Returns the pods that still run although their time is up, and that the drain evicts.
pub(super) async fn wait(
    waiter: &mut Waiter<'_>,
    entries: &[WaitFor],
    rules: Rules,
) -> Result<Option<String>, Failure> {
    let (began, since) = (Instant::now(), waiter.clock.now());
    let mut next_report = began;
    let mut late = Vec::new();
    let mut open: Vec<&WaitFor> = entries.iter().collect();
    loop {
        let listed = list(waiter.lister, rules, waiter.clock.now(), &open).await;
        let running = waiter
            .admit(listed)
            .map_err(|why| Failure::new(format!("the pods of the node cannot be listed: {why}")))?;
        // After a list that failed nothing is known, so no time is up.
        if let Some(running) = running {
            let note = note(&open, &running, since);
            let mut next = Vec::new();
            for (wait, pods) in open.iter().zip(&running) {
                let limit = wait.timeout.to_std().unwrap_or(Duration::ZERO);
                match pods.as_slice() {
                    [] => {}
                    _ if began.elapsed() < limit => next.push(*wait),
                    pods => {
                        let pods = shortened(pods, 1);
                        let message = format!("{pods} had not ended within {}", wait.timeout);
                        let exit_code = match wait.after_timeout {
                            AfterWait::Evict => {
                                late.push(message);
                                continue;
                            }
                            AfterWait::Skip => SKIPPED,
                            AfterWait::Fail => OVERDUE,
                        };
                        return Err(Failure { message, exit_code });
                    }
                }
            }
            open = next;
            if open.is_empty() {
                return Ok((!late.is_empty()).then(|| late.join("; ")));
            }
            waiter.show(&note);
            if Instant::now() >= next_report {
                next_report = Instant::now() + PROGRESS_INTERVAL;
                waiter.report(0, note);
            }
        }
        let limits = open.iter().filter_map(|wait| wait.timeout.to_std());
        let left = limits.map(|limit| limit.saturating_sub(began.elapsed()));
        let left = left.min().unwrap_or(INTERVAL).max(SHORTEST);
        waiter.pause(INTERVAL.min(left)).await?;
    }
}

/// The running pods of each entry. Not those that the drain would leave.
async fn list(
    lister: &PodLister,
    rules: Rules,
    now: Timestamp,
    open: &[&WaitFor],
) -> Result<Vec<Running>, kube::Error> {
    let mut all = Vec::new();
    for wait in open {
        let selector = both(&lister.selector, &wait.selector.to_string());
        let pods = lister.pages::<Pod>(&selector, false).await?;
        let is_running =
            |pod: &&Pod| pod.is_awaited(wait) && !is_given_up(pod.deletion_timestamp(), rules, now);
        let mut running: Running = pods
            .iter()
            .filter(is_running)
            .map(|pod| pod.id().path())
            .collect();
        running.sort_unstable();
        all.push(running);
    }
    Ok(all)
}

/// The label selector of what both select.
fn both(one: &str, other: &str) -> String {
    let given: Vec<_> = [one, other].into_iter().filter(|one| !one.is_empty()).collect();
    given.join(",")
}

fn note(open: &[&WaitFor], running: &[Running], since: Timestamp) -> DrainNote {
    let mut all: BTreeMap<&str, Timestamp> = BTreeMap::new();
    for (wait, pods) in open.iter().zip(running) {
        let until = since.saturating_add(SignedDuration::from_nanos(wait.timeout.as_nanos()));
        let until = until.unwrap_or(Timestamp::MAX);
        for pod in pods {
            let known = all.entry(pod).or_insert(until);
            *known = until.min(*known);
        }
    }
    DrainNote {
        more: all.len().saturating_sub(WAITS_NAMED),
        running: all
            .into_iter()
            .take(WAITS_NAMED)
            .map(|(pod, until)| RunningPod {
                pod: pod.to_owned(),
                since,
                until,
            })
            .collect(),
        ..DrainNote::default()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use http::{Request, Response};
    use kube::Client;
    use kube::client::Body;
    use serde_json::json;
    use tower::BoxError;

    use super::*;
    use crate::drain::changes::LastAnswer;

    #[tokio::test]
    async fn pods_that_the_drain_leaves_are_not_waited_for() {
        let asked = Arc::new(Mutex::new(String::new()));
        let query = asked.clone();
        let transport = tower::service_fn(move |request: Request<Body>| {
            *query.lock().unwrap() = request.uri().query().unwrap_or_default().to_owned();
            let pod = |name: &str, deleted: Option<&str>| {
                json!({
                    "metadata": {
                        "name": name, "namespace": "ci", "uid": name, "labels": { "app": "runner" },
                        "deletionTimestamp": deleted,
                    },
                    "status": { "phase": "Running" },
                })
            };
            let items = [
                pod("lost", Some("1970-01-01T00:00:00Z")),
                pod("ends", Some("2026-01-01T00:00:00Z")),
                pod("runs", None),
            ];
            let body = json!({ "metadata": {}, "items": items }).to_string();
            async move { Ok::<_, BoxError>(Response::new(Body::from(body.into_bytes()))) }
        });
        let lister = PodLister {
            client: Client::new(transport, "default"),
            node: "a".to_owned(),
            selector: "tier=ci".to_owned(),
            chunk: 0,
            evict_last: Vec::new(),
            changes: None,
            last: LastAnswer::default(),
        };
        let entry: WaitFor = "app=runner;timeout=1m".parse().unwrap();
        let rules = Rules {
            skip_wait_for_delete: 60,
            ..Rules::default()
        };
        let now = "2026-01-01T00:00:30Z".parse().unwrap();
        let running = list(&lister, rules, now, &[&entry]).await.unwrap();
        assert_eq!(running, [["ci/ends", "ci/runs"]]);
        assert!(asked.lock().unwrap().contains("tier%3Dci%2Capp%3Drunner"));
    }
}
