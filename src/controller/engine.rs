//! The loop: observations and results of steps update the state, one decision follows, and its steps run concurrently.
//! There is one decision at a time, and one step per object at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use super::act::{Actor, FinishedStep, StepError, StepErrorKind, prepare};
use super::lanes::Lanes;
use super::lease::Progress;
use crate::api::Reason;
use crate::rollout::{
    self, ClusterState, Decision, Key, Kind, Lane, ListCounts, Observation, Schema, Step, StepEffect, decide,
    decide_degraded,
};

/// How long observations are collected before a decision: a change of one object often causes that of another.
const DEBOUNCE: Duration = Duration::from_millis(4);
/// How long changes of pods and Nodes are collected. A pod changes several times in each Job, and the Job itself reports its
/// end. A Node changes with each note of a drain.
const LONG_DEBOUNCE: Duration = Duration::from_millis(50);
/// First delay after a transient error; it doubles with each retry.
const INITIAL_BACKOFF: Duration = Duration::from_millis(100);
/// Longest delay after an error.
const MAX_BACKOFF: Duration = Duration::from_secs(30);
/// First delay after a refusal, which someone has to resolve.
const REFUSED_BACKOFF: Duration = Duration::from_secs(5);

/// Longest sleep until a time of day, because the clock can be set meanwhile, and runs while the machine is suspended.
const MAX_SLEEP: Duration = Duration::from_secs(60);
/// Number of attempts, 1.5 s after the first, from which status reports a transient error: a short outage is not worth
/// a report, a webhook that is down is.
const TRANSIENT_REPORTED_AFTER: u32 = 5;

/// Kinds that must be listed before the first decision, unless listing is forbidden and not essential.
const REQUIRED_LISTS: [Kind; 5] = [Kind::Secret, Kind::Pod, Kind::Job, Kind::Node, Kind::Plan];

/// The loop and its state.
pub struct Engine {
    cluster: ClusterState,
    actor: Arc<Actor>,
    observations: mpsc::Receiver<Observation>,
    /// Whether to list pods, if they cannot be watched.
    pods_wanted: watch::Sender<bool>,
    /// Kinds that were listed, or need not be waited for.
    listed: watch::Sender<BTreeSet<Kind>>,
    /// Restarts the watch of Plans.
    relist_plans: watch::Sender<()>,
    /// Objects of the steps in flight.
    in_flight: BTreeMap<Key, InFlight>,
    backoffs: BTreeMap<Key, Backoff>,
    lanes: Lanes,
    steps: JoinSet<FinishedStep>,
    /// Shows the election whether this loop is stuck.
    progress: Progress,
    clock_watch: ClockWatch,
}

/// Finds out when the time of day was set.
#[derive(Default)]
struct ClockWatch(Option<(Instant, Timestamp)>);

/// A smaller step is left alone: it shortens or lengthens a wait by so much.
const SMALLEST_STEP: SignedDuration = SignedDuration::from_secs(10);

impl ClockWatch {
    /// How far the time of day was set since the last call, if it was.
    fn step(&mut self, now: Timestamp) -> Option<SignedDuration> {
        let instant = Instant::now();
        let (then, was) = self.0.replace((instant, now))?;
        let elapsed = SignedDuration::try_from(instant - then).ok()?;
        let step = now.duration_since(was) - elapsed;
        (step.abs() >= SMALLEST_STEP).then_some(step)
    }
}

/// What the loop waits for.
enum Wakeup {
    Due,
    Observation(Option<Observation>),
    Step(Result<FinishedStep, JoinError>),
}

struct InFlight {
    /// The lists that had ended when the step began.
    lists: ListCounts,
    lane: Lane,
}

struct Backoff {
    until: Instant,
    tries: u32,
}

