//! The loop: what is seen and what is answered becomes facts, one decision follows, and its steps are carried out side by
//! side. One decision at a time, and one step per object at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::act::{Actor, Done, Told, Trouble, TroubleKind, prepare};
use super::observe::Seen;
use super::put_off::PutOff;
use crate::rollout::{
    self, Decision, Key, Kind, Lane, Lists, Schema, Step, World, Written, decide, decide_blind,
};

/// How long what is seen is gathered before it is decided on: a change of one object often brings that of another.
const GATHER: Duration = Duration::from_millis(4);
/// How long where a pod has changed: it does so several times in each Job, and whether the Job has ended is told by the Job.
const GATHER_PODS: Duration = Duration::from_millis(50);
/// How many requests to the API server are under way at most. More do not make a small one faster: each only takes longer.
const AT_ONCE: usize = 16;
/// How many questions to others are under way at most.
const OUTSIDE_AT_ONCE: usize = 32;
/// First pause after a step that may work soon; it doubles with each further try.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Longest pause after a step that did not work.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// First pause after a step that was refused: somebody has to change something first.
const REFUSED_PAUSE: Duration = Duration::from_secs(5);

/// Longest wait for a time of day. The clock on the wall can be set meanwhile, and goes on while the machine sleeps.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// From which try on, which is 1.5 s after the first, status tells of a step that may work soon: a server that stumbles
/// is no news, a webhook that is down is.
const PASSING_TOLD: u32 = 5;

/// What was listed before the first decision, or may not be listed where it can be done without.
const LISTED_FIRST: [Kind; 5] = [Kind::Secret, Kind::Pod, Kind::Job, Kind::Node, Kind::Plan];

/// The loop and what it knows.
pub struct Engine {
    world: World,
    actor: Arc<Actor>,
    seen: mpsc::Receiver<Seen>,
    /// Says whether pods are worth listing, where they cannot be watched.
    pods_wanted: watch::Sender<bool>,
    /// Says that a kind has been listed, or need not be waited for.
    listed: watch::Sender<BTreeSet<Kind>>,
    /// Has the watch of Plans begin anew.
    plans_again: watch::Sender<()>,
    /// What steps are about that are under way.
    under_way: BTreeMap<Key, UnderWay>,
    pauses: BTreeMap<Key, Pause>,
    put_off: PutOff,
    steps: JoinSet<Done>,
}

struct UnderWay {
    /// Which lists had ended when the step began.
    lists: Lists,
    lane: Lane,
}

struct Pause {
    until: Instant,
    tries: u32,
}

impl Engine {
    /// A loop that knows nothing yet.
    pub fn new(
        world: World,
        actor: Actor,
        seen: mpsc::Receiver<Seen>,
        pods_wanted: watch::Sender<bool>,
        listed: watch::Sender<BTreeSet<Kind>>,
        plans_again: watch::Sender<()>,
    ) -> Self {
        Self {
            world,
            actor: Arc::new(actor),
            seen,
            pods_wanted,
            listed,
            plans_again,
            under_way: BTreeMap::new(),
            pauses: BTreeMap::new(),
            put_off: PutOff::default(),
            steps: JoinSet::new(),
        }
    }

    /// The CRD was changed just now, and an API server may not have taken that up.
    pub fn is_wary_of_lists(&mut self) {
        self.world.is_wary_of_lists();
    }

    /// Turns until the watches end or the future is dropped.
    pub async fn run(&mut self) {
        let mut wake: Option<Instant> = None;
        let mut blind = false;
        while self.wait(wake).await {
            self.take_up();
            let decision = if LISTED_FIRST.iter().all(|kind| self.is_listed(*kind)) {
                if std::mem::take(&mut blind) {
                    // It has been granted meanwhile.
                    self.world.permissions_changed();
                    self.pauses.remove(&Key::Permissions);
                }
                self.decide()
            } else if *self.actor.blind.borrow() && self.is_listed(Kind::Plan) {
                blind = true;
                decide_blind(&self.world)
            } else {
                continue;
            };
            wake = self.begin(decision);
        }
    }

