//! The election task: acquires, renews and releases the Lease.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Client;
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::{debug, error, info, warn};

use super::api::LeaseApi;
use super::{FOLLOW_PERIOD, JITTER_FACTOR, LeaseTiming, PlansNote, Progress};
use refit_cluster::clock::Clock;
use refit_cluster::kube::{Answer, LeaderState, Leadership, Renewal, brief};

/// A candidate for one Lease.
pub struct Elector {
    api: LeaseApi,
    namespace: String,
    name: String,
    identity: String,
    timing: LeaseTiming,
    clock: Clock,
    state: watch::Sender<LeaderState>,
    /// The last record, and when it was first seen.
    observed: Option<Observed>,
    /// `acquireTime` of the term in which this process leads or tries to. It distinguishes this process's record from
    /// that of a process with the same identity, because no other process writes the same time.
    term: Option<Timestamp>,
    /// The last logged error, so that an outage does not fill the log.
    last_error: Option<String>,
    jitter: u64,
    progress: Progress,
    /// Notified when the Lease shows an older version than before.
    restored: Arc<Notify>,
    plans: PlansNote,
}

struct Observed {
    lease: Lease,
    since: Instant,
}

/// The running election. Dropping it ends the election without releasing the Lease.
#[must_use = "the election ends when its handle is dropped"]
pub struct LeaseHandle {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

/// The result of an attempt.
enum Attempt {
    /// This process holds the Lease.
    Held,
    /// Another process holds the Lease, or was first.
    Lost,
    /// Unknown: no response, or an error.
    Failed(String),
}

impl Elector {
    /// A candidate named `identity` for the Lease `namespace`/`name`. Only one process at a time may have an identity:
    /// if the Lease names its own, it takes the record for that of its previous run, and leads at once. `client` must
    /// be exempt from the leader check.
    pub fn new(
        client: Client,
        namespace: &str,
        name: &str,
        identity: &str,
        timing: LeaseTiming,
        clock: Clock,
    ) -> Self {
        let mut hasher = DefaultHasher::new();
        identity.hash(&mut hasher);
        Self {
            api: LeaseApi::new(client, namespace, name),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            identity: identity.to_owned(),
            timing,
            clock,
            state: watch::Sender::new(LeaderState::Following),
            observed: None,
            term: None,
            last_error: None,
            jitter: hasher.finish(),
            progress: Progress::default(),
            restored: Arc::default(),
            plans: PlansNote::default(),
        }
    }

    /// The note about Plans that this candidate keeps on the Lease.
    pub fn plans_note(&self) -> PlansNote {
        self.plans.clone()
    }

    /// Has the leadership end when the loop is stuck, and `restored` be notified when the versions of the API server went
    /// back. A watch does not show the latter: one from a later version is silent.
    #[must_use]
    pub fn depending_on(self, progress: Progress, restored: Arc<Notify>) -> Self {
        Self {
            progress,
            restored,
            ..self
        }
    }

    /// Tells whether this candidate leads.
    pub fn leadership(&self) -> Leadership {
        Leadership::elected(self.state.subscribe(), self.clock.clone())
    }

    /// Starts the election. Must be called within a tokio runtime.
    pub fn start(self) -> LeaseHandle {
        let (stop, stopped) = oneshot::channel();
        LeaseHandle {
            stop,
            task: tokio::spawn(self.run(stopped)),
        }
    }

    async fn run(mut self, mut stopped: oneshot::Receiver<()>) {
        info!(lease = %self.name, namespace = %self.namespace, identity = %self.identity, "trying to acquire the Lease");
        let asked = tokio::select! {
            biased;
            () = self.campaign() => None,
            asked = &mut stopped => Some(asked.is_ok()),
        };
        let led = matches!(*self.state.borrow(), LeaderState::Leading(_));
        self.state.send_replace(LeaderState::Ended);
        match asked {
            None => warn!(lease = %self.name, namespace = %self.namespace, "leadership is lost"),
            Some(true) if led => self.release().await,
            // The writes of this process may not be over, so the Lease is not released.
            Some(_) => {}
        }
    }

    /// Acquires the Lease and renews it. Returns when it is lost.
    async fn campaign(&mut self) {
        while !self.acquire().await {
            sleep_until(self.next_try()).await;
        }
        info!(lease = %self.name, namespace = %self.namespace, identity = %self.identity, "leading");
        let mut plans = self.plans.requests();
        loop {
            tokio::select! {
                biased;
                // Renewal does not need jitter: only the leader renews.
                () = sleep(self.timing.retry_period) => {}
                // A new note does not wait: a Plan that cordons starts no node before the Lease names it.
                Ok(()) = plans.changed() => {}
            }
            if !self.renew().await {
                return;
            }
        }
    }

    /// One attempt to become the leader.
    async fn acquire(&mut self) -> bool {
        // The leadership counts from before the request: when the record was written on the server is not known, only
        // that it was later.
        let start = self.renewal();
        match timeout(self.request_timeout(), self.try_acquire())
            .await
            .unwrap_or_else(|_| self.no_answer())
        {
            Attempt::Held => {
                self.last_error = None;
                self.state.send_replace(LeaderState::Leading(start));
                true
            }
            Attempt::Lost => {
                self.last_error = None;
                false
            }
            Attempt::Failed(error) => {
                self.log_error(error);
                false
            }
        }
    }