impl Engine {
    /// A loop with an empty state.
    pub fn new(
        cluster: ClusterState,
        actor: Actor,
        observations: mpsc::Receiver<Observation>,
        pods_wanted: watch::Sender<bool>,
        listed: watch::Sender<BTreeSet<Kind>>,
        relist_plans: watch::Sender<()>,
        progress: Progress,
    ) -> Self {
        Self {
            cluster,
            actor: Arc::new(actor),
            observations,
            pods_wanted,
            listed,
            relist_plans,
            in_flight: BTreeMap::new(),
            backoffs: BTreeMap::new(),
            lanes: Lanes::default(),
            steps: JoinSet::new(),
            progress,
            clock_watch: ClockWatch::default(),
        }
    }

    /// The CRD has just been changed, and an API server may not have loaded it yet.
    pub fn distrust_lists(&mut self) {
        self.cluster.apply(Observation::SchemaReplaced);
    }

    /// Runs until the watches end or the future is dropped.
    pub async fn run(&mut self) {
        let mut requeue_at: Option<Instant> = None;
        let mut degraded = false;
        while self.wait(requeue_at).await {
            let decision = if REQUIRED_LISTS.iter().all(|kind| self.is_listed(*kind)) {
                if std::mem::take(&mut degraded) {
                    self.cluster.apply(Observation::PermissionsGranted);
                    self.backoffs.remove(&Key::Permissions);
                }
                self.decide()
            } else if *self.actor.degraded.borrow() && self.is_listed(Kind::Plan) {
                degraded = true;
                decide_degraded(&self.cluster)
            } else {
                continue;
            };
            requeue_at = self.start_steps(decision);
        }
    }

    /// Waits for the steps in flight, and starts no more.
    pub async fn finish(&mut self) {
        while self.steps.join_next().await.is_some() {}
    }

    /// Waits until a decision is due. Returns false if no more observations will come.
    async fn wait(&mut self, requeue_at: Option<Instant>) -> bool {
        let mut until = requeue_at;
        let sooner = |until: Option<Instant>, pause: Duration| {
            let at = Instant::now() + pause;
            Some(until.map_or(at, |until| until.min(at)))
        };
        loop {
            self.progress.idle();
            let wakeup = tokio::select! {
                biased;
                // First, so that a flood of observations does not delay the decision.
                () = sleep_until(until) => Wakeup::Due,
                observation = self.observations.recv() => Wakeup::Observation(observation),
                Some(done) = self.steps.join_next() => Wakeup::Step(done),
            };
            self.progress.busy();
            match wakeup {
                Wakeup::Due => return true,
                Wakeup::Observation(Some(observation)) => {
                    let is_busy = matches!(observation, Observation::Node(..) | Observation::Pod(..));
                    if self.apply(observation) {
                        until = sooner(until, if is_busy { LONG_DEBOUNCE } else { DEBOUNCE });
                    }
                }
                Wakeup::Observation(None) => {
                    self.progress.idle();
                    return false;
                }
                Wakeup::Step(done) => {
                    match done {
                        Ok(done) => self.finish_step(done),
                        // A panic in a step is a bug. The process ends rather than continue in an unknown state.
                        Err(error) => std::panic::resume_unwind(error.into_panic()),
                    }
                    until = sooner(until, DEBOUNCE);
                }
            }
        }
    }

    fn is_listed(&self, kind: Kind) -> bool {
        self.listed.borrow().contains(&kind)
    }

    /// Returns whether a decision is due.
    fn apply(&mut self, observation: Observation) -> bool {
        let mut first = false;
        match &observation {
            Observation::ListStarted(Kind::Plan) if !self.has_listed_all_but_plans() => {
                self.cluster.apply(Observation::PlanListTooEarly);
            }
            Observation::ListFinished(kind) => first = self.mark_listed(*kind),
            // The permission check finds out which permission is missing, and when it is granted. No node starts on
            // stale data.
            Observation::Forbidden(kind) => {
                self.actor.degraded.send_replace(true);
                // Only Plans with Secrets need these. Without any other kind, it is unknown which nodes have started.
                if *kind == Kind::Secret {
                    self.mark_listed(*kind);
                }
            }
            Observation::Schema(schema, _) => log_schema(self.cluster.schema(), schema),
            _ => {}
        }
        self.cluster.apply(observation) || first
    }

