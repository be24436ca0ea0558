//! Events as data. The key of an event is part of its name on the cluster: if it is written again after a crash or a lost
//! response, the API server answers that it exists. So no event is lost, and none is written twice (S63).

use refit_api::digest::short_digest;
use refit_api::{Reason, Severity};
use refit_facts::{NodeName, PlanName, PlanUid};

/// What an event is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Regarding {
    Plan { name: PlanName, uid: PlanUid },
    Node(NodeName),
}

/// An Event to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub regarding: Regarding,
    /// That of the reason, unless the code chose another.
    pub severity: Severity,
    pub reason: Reason,
    pub message: String,
    /// Sixteen hex digits that only this occurrence has: part of the event's name.
    pub key: String,
}

impl Event {
    /// An event about a Plan. `occurrence` distinguishes this occurrence from others with the same message, such as the
    /// status that is about to be replaced.
    pub fn plan(name: &PlanName, uid: &PlanUid, reason: Reason, message: String, occurrence: &str) -> Self {
        let key = key(&[uid, reason.name(), &message, occurrence]);
        Self {
            key,
            ..Self::job(name, uid, reason, message, occurrence)
        }
    }

    /// An event about a Job of a Plan. It is sent once, whatever is known of the Job by then.
    pub fn job(name: &PlanName, uid: &PlanUid, reason: Reason, message: String, job_uid: &str) -> Self {
        let key = key(&[uid, reason.name(), job_uid]);
        let regarding = Regarding::Plan {
            name: name.clone(),
            uid: uid.clone(),
        };
        Self {
            regarding,
            severity: reason.severity(),
            reason,
            message,
            key,
        }
    }

    /// An event about a Node. Of two for one occurrence, the second is not written.
    pub fn node(name: &NodeName, reason: Reason, message: String, occurrence: &str) -> Self {
        Self {
            regarding: Regarding::Node(name.clone()),
            severity: reason.severity(),
            reason,
            message,
            key: key(&[name, reason.name(), occurrence]),
        }
    }
}

fn key(parts: &[&str]) -> String {
    short_digest(parts, 16)
}
