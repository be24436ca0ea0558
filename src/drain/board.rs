//! The board on which a drain keeps its pods: which may be asked to go now, which were refused and since when, which are
//! going, which are gone. Pure: requests, lists and the clock are outside; times are spans since the drain began.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::answer::{Answer, Refusal};
use super::pods::{PodId, Rules, is_given_up};
use crate::api::drain::{DrainNote, DrainWait, WAITS_NAMED};

/// When a pod that was refused is asked again: kubectl's span.
pub const RETRY: Duration = Duration::from_secs(5);
/// When a pod is asked again that had changed in between.
const CONFLICT_RETRY: Duration = Duration::from_secs(1);
/// For how long a pod may be asked without a clear answer: longer than an API server takes to restart.
pub const OUTAGE: Duration = Duration::from_secs(60);
/// How long an overloaded server is left alone at most.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Something about a pod that is worth telling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// It may not go yet, and this was not said before.
    Refused(PodId, Refusal),
    /// It is gone.
    Gone(PodId),
    /// It is not waited for any longer.
    GivenUp(PodId),
    /// It will not go, and why.
    Failed(PodId, String),
}

/// All pods that a drain takes from a node.
#[derive(Debug)]
pub struct Board {
    began: Timestamp,
    rules: Rules,
    pods: BTreeMap<PodId, Place>,
    /// Nobody is asked before: the server is overloaded.
    pause: Duration,
    /// How often in a row the server was.
    overloads: u32,
}

#[derive(Debug)]
struct Place {
    state: State,
    refusal: Option<(Duration, Refusal)>,
    /// Since when no answer was clear.
    unclear: Option<Duration>,
    /// It may be another pod by now: what the API server has under the name did not take the question.
    doubted: bool,
    tried: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// To be asked, at the earliest then.
    Due(Duration),
    /// Asked; no answer yet.
    Asked,
    /// Told to go.
    Leaving,
    Gone,
    GivenUp,
    Failed(String),
}

impl Board {
    /// A board with pods that are all to be asked.
    pub fn new(pods: impl IntoIterator<Item = PodId>, rules: Rules, began: Timestamp) -> Self {
        let place = |id| {
            let place = Place {
                state: State::Due(Duration::ZERO),
                refusal: None,
                unclear: None,
                doubted: false,
                tried: false,
            };
            (id, place)
        };
        Self {
            began,
            rules,
            pods: pods.into_iter().map(place).collect(),
            pause: Duration::ZERO,
            overloads: 0,
        }
    }

    /// The next pod to be asked, and whether it is the first time. Those that were never asked come first.
    pub fn next(&mut self, now: Duration) -> Option<(PodId, bool)> {
        if self.pause > now {
            return None;
        }
        let failed = self.has_failed();
        let due =
            |place: &Place| matches!(place.state, State::Due(at) if at <= now) && !(failed && place.tried);
        let (id, place) = self
            .pods
            .iter_mut()
            .filter(|(_, place)| due(place))
            .min_by_key(|(_, place)| place.tried)?;
        let first = !place.tried;
        place.state = State::Asked;
        place.tried = true;
        Some((id.clone(), first))
    }

    /// When [`Self::next`] may have one again, if not for what happens until then.
    pub fn wake(&self) -> Option<Duration> {
        let failed = self.has_failed();
        let due = self.pods.values().filter_map(|place| match place.state {
            State::Due(at) if !(failed && place.tried) => Some(at),
            _ => None,
        });
        due.min().map(|at| at.max(self.pause))
    }

    /// A pod that was asked has its answer. In a dry run a refusal is the result.
    pub fn answered(&mut self, id: &PodId, answer: Answer, now: Duration, dry_run: bool) -> Option<News> {
        if let Answer::Overloaded(breather) = answer {
            // 1, 2, 4, 5 seconds: the server is the same for all pods.
            let factor = 1 << self.overloads.min(3);
            self.overloads += 1;
            self.pause = now + (breather * factor).min(LONGEST_PAUSE);
        } else {
            self.overloads = 0;
        }
        let place = self.pods.get_mut(id)?;
        if place.state != State::Asked {
            return None; // a list was faster
        }
        if !matches!(answer, Answer::Unclear(_)) {
            place.unclear = None;
        }
        place.doubted = answer == Answer::Conflict;
        let mut fails = |why: String| {
            place.state = State::Failed(why.clone());
            Some(News::Failed(id.clone(), why))
        };
        match answer {
            Answer::Accepted if dry_run => {
                place.state = State::Gone;
                None
            }
            Answer::Accepted => {
                place.state = State::Leaving;
                place.refusal = None;
                None
            }
            Answer::Gone => {
                place.state = State::Gone;
                Some(News::Gone(id.clone()))
            }
            Answer::Refused(refusal) if dry_run => fails(refusal.why),
            Answer::Refused(refusal) => place.is_refused(id, refusal, now),
            Answer::Terminating(why) if dry_run => fails(why),
            Answer::Terminating(why) => place.is_refused(id, Refusal { pdb: None, why }, now),
            Answer::Overloaded(_) => {
                place.state = State::Due(self.pause);
                None
            }
            Answer::Conflict => {
                place.state = State::Due(now + CONFLICT_RETRY);
                None
            }
            Answer::Unclear(why) => {
                let since = *place.unclear.get_or_insert(now);
                if now.saturating_sub(since) >= OUTAGE {
                    return fails(why);
                }
                place.state = State::Due(now + RETRY);
                None
            }
            Answer::TwoBudgets(why) | Answer::Fatal(why) => fails(why),
        }
    }