    /// Lets the steps that are under way come to an end, and begins no more.
    pub async fn finish(&mut self) {
        while self.steps.join_next().await.is_some() {}
    }

    /// Waits until there is something new to decide on. False when nothing will come any more.
    async fn wait(&mut self, wake: Option<Instant>) -> bool {
        let mut until = wake;
        let sooner = |until: Option<Instant>, pause: Duration| {
            let at = Instant::now() + pause;
            Some(until.map_or(at, |until| until.min(at)))
        };
        loop {
            tokio::select! {
                biased;
                // First, so that a flood of news does not put the decision off.
                () = sleep_until(until) => return true,
                seen = self.seen.recv() => match seen {
                    Some(seen) => {
                        let shown = seen.object().map(|(kind, name)| (kind, name.clone()));
                        let news = self.learn(seen);
                        let is_pod = matches!(shown, Some((Kind::Pod, _)));
                        if let Some((kind, name)) = shown {
                            self.world.is_shown(kind, &name);
                        }
                        if news {
                            until = sooner(until, if is_pod { GATHER_PODS } else { GATHER });
                        }
                    }
                    None => return false,
                },
                Some(done) = self.steps.join_next() => {
                    match done {
                        Ok(done) => self.done(done),
                        // A step that panicked is a bug; the process goes down with it rather than go on half blind.
                        Err(error) => std::panic::resume_unwind(error.into_panic()),
                    }
                    until = sooner(until, GATHER);
                }
            }
        }
    }

    fn is_listed(&self, kind: Kind) -> bool {
        self.listed.borrow().contains(&kind)
    }

    /// True when it is news.
    fn learn(&mut self, seen: Seen) -> bool {
        let early = seen_early(&seen, &self.listed.borrow());
        let world = &mut self.world;
        match seen {
            Seen::ListBegins(kind) => {
                world.list_begins(kind);
                if early {
                    world.plans_read_early();
                }
                false
            }
            Seen::ListEnds(kind) => {
                let gone = world.list_ends(kind);
                let first = self.listed.send_if_modified(|listed| listed.insert(kind));
                gone || first
            }
            Seen::Node(version, facts) => world.node_seen(version, *facts),
            Seen::NodeGone(name, uid) => world.node_gone(&name, &uid),
            Seen::Job(version, facts) => world.job_seen(version, *facts),
            Seen::JobGone(name, uid) => world.job_gone(&name, &uid),
            Seen::Pod(version, facts) => world.pod_seen(version, *facts),
            Seen::PodGone(name, uid) => world.pod_gone(&name, &uid),
            Seen::Plan(version, facts) => world.plan_seen(version, *facts),
            Seen::PlanGone(name, uid) => world.plan_gone(&name, &uid),
            Seen::Secret(version, name) => world.secret_seen(&name, version),
            Seen::SecretGone(name) => world.secret_gone(&name),
            // The permissions say which, and whether it is allowed again: nobody starts on what may be old.
            Seen::Forbidden(kind) => {
                self.actor.blind.send_replace(true);
                world.permissions_doubted();
                // Only Plans with Secrets need these. Without one of the others nobody knows what has been begun.
                if kind == Kind::Secret {
                    self.listed.send_if_modified(|listed| listed.insert(kind));
                }
                true
            }
            Seen::PlansAgain => {
                world.plans_read_again();
                false
            }
            Seen::Schema(schema, edition) => {
                match &schema {
                    Schema::Current if matches!(world.schema(), Schema::Outdated(_)) => {
                        tracing::info!("the CustomResourceDefinition has all fields again");
                    }
                    Schema::Outdated(missing) if *world.schema() != schema => tracing::error!(
                        %missing,
                        "SchemaOutdated: the CustomResourceDefinition that is served lacks fields; no Plan is written \
                         and no node is started until it has them"
                    ),
                    _ => {}
                }
                world.schema_seen(schema, edition)
            }
        }
    }

    /// What has waited long enough is asked for, as much of it as can begin.
    fn take_up(&mut self) {
        let now = Instant::now();
        for _ in self.requests()..AT_ONCE {
            let Some(job) = self.put_off.pop_due(now) else {
                return;
            };
            self.world.takes_up(&job);
        }
    }

