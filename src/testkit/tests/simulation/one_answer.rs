//! Whoever asks what holds a Plan, or why a node waits, gets one answer: in the stored status, in `refit status`, in
//! `refit explain`, on the page, and in the verdict of a rehearsal. Metrics count what status lists (`active` in
//! `src/rollout/status.rs` asserts that at each decision).

use jiff::Timestamp;

use refit_api::{NodePhase, NodeProgress, Reason};
use refit_facts::PlanFacts;
use refit_formats::page::{Row, RowState};
use refit_rehearse::Kind;
use refit_rehearse::journal::{Entry, JournalEvent};
use refit_rehearse::record::Recorder;
use refit_rehearse::verdict::unfinished;
use refit_view::plan::PlanOverview;
use refit_view::read::Snapshot;
use refit_view::{explain_node, explain_plan};

use crate::invariants::is_hostile;

/// Rows of the page are made anew from all that was recorded, so they are compared at every so many changes of Plans.
const ROWS_EVERY: usize = 4;

/// Follows a seed as `refit dashboard` follows a cluster.
pub(super) struct OneAnswer {
    recorder: Recorder,
    changes: usize,
}

impl OneAnswer {
    pub(super) fn new(now: Timestamp) -> Self {
        Self {
            recorder: Recorder::live(now),
            changes: 0,
        }
    }

    /// Compares what is said of a Plan after this change.
    pub(super) fn check(&mut self, entry: &Entry) -> Result<(), String> {
        let JournalEvent::Change(kind, change) = &entry.what else {
            return Ok(());
        };
        self.recorder.observe(*kind, change, entry.at);
        if *kind != Kind::Plan || change.gone || is_hostile(&change.new.value) {
            return Ok(());
        }
        let plan: PlanFacts = serde_json::from_slice(change.new.json(false)).unwrap();
        let snapshot = Snapshot {
            now: entry.at,
            plans: vec![plan],
            ..Snapshot::default()
        };
        let view = PlanOverview::new(&snapshot, &snapshot.plans[0]);
        // What is wrong with the object itself, and a status of another spec or another controller, is not refit's answer.
        let status = view.plan.status();
        if view.plan.malformed.is_some() || status.observed_generation.is_none() || !view.is_current() {
            return Ok(());
        }
        compare(&view)?;
        verdict(&view)?;
        self.changes += 1;
        if self.changes.is_multiple_of(ROWS_EVERY) {
            self.page(&view)?;
        }
        Ok(())
    }

    fn page(&self, view: &PlanOverview<'_>) -> Result<(), String> {
        let plan = &*view.plan.name;
        let rows = self.recorder.rows(plan, view.snapshot.now);
        let waits = self.recorder.waits();
        let waits = || {
            waits
                .iter()
                .filter(|wait| wait.plan == plan && wait.until.is_none())
        };
        for node in view.plan.status().active.iter().flatten() {
            let row = rows.get(&node.name);
            let is_shown = match &node.reason {
                _ if node.has_slot() => row.is_some_and(|row| shows(row, node)),
                None => true,
                // What every roll-out waits for is no wait.
                Some(reason) if *reason == Reason::NoSlot || *reason == Reason::NotReady => true,
                // One of all nodes has the message of one of them.
                Some(reason) => waits().any(|wait| {
                    let is_own = wait.node.as_ref() == Some(&node.name)
                        && Some(&wait.message) == node.message.as_ref();
                    wait.reason == *reason && (wait.node.is_none() || is_own)
                }),
            };
            if !is_shown {
                let waits: Vec<_> = waits().collect();
                return Err(format!(
                    "Plan {plan}: status has {node:?}, and the page {row:?} and {waits:?}"
                ));
            }
        }
        Ok(())
    }
}

/// Whether the row of a node that has a slot says what status does. A node that waits for workloads has its label already.
fn shows(row: &Row, node: &NodeProgress) -> bool {
    let is_same = (&row.reason, &row.message) == (&node.reason, &node.message);
    let is_failed = (row.state == RowState::Failed) == (node.phase == NodePhase::Failed);
    row.state == RowState::Done || is_same && is_failed
}

fn compare(view: &PlanOverview<'_>) -> Result<(), String> {
    let (name, status) = (&view.plan.name, view.plan.status());
    let (stored, shown) = (status.obstacle.as_ref(), view.obstacle.as_ref());
    let of_stored = stored.map(|it| (&it.reason, &it.message, &it.node, &it.about));
    let of_shown = shown.map(|it| (&it.reason, &it.message, &it.node, &it.about));
    if of_stored != of_shown {
        return Err(format!(
            "Plan {name}: status has {stored:?}, and `refit status` {shown:?}"
        ));
    }
    let said = explain_plan(view).to_text();
    if let Some(it) = stored.filter(|it| !said.contains(it.reason.as_str()) || !said.contains(&it.message)) {
        return Err(format!(
            "Plan {name}: status has {it:?}, and `refit explain`:\n{said}"
        ));
    }
    for node in status.active.iter().flatten() {
        let said = explain_node(view, &node.name).to_text();
        if node
            .reason
            .as_ref()
            .is_some_and(|reason| !said.contains(reason.as_str()))
        {
            return Err(format!(
                "Node {}: status has {node:?}, and `refit explain`:\n{said}",
                node.name
            ));
        }
        let of_node = stored.filter(|it| it.node.as_ref() == Some(&node.name));
        if of_node.is_some_and(|it| node.reason.as_ref() != Some(&it.reason)) {
            return Err(format!(
                "Node {}: status.active has {node:?}, and obstacle {stored:?}",
                node.name
            ));
        }
    }
    Ok(())
}

/// What a rehearsal that ended here would say.
fn verdict(view: &PlanOverview<'_>) -> Result<(), String> {
    let Some(found) = unfinished(view, view.complete) else {
        return Ok(());
    };
    let stored = view.plan.status().obstacle.as_ref();
    // A node at work that has no reason in status is nearer to the cause than what others wait for.
    let at_work = found
        .node
        .as_ref()
        .and_then(|node| view.node(node))
        .filter(|node| node.has_slot() && !node.is_failed());
    let (reason, node) = match (at_work, stored) {
        (Some(node), _) => (node.reason.clone(), &found.node),
        (None, Some(it)) => (Some(it.reason.clone()), &it.node),
        (None, None) => (None, &None),
    };
    if found.reason == reason && found.node == *node {
        return Ok(());
    }
    Err(format!(
        "Plan {}: status has {stored:?}, and the verdict is {found:?}",
        view.plan.name
    ))
}
