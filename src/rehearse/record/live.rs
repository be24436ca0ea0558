//! What differs on a real cluster: the recorder joins roll-outs that have begun, may miss changes, and runs for days.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::Recorder;
use super::read::text;
use crate::json::Value;
use crate::store::Change;
use refit_formats::page::RowState;

/// Phases of a node, and waits that have ended, which are kept: a node that fails and is retried for days adds any number.
const MAX_KEPT: usize = 1_000;

impl Recorder {
    /// One that follows a real cluster, by the changes of Plans, Nodes and pods. Of each Plan it keeps the current roll-out.
    pub fn live(now: Timestamp) -> Self {
        Self {
            is_live: true,
            ..Self::new(now)
        }
    }

    /// Drops what is known of a Plan.
    pub(super) fn forget(&mut self, plan: &str) {
        self.plans.remove(plan);
        self.open.retain(|_, wait| wait.plan != plan);
        self.closed.retain(|wait| wait.plan != plan);
    }

    /// Drops what is known of a Plan if its status is that of another roll-out.
    pub(super) fn forget_other_roll_out(&mut self, plan: &str, status: &Value) {
        let hash = status["latestHash"].as_str();
        let known = self.plans.get(plan).and_then(|seen| seen.hash.as_deref());
        if known.is_some() && known != hash {
            self.forget(plan);
        }
    }

    /// When the phase of a node in `status.active` began. On a real cluster status says so, because the change may be seen
    /// minutes later, or the first time.
    pub(super) fn began(&self, entry: &Value, now: Timestamp) -> Timestamp {
        let since = text(entry, "since").parse().ok();
        since.filter(|since| self.is_live && *since < now).unwrap_or(now)
    }

    /// Ends the last phase of nodes that status does not list any more. Those that are done are known by their label.
    pub(super) fn close_released(
        &mut self,
        plan: &str,
        status: &Value,
        here: &BTreeSet<&str>,
        now: Timestamp,
    ) {
        // A full list says nothing about those that it omits.
        if status["activeOmitted"]
            .as_i64()
            .is_some_and(|omitted| omitted > 0)
        {
            return;
        }
        let Some(seen) = self.plans.get_mut(plan) else {
            return;
        };
        for (node, run) in &mut seen.turns {
            if !here.contains(node.as_str())
                && let Some(last) = run.phases.last_mut()
            {
                last.until.get_or_insert(now);
            }
        }
    }

    /// Notes that a node lost the label of the roll-out: it runs again (`refit rerun`), or its request of a reboot is void.
    pub(super) fn note_lost_label(&mut self, change: &Change) {
        let node = change.new.meta("name");
        for seen in self.plans.values_mut() {
            let is_labelled = change.new.label(&seen.label) == seen.hash.as_deref();
            if let Some(run) = seen.turns.get_mut(node) {
                run.lost_label = run.state == RowState::Done && !is_labelled;
            }
        }
    }
}

/// Drops the oldest of a list that has reached its limit.
pub(super) fn make_room<T>(list: &mut Vec<T>) {
    if list.len() >= MAX_KEPT {
        list.drain(..MAX_KEPT / 10);
    }
}
