//! The conditions of a Plan: system-upgrade-controller's three, in its order and words (S53, S54).

use jiff::Timestamp;

use crate::api::status::PlanCondition;

/// Condition types, in the order in which status shows them: the Message column prints the first message.
pub(super) const COMPLETE: &str = "Complete";
pub(super) const VALIDATED: &str = "Validated";
pub(super) const LATEST_RESOLVED: &str = "LatestResolved";

/// What a condition is to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Says {
    pub(super) type_: &'static str,
    pub(super) status: bool,
    pub(super) reason: String,
    pub(super) message: String,
}

impl Says {
    pub(super) fn new(type_: &'static str, status: bool, reason: &str, message: impl Into<String>) -> Self {
        Self {
            type_,
            status,
            reason: reason.to_owned(),
            message: message.into(),
        }
    }

    /// The condition, with the times of the stored one where it says the same.
    pub(super) fn write(self, stored: &[PlanCondition], now: Timestamp) -> PlanCondition {
        let status = if self.status { "True" } else { "False" };
        let known = find(stored, self.type_);
        let same_status = known.filter(|c| c.status == status);
        let same = same_status.filter(|c| {
            c.reason.as_deref().unwrap_or_default() == self.reason
                && c.message.as_deref().unwrap_or_default() == self.message
        });
        let stamp = || Some(seconds(now));
        PlanCondition {
            type_: self.type_.to_owned(),
            status: status.to_owned(),
            last_update_time: same.and_then(|c| c.last_update_time.clone()).or_else(stamp),
            last_transition_time: same_status
                .and_then(|c| c.last_transition_time.clone())
                .or_else(stamp),
            reason: Some(self.reason),
            message: Some(self.message).filter(|m| !m.is_empty()),
        }
    }
}

/// The condition of a type.
pub(super) fn find<'a>(conditions: &'a [PlanCondition], type_: &str) -> Option<&'a PlanCondition> {
    conditions.iter().find(|c| c.type_ == type_)
}

/// A time as conditions have it: RFC 3339, whole seconds.
pub(super) fn seconds(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
