//! The loop of a drain: requests evictions, lists the node to find out which pods are gone, and ends when nothing is
//! left, at the timeout, or when it is stopped. The tracker decides what to do next.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt as _, OptionFuture};
use futures::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::event::Event;
use super::evict::Evictor;
use super::lister::{PodLister, Present};
use super::outcome::{EvictionOutcome, Refusal};
use super::pods::{PodId, Rules};
use super::tracker::{EvictionEvent, EvictionTracker};
use super::virtual_machine;
use super::waiter::Waiter;

/// Maximum number of requests in flight. An eviction is mostly two writes to etcd, and an API server handles 200
/// concurrent writes of all clients (kube-apiserver, default of `--max-mutating-requests-inflight`).
const MAX_IN_FLIGHT: usize = 32;
/// Interval of lists while pods terminate, and the interval when few are left and a list is cheap.
const LIST_INTERVAL: Duration = Duration::from_millis(500);
const LIST_INTERVAL_FEW_LEFT: Duration = Duration::from_millis(200);
const FEW: usize = 20;
/// While no pod leaves, the interval grows to a fifth of the time since the last change, up to one second. Otherwise
/// fifty concurrent drains would send 250 lists per second.
const LATER: u32 = 5;
const LATEST: Duration = Duration::from_secs(1);
/// How long to wait for responses at the end, so that the last line is correct.
const LAST_ANSWERS: Duration = Duration::from_secs(2);
/// Interval of progress messages.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(30);

/// How a drain ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Nothing is left to do.
    Over,
    /// `--timeout` is exceeded.
    TimeUp,
    /// Stopped by this signal.
    Signal(&'static str),
    Cancelled,
    /// The node could not be listed.
    ListFailed(String),
}

/// The inputs of the loop.
pub(super) struct Loop<'a> {
    pub(super) waiter: Waiter<'a>,
    pub(super) evictor: &'a Evictor,
    /// The pods that are deleted instead of evicted, because they have blocked the drain until its timeout.
    pub(super) deletes: &'a BTreeSet<PodId>,
    /// Whether the timeout decides about pods that cannot be evicted: none of them fails the drain before.
    pub(super) is_patient: bool,
    pub(super) rules: Rules,
    pub(super) timeout: Option<Duration>,
    pub(super) stop: watch::Receiver<Option<&'static str>>,
}

/// Delay until the next list, by the time since the last change.
fn pause(few: bool, unchanged: Duration) -> Duration {
    let least = if few {
        LIST_INTERVAL_FEW_LEFT
    } else {
        LIST_INTERVAL
    };
    (unchanged / LATER).clamp(least, LATEST)
}

type Look = BoxFuture<'static, Result<Present, kube::Error>>;