    /// Returns whether the kind was not listed before.
    fn mark_listed(&self, kind: Kind) -> bool {
        self.listed.send_if_modified(|listed| listed.insert(kind))
    }

    /// Whether there is something to compare Plans with.
    fn has_listed_all_but_plans(&self) -> bool {
        let listed = self.listed.borrow();
        let mut others = REQUIRED_LISTS.iter().filter(|kind| **kind != Kind::Plan);
        others.all(|kind| listed.contains(kind))
    }

    fn decide(&mut self) -> Decision {
        let now = self.actor.clock.now();
        if let Some(step) = self.clock_watch.step(now) {
            tracing::warn!(%step, "the clock was set, or the machine was suspended");
            self.cluster.shift_times(step);
        }
        self.cluster.refresh(now);
        let decision = decide(&self.cluster, now);
        self.pods_wanted.send_if_modified(|wanted| {
            let change = *wanted != self.cluster.has_work_on_nodes();
            *wanted ^= change;
            change
        });
        decision
    }

    /// Starts the steps that can start, and returns when to decide again at the latest.
    fn start_steps(&mut self, decision: Decision) -> Option<Instant> {
        let now = Instant::now();
        let clock = self.actor.clock.now();
        let mut requeue_at = decision.requeue_at.map(|at| {
            let wait = Duration::try_from(at.duration_since(clock)).unwrap_or_default();
            now + wait.min(MAX_SLEEP) + Duration::from_millis(1)
        });
        let mut ready = Vec::new();
        let mut background = Vec::new();
        for step in decision.steps {
            let key = step.key();
            if self.in_flight.contains_key(&key) {
                continue; // its end causes another decision
            }
            if let Some(pause) = self.backoffs.get(&key).filter(|pause| pause.until > now) {
                sooner(&mut requeue_at, pause.until);
                continue;
            }
            match step.lane() {
                Lane::Background => background.push((key, step)),
                Lane::Interactive | Lane::External => ready.push((key, step)),
            }
        }
        // Steps that fill slots run before steps that free more slots.
        ready.sort_by_key(|(_, step)| !matches!(step, Step::WriteStatus { .. } | Step::CreateJob { .. }));
        ready.extend(self.lanes.queue(background, now));
        for (key, step) in ready {
            // If the lane is full, or a step for the same object is in flight, the end of a step causes another
            // decision.
            let begins = self.lanes.has_place(step.lane(), now) && !self.in_flight.contains_key(&key);
            if begins && let Some(until) = self.begin_step(key, step, now) {
                sooner(&mut requeue_at, until);
            }
        }
        if let Some(at) = self.lanes.requeue_at() {
            sooner(&mut requeue_at, at);
        }
        // An error of a step that is no longer requested is dropped.
        let cluster = &mut self.cluster;
        self.backoffs.retain(|key, pause| {
            let counts = pause.until + MAX_BACKOFF * 2 > now;
            if !counts {
                cluster.clear_failure(key);
            }
            counts
        });
        requeue_at
    }

    /// Starts a step. If it cannot be sent, returns when to request it again.
    fn begin_step(&mut self, key: Key, step: Step, now: Instant) -> Option<Instant> {
        let lane = step.lane();
        self.cluster.step_started(&step);
        if key == Key::Plans {
            self.relist_plans.send_replace(());
        }
        match prepare(&self.cluster, step) {
            Ok(Some(prepared)) => {
                tracing::debug!(?key, "a step begins");
                self.lanes.begin(lane, now);
                self.lanes.dequeue(&key);
                let lists = self.cluster.lists();
                self.in_flight.insert(key.clone(), InFlight { lists, lane });
                self.steps.spawn(Arc::clone(&self.actor).carry_out(key, prepared));
                None
            }
            Ok(None) => {
                self.cluster.step_finished(&key);
                None
            }
            Err(message) => {
                self.cluster.step_finished(&key);
                let kind = StepErrorKind::Refused;
                Some(self.back_off(&key, StepError { message, kind }))
            }
        }
    }

