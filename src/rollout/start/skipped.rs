//! Nodes that their drain has released as they were, because pods had not ended in time.

use jiff::{SignedDuration, Timestamp};

use super::limit::{Turn, Verdict};
use crate::blocker::Blocker;
use crate::later::{later, requeue};
use crate::plan::DerivedPlan;
use refit_api::wait_for;
use refit_facts::NodeFacts;
use refit_facts::record::{Phase, Record};

impl DerivedPlan {
    /// The record of a node that was released, if it is about what the Plan would run now.
    fn skipped<'n>(&self, node: &'n NodeFacts) -> Option<&'n Record> {
        self.current_record(node)
            .filter(|record| record.phase == Phase::Skipped)
    }

    /// The number of the attempt that starts next on a node that has none.
    pub(crate) fn next_attempt(&self, node: &NodeFacts) -> i64 {
        self.skipped(node)
            .map_or(1, |record| record.attempt.saturating_add(1))
    }
}

/// When its turn comes again. Anyone who may patch the Node can write the record, so a time in the future counts only as far
/// as clocks may differ.
fn until(record: &Record, now: Timestamp) -> Option<Timestamp> {
    let pause = wait_for::pause(record.retries);
    let is_plausible = record.at.duration_since(now) <= SignedDuration::from_mins(1);
    let until = later(record.at, pause);
    (is_plausible && until > now).then_some(until)
}

/// The limit of a node that waits for its next turn.
pub(super) fn skipped(turn: &mut Turn<'_, '_>) -> Verdict {
    let record = turn.plan.skipped(turn.node);
    // An edit of the Plan may have changed what the drain waits for, and a person may have ended the pause.
    let record = record.filter(|record| record.inputs.as_deref() == Some(&*turn.plan.inputs));
    let Some((record, until)) = record.and_then(|record| Some((record, until(record, turn.now)?))) else {
        return Verdict::Go;
    };
    requeue(&mut turn.picture.requeue_at, until);
    Verdict::Skip(Blocker::DrainSkipped {
        why: record.message.clone().unwrap_or_default(),
        until,
    })
}
