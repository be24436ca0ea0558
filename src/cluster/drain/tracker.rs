//! Tracks the pods of a drain: which can be evicted now, which were refused and since when, which are terminating,
//! which are gone. Pure: requests, lists and the clock are outside. Times are durations since the start of the drain.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::outcome::{EvictionOutcome, Refusal};
use super::pods::{PodId, Rules, is_given_up};
use refit_api::drain::{DrainNote, DrainWait, WAITS_NAMED};

/// Delay before a refused eviction is retried, as in kubectl.
pub const RETRY: Duration = Duration::from_secs(5);
/// Delay before an eviction is retried after a conflict.
const CONFLICT_RETRY: Duration = Duration::from_secs(1);
/// Maximum time of unclear responses for a pod: longer than the restart of an API server.
pub const MAX_OUTAGE: Duration = Duration::from_secs(60);
/// Maximum pause for an overloaded server.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A change of a pod to report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EvictionEvent {
    /// The eviction is refused for a new reason.
    Refused(PodId, Refusal),
    Gone(PodId),
    /// The drain no longer waits for it.
    GivenUp(PodId),
    /// It cannot be evicted.
    Failed(PodId, String),
}

/// The pods that a drain evicts from a node.
#[derive(Debug)]
pub struct EvictionTracker {
    began: Timestamp,
    rules: Rules,
    pods: BTreeMap<PodId, PodEviction>,
    /// No eviction is requested before: the server is overloaded.
    pause: Duration,
    /// Number of consecutive overloads.
    overloads: u32,
}

#[derive(Debug)]
struct PodEviction {
    state: EvictionState,
    /// Pods of a group are evicted once those of lower groups are gone.
    group: usize,
    refusal: Option<(Duration, Refusal)>,
    /// Since when responses have been unclear.
    unclear: Option<Duration>,
    /// Whether another pod may have its name by now, because the API server rejected the UID.
    maybe_replaced: bool,
    tried: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum EvictionState {
    /// To be evicted, but not before.
    Due(Duration),
    /// The request is in flight.
    Asked,
    /// Terminating.
    Leaving,
    Gone,
    GivenUp,
    Failed(String),
}

impl EvictionTracker {
    /// `later` has the groups of the pods that are not in the first one, 0.
    pub fn new(
        pods: impl IntoIterator<Item = PodId>,
        later: &BTreeMap<PodId, usize>,
        rules: Rules,
        began: Timestamp,
    ) -> Self {
        let eviction = |id| {
            let eviction = PodEviction {
                state: EvictionState::Due(Duration::ZERO),
                group: later.get(&id).copied().unwrap_or_default(),
                refusal: None,
                unclear: None,
                maybe_replaced: false,
                tried: false,
            };
            (id, eviction)
        };
        Self {
            began,
            rules,
            pods: pods.into_iter().map(eviction).collect(),
            pause: Duration::ZERO,
            overloads: 0,
        }
    }

    /// The next pod to evict, and whether it is the first attempt. First attempts come before retries.
    pub fn next(&mut self, now: Duration) -> Option<(PodId, bool)> {
        // The pause holds back all pods, because the requests of a drain share one API server: to back off for one
        // pod only would not relieve it.
        if self.pause > now {
            return None;
        }
        let (failed, group) = (self.has_failed(), self.group());
        // Once one eviction has failed for good, the drain fails. Pods that were never tried still get one attempt,
        // because the retry of the Job then finds them gone; a retry of a refused one would only delay the message.
        let due = |eviction: &PodEviction| {
            let is_due = matches!(eviction.state, EvictionState::Due(at) if at <= now);
            is_due && eviction.group == group && !(failed && eviction.tried)
        };
        let (id, eviction) = self
            .pods
            .iter_mut()
            .filter(|(_, eviction)| due(eviction))
            // `false` sorts first, so pods that a budget blocks cannot use up the requests in flight.
            .min_by_key(|(_, eviction)| eviction.tried)?;
        let first = !eviction.tried;
        eviction.state = EvictionState::Asked;
        eviction.tried = true;
        Some((id.clone(), first))
    }

    /// When [`Self::next`] may return a pod again, unless something happens before.
    pub fn wake(&self) -> Option<Duration> {
        let (failed, group) = (self.has_failed(), self.group());
        let due = self.pods.values().filter_map(|eviction| match eviction.state {
            EvictionState::Due(at) if eviction.group == group && !(failed && eviction.tried) => Some(at),
            _ => None,
        });
        due.min().map(|at| at.max(self.pause))
    }

