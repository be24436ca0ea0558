//! The loop: observations and results of steps update the state, one decision follows, and its steps run concurrently.
//! There is one decision at a time, and one step per object at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use super::act::{Actor, Outcome, Request, StepError, StepErrorKind, prepare};
use super::clock_watch::ClockWatch;
use super::lanes::{self, Lanes};
use super::lease::{PlansNote, Progress};
use super::metrics::{LoopFigures, Reporter, Scrape};
use super::notify::Plans;
use super::wanted::Wanted;
use refit_api::Reason;
use refit_base::backoff::Backoff;
use refit_facts::Schema;
use refit_rollout::{
    ClusterState, Decision, Key, Kind, Lane, ListCounts, Observation, Step, StepEffect, decide,
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
pub(super) const REQUIRED_LISTS: [Kind; 4] = [Kind::Pod, Kind::Job, Kind::Node, Kind::Plan];

/// The loop and its state.
pub struct Engine {
    cluster: ClusterState,
    actor: Arc<Actor>,
    observations: mpsc::Receiver<Observation>,
    wanted: Wanted,
    /// Kinds that were listed, or need not be waited for.
    listed: watch::Sender<BTreeSet<Kind>>,
    /// Restarts the watch of Plans.
    relist_plans: watch::Sender<()>,
    /// Objects of the steps in flight.
    in_flight: BTreeMap<Key, InFlight>,
    waiting: BTreeMap<Key, Waiting>,
    lanes: Lanes,
    steps: JoinSet<(Key, Outcome)>,
    /// Shows the election whether this loop is stuck.
    progress: Progress,
    clock_watch: ClockWatch,
    reporter: Reporter,
    plans_note: Option<KeptNote>,
    plans: Option<watch::Sender<Option<Plans>>>,
}

/// The note about Plans on the Lease.
struct KeptNote {
    note: PlansNote,
    stored: watch::Receiver<Option<String>>,
    /// Whether what was stored before is known to the state.
    is_read: bool,
}

/// Completes when the note on the Lease has changed.
async fn note_changed(kept: Option<&mut KeptNote>) {
    if let Some(kept) = kept
        && kept.stored.changed().await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}

/// What the loop waits for.
enum Wakeup {
    Due,
    Observation(Option<Observation>),
    /// The note on the Lease was written.
    Note,
    Step(Result<(Key, Outcome), JoinError>),
    Scrape(Scrape),
}

struct InFlight {
    /// The lists that had ended when the step began.
    lists: ListCounts,
    lane: Lane,
    /// Of a maintenance: the UID of its object, and what is dropped to end its drain.
    drain: Option<(String, oneshot::Sender<()>)>,
}

/// A step that has failed waits.
struct Waiting {
    until: Instant,
    backoff: Backoff,
}

impl Engine {
    /// A loop with an empty state.
    pub fn new(
        cluster: ClusterState,
        actor: Actor,
        observations: mpsc::Receiver<Observation>,
        wanted: Wanted,
        listed: watch::Sender<BTreeSet<Kind>>,
        relist_plans: watch::Sender<()>,
        progress: Progress,
    ) -> Self {
        Self {
            cluster,
            actor: Arc::new(actor),
            observations,
            wanted,
            listed,
            relist_plans,
            in_flight: BTreeMap::new(),
            waiting: BTreeMap::new(),
            lanes: Lanes::default(),
            steps: JoinSet::new(),
            progress,
            clock_watch: ClockWatch::default(),
            reporter: Reporter::unused(),
            plans_note: None,
            plans: None,
        }
    }

    /// With metrics of its decisions.
    #[must_use]
    pub fn reporting_to(self, reporter: Reporter) -> Self {
        Self { reporter, ..self }
    }

    /// Hands out the Plans after each decision.
    pub(super) fn hand_plans_to(&mut self, plans: watch::Sender<Option<Plans>>) {
        self.plans = Some(plans);
    }

    /// Has the state remember on the Lease which Plans have existed.
    pub fn keep_note(&mut self, note: PlansNote) {
        let stored = note.stored();
        self.plans_note = Some(KeptNote {
            note,
            stored,
            is_read: false,
        });
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
            // A decision on half of the facts could start a node whose Job it has not read yet.
            let decision = if REQUIRED_LISTS.iter().all(|kind| self.is_listed(*kind)) {
                if std::mem::take(&mut degraded) {
                    self.cluster.apply(Observation::PermissionsGranted);
                    self.waiting.remove(&Key::Permissions);
                }
                self.decide_and_report()
            // Without a list that is forbidden nothing may be decided, but events on the Plans can say which
            // permission is missing.
            } else if *self.actor.degraded.borrow() && self.is_listed(Kind::Plan) {
                degraded = true;
                decide_degraded(&self.cluster, self.actor.clock.now())
            } else {
                continue;
            };
            requeue_at = self.start_steps(decision);
        }
    }

    /// Waits for the steps in flight, and starts no more.
    pub async fn finish(&mut self) {
        for step in self.in_flight.values_mut() {
            step.drain = None;
        }
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
            self.progress.set_idle();
            let wakeup = tokio::select! {
                biased;
                // First, so that a flood of observations does not delay the decision.
                () = sleep_until(until) => Wakeup::Due,
                observation = self.observations.recv() => Wakeup::Observation(observation),
                Some(done) = self.steps.join_next() => Wakeup::Step(done),
                Some(scrape) = self.reporter.next_request() => Wakeup::Scrape(scrape),
                () = note_changed(self.plans_note.as_mut()) => Wakeup::Note,
            };
            self.progress.set_busy();
            match wakeup {
                Wakeup::Due => return true,
                Wakeup::Observation(Some(observation)) => {
                    let is_busy = matches!(observation, Observation::Node(..) | Observation::Pod(..));
                    // Heartbeats of kubelets and other changes that no fact depends on cause no decision: with a
                    // thousand nodes there are a hundred per second.
                    if self.apply(observation) {
                        until = sooner(until, if is_busy { LONG_DEBOUNCE } else { DEBOUNCE });
                    }
                }
                Wakeup::Scrape(scrape) => self.answer(scrape),
                // `decide` reads it.
                Wakeup::Note => until = sooner(until, DEBOUNCE),
                // A loop that has ended must not count as stuck.
                Wakeup::Observation(None) => {
                    self.progress.set_idle();
                    return false;
                }
                Wakeup::Step(done) => {
                    match done {
                        Ok((key, outcome)) => self.finish_step(&key, outcome),
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
            // A Plan is compared with Nodes and Jobs, so a list of Plans from before theirs may be too old.
            Observation::ListStarted(Kind::Plan) if !self.has_listed_all_but_plans() => {
                self.cluster.apply(Observation::PlanListTooEarly);
            }
            Observation::ListFinished(kind) => first = self.mark_listed(*kind),
            // The permission check finds out which permission is missing, and when it is granted. No node starts on
            // stale data.
            Observation::Forbidden => {
                self.actor.degraded.send_replace(true);
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

    fn decide_and_report(&mut self) -> Decision {
        let began = Instant::now();
        let mut decision = self.decide();
        let pictures = std::mem::take(&mut decision.pictures);
        self.cluster.note_grants(&decision.grants);
        let (took, now) = (began.elapsed(), self.actor.clock.now());
        self.reporter.record_decision(&self.cluster, pictures, took, now);
        if let Some(plans) = &self.plans {
            plans.send_replace(Some(self.cluster.share_plans()));
        }
        decision
    }

    fn answer(&mut self, scrape: Scrape) {
        let figures = LoopFigures {
            in_flight: self.lanes.in_flight(),
            background_waiting: self.lanes.waiting(),
            backing_off: self.waiting.len(),
            observations_waiting: self.observations.len(),
            events_waiting: self.actor.outbox.waiting(),
            events_dropped: self.actor.outbox.dropped(),
        };
        self.reporter
            .answer(scrape, &self.cluster, figures, self.actor.clock.now());
    }

    fn decide(&mut self) -> Decision {
        let now = self.actor.clock.now();
        if let Some(step) = self.clock_watch.step(now) {
            tracing::warn!(%step, "the clock was set, or the machine was suspended");
            self.cluster.shift_times(step);
        }
        if let Some(kept) = &mut self.plans_note {
            let stored = kept.stored.borrow_and_update();
            let is_first = !std::mem::replace(&mut kept.is_read, true);
            if is_first {
                self.cluster.remember_plans(stored.as_deref());
            } else {
                self.cluster
                    .confirm_known_plans(stored.as_deref().unwrap_or_default());
            }
            let absent = is_first && stored.is_none();
            drop(stored);
            if let Some(note) = self.cluster.note_known_plans(absent) {
                kept.note.write(note);
            }
        }
        // Before the decision, which must not rely on a Secret that nothing watches.
        let secrets = self.cluster.retain_hashed_secrets();
        self.wanted.secrets.send_if_modified(|wanted| {
            let change = !Arc::ptr_eq(wanted, &secrets) && *wanted != secrets;
            *wanted = secrets;
            change
        });
        self.cluster.refresh(now);
        let decision = decide(&self.cluster, now);
        // An account without `watch` on pods, such as that of system-upgrade-controller's manifests, lists them only
        // while a Job runs.
        self.wanted.pods.send_if_modified(|wanted| {
            let change = *wanted != self.cluster.has_work_on_nodes();
            *wanted ^= change;
            change
        });
        self.wanted.api_server.send_if_modified(|wanted| {
            let change = *wanted != decision.waits_for_api_server();
            *wanted ^= change;
            change
        });
        decision
    }

    /// Starts the steps that can start, and returns when to decide again at the latest.
    fn start_steps(&mut self, decision: Decision) -> Option<Instant> {
        // Their nodes are restored next, and no pod of them may be evicted any more.
        let cluster = &self.cluster;
        for step in self.in_flight.values_mut() {
            step.drain.take_if(|(uid, _)| !cluster.is_reserved_for(uid));
        }
        let now = Instant::now();
        let clock = self.actor.clock.now();
        let mut requeue_at = decision.requeue_at.map(|at| {
            let wait = Duration::try_from(at.duration_since(clock)).unwrap_or_default();
            // The extra millisecond makes sure that the time has come when the timer fires, which has milliseconds
            // only.
            now + wait.min(MAX_SLEEP) + Duration::from_millis(1)
        });
        let mut ready = Vec::new();
        let (mut background, mut checks, mut secrets) = (Vec::new(), Vec::new(), Vec::new());
        let tries = |key: &Key| self.waiting.get(key).map(|waiting| waiting.backoff.failures());
        for (key, step) in lanes::take_turns(decision.steps, Step::key, tries) {
            if self.in_flight.contains_key(&key) {
                continue; // its end causes another decision
            }
            // The back-off belongs to the object and not to the step: another step for an object that the API server
            // refuses would be refused too.
            if let Some(pause) = self.waiting.get(&key).filter(|pause| pause.until > now) {
                sooner(&mut requeue_at, pause.until);
                continue;
            }
            match step.lane() {
                Lane::Background => background.push((key, step)),
                Lane::Check => checks.push((key, step)),
                Lane::Secrets => secrets.push((key, step)),
                Lane::Interactive | Lane::External | Lane::Drain => ready.push((key, step)),
            }
        }
        self.lanes.note_waiting(Lane::Interactive, &ready, now);
        // Steps that fill slots run before steps that free more slots.
        ready.sort_by_key(|(key, step)| {
            let fills = matches!(step, Step::WriteStatus { .. } | Step::CreateJob { .. });
            (!self.lanes.is_overdue(key, now), !fills)
        });
        ready.extend(self.lanes.queue(Lane::Background, background, now));
        ready.extend(self.lanes.queue(Lane::Secrets, secrets, now));
        ready.extend(self.lanes.queue(Lane::Check, checks, now));
        for (key, step) in ready {
            // If the lane is full, or a step for the same object is in flight, the end of a step causes another
            // decision.
            let begins = self.lanes.has_place(step.lane(), now) && !self.in_flight.contains_key(&key);
            if begins && let Some(until) = self.begin_step(key, step, now) {
                sooner(&mut requeue_at, until);
            }
        }
        if let Some(at) = self.lanes.requeue_at(now) {
            sooner(&mut requeue_at, at);
        }
        // An error of a step that is no longer requested is dropped.
        let cluster = &mut self.cluster;
        self.waiting.retain(|key, pause| {
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
        // Also if there is nothing to send, or it would be due for ever.
        self.lanes.dequeue(&key);
        // The request is built from the state as it is now, which may be newer than the decision.
        match prepare(&self.cluster, step) {
            Ok(Some(request)) => {
                tracing::debug!(?key, "a step begins");
                self.lanes.begin(lane, now);
                let (end, ended) = oneshot::channel();
                let drain = match &request {
                    Request::Maintain(turn) => Some((turn.task.object.uid().to_owned(), end)),
                    _ => None,
                };
                let lists = self.cluster.lists();
                self.in_flight
                    .insert(key.clone(), InFlight { lists, lane, drain });
                self.steps
                    .spawn(Arc::clone(&self.actor).carry_out(key, request, ended));
                None
            }
            // Nothing to send any more. The next decision sees why.
            Ok(None) => {
                self.cluster.step_finished(&key);
                None
            }
            Err(message) => {
                self.cluster.step_finished(&key);
                Some(self.back_off(&key, StepError::new(StepErrorKind::Refused, message)))
            }
        }
    }

    fn finish_step(&mut self, key: &Key, outcome: Outcome) {
        let sent = match self.in_flight.remove(key) {
            Some(step) => {
                self.lanes.end(step.lane, Instant::now());
                step.lists
            }
            None => self.cluster.lists(),
        };
        for effect in outcome.effects {
            self.apply_effect(effect, sent);
        }
        self.cluster.step_finished(key);
        if let Some(step_error) = outcome.error {
            self.back_off(key, step_error);
        } else {
            self.waiting.remove(key);
            self.cluster.clear_failure(key);
        }
    }

    fn apply_effect(&mut self, effect: StepEffect, sent: ListCounts) {
        let was_pruned = matches!(effect, StepEffect::StatusPruned);
        if let StepEffect::Channel(channel, at, offer, _) = &effect {
            self.reporter.record_poll(channel, *at, offer.is_ok());
        }
        let changed = self.cluster.apply_effect(effect, sent, self.actor.clock.now());
        if was_pruned && changed {
            tracing::error!(
                "{}: an API server still drops refit's fields of Plans, although the CustomResourceDefinition has them; refit writes no Plan and starts no node meanwhile",
                Reason::SchemaOutdated
            );
        }
    }

    fn back_off(&mut self, key: &Key, step_error: StepError) -> Instant {
        let mut backoff = self
            .waiting
            .get(key)
            .map_or_else(Backoff::default, |it| it.backoff);
        let refused = step_error.kind.is_refusal();
        let first = if refused { REFUSED_BACKOFF } else { INITIAL_BACKOFF };
        let doubled = backoff.pause(first, MAX_BACKOFF);
        let tries = backoff.failures();
        let pause = match step_error.kind {
            // The object that was read after the conflict is in the state already, so the next decision is right at
            // once. A second conflict means that someone else keeps writing.
            StepErrorKind::Stale if tries == 1 => Duration::ZERO,
            _ => doubled,
        };
        match step_error.kind {
            // Nothing waits for them: said once.
            _ if matches!(key, Key::Conditions(_)) && tries > 1 => {
                tracing::debug!(?key, why = step_error.message, "again");
            }
            StepErrorKind::Stale => tracing::debug!(?key, why = step_error.message, "looking again"),
            _ if refused => tracing::error!(?key, why = step_error.message, "refused"),
            _ => tracing::warn!(?key, why = step_error.message, "trying again"),
        }
        if step_error.kind.may_lack_permission() {
            // The next decision asks which permission is missing, because the message of a 403 is for people.
            self.cluster.apply(Observation::Forbidden);
        }
        let lasts = step_error.kind != StepErrorKind::Stale && tries >= TRANSIENT_REPORTED_AFTER;
        if refused || lasts {
            self.cluster.step_failed(
                key.clone(),
                refit_rollout::StepFailure {
                    message: step_error.message,
                    refused,
                    is_of_object: refused && step_error.kind != StepErrorKind::Unauthorized
                        || step_error.kind == StepErrorKind::TooLarge,
                },
            );
        }
        let until = Instant::now() + pause;
        self.waiting.insert(key.clone(), Waiting { until, backoff });
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
            "{}: the served CustomResourceDefinition lacks fields; refit writes no Plan and starts no node until it has them",
            Reason::SchemaOutdated
        ),
        _ => {}
    }
}

/// Never ends without a time.
pub(super) async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
