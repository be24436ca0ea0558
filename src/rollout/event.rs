//! Events as data. An event has a key of its own: written again after a crash or an answer that got lost, it finds its
//! first writing there, so that none is written twice and none is lost (S63).

use sha2::{Digest, Sha256};

use super::facts::{PlanName, PlanUid};
use crate::api::{Reason, Severity};

/// What an event is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Regarding {
    /// A Plan.
    Plan {
        /// Its name.
        name: PlanName,
        /// Its UID.
        uid: PlanUid,
    },
}

/// Something to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// What it is about.
    pub regarding: Regarding,
    /// Normal or Warning: that of the reason, unless something else was said.
    pub severity: Severity,
    /// One word.
    pub reason: Reason,
    /// A sentence.
    pub message: String,
    /// Sixteen hex digits that only this occurrence has: part of the event's name.
    pub key: String,
}

impl Event {
    /// An event about a Plan. `occurrence` is what tells this time from another time with the same words, such as the
    /// status that is about to be replaced.
    pub fn plan(name: &PlanName, uid: &PlanUid, reason: Reason, message: String, occurrence: &str) -> Self {
        let key = key(&[uid, reason.name(), &message, occurrence]);
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
}

fn key(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let mut key = hex::encode(hash.finalize());
    key.truncate(16);
    key
}