    /// How many requests to the API server are under way.
    fn requests(&self) -> usize {
        let outside = |step: &&UnderWay| step.lane == Lane::Outside;
        self.under_way.len() - self.under_way.values().filter(outside).count()
    }

    fn decide(&mut self) -> Decision {
        let now = self.actor.clock.now();
        self.world.settle(now);
        let decision = decide(&self.world, now);
        self.pods_wanted.send_if_modified(|wanted| {
            let change = *wanted != self.world.has_work_on_nodes();
            *wanted ^= change;
            change
        });
        decision
    }

    /// Begins the steps that can begin, and says when to decide again at the latest.
    fn begin(&mut self, decision: Decision) -> Option<Instant> {
        let now = Instant::now();
        let clock = self.actor.clock.now();
        let mut wake = decision.wake.map(|at| {
            let wait = Duration::try_from(at.duration_since(clock)).unwrap_or_default();
            now + wait.min(LONGEST_WAIT) + Duration::from_millis(1)
        });
        let mut steps = decision.steps;
        steps.sort_by_key(Step::lane);
        let mut requests = self.requests();
        let mut outside = self.under_way.len() - requests;
        for step in steps {
            if step.may_wait() && self.put_off.is_busy(now) {
                if let Some(job) = self.world.puts_off(&step) {
                    self.put_off.push(job, now);
                }
                continue;
            }
            let (key, lane) = (step.key(), step.lane());
            if self.under_way.contains_key(&key) {
                continue; // its end brings another decision
            }
            if let Some(pause) = self.pauses.get(&key).filter(|pause| pause.until > now) {
                wake = Some(wake.map_or(pause.until, |wake| wake.min(pause.until)));
                continue;
            }
            let (begun, most) = match lane {
                Lane::Outside => (&mut outside, OUTSIDE_AT_ONCE),
                Lane::Start | Lane::Work => (&mut requests, AT_ONCE),
            };
            if *begun >= most {
                continue; // likewise
            }
            self.world.sends(&step);
            if key == Key::Plans {
                self.plans_again.send_replace(());
            }
            if step.moves_node() {
                self.put_off.node_moves(now);
            }
            let prepared = prepare(&self.world, step);
            if !matches!(prepared, Ok(Some(_))) {
                self.world.answered(&key);
            }
            match prepared {
                Ok(Some(prepared)) => {
                    tracing::debug!(?key, "a step begins");
                    *begun += 1;
                    let lists = self.world.lists();
                    self.under_way.insert(key.clone(), UnderWay { lists, lane });
                    self.steps.spawn(Arc::clone(&self.actor).carry_out(key, prepared));
                }
                Ok(None) => {}
                Err(message) => {
                    let until = self.trouble(
                        &key,
                        Trouble {
                            message,
                            kind: TroubleKind::Refused,
                        },
                    );
                    wake = Some(wake.map_or(until, |wake| wake.min(until)));
                }
            }
        }
        // With no room the end of a step brings another decision.
        if let Some(due) = self.put_off.due().filter(|_| requests < AT_ONCE) {
            wake = Some(wake.map_or(due, |wake| wake.min(due)));
        }
        // What nobody has asked for since long is no trouble any more.
        let world = &mut self.world;
        self.pauses.retain(|key, pause| {
            let counts = pause.until + LONGEST_PAUSE * 2 > now;
            if !counts {
                world.untroubled(key);
            }
            counts
        });
        wake
    }

    fn done(&mut self, done: Done) {
        let sent = self
            .under_way
            .remove(&done.key)
            .map_or_else(|| self.world.lists(), |step| step.lists);
        for told in done.told {
            self.hear(told, sent);
        }
        self.world.answered(&done.key);
        if let Some(trouble) = done.trouble {
            self.trouble(&done.key, trouble);
        } else {
            self.pauses.remove(&done.key);
            self.world.untroubled(&done.key);
        }
    }