    /// A list has told which pods are on the node, by UID, and when the grace period of those ends that are told to go.
    /// `wall` is the time of day.
    pub fn seen(&mut self, on_node: &BTreeMap<String, Option<Timestamp>>, wall: Timestamp) -> Vec<News> {
        let mut news = Vec::new();
        for (id, place) in &mut self.pods {
            if !place.is_open() {
                continue;
            }
            match on_node.get(&id.uid) {
                None => {
                    place.state = State::Gone;
                    news.push(News::Gone(id.clone()));
                }
                Some(deleted) if is_given_up(*deleted, self.rules, wall) => {
                    place.state = State::GivenUp;
                    news.push(News::GivenUp(id.clone()));
                }
                // What is told to go by somebody else need not be asked again.
                Some(Some(_)) if matches!(place.state, State::Due(_)) && place.refusal.is_some() => {
                    place.state = State::Leaving;
                    place.refusal = None;
                }
                Some(_) => {}
            }
        }
        news
    }

    /// Nothing is left to be done: all pods are gone, or one will not go and all others have been asked.
    pub fn is_over(&self) -> bool {
        let failed = self.has_failed();
        !self.pods.values().any(|place| match place.state {
            State::Asked => true,
            State::Due(_) => !(failed && place.tried),
            State::Leaving => !failed,
            _ => false,
        })
    }

    /// Whether a list would tell anything.
    pub fn wants_list(&self) -> bool {
        self.pods.values().any(|place| {
            place.is_open() && (place.state == State::Leaving || place.refusal.is_some() || place.doubted)
        })
    }

    fn has_failed(&self) -> bool {
        self.pods
            .values()
            .any(|place| matches!(place.state, State::Failed(_)))
    }

    /// Why pods will not go.
    pub fn failures(&self) -> impl Iterator<Item = (&PodId, &str)> {
        self.pods.iter().filter_map(|(id, place)| match &place.state {
            State::Failed(why) => Some((id, why.as_str())),
            _ => None,
        })
    }

    /// Pods that are neither gone nor given up, and whether they have been told to go.
    pub fn pending(&self) -> impl Iterator<Item = (&PodId, bool)> {
        self.pods
            .iter()
            .filter(|(_, place)| !matches!(place.state, State::Gone | State::GivenUp))
            .map(|(id, place)| (id, place.state == State::Leaving))
    }

    /// How far it has come.
    pub fn note(&self) -> DrainNote {
        let mut waits: Vec<_> = self
            .pods
            .iter()
            .filter_map(|(id, place)| Some((id, place.refusal.as_ref().filter(|_| place.is_open())?)))
            .collect();
        waits.sort_by_key(|(id, (since, _))| (*since, (*id).clone()));
        DrainNote {
            evicted: self
                .pods
                .values()
                .filter(|place| place.state == State::Gone)
                .count(),
            total: self.pods.len(),
            more: waits.len().saturating_sub(WAITS_NAMED),
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

impl Place {
    /// Whether it is still to be seen what becomes of the pod.
    fn is_open(&self) -> bool {
        matches!(self.state, State::Due(_) | State::Asked | State::Leaving)
    }

    fn is_refused(&mut self, id: &PodId, refusal: Refusal, now: Duration) -> Option<News> {
        self.state = State::Due(now + RETRY);
        let same_budget = self
            .refusal
            .as_ref()
            .filter(|(_, known)| known.pdb == refusal.pdb);
        let since = same_budget.map_or(now, |(since, _)| *since);
        let news = self.refusal.as_ref().is_none_or(|(_, known)| *known != refusal);
        self.refusal = Some((since, refusal.clone()));
        news.then(|| News::Refused(id.clone(), refusal))
    }
}

#[cfg(test)]
mod tests;
