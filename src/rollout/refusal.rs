//! Why a Job has no pod. The API server tells that to the Job controller, which writes it into events of the Job and nowhere
//! else. They are read only for such a Job: a watch of all events would cost more than all other watches together.

use jiff::{SignedDuration, Timestamp};

use super::later::later;
use super::state::ClusterState;
use super::step::{Key, Query, Step};
use refit_facts::{JobFacts, JobOutcome};

/// How long a Job may have no pod. The Job controller creates it within a second, unless the API server refuses it, and says
/// that in events only.
const POD_DUE: SignedDuration = SignedDuration::from_secs(30);

/// How often the events of a Job without a pod are read.
const INTERVAL: SignedDuration = SignedDuration::from_secs(30);

/// What is known of a Job that has had no pod yet.
pub(super) struct RefusalState {
    /// Why, once it has had none for too long and its events were read, or cannot be.
    pub(super) text: Option<String>,
    /// Reads the events, if that is due.
    pub(super) ask: Option<Step>,
    /// When to look again.
    pub(super) again: Option<Timestamp>,
}

/// `None` if the Job has, or had, a pod, or should have none.
pub(super) fn of(cluster: &ClusterState, job: &JobFacts, now: Timestamp) -> Option<RefusalState> {
    let had_pod = job.failures > 0 || cluster.world.pods.of(job).next().is_some();
    let wants_pod = job.parallelism > 0 && !job.deleting && job.outcome == JobOutcome::Running;
    if had_pod || !wants_pod {
        return None;
    }
    let due = later(job.created, POD_DUE);
    if now < due {
        return Some(RefusalState {
            text: None,
            ask: None,
            again: Some(due),
        });
    }
    let answer = cluster.memory.answers.refusals.get(&job.uid);
    let until = answer.map(|answer| later(answer.seen, INTERVAL));
    let again = until.filter(|until| *until > now);
    let query = || {
        Step::Query(Query::ReadRefusal {
            job: job.name.clone(),
            uid: job.uid.clone(),
        })
    };
    let cannot_ask = || {
        let key = Key::Refusal(job.name.clone());
        cluster.memory.failures.contains_key(&key)
    };
    let name = &job.name;
    let text = match answer.map(|answer| answer.text.as_ref()) {
        Some(Some(words)) => Some(format!("the API server refuses the pod of Job {name}: {words}")),
        Some(None) => Some(unknown(cluster, name)),
        None => cannot_ask().then(|| unknown(cluster, name)),
    };
    Some(RefusalState {
        text,
        ask: again.is_none().then(query),
        again,
    })
}

fn unknown(cluster: &ClusterState, job: &str) -> String {
    let namespace = &cluster.defaults.namespace;
    format!(
        "Job {job} has had no pod for {} seconds: the API server may refuse it, as the events of the Job say (kubectl describe job \
         -n {namespace} {job})",
        POD_DUE.as_secs()
    )
}