    /// One renewal. Returns false if the leadership is lost.
    async fn renew(&mut self) -> bool {
        let LeaderState::Leading(last) = *self.state.borrow() else {
            return false;
        };
        // This process may have been suspended. Another candidate may lead since, and its record must not be
        // replaced.
        if !last.holds(&self.clock) {
            return false;
        }
        let stuck_for = self.progress.stuck_for();
        if stuck_for >= self.timing.renew_deadline {
            error!(lease = %self.name, ?stuck_for, "the loop is stuck, so the lease is not renewed; this is a bug");
            return false;
        }
        let start = self.renewal();
        let request_timeout = self
            .request_timeout()
            .min(last.end().saturating_duration_since(start.at));
        let attempt = timeout(request_timeout, self.renew_lease())
            .await
            .unwrap_or_else(|_| self.no_answer());
        // Since the deadline this process counts as not leading, whatever the response says.
        let in_time = last.holds(&self.clock);
        match attempt {
            Attempt::Held if in_time => {
                self.last_error = None;
                self.state.send_replace(LeaderState::Leading(start));
                true
            }
            Attempt::Held | Attempt::Lost => false,
            Attempt::Failed(error) => {
                self.log_error(error);
                in_time
            }
        }
    }

    /// Takes the Lease if it is free: absent, released, held by a previous run of this process, or unchanged for the
    /// holder's lease duration.
    async fn try_acquire(&mut self) -> Attempt {
        match self.api.get().await {
            Ok(None) => self.create().await,
            Ok(Some(lease)) => {
                self.observe(lease);
                if self.held_by_another() {
                    return Attempt::Lost;
                }
                // The time of acquisition identifies the record as that of this run: a process that was killed had
                // the same identity.
                self.term = Some(self.now());
                self.update().await
            }
            Err(error) => failed(&error),
        }
    }

    /// Renews the Lease without reading it first; reads it only after a conflict.
    async fn renew_lease(&mut self) -> Attempt {
        match self.update().await {
            Attempt::Lost => {}
            other => return other,
        }
        match self.api.get().await {
            Ok(None) => self.create().await,
            Ok(Some(lease)) => {
                let ours = self.is_ours(&lease);
                self.observe(lease);
                // Someone changed its metadata, or an earlier renewal took effect although its response was lost.
                if ours { self.update().await } else { Attempt::Lost }
            }
            Err(error) => failed(&error),
        }
    }

    async fn create(&mut self) -> Attempt {
        let term = self.now();
        self.term = Some(term);
        let mut lease = Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                namespace: Some(self.namespace.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(self.record(term, 0)),
        };
        self.plans.add_to(&mut lease);
        match self.api.create(&lease).await {
            Ok(lease) => {
                self.observe(lease);
                Attempt::Held
            }
            Err(error) if Answer::of(&error) == Answer::Exists => Attempt::Lost,
            Err(error) => failed(&error),
        }
    }

    /// Replaces exactly the observed record.
    async fn update(&mut self) -> Attempt {
        let (Some(observed), Some(term)) = (&self.observed, self.term) else {
            return Attempt::Lost;
        };
        let mut lease = observed.lease.clone();
        // Fields that refit does not know stay as they are: coordinated leader election (KEP-4355) sets `strategy`
        // and `preferredHolder`.
        let old = lease.spec.take().unwrap_or_default();
        let transitions = old.lease_transitions.unwrap_or(0);
        let ours = old.holder_identity.as_deref() == Some(&self.identity);
        lease.spec = Some(LeaseSpec {
            preferred_holder: old.preferred_holder,
            strategy: old.strategy,
            ..self.record(
                term,
                if ours {
                    transitions
                } else {
                    transitions.saturating_add(1)
                },
            )
        });
        self.plans.add_to(&mut lease);
        match self.api.replace(&lease).await {
            Ok(lease) => {
                self.observe(lease);
                Attempt::Held
            }
            Err(error) if matches!(Answer::of(&error), Answer::Conflict | Answer::NotFound) => Attempt::Lost,
            Err(error) => failed(&error),
        }
    }

    /// Releases the Lease, so that another candidate need not wait. A failure costs only that wait.
    async fn release(&self) {
        match timeout(self.request_timeout(), self.vacate()).await {
            Ok(Ok(true)) => info!(lease = %self.name, namespace = %self.namespace, "Lease released"),
            Ok(Ok(false)) => {
                debug!(lease = %self.name, "Lease not released, because another process holds it");
            }
            Ok(Err(error)) => {
                warn!(lease = %self.name, error = %brief(&error), "cannot release the Lease");
            }
            Err(_) => warn!(lease = %self.name, "Lease not released in time"),
        }
    }

