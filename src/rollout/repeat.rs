//! `spec.repeat`: done nodes run the Plan again at the same version.
//!
//! `status.repeat.since` names the repetition, and is part of the hash. So the status write that begins a repetition is
//! its only step: labels, Jobs, waves, approvals of waves and history follow the hash, as with a new version. The stored
//! status has the next time, too, so that neither a restart nor an edit makes a repetition due.

use jiff::Timestamp;

use super::blocker::Blocker;
use super::node::state::NodeState;
use super::picture::PlanPicture;
use super::plan::DerivedPlan;
use refit_api::RepeatStatus;
use refit_api::text::seconds;

impl DerivedPlan {
    /// Whether a repetition is due by the stored status, and the Plan itself does not prevent it.
    pub(super) fn repetition_is_due(&self, now: Timestamp) -> bool {
        let may_begin = self.invalid.is_none() && !self.is_suspended() && !self.is_aborted();
        may_begin && self.next_repetition(now).is_some_and(|next| next <= now)
    }

    /// When the next repetition is due.
    fn next_repetition(&self, now: Timestamp) -> Option<Timestamp> {
        let repeat = self.parsed.repeat.as_ref()?;
        let stored = self.facts.status().repeat.as_ref();
        let last = stored.and_then(|stored| stored.since.as_deref()?.parse().ok());
        // After an edit, a time of the schedule before it must not count.
        let schedule = repeat.to_string();
        let stored = stored.filter(|stored| stored.schedule.as_deref() == Some(&*schedule));
        let stored = stored.and_then(|stored| stored.next.as_deref()?.parse().ok());
        // The stored time is the later one only if the clock was set back since.
        stored.into_iter().chain(repeat.next(last, now)).min()
    }
}

/// `status.repeat` after this decision. `may_begin` says whether the Plan's gate lets a repetition begin.
pub(super) fn status(
    plan: &DerivedPlan,
    picture: &PlanPicture,
    may_begin: bool,
    now: Timestamp,
) -> Option<RepeatStatus> {
    let since = plan.facts.status().repeat.as_ref();
    let since = since.and_then(|stored| stored.since.clone());
    let Some(repeat) = &plan.parsed.repeat else {
        // Without it, nodes would have the label of another hash, and would run once more.
        return since.map(|since| RepeatStatus {
            since: Some(since),
            ..RepeatStatus::default()
        });
    };
    let next = plan.next_repetition(now);
    let due = next.filter(|_| may_begin && plan.repetition_is_due(now) && is_over(picture));
    let (since, next) = match due {
        Some(due) => (Some(seconds(due)), repeat.next(Some(due), now)),
        None => (since, next),
    };
    Some(RepeatStatus {
        since,
        next: next.map(seconds),
        schedule: Some(repeat.to_string()),
    })
}

/// Whether the roll-out is over: no node holds a slot, and all that can start have started. Nodes that wait for something
/// of their own, such as one that is not Ready, run once when they can, at the latest repetition.
fn is_over(picture: &PlanPicture) -> bool {
    picture.slots.values().all(NodeState::is_given_up)
        && picture.after.is_none()
        && matches!(picture.blocker, None | Some(Blocker::NodeNotReady))
}

/// When the next decision is due for it.
pub(super) fn requeue_at(status: Option<&RepeatStatus>, now: Timestamp) -> Option<Timestamp> {
    let next = status.and_then(|status| status.next.as_deref()?.parse().ok());
    next.filter(|next: &Timestamp| *next > now)
}
