//! Metrics: counters of the process, and what the loop says of Plans and nodes when it is asked.
//!
//! The loop answers a scrape between two decisions, from the state that it has then. Nothing here decides anything, and no
//! scrape causes a decision. Labels are names of Plans, or words of closed lists: a word that refit does not know counts as
//! `Other`.

pub mod list;
mod plans;
mod process;
mod reporter;
mod sample;
#[cfg(test)]
mod tests;
mod tracker;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use prometheus_client::metrics::histogram::Histogram;

use super::lease::Progress;
use refit_cluster::kube::Leadership;
use refit_cluster::kube::client::{Outcome, RequestCounts};
pub use reporter::{LoopFigures, Reporter, Scrape};
pub(super) use sample::CONTENT_TYPE;
use sample::{DECISION_BOUNDS, OTHER, Sample, Samples};

/// How long a scrape waits for the loop, which may be computing.
const LOOP_PATIENCE: Duration = Duration::from_secs(2);
/// How long a text is given again, so that scrapes cost no more than a few a second do.
const REUSED_FOR: Duration = Duration::from_millis(250);
/// Resources in requests to the API server. A path of another form cannot add a series.
const RESOURCES: [&str; 18] = [
    "customresourcedefinitions",
    "events",
    "jobs",
    "leases",
    "namespaces",
    "nodes",
    "plans",
    "plans/status",
    "pods",
    "replicasets",
    "secrets",
    "selfsubjectaccessreviews",
    "statefulsets",
    "subjectaccessreviews",
    "tokenreviews",
    "configmaps",
    "poddisruptionbudgets",
    "validatingadmissionpolicies",
];
/// HTTP statuses of an API server. A proxy could answer any other.
const CODES: [u16; 18] = [
    200, 201, 202, 204, 304, 400, 401, 403, 404, 405, 409, 410, 422, 429, 500, 502, 503, 504,
];

/// The metrics of this process. Cheap to clone.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    requests: Arc<RequestCounts>,
    progress: Progress,
    counters: Mutex<Counters>,
    /// The last text, and when it was made.
    text: tokio::sync::Mutex<Option<(Instant, String)>>,
}

struct Counters {
    decisions: Histogram,
    watch_restarts: BTreeMap<&'static str, u64>,
    unreadable: BTreeMap<&'static str, u64>,
    /// Notifications that were sent, and that were given up.
    notified: [u64; 2],
    notifications_waiting: usize,
    silence_failures: u64,
    /// Set when this process takes part in the election.
    leadership: Option<Leadership>,
    /// Of the tasks of the leader.
    leader: Option<LeaderLink>,
}

struct LeaderLink {
    requests: mpsc::Sender<Scrape>,
    listed: watch::Receiver<BTreeSet<refit_rollout::Kind>>,
}

impl Metrics {
    pub fn new(requests: Arc<RequestCounts>, progress: Progress) -> Self {
        let counters = Counters {
            decisions: Histogram::new(DECISION_BOUNDS),
            watch_restarts: BTreeMap::new(),
            unreadable: BTreeMap::new(),
            notified: [0; 2],
            notifications_waiting: 0,
            silence_failures: 0,
            leadership: None,
            leader: None,
        };
        Self(Arc::new(Inner {
            requests,
            progress,
            counters: Mutex::new(counters),
            text: tokio::sync::Mutex::default(),
        }))
    }

    fn counters(&self) -> MutexGuard<'_, Counters> {
        self.0.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This process takes part in the election.
    pub(super) fn set_leadership(&self, leadership: Leadership) {
        self.counters().leadership = Some(leadership);
    }

    /// The loop of a leader starts. Returns the end that answers scrapes.
    pub(super) fn reporter(&self, listed: watch::Receiver<BTreeSet<refit_rollout::Kind>>) -> Reporter {
        let (requests, asked) = mpsc::channel(1);
        self.counters().leader = Some(LeaderLink { requests, listed });
        Reporter::new(self.clone(), asked)
    }

    /// A list or a watch failed, and starts again.
    pub(super) fn watch_restarted(&self, resource: &'static str) {
        *self.counters().watch_restarts.entry(resource).or_default() += 1;
    }

    pub(super) fn unreadable(&self, resource: &'static str) {
        *self.counters().unreadable.entry(resource).or_default() += 1;
    }

    /// A notification was sent, or given up.
    pub(super) fn notified(&self, sent: bool) {
        self.counters().notified[usize::from(!sent)] += 1;
    }

    pub(super) fn set_notifications_waiting(&self, waiting: usize) {
        self.counters().notifications_waiting = waiting;
    }

    /// Alertmanager could not be asked, or refused.
    pub(super) fn silence_failed(&self) {
        self.counters().silence_failures += 1;
    }

    fn record_decision(&self, took: Duration) {
        self.counters().decisions.observe(took.as_secs_f64());
    }

    fn is_leader(&self) -> bool {
        self.counters()
            .leadership
            .as_ref()
            .is_some_and(Leadership::is_leader)
    }