    /// Removes the holder from this process's record. A conflict is a renewal that was in flight: try again.
    async fn vacate(&self) -> kube::Result<bool> {
        loop {
            let Some(mut lease) = self.api.get().await? else {
                return Ok(false);
            };
            if !self.is_ours(&lease) {
                return Ok(false);
            }
            let now = self.now();
            let spec = lease.spec.get_or_insert_default();
            spec.holder_identity = Some(String::new());
            // As client-go does: a candidate that ignores the empty holder waits for one second at most.
            spec.lease_duration_seconds = Some(1);
            spec.renew_time = Some(MicroTime(now));
            spec.acquire_time = Some(MicroTime(now));
            self.plans.add_to(&mut lease);
            match self.api.replace(&lease).await {
                Err(error) if Answer::of(&error) == Answer::Conflict => {}
                other => return other.map(|_| true),
            }
        }
    }

    fn record(&self, term: Timestamp, transitions: i32) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: Some(self.timing.lease_duration_seconds()),
            acquire_time: Some(MicroTime(term)),
            renew_time: Some(MicroTime(self.now())),
            lease_transitions: Some(transitions),
            ..LeaseSpec::default()
        }
    }

    /// Stores the Lease. Only a change of the record restarts the wait for it to expire.
    fn observe(&mut self, lease: Lease) {
        let version = |lease: &Lease| lease.metadata.resource_version.as_deref()?.parse::<u64>().ok();
        let known = self
            .observed
            .as_ref()
            .and_then(|observed| version(&observed.lease));
        if version(&lease)
            .zip(known)
            .is_some_and(|(version, known)| version < known)
        {
            self.restored.notify_one();
        }
        let since = match &self.observed {
            Some(observed) if observed.lease.spec == lease.spec => observed.since,
            // The time of the observation, not `renewTime`: the clocks of two machines may differ (client-go:
            // `observedTime`).
            _ => Instant::now(),
        };
        self.plans.observe(&lease);
        self.observed = Some(Observed { lease, since });
    }

    fn held_by_another(&self) -> bool {
        let Some(observed) = &self.observed else {
            return false;
        };
        let holder = observed
            .lease
            .spec
            .as_ref()
            .and_then(|spec| spec.holder_identity.as_deref());
        match holder {
            // client-go releases a Lease with an empty holder.
            None | Some("") => false,
            Some(holder) if holder == self.identity => false,
            Some(_) => Instant::now() < self.expiry(observed),
        }
    }

    /// When an unchanged record expires, by the lease duration of its holder.
    fn expiry(&self, observed: &Observed) -> Instant {
        let seconds = observed
            .lease
            .spec
            .as_ref()
            .and_then(|spec| spec.lease_duration_seconds);
        let duration = seconds
            .and_then(|seconds| u64::try_from(seconds).ok())
            .map_or(self.timing.lease_duration, Duration::from_secs);
        observed.since + duration
    }

    fn is_ours(&self, lease: &Lease) -> bool {
        let Some(spec) = &lease.spec else { return false };
        let term = self.term.map(MicroTime);
        spec.holder_identity.as_deref() == Some(&self.identity) && term.is_some() && spec.acquire_time == term
    }

    fn renewal(&self) -> Renewal {
        Renewal {
            at: Instant::now(),
            running: self.clock.running(),
            deadline: self.timing.renew_deadline,
        }
    }

    /// Time limit of one attempt: three of them fit into the renew deadline.
    fn request_timeout(&self) -> Duration {
        self.timing.renew_deadline / 3
    }

    /// When to try again: after a jittered retry period, as client-go, or sooner if another candidate holds the Lease;
    /// not later than the record expires.
    fn next_try(&mut self) -> Instant {
        // SplitMix64, seeded with the identity: candidates differ, and runs are reproducible.
        self.jitter = self.jitter.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.jitter;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        let fraction = f64::from(u32::try_from(bits >> 32).unwrap_or(0)) / f64::from(u32::MAX);
        let jittered = |period: Duration| Instant::now() + period.mul_f64(1.0 + JITTER_FACTOR * fraction);
        match &self.observed {
            Some(observed) if self.held_by_another() => {
                jittered(self.timing.retry_period.min(FOLLOW_PERIOD)).min(self.expiry(observed))
            }
            _ => jittered(self.timing.retry_period),
        }
    }

    /// The time of day in the precision of a Lease. With nanoseconds, the record that is read back would not equal the
    /// written one.
    fn now(&self) -> Timestamp {
        let now = self.clock.now();
        Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now)
    }

    fn no_answer(&self) -> Attempt {
        Attempt::Failed(format!("no answer within {:?}", self.request_timeout()))
    }

    fn log_error(&mut self, error: String) {
        if self.last_error.as_ref() != Some(&error) {
            warn!(lease = %self.name, namespace = %self.namespace, %error, "the Lease cannot be acquired or renewed");
            self.last_error = Some(error);
        }
    }
}

fn failed(error: &kube::Error) -> Attempt {
    Attempt::Failed(brief(error))
}

impl LeaseHandle {
    /// Ends the election: this process no longer leads, and releases the Lease if it held it. Call it when all writes
    /// are over.
    pub async fn release(self) {
        // Both fail only if the task has ended, and then there is nothing to release.
        let _ = self.stop.send(());
        let _ = self.task.await;
    }
}