    /// Applies the response for a pod. In a dry run a refusal is final.
    pub fn apply_outcome(
        &mut self,
        id: &PodId,
        answer: EvictionOutcome,
        now: Duration,
        dry_run: bool,
    ) -> Option<EvictionEvent> {
        if let EvictionOutcome::Overloaded(retry_after) = answer {
            // 1, 2, 4, 5 seconds, for all pods, because they share the server.
            let factor = 1 << self.overloads.min(3);
            self.overloads += 1;
            self.pause = now + (retry_after * factor).min(LONGEST_PAUSE);
        } else {
            self.overloads = 0;
        }
        let eviction = self.pods.get_mut(id)?;
        if eviction.state != EvictionState::Asked {
            return None; // a list was faster
        }
        if !matches!(answer, EvictionOutcome::Unclear(_)) {
            eviction.unclear = None;
        }
        // The API server answers a UID that does not match with 409, as any other conflict. Only a list tells whether
        // the pod was replaced; without it the drain would retry a pod of the same name for ever.
        eviction.maybe_replaced = answer == EvictionOutcome::Conflict;
        let mut fails = |why: String| {
            eviction.state = EvictionState::Failed(why.clone());
            Some(EvictionEvent::Failed(id.clone(), why))
        };
        match answer {
            // A dry run deletes nothing, so no list would ever show the pod as gone.
            EvictionOutcome::Accepted if dry_run => {
                eviction.state = EvictionState::Gone;
                None
            }
            EvictionOutcome::Accepted => {
                eviction.state = EvictionState::Leaving;
                eviction.refusal = None;
                None
            }
            EvictionOutcome::Gone => {
                eviction.state = EvictionState::Gone;
                Some(EvictionEvent::Gone(id.clone()))
            }
            // Nothing else changes during a dry run, so to wait for the budget would show nothing. kubectl waits.
            EvictionOutcome::Refused(refusal) if dry_run => fails(refusal.why),
            EvictionOutcome::Refused(refusal) => eviction.record_refusal(id, refusal, now),
            EvictionOutcome::Terminating(why) if dry_run => fails(why),
            // The namespace controller deletes the pod later, so this is a wait and no failure. kubectl retries too
            // (`evictPods` in pkg/drain/drain.go, `NamespaceTerminating`).
            EvictionOutcome::Terminating(why) => eviction.record_refusal(id, Refusal::of(why), now),
            EvictionOutcome::Overloaded(_) => {
                eviction.state = EvictionState::Due(self.pause);
                None
            }
            EvictionOutcome::Conflict => {
                eviction.state = EvictionState::Due(now + CONFLICT_RETRY);
                None
            }
            EvictionOutcome::Unclear(why) => {
                // The time since the first unclear response decides, not the number of attempts: the API server may
                // run on a control-plane node that restarts just now.
                let since = *eviction.unclear.get_or_insert(now);
                if now.saturating_sub(since) >= MAX_OUTAGE {
                    return fails(why);
                }
                eviction.state = EvictionState::Due(now + RETRY);
                None
            }
            EvictionOutcome::TwoBudgets(why) | EvictionOutcome::Fatal(why) => fails(why),
        }
    }

    /// Applies a list of the pods on the node, by UID, with the end of the grace period of terminating pods. `wall` is
    /// the time of day.
    pub fn apply_list(
        &mut self,
        on_node: &BTreeMap<String, Option<Timestamp>>,
        wall: Timestamp,
    ) -> Vec<EvictionEvent> {
        let mut events = Vec::new();
        for (id, eviction) in &mut self.pods {
            if !eviction.is_open() {
                continue;
            }
            match on_node.get(&id.uid) {
                None => {
                    eviction.state = EvictionState::Gone;
                    events.push(EvictionEvent::Gone(id.clone()));
                }
                // As in kubectl, a pod on a node whose kubelet does not answer must not block the drain for ever, if
                // the user says so with --skip-wait-for-delete-timeout.
                Some(deleted) if is_given_up(*deleted, self.rules, wall) => {
                    eviction.state = EvictionState::GivenUp;
                    events.push(EvictionEvent::GivenUp(id.clone()));
                }
                // Someone else has deleted it, so it need not be evicted.
                Some(Some(_))
                    if matches!(eviction.state, EvictionState::Due(_)) && eviction.refusal.is_some() =>
                {
                    eviction.state = EvictionState::Leaving;
                    eviction.refusal = None;
                }
                Some(_) => {}
            }
        }
        events
    }

