//! The election task: get the Lease, keep it, give it back.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::{debug, info, warn};

use super::standing::{Renewal, Standing};
use super::{JITTER_FACTOR, Leadership, LeaseLost, LeaseTiming};
use crate::clock::Clock;
use crate::controller::client::brief;

/// A candidate for one Lease.
pub struct Elector {
    api: Api<Lease>,
    namespace: String,
    name: String,
    identity: String,
    timing: LeaseTiming,
    clock: Clock,
    standing: watch::Sender<Standing>,
    /// The record as last seen, and when it was first seen like that.
    observed: Option<Observed>,
    /// `acquireTime` of the term in which this process leads or tries to. No other process, not even one with our
    /// identity, writes the same: it tells our own record from a namesake's.
    term: Option<Timestamp>,
    /// The last complaint, so that an API that is down does not fill the log.
    complaint: Option<String>,
    jitter: u64,
}

struct Observed {
    lease: Lease,
    since: Instant,
}

/// The running election. Dropping it ends the election without giving the Lease back.
#[must_use = "the election ends when its handle is dropped"]
pub struct LeaseHandle {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

/// What one try came to.
enum Attempt {
    /// The Lease is ours.
    Held,
    /// The Lease is somebody else's, or somebody else was faster.
    Lost,
    /// Nobody knows: no answer, or an error.
    Failed(String),
}

impl Elector {
    /// A candidate called `identity` for the Lease `namespace`/`name`. An identity belongs to one process at a time: a
    /// process that finds its own on the Lease takes it for what its former run left, and leads at once.
    /// `client` must be exempt from the leader check.
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
            api: Api::namespaced(client, namespace),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            identity: identity.to_owned(),
            timing,
            clock,
            standing: watch::Sender::new(Standing::Following),
            observed: None,
            term: None,
            complaint: None,
            jitter: hasher.finish(),
        }
    }

    /// A handle that knows whether this candidate leads.
    pub fn leadership(&self) -> Leadership {
        Leadership::elected(self.standing.subscribe(), self.clock.clone())
    }

    /// The error to end the process with when this candidate's leadership is lost.
    pub fn lost(&self) -> LeaseLost {
        LeaseLost {
            name: self.name.clone(),
        }
    }

    /// Starts the election. Called within a tokio runtime.
    pub fn start(self) -> LeaseHandle {
        let (stop, stopped) = oneshot::channel();
        LeaseHandle {
            stop,
            task: tokio::spawn(self.run(stopped)),
        }
    }

    async fn run(mut self, mut stopped: oneshot::Receiver<()>) {
        info!(lease = %self.name, namespace = %self.namespace, identity = %self.identity, "asking for the lease");
        let asked = tokio::select! {
            biased;
            () = self.campaign() => None,
            asked = &mut stopped => Some(asked.is_ok()),
        };
        let led = matches!(*self.standing.borrow(), Standing::Leading(_));
        self.standing.send_replace(Standing::Ended);
        match asked {
            None => warn!(lease = %self.name, namespace = %self.namespace, "leadership is lost"),
            Some(true) if led => self.give_back().await,
            // Without a word that the writes of this process are over, nothing is given back.
            Some(_) => {}
        }
    }

    /// Gets the Lease and keeps it. Returns when it is lost.
    async fn campaign(&mut self) {
        while !self.acquire().await {
            sleep_until(self.next_try()).await;
        }
        info!(lease = %self.name, namespace = %self.namespace, identity = %self.identity, "leading");
        loop {
            sleep(self.timing.retry_period).await;
            if !self.renew().await {
                return;
            }
        }
    }

    /// One try to become leader.
    async fn acquire(&mut self) -> bool {
        let start = self.renewal();
        match timeout(self.patience(), self.take())
            .await
            .unwrap_or_else(|_| self.no_answer())
        {
            Attempt::Held => {
                self.complaint = None;
                self.standing.send_replace(Standing::Leading(start));
                true
            }
            Attempt::Lost => {
                self.complaint = None;
                false
            }
            Attempt::Failed(error) => {
                self.complain(error);
                false
            }
        }
    }

    /// One renewal. False when the leadership is lost.
    async fn renew(&mut self) -> bool {
        let Standing::Leading(last) = *self.standing.borrow() else {
            return false;
        };
        if !last.holds(&self.clock) {
            return false;
        }
        let start = self.renewal();
        let patience = self
            .patience()
            .min(last.end().saturating_duration_since(start.at));
        let attempt = timeout(patience, self.put_again())
            .await
            .unwrap_or_else(|_| self.no_answer());
        // However the request went: whoever has asked since the deadline was told that this process does not lead.
        let in_time = last.holds(&self.clock);
        match attempt {
            Attempt::Held if in_time => {
                self.complaint = None;
                self.standing.send_replace(Standing::Leading(start));
                true
            }
            Attempt::Held | Attempt::Lost => false,
            Attempt::Failed(error) => {
                self.complain(error);
                in_time
            }
        }
    }

    /// Looks at the Lease and takes it when it is free: absent, given back, ours from a former run, or unchanged for
    /// the holder's lease duration.
    async fn take(&mut self) -> Attempt {
        match self.api.get_opt(&self.name).await {
            Ok(None) => self.create().await,
            Ok(Some(lease)) => {
                self.observe(lease);
                if self.held_by_another() {
                    return Attempt::Lost;
                }
                self.term = Some(self.now());
                self.put().await
            }
            Err(error) => failed(&error),
        }
    }

    /// Renews a Lease that this process holds, without reading it first; reads it only to learn why it has changed.
    async fn put_again(&mut self) -> Attempt {
        match self.put().await {
            Attempt::Lost => {}
            other => return other,
        }
        match self.api.get_opt(&self.name).await {
            Ok(None) => self.create().await,
            Ok(Some(lease)) => {
                let ours = self.is_ours(&lease);
                self.observe(lease);
                // Somebody touched its metadata, or a renewal whose answer was lost had arrived.
                if ours { self.put().await } else { Attempt::Lost }
            }
            Err(error) => failed(&error),
        }
    }

    async fn create(&mut self) -> Attempt {
        let term = self.now();
        self.term = Some(term);
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                namespace: Some(self.namespace.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(self.record(term, 0)),
        };
        match self.api.create(&PostParams::default(), &lease).await {
            Ok(lease) => {
                self.observe(lease);
                Attempt::Held
            }
            Err(kube::Error::Api(status)) if status.is_already_exists() => Attempt::Lost,
            Err(error) => failed(&error),
        }
    }

    /// Writes our record over the one that was observed, and over no other.
    #[expect(
        clippy::disallowed_methods,
        reason = "a PUT with the resourceVersion seen is what makes it a lock"
    )]
    async fn put(&mut self) -> Attempt {
        let (Some(observed), Some(term)) = (&self.observed, self.term) else {
            return Attempt::Lost;
        };
        let mut lease = observed.lease.clone();
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
        match self.api.replace(&self.name, &PostParams::default(), &lease).await {
            Ok(lease) => {
                self.observe(lease);
                Attempt::Held
            }
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => Attempt::Lost,
            Err(error) => failed(&error),
        }
    }

    /// Gives the Lease back, so that another candidate need not wait. What goes wrong here only costs that wait.
    async fn give_back(&self) {
        match timeout(self.patience(), self.vacate()).await {
            Ok(Ok(true)) => info!(lease = %self.name, namespace = %self.namespace, "lease is given back"),
            Ok(Ok(false)) => debug!(lease = %self.name, "lease was not ours to give back"),
            Ok(Err(error)) => {
                warn!(lease = %self.name, error = %brief(&error), "lease could not be given back");
            }
            Err(_) => warn!(lease = %self.name, "lease could not be given back in time"),
        }
    }

    /// Writes an empty holder over our own record. A conflict is a renewal of ours that was under way: look again.
    #[expect(
        clippy::disallowed_methods,
        reason = "a PUT with the resourceVersion seen is what makes it a lock"
    )]
    async fn vacate(&self) -> kube::Result<bool> {
        loop {
            let Some(mut lease) = self.api.get_opt(&self.name).await? else {
                return Ok(false);
            };
            if !self.is_ours(&lease) {
                return Ok(false);
            }
            let now = self.now();
            let spec = lease.spec.get_or_insert_default();
            spec.holder_identity = Some(String::new());
            spec.lease_duration_seconds = Some(1);
            spec.renew_time = Some(MicroTime(now));
            spec.acquire_time = Some(MicroTime(now));
            match self.api.replace(&self.name, &PostParams::default(), &lease).await {
                Err(kube::Error::Api(status)) if status.is_conflict() => {}
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

    /// Notes the Lease. Only a change of the record restarts the wait for it to expire.
    fn observe(&mut self, lease: Lease) {
        let since = match &self.observed {
            Some(observed) if observed.lease.spec == lease.spec => observed.since,
            _ => Instant::now(),
        };
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
            None | Some("") => false,
            Some(holder) if holder == self.identity => false,
            Some(_) => Instant::now() < self.expiry(observed),
        }
    }

    /// When an unchanged record counts no more. The holder's own lease duration decides: it is what the holder keeps to.
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
            wall: self.clock.now(),
            deadline: self.timing.renew_deadline,
        }
    }

    /// How long one try may take: three of them fit into the renew deadline, however slow the API is.
    fn patience(&self) -> Duration {
        self.timing.renew_deadline / 3
    }

    /// When to look again: as client-go after a jittered retry period, but not later than the record expires.
    fn next_try(&mut self) -> Instant {
        // SplitMix64, seeded with the identity: candidates differ, and a run can be repeated.
        self.jitter = self.jitter.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.jitter;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        let fraction = f64::from(u32::try_from(bits >> 32).unwrap_or(0)) / f64::from(u32::MAX);
        let next = Instant::now() + self.timing.retry_period.mul_f64(1.0 + JITTER_FACTOR * fraction);
        match &self.observed {
            Some(observed) if self.held_by_another() => next.min(self.expiry(observed)),
            _ => next,
        }
    }

    /// The time of day as a Lease can hold it: with nanoseconds, what is read back would not equal what was written.
    fn now(&self) -> Timestamp {
        let now = self.clock.now();
        Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now)
    }

    fn no_answer(&self) -> Attempt {
        Attempt::Failed(format!("no answer within {:?}", self.patience()))
    }

    fn complain(&mut self, error: String) {
        if self.complaint.as_ref() != Some(&error) {
            warn!(lease = %self.name, namespace = %self.namespace, %error, "lease cannot be had or renewed");
            self.complaint = Some(error);
        }
    }
}

fn failed(error: &kube::Error) -> Attempt {
    Attempt::Failed(brief(error))
}

impl LeaseHandle {
    /// Ends the election: this process does not lead from now on, and the Lease is given back if it was ours. Call it
    /// when all writes are over.
    pub async fn release(self) {
        // Both fail only when the task is gone, and then there is nothing to give back.
        let _ = self.stop.send(());
        let _ = self.task.await;
    }
}
