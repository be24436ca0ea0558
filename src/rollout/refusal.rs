//! Why a Job has no pod. The API server tells that to the Job controller, which writes it into events of the Job and nowhere
//! else. They are read only for such a Job: a watch of all events would cost more than all other watches together.

use jiff::{SignedDuration, Timestamp};

use super::memory::Memory;
use super::step::{Key, Query, Step};
use refit_facts::{JobFacts, Text};

/// How often the events of a Job without a pod are read.
const INTERVAL: SignedDuration = SignedDuration::from_secs(30);

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

/// What is known of the pod of a Job that has none.
pub(super) fn of<'a>(memory: &'a Memory, job: &JobFacts, now: Timestamp) -> RefusalState<'a> {
    let answer = memory.answers.refusals.get(&job.uid);
    let until = answer.map(|answer| answer.seen.saturating_add(INTERVAL).unwrap_or(Timestamp::MAX));
    let again = until.filter(|until| *until > now);
    let query = || {
        Step::Query(Query::ReadRefusal {
            job: job.name.clone(),
            uid: job.uid.clone(),
        })
    };
    let cannot_ask = memory.failures.contains_key(&Key::Refusal(job.name.clone()));
    RefusalState {
        is_answered: answer.is_some() || cannot_ask,
        words: answer.and_then(|answer| answer.text.as_ref()),
        ask: again.is_none().then(query),
        again,
    }
}