    /// The group whose pods are evicted now: the first that has any left. A group with a failure is the last one.
    fn group(&self) -> usize {
        let left = self
            .pods
            .values()
            .filter(|eviction| eviction.is_open() || matches!(eviction.state, EvictionState::Failed(_)));
        left.map(|eviction| eviction.group).min().unwrap_or_default()
    }

    /// Whether nothing is left to do: all pods are gone, or one cannot be evicted and all others of its group were tried.
    pub fn is_over(&self) -> bool {
        let (failed, group) = (self.has_failed(), self.group());
        !self.pods.values().any(|eviction| match eviction.state {
            EvictionState::Asked => true,
            EvictionState::Due(_) => !failed || eviction.group == group && !eviction.tried,
            EvictionState::Leaving => !failed,
            _ => false,
        })
    }

    /// Whether a list could change anything.
    pub fn wants_list(&self) -> bool {
        self.pods.values().any(|eviction| {
            eviction.is_open()
                && (eviction.state == EvictionState::Leaving
                    || eviction.refusal.is_some()
                    || eviction.maybe_replaced)
        })
    }

    fn has_failed(&self) -> bool {
        self.pods
            .values()
            .any(|eviction| matches!(eviction.state, EvictionState::Failed(_)))
    }

    /// Pods that cannot be evicted, and why.
    pub fn failures(&self) -> impl Iterator<Item = (&PodId, &str)> {
        self.pods
            .iter()
            .filter_map(|(id, eviction)| match &eviction.state {
                EvictionState::Failed(why) => Some((id, why.as_str())),
                _ => None,
            })
    }

    /// Pods that are neither gone nor given up, and whether they are terminating.
    pub fn pending(&self) -> impl Iterator<Item = (&PodId, bool)> {
        self.pods
            .iter()
            .filter(|(_, eviction)| !matches!(eviction.state, EvictionState::Gone | EvictionState::GivenUp))
            .map(|(id, eviction)| (id, eviction.state == EvictionState::Leaving))
    }

    /// Whether its eviction was requested: those of later groups may not have been.
    pub fn was_tried(&self, id: &PodId) -> bool {
        self.pods.get(id).is_some_and(|eviction| eviction.tried)
    }

    pub fn note(&self) -> DrainNote {
        let mut waits: Vec<_> = self
            .pods
            .iter()
            .filter_map(|(id, eviction)| {
                Some((id, eviction.refusal.as_ref().filter(|_| eviction.is_open())?))
            })
            .collect();
        // The note names a few waits only, and those that have lasted longest are the likeliest cause of a timeout.
        waits.sort_by_key(|(id, (since, _))| (*since, (*id).clone()));
        DrainNote {
            evicted: self
                .pods
                .values()
                .filter(|eviction| eviction.state == EvictionState::Gone)
                .count(),
            total: self.pods.len(),
            more: waits.len().saturating_sub(WAITS_NAMED),
            attached: 0,
            volume: None,
            running: Vec::new(),
            waiting: waits
                .into_iter()
                .take(WAITS_NAMED)
                .map(|(id, (since, refusal))| DrainWait {
                    pod: id.path(),
                    pdb: refusal.pdb.clone(),
                    since: self.wall(*since),
                    why: refusal.why.clone(),
                })
                .collect(),
        }
    }

    fn wall(&self, since: Duration) -> Timestamp {
        SignedDuration::try_from(since)
            .ok()
            .and_then(|since| self.began.checked_add(since).ok())
            .unwrap_or(self.began)
    }
}

impl PodEviction {
    /// Whether the outcome for the pod is still open.
    fn is_open(&self) -> bool {
        matches!(
            self.state,
            EvictionState::Due(_) | EvictionState::Asked | EvictionState::Leaving
        )
    }

    fn record_refusal(&mut self, id: &PodId, refusal: Refusal, now: Duration) -> Option<EvictionEvent> {
        self.state = EvictionState::Due(now + RETRY);
        // The message has numbers that change (`needs 3 healthy pods and has 2`), so only another budget restarts the
        // time of the wait.
        let same_budget = self
            .refusal
            .as_ref()
            .filter(|(_, known)| known.pdb == refusal.pdb);
        let since = same_budget.map_or(now, |(since, _)| *since);
        let is_new = self.refusal.as_ref().is_none_or(|(_, known)| *known != refusal);
        self.refusal = Some((since, refusal.clone()));
        is_new.then(|| EvictionEvent::Refused(id.clone(), refusal))
    }
}

#[cfg(test)]
mod tests;