    fn hear(&mut self, told: Told, sent: Lists) {
        let world = &mut self.world;
        match told {
            Told::Seen(seen) => {
                match seen.object() {
                    // Of what a list has overtaken nothing is known: the next decision asks again.
                    Some((kind, name)) if world.is_overtaken(kind, name, sent) => {
                        if kind == Kind::Job {
                            world.job_unknown(name);
                        }
                    }
                    _ => {
                        self.learn(seen);
                    }
                }
            }
            Told::JobLeaving(name, uid) => {
                world.job_leaving(&name, &uid);
            }
            Told::PodLeaving(name, uid) => {
                world.pod_leaving(&name, &uid);
            }
            Told::NameTaken(job) => world.name_taken(job, self.actor.clock.now()),
            Told::JobUnknown(job) => world.job_unknown(&job),
            Told::JobAbsent(job) => world.job_absent(&job),
            Told::StatusWritten(plan, sent, took) => {
                let written = Written {
                    sent,
                    at: self.actor.clock.now(),
                    took: took.try_into().unwrap_or(SignedDuration::MAX),
                };
                world.status_written(&plan, written);
            }
            Told::StatusPruned => {
                if world.status_pruned(self.actor.clock.now()) {
                    tracing::error!(
                        "SchemaOutdated: an API server does not keep refit's fields of a Plan, though the \
                         CustomResourceDefinition has them; no Plan is written and no node is started meanwhile"
                    );
                }
            }
            Told::Event(plan, key) => world.told(plan, key),
            Told::Secret(name, version, hash) => {
                world.secret_read(&name, version, hash);
            }
            Told::SecretMissing(name) => {
                world.secret_missing(&name);
            }
            Told::Channel(channel, polled, answer, asked_by) => {
                world.channel_answered(&channel, polled, answer, &asked_by);
            }
            Told::Digest(plan, hash, image, digest) => world.digest_read(&plan, &hash, image, digest),
            Told::Workload(workload, facts) => world.workload_read(workload, facts),
            Told::Permissions(missing) => world.permissions_seen(missing),
            Told::Forbidden => world.permissions_doubted(),
        }
    }

    fn trouble(&mut self, key: &Key, trouble: Trouble) -> Instant {
        let known = self.pauses.get(key).map_or(0, |pause| pause.tries);
        let tries = known + 1;
        let doubled = |first: Duration| (first * 2_u32.saturating_pow(known.min(16))).min(LONGEST_PAUSE);
        let pause = match trouble.kind {
            TroubleKind::Stale if known == 0 => Duration::ZERO,
            TroubleKind::Stale | TroubleKind::Unanswered | TroubleKind::Passing => doubled(FIRST_PAUSE),
            TroubleKind::Refused | TroubleKind::Forbidden => doubled(REFUSED_PAUSE),
        };
        match trouble.kind {
            TroubleKind::Stale => tracing::debug!(?key, why = trouble.message, "looking again"),
            TroubleKind::Unanswered | TroubleKind::Passing => {
                tracing::warn!(?key, why = trouble.message, "trying again");
            }
            TroubleKind::Refused | TroubleKind::Forbidden => {
                tracing::error!(?key, why = trouble.message, "refused");
            }
        }
        if trouble.kind == TroubleKind::Forbidden {
            self.world.permissions_doubted();
        }
        let refused = matches!(trouble.kind, TroubleKind::Refused | TroubleKind::Forbidden);
        if refused || trouble.kind == TroubleKind::Passing && tries >= PASSING_TOLD {
            self.world.troubled(
                key.clone(),
                rollout::Trouble {
                    message: trouble.message,
                    refused,
                },
            );
        }
        let until = Instant::now() + pause;
        self.pauses.insert(key.clone(), Pause { until, tries });
        until
    }
}

/// Plans are being listed before all that they are to be compared with.
fn seen_early(seen: &Seen, listed: &BTreeSet<Kind>) -> bool {
    let before = |kind: &Kind| *kind == Kind::Plan || listed.contains(kind);
    matches!(seen, Seen::ListBegins(Kind::Plan)) && !LISTED_FIRST.iter().all(before)
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
