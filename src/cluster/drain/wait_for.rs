//! Waits, once the node is cordoned, until pods have ended by themselves, before anything is evicted.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use tokio::time::{Instant, sleep};

use super::lister::PodLister;
use super::publish::Publisher;
use super::tracker::MAX_OUTAGE;
use crate::clock::Clock;
use crate::kube::{Answer, brief};
use refit_api::drain::WAITS_NAMED;
use refit_api::{AfterWait, DrainNote, RunningPod, WaitFor};

/// Interval of lists: work that was waited for during minutes may end some seconds unnoticed.
const INTERVAL: Duration = Duration::from_secs(5);
const SHORTEST: Duration = Duration::from_millis(200);
/// Interval of progress messages.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(60);

/// How the wait ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// No such pod runs any more.
    Over,
    /// The drain begins although these pods run.
    Evict(String),
    Skip(String),
    Fail(String),
    Cancelled,
    ListFailed(String),
}

pub(super) struct Wait<'a> {
    pub(super) lister: &'a PodLister,
    pub(super) entries: &'a [WaitFor],
    pub(super) clock: &'a Clock,
    pub(super) publisher: Option<&'a Publisher>,
    pub(super) cancelled: BoxFuture<'static, ()>,
    pub(super) report: &'a (dyn Fn(&DrainNote) + Send + Sync),
}

/// The pods of an entry that run, by namespace and name.
type Running = Vec<String>;

impl Wait<'_> {
    pub(super) async fn run(mut self) -> End {
        let (began, since) = (Instant::now(), self.clock.now());
        let mut failing_since = None;
        let mut next_report = began;
        let mut late = Vec::new();
        let mut open: Vec<&WaitFor> = self.entries.iter().collect();
        loop {
            let mut running = Vec::new();
            match list(self.lister, &open).await {
                Ok(found) => {
                    failing_since = None;
                    running = found;
                }
                Err(error) => {
                    let failing: Instant = *failing_since.get_or_insert_with(Instant::now);
                    let for_good = Answer::of(&error) == Answer::Forbidden;
                    if for_good || failing.elapsed() >= MAX_OUTAGE {
                        return End::ListFailed(brief(&error));
                    }
                }
            }
            // After a list that failed nothing is known, so no time is up.
            let mut next = Vec::new();
            for (wait, pods) in open.iter().zip(&running) {
                let limit = wait.timeout.to_std().unwrap_or(Duration::ZERO);
                match pods.as_slice() {
                    [] => {}
                    _ if began.elapsed() < limit => next.push(*wait),
                    [pod, more @ ..] => {
                        let others = match more.len() {
                            0 => String::new(),
                            more => format!(" and {more} more"),
                        };
                        let says = format!("{pod}{others} had not ended within {}", wait.timeout);
                        match wait.after_timeout {
                            AfterWait::Evict => late.push(says),
                            AfterWait::Skip => return End::Skip(says),
                            AfterWait::Fail => return End::Fail(says),
                        }
                    }
                }
            }
            if failing_since.is_none() {
                let note = note(&open, &running, since);
                open = next;
                if open.is_empty() {
                    return if late.is_empty() {
                        End::Over
                    } else {
                        End::Evict(late.join("; "))
                    };
                }
                if let Some(publisher) = self.publisher {
                    publisher.show(&note);
                }
                if Instant::now() >= next_report {
                    next_report = Instant::now() + PROGRESS_INTERVAL;
                    (self.report)(&note);
                }
            }
            let limits = open.iter().filter_map(|wait| wait.timeout.to_std());
            let left = limits.map(|limit| limit.saturating_sub(began.elapsed()));
            let left = left.min().unwrap_or(INTERVAL).max(SHORTEST);
            tokio::select! {
                biased; // so that a rehearsal is reproducible
                () = &mut self.cancelled => return End::Cancelled,
                () = sleep(INTERVAL.min(left)) => {}
            }
        }
    }
}

/// The running pods of each entry.
async fn list(lister: &PodLister, open: &[&WaitFor]) -> Result<Vec<Running>, kube::Error> {
    let mut all = Vec::new();
    for wait in open {
        let of_entry = PodLister {
            selector: wait.selector.to_string(),
            ..lister.clone()
        };
        let pods = of_entry.all().await?;
        let running = pods.iter().filter(|pod| pod.is_awaited(wait));
        let mut running: Running = running.map(|pod| pod.id().path()).collect();
        running.sort_unstable();
        all.push(running);
    }
    Ok(all)
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