    /// Whether the process makes progress: an error if its loop has computed for longer than `limit`.
    pub(super) fn check_live(&self, limit: Duration) -> Result<(), String> {
        let stuck_for = self.0.progress.stuck_for();
        if stuck_for < limit {
            return Ok(());
        }
        Err(format!(
            "the loop has computed for {} s without a pause; this is a bug",
            stuck_for.as_secs()
        ))
    }

    /// Whether the process does its work: it follows, or leads and knows the cluster.
    pub(super) fn check_ready(&self) -> Result<(), String> {
        let counters = self.counters();
        let Some(leadership) = &counters.leadership else {
            return Err("the controller is starting: it waits for the API server".to_owned());
        };
        if !leadership.is_leader() {
            return Ok(());
        }
        let missing: Vec<&str> = match &counters.leader {
            None => vec!["everything"],
            Some(leader) => {
                let listed = leader.listed.borrow();
                let missing = super::engine::REQUIRED_LISTS
                    .iter()
                    .filter(|kind| !listed.contains(kind));
                missing.map(|kind| resource(*kind)).collect()
            }
        };
        if missing.is_empty() {
            return Ok(());
        }
        Err(format!(
            "the controller leads, and has not listed yet: {}",
            missing.join(", ")
        ))
    }

    pub(super) async fn text(&self) -> Result<String, fmt::Error> {
        let mut last = self.0.text.lock().await;
        if let Some((at, text)) = &*last
            && at.elapsed() < REUSED_FOR
        {
            return Ok(text.clone());
        }
        // The lock is held meanwhile, so that scrapes at the same time cause one request to the loop.
        let text = sample::text(self.samples().await)?;
        *last = Some((Instant::now(), text.clone()));
        Ok(text)
    }

    async fn samples(&self) -> Samples {
        let mut samples = self.own_samples();
        samples.extend(self.ask().await.unwrap_or_default());
        samples
    }

    /// Asks the loop. `None` if this process does not lead, or its loop computes; the metrics of the process show that.
    async fn ask(&self) -> Option<Samples> {
        if !self.is_leader() {
            return None;
        }
        let engine = self.counters().leader.as_ref()?.requests.clone();
        let (reply, answer) = oneshot::channel();
        let asked = async {
            engine.send(Scrape(reply)).await.ok()?;
            answer.await.ok()
        };
        tokio::time::timeout(LOOP_PATIENCE, asked).await.ok().flatten()
    }

    /// What every process knows.
    fn own_samples(&self) -> Samples {
        let busy = self.0.progress.stuck_for();
        let mut samples = vec![
            Sample::of(&list::BUILD_INFO, 1.0).with(env!("CARGO_PKG_VERSION")),
            Sample::flag(&list::LEADER, self.is_leader()),
            Sample::of(&list::LOOP_BUSY, busy.as_secs_f64()),
        ];
        {
            let counters = self.counters();
            samples.push(Sample::histogram(&list::DECISION_DURATION, &counters.decisions));
            let by_resource = [
                (&list::WATCH_RESTARTS, &counters.watch_restarts),
                (&list::UNREADABLE, &counters.unreadable),
            ];
            for (metric, counts) in by_resource {
                let watched = WATCHED.iter().map(|resource| {
                    let count = counts.get(resource).copied().unwrap_or_default();
                    Sample::total(metric, count).with(*resource)
                });
                samples.extend(watched);
            }
            for (result, count) in ["sent", "dropped"].into_iter().zip(counters.notified) {
                samples.push(Sample::total(&list::NOTIFICATIONS, count).with(result));
            }
            samples.push(Sample::count(
                &list::NOTIFICATIONS_WAITING,
                counters.notifications_waiting,
            ));
            samples.push(Sample::total(&list::SILENCE_FAILURES, counters.silence_failures));
        }
        samples.extend(api_requests(&self.0.requests));
        samples.extend(process::samples());
        samples
    }
}

pub(super) const DEFINITIONS: &str = "customresourcedefinitions";

pub(super) const SECRETS: &str = "secrets";

/// The resources that are watched.
const WATCHED: [&str; 6] = [DEFINITIONS, "jobs", "nodes", "plans", "pods", SECRETS];

pub(super) fn resource(kind: refit_rollout::Kind) -> &'static str {
    match kind {
        refit_rollout::Kind::Node => "nodes",
        refit_rollout::Kind::Job => "jobs",
        refit_rollout::Kind::Pod => "pods",
        refit_rollout::Kind::Plan => "plans",
    }
}

fn api_requests(requests: &RequestCounts) -> Samples {
    let mut counts: BTreeMap<(&str, &str, String), u64> = BTreeMap::new();
    for ((call, outcome), count) in requests.snapshot() {
        let known = RESOURCES.iter().find(|known| **known == call.resource);
        let code = match outcome {
            Outcome::Answered(code) if !CODES.contains(&code) => OTHER.to_owned(),
            outcome => outcome.to_string(),
        };
        *counts
            .entry((call.verb, known.copied().unwrap_or(OTHER), code))
            .or_default() += count;
    }
    let sample = |((verb, resource, code), count): ((&str, &str, String), u64)| {
        Sample::total(&list::API_REQUESTS, count)
            .with(verb)
            .with(resource)
            .with(code)
    };
    counts.into_iter().map(sample).collect()
}
