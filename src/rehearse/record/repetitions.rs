//! Repetitions of Plans: which roll-out a Plan is in, and when each was complete.

use jiff::Timestamp;

use super::{EventKind, NodeRun, Recorder};
use crate::json::Value;

/// The repetitions of a Plan (`spec.repeat`).
#[derive(Clone, Debug, Default)]
pub struct Repetitions {
    /// `status.repeat.since`.
    pub(super) since: Option<String>,
    /// The hash of the roll-out before. Until it changes, status is about that roll-out.
    pub(super) hash_before: Option<String>,
    /// When the first roll-out was complete.
    pub first_complete: Option<Timestamp>,
    /// When the first repetition of the rehearsal was due. Absent until it begins.
    pub due: Option<Timestamp>,
    /// When the first repetition was complete.
    pub repeated: Option<Timestamp>,
    /// When the next one is due.
    pub next: Option<Timestamp>,
    /// The runs of earlier roll-outs.
    pub(super) earlier: Vec<(String, NodeRun)>,
}

impl Recorder {
    /// The repetitions of a Plan.
    pub fn repetitions(&self, plan: &str) -> Option<&Repetitions> {
        self.plans.get(plan).map(|seen| &seen.repetitions)
    }

    /// When the first repetition of a Plan is due that has not been rehearsed.
    pub fn awaited_repetition(&self, plan: &str) -> Option<Timestamp> {
        let repetitions = self.repetitions(plan)?;
        repetitions.next.filter(|_| repetitions.repeated.is_none())
    }

    /// Notes progress of a Plan. A Plan that repeats every hour must not hide that another one has stalled.
    pub(super) fn note_progress(&mut self, plan: &str, now: Timestamp) {
        if self.repetitions(plan).is_none_or(|it| it.repeated.is_none()) {
            self.progress = now;
        }
    }

    /// Notes progress on a node, unless it only tries again what it could not do.
    pub(super) fn note_progress_on(&mut self, plan: &str, node: &str, now: Timestamp) {
        if !self.skipped.contains(&(plan.to_owned(), node.to_owned())) {
            self.note_progress(plan, now);
        }
    }

    /// Records which repetition the roll-out of a Plan is.
    pub(super) fn observe_repetition(&mut self, plan: &str, repeat: &Value, now: Timestamp) {
        let since = repeat["since"].as_str().map(str::to_owned);
        let Some(seen) = self.plans.get_mut(plan) else {
            return;
        };
        let repetitions = &mut seen.repetitions;
        repetitions.next = repeat["next"].as_str().and_then(|next| next.parse().ok());
        let before = std::mem::replace(&mut repetitions.since, since.clone());
        // The first status of a Plan from a snapshot names a repetition that has begun before.
        let Some(since) =
            since.filter(|since| before.as_ref() != Some(since) && repetitions.first_complete.is_some())
        else {
            return;
        };
        let due = since.parse().unwrap_or(now);
        repetitions.due.get_or_insert(due);
        repetitions.hash_before.clone_from(&seen.hash);
        repetitions.earlier.extend(std::mem::take(&mut seen.turns));
        seen.without_job.clear();
        self.note_progress(plan, now);
        self.emit(now, plan, None, EventKind::Repeats(since));
    }

    pub(super) fn note_complete(&mut self, plan: &str, now: Timestamp) {
        let Some(seen) = self.plans.get_mut(plan) else {
            return;
        };
        let repetitions = &mut seen.repetitions;
        repetitions.first_complete.get_or_insert(now);
        if repetitions.due.is_some() {
            repetitions.repeated.get_or_insert(now);
        }
    }
}
