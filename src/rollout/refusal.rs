//! Why a Job has no pod. The API server tells that to the Job controller, which writes it into events of the Job and nowhere
//! else. They are read only for such a Job: a watch of all events would cost more than all other watches together.

use jiff::{SignedDuration, Timestamp};

use super::state::ClusterState;
use super::step::{Key, Query, Step};
use refit_facts::{JobFacts, JobUid, Text};

/// How often the events of a Job without a pod are read.
const INTERVAL: SignedDuration = SignedDuration::from_secs(30);
/// Answers that are older are forgotten: their Jobs have a pod, or are gone.
const KEPT: SignedDuration = SignedDuration::from_mins(10);

/// What the events of a Job say about its pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub seen: Timestamp,
    /// The words of the API server. `None` if it has refused no pod, or the controller may not read events.
    pub text: Option<Text>,
}

/// What is known of a Job without a pod.
pub(super) struct RefusalState<'a> {
    /// Whether the events were read, or cannot be.
    pub(super) is_answered: bool,
    /// The words of the API server.
    pub(super) words: Option<&'a Text>,
    /// Reads the events, if that is due.
    pub(super) ask: Option<Step>,
    /// When to ask again.
    pub(super) again: Option<Timestamp>,
}

impl ClusterState {
    pub(super) fn refusal(&self, job: &JobFacts, now: Timestamp) -> RefusalState<'_> {
        let answer = self.refusals.get(&job.uid);
        let until = answer.map(|answer| answer.seen.saturating_add(INTERVAL).unwrap_or(Timestamp::MAX));
        let again = until.filter(|until| *until > now);
        let query = || {
            Step::Query(Query::ReadRefusal {
                job: job.name.clone(),
                uid: job.uid.clone(),
            })
        };
        let cannot_ask = self
            .failures_by_step
            .contains_key(&Key::Refusal(job.name.clone()));
        RefusalState {
            is_answered: answer.is_some() || cannot_ask,
            words: answer.and_then(|answer| answer.text.as_ref()),
            ask: again.is_none().then(query),
            again,
        }
    }

    pub(super) fn apply_refusal(&mut self, job: JobUid, refusal: Refusal) {
        let oldest = refusal.seen.saturating_sub(KEPT).unwrap_or(Timestamp::MIN);
        self.refusals.retain(|_, known| known.seen > oldest);
        self.refusals.insert(job, refusal);
    }
}