    fn finish_step(&mut self, done: FinishedStep) {
        let sent = match self.in_flight.remove(&done.key) {
            Some(step) => {
                self.lanes.end(step.lane, Instant::now());
                step.lists
            }
            None => self.cluster.lists(),
        };
        for effect in done.effects {
            self.apply_effect(effect, sent);
        }
        self.cluster.step_finished(&done.key);
        if let Some(step_error) = done.error {
            self.back_off(&done.key, step_error);
        } else {
            self.backoffs.remove(&done.key);
            self.cluster.clear_failure(&done.key);
        }
    }

    fn apply_effect(&mut self, effect: StepEffect, sent: ListCounts) {
        let was_pruned = matches!(effect, StepEffect::StatusPruned);
        let news = self.cluster.apply_effect(effect, sent, self.actor.clock.now());
        if was_pruned && news {
            tracing::error!(
                "{}: an API server does not keep refit's fields of a Plan, though the CustomResourceDefinition has them; no \
                 Plan is written and no node is started meanwhile",
                Reason::SchemaOutdated
            );
        }
    }

    fn back_off(&mut self, key: &Key, step_error: StepError) -> Instant {
        let known = self.backoffs.get(key).map_or(0, |pause| pause.tries);
        let tries = known + 1;
        let doubled = |first: Duration| (first * 2_u32.saturating_pow(known.min(16))).min(MAX_BACKOFF);
        let pause = match step_error.kind {
            StepErrorKind::Stale if known == 0 => Duration::ZERO,
            StepErrorKind::Stale | StepErrorKind::Unanswered | StepErrorKind::Transient => {
                doubled(INITIAL_BACKOFF)
            }
            StepErrorKind::Refused | StepErrorKind::Forbidden => doubled(REFUSED_BACKOFF),
        };
        match step_error.kind {
            StepErrorKind::Stale => tracing::debug!(?key, why = step_error.message, "looking again"),
            StepErrorKind::Unanswered | StepErrorKind::Transient => {
                tracing::warn!(?key, why = step_error.message, "trying again");
            }
            StepErrorKind::Refused | StepErrorKind::Forbidden => {
                tracing::error!(?key, why = step_error.message, "refused");
            }
        }
        if step_error.kind == StepErrorKind::Forbidden {
            self.apply_effect(StepEffect::Forbidden, self.cluster.lists());
        }
        let refused = matches!(step_error.kind, StepErrorKind::Refused | StepErrorKind::Forbidden);
        if refused || step_error.kind == StepErrorKind::Transient && tries >= TRANSIENT_REPORTED_AFTER {
            self.cluster.step_failed(
                key.clone(),
                rollout::StepFailure {
                    message: step_error.message,
                    refused,
                },
            );
        }
        let until = Instant::now() + pause;
        self.backoffs.insert(key.clone(), Backoff { until, tries });
        until
    }
}

fn sooner(requeue_at: &mut Option<Instant>, at: Instant) {
    *requeue_at = Some(requeue_at.map_or(at, |known| known.min(at)));
}

fn log_schema(known: &Schema, schema: &Schema) {
    match schema {
        Schema::Current if matches!(known, Schema::Outdated(_)) => {
            tracing::info!("the CustomResourceDefinition has all fields again");
        }
        Schema::Outdated(missing) if known != schema => tracing::error!(
            %missing,
            "{}: the CustomResourceDefinition that is served lacks fields; no Plan is written and no node is started until it \
             has them",
            Reason::SchemaOutdated
        ),
        _ => {}
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