impl Loop<'_> {
    /// Evicts the pods, and returns how it ended and the state of each pod.
    pub(super) async fn run(
        mut self,
        pods: Vec<PodId>,
        later: &BTreeMap<PodId, usize>,
    ) -> (End, EvictionTracker) {
        let to = (self.waiter.report, self.evictor, self.deletes, self.rules);
        let began = Instant::now();
        let deadline = self.timeout.map(|timeout| began + timeout);
        let mut tracker = EvictionTracker::new(pods, later, self.rules, self.waiter.clock.now());
        let mut asked = FuturesUnordered::new();
        let mut look: OptionFuture<Look> = None.into();
        let mut looking = false;
        let mut next_look = began + LIST_INTERVAL;
        let mut last_change = began;
        let mut next_report = began + PROGRESS_INTERVAL;
        let end = loop {
            // The kubelet sends SIGTERM once and kills after the grace period, so the signal comes before everything
            // else.
            if let Some(signal) = *self.stop.borrow() {
                break End::Signal(signal);
            }
            let now = Instant::now();
            if deadline.is_some_and(|deadline| now >= deadline) {
                break End::TimeUp;
            }
            while asked.len() < MAX_IN_FLIGHT
                && let Some((pod, first)) = tracker.next(now - began)
            {
                // As kubectl, one line per pod. Retries are reported as refusals, which say why.
                if first {
                    (self.waiter.report)(Event::Evicting { pod: pod.clone() });
                }
                asked.push(of_pod(self.evictor, self.deletes, &pod).ask(pod));
            }
            if tracker.is_over() {
                break End::Over;
            }
            // A pod is gone when it is no longer listed: an accepted eviction only starts its grace period. No list
            // is sent while none could change anything, so a drain that waits for first responses costs no reads.
            if !looking && now >= next_look && tracker.wants_list() {
                let lister = self.waiter.lister.clone();
                look = Some(async move { lister.present().await }.boxed()).into();
                looking = true;
            }
            let note = tracker.note();
            self.waiter.show(&note);
            if now >= next_report {
                next_report = now + PROGRESS_INTERVAL;
                self.waiter.report(tracker.pending().count(), note);
            }
            // Everything that may become due. Responses and signals wake the loop by themselves.
            let wake = [
                tracker
                    .wake()
                    .map(|wake| began + wake)
                    // With all requests in flight, a pod that is due cannot start, and its past time would make the
                    // loop spin.
                    .filter(|_| asked.len() < MAX_IN_FLIGHT),
                (!looking && tracker.wants_list()).then_some(next_look),
                deadline,
                Some(next_report),
            ];
            let wake = wake.into_iter().flatten().min().unwrap_or(next_report);
            tokio::select! {
                biased; // so that a rehearsal is reproducible; ends come first
                () = &mut self.waiter.cancelled => break End::Cancelled,
                Ok(()) = self.stop.changed() => {}
                Some((pod, answer)) = asked.next(), if !asked.is_empty() => {
                    // This blocks the loop for one list, of few pods: such a pod makes the drain fail, or waits for minutes
                    // and is asked about every few seconds.
                    let answer = with_details(self.waiter.lister, self.is_patient, &pod, answer).await;
                    // The pod may be gone soon, so the node is listed at the shortest interval again.
                    if answer == EvictionOutcome::Accepted {
                        last_change = Instant::now();
                    }
                    let event = tracker.apply_outcome(&pod, answer, began.elapsed(), self.evictor.dry_run);
                    report_events(to, event);
                }
                Some(seen) = &mut look, if looking => {
                    looking = false;
                    look = None.into();
                    match self.waiter.admit(seen) {
                        Ok(Some(seen)) => {
                            let before = tracker.pending().count();
                            report_events(to, tracker.apply_list(&seen, self.waiter.clock.now()));
                            if tracker.pending().count() < before {
                                last_change = Instant::now();
                            }
                        }
                        Ok(None) => {}
                        Err(why) => break End::ListFailed(why),
                    }
                    let few = tracker.pending().nth(FEW).is_none();
                    next_look = Instant::now() + pause(few, last_change.elapsed());
                }
                () = sleep_until(wake) => {}
            }
        };
        // Requests in flight cannot be recalled, so their responses decide what the last line says of their pods.
        let rest = async {
            while let Some((pod, answer)) = asked.next().await {
                let event = tracker.apply_outcome(&pod, answer, began.elapsed(), self.evictor.dry_run);
                report_events(to, event);
            }
        };
        let _ = tokio::time::timeout(LAST_ANSWERS, rest).await;
        self.waiter.stop().await;
        (end, tracker)
    }
}

fn of_pod(evictor: &Evictor, deletes: &BTreeSet<PodId>, pod: &PodId) -> Evictor {
    if deletes.contains(pod) {
        evictor.deleting()
    } else {
        evictor.clone()
    }
}

fn report_events(
    (report, evictor, deletes, rules): (&(dyn Fn(Event) + Send + Sync), &Evictor, &BTreeSet<PodId>, Rules),
    events: impl IntoIterator<Item = EvictionEvent>,
) {
    for event in events {
        report(match event {
            EvictionEvent::Refused(pod, refusal) => Event::Refused {
                pod,
                pdb: refusal.pdb,
                message: refusal.why,
            },
            EvictionEvent::Gone(pod) => Event::Gone {
                is: if of_pod(evictor, deletes, &pod).by_delete {
                    "deleted"
                } else {
                    "evicted"
                },
                pod,
            },
            EvictionEvent::GivenUp(pod) => Event::GivenUp {
                pod,
                seconds: rules.skip_wait_for_delete,
            },
            EvictionEvent::Failed(pod, message) => Event::Failed { pod, message },
        });
    }
}

/// Adds what the API server does not send: the names of the two budgets, and what a virtual machine does instead.
async fn with_details(
    lister: &PodLister,
    is_patient: bool,
    pod: &PodId,
    answer: EvictionOutcome,
) -> EvictionOutcome {
    match answer {
        EvictionOutcome::TwoBudgets(why) => {
            let names = lister.budgets(pod).await.filter(|names| names.len() > 1);
            let why = match names {
                Some(names) => format!("{why} They are {}.", names.join(", ")),
                None => why,
            };
            if is_patient {
                return EvictionOutcome::Refused(Refusal::of(why));
            }
            EvictionOutcome::TwoBudgets(why)
        }
        EvictionOutcome::Refused(mut refusal) => {
            if let Some(machine) = &refusal.virtual_machine
                && let Some(migration) =
                    virtual_machine::migration(&lister.client, &pod.namespace, machine).await
            {
                refusal.why = migration;
            }
            EvictionOutcome::Refused(refusal)
        }
        answer => answer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_listed_less_often_the_longer_no_pod_goes() {
        let of = |few, millis| pause(few, Duration::from_millis(millis)).as_millis();
        assert_eq!((of(true, 0), of(true, 1_000), of(true, 3_000)), (200, 200, 600));
        assert_eq!((of(false, 0), of(false, 4_000)), (500, 800));
        assert_eq!((of(true, 60_000), of(false, 60_000)), (1_000, 1_000));
    }
}
