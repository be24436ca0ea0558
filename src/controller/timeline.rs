//! The timeline of roll-outs, as the loop has seen it: which node was in which phase since when, for the page.
//!
//! It follows the decisions and causes none. What was before this process led is not known, and begins with the time in
//! status. Kept only if the page is served.

mod waits;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use refit_api::text::shorten;
use refit_api::{ConditionType, NodePhase, OpenEnum, PlanStatus, Reason, Severity};
use refit_facts::{NodeName, PlanName};
use refit_formats::page::{Document, Held, PlanCard, Row, RowState, Source, Span, count_versions};
use refit_rollout::{Blocker, ClusterState, Report, Slot};

/// Rows that are kept, so that memory has a limit. Beyond it, nodes are counted, and not drawn.
const MAX_ROWS: usize = 10_000;
/// Spans of a row. A node that fails and is retried for days could add any number.
const MAX_SPANS: usize = 20;
/// Bytes of the message of a wait. Status and events have the whole one.
const MAX_WAIT: usize = 200;

/// What a viewer gets.
pub(super) struct Live {
    /// Everything but the rows.
    pub(super) document: Document,
    pub(super) rows: Vec<Arc<Row>>,
    /// Changes when rows went away: a viewer then drops those that it has.
    pub(super) generation: u64,
}

pub(super) struct Timeline {
    /// When this process began to lead.
    since: Timestamp,
    plans: BTreeMap<PlanName, PlanTimeline>,
    /// Of the last change of a row.
    revision: u64,
    generation: u64,
    rows: usize,
}

#[derive(Default)]
struct PlanTimeline {
    hash: Option<String>,
    rows: BTreeMap<NodeName, Arc<Row>>,
    /// Nodes whose last span is open.
    open: BTreeSet<NodeName>,
    /// Why the nodes wait that have no blocker of their own, and since when.
    blocked: Option<(Reason, Timestamp)>,
}

impl Timeline {
    pub(super) fn new(since: Timestamp) -> Self {
        Self {
            since,
            plans: BTreeMap::new(),
            revision: 0,
            generation: 0,
            rows: 0,
        }
    }

    /// Follows a decision.
    pub(super) fn follow(
        &mut self,
        cluster: &ClusterState,
        reports: &BTreeMap<PlanName, Report>,
        now: Timestamp,
    ) {
        let plans = self.plans.len();
        self.plans.retain(|name, _| reports.contains_key(name));
        if self.plans.len() < plans {
            self.generation += 1;
        }
        for (name, report) in reports {
            let mut plan = self.plans.remove(name).unwrap_or_default();
            let hash = cluster.target(name).map(|(_, hash)| hash.to_owned());
            if plan.hash != hash {
                // Another roll-out.
                if !plan.rows.is_empty() {
                    self.generation += 1;
                }
                plan = PlanTimeline {
                    hash,
                    ..PlanTimeline::default()
                };
            }
            self.follow_plan(cluster, name, report, &mut plan, now);
            self.plans.insert(name.clone(), plan);
        }
        self.rows = self.plans.values().map(|plan| plan.rows.len()).sum();
    }

    fn follow_plan(
        &mut self,
        cluster: &ClusterState,
        name: &PlanName,
        report: &Report,
        plan: &mut PlanTimeline,
        now: Timestamp,
    ) {
        let blocker = report.blocker.as_ref().map(Blocker::reason);
        if plan.blocked.map(|(reason, _)| reason) != blocker {
            plan.blocked = blocker.map(|reason| (reason, now));
        }
        let has_ended =
            |node: &&NodeName| !report.slots.contains_key(*node) && !report.nodes.contains_key(*node);
        let ended: Vec<NodeName> = plan.open.iter().filter(has_ended).cloned().collect();
        for node in ended {
            plan.open.remove(&node);
            let Some(row) = plan.rows.get_mut(&node) else {
                continue;
            };
            let row = self.mark_changed(row);
            close(row, now);
            if row.state != RowState::Waiting {
                let is_done = cluster.is_done(name, &node);
                row.state = if is_done {
                    RowState::Done
                } else {
                    RowState::Released
                };
            }
            (row.reason, row.message) = (None, None);
        }
        for (node, slot) in &report.slots {
            let state = if slot.phase == NodePhase::Failed {
                RowState::Failed
            } else {
                RowState::Applying
            };
            let is_new = !plan.rows.contains_key(node);
            // What this process has not seen begin has begun when status says.
            let from = slot.since.filter(|since| is_new && *since < now).unwrap_or(now);
            self.enter(plan, name, node, state, slot, None, from);
        }
        for (node, blocker) in &report.nodes {
            let reason = OpenEnum::from(blocker.reason());
            let slot = Slot {
                phase: NodePhase::Waiting,
                reason: Some(reason.clone()),
                since: None,
            };
            let is_known = plan
                .rows
                .get(node)
                .is_some_and(|row| row.reason.as_ref() == Some(&reason));
            let message = (!is_known).then(|| shorten(&blocker.to_string(), MAX_WAIT).into_owned());
            self.enter(plan, name, node, RowState::Waiting, &slot, message, now);
        }
    }

    /// The node is in this phase, for this reason.
    #[expect(
        clippy::too_many_arguments,
        reason = "one call for nodes with a slot, and one for nodes that wait"
    )]
    fn enter(
        &mut self,
        plan: &mut PlanTimeline,
        name: &PlanName,
        node: &NodeName,
        state: RowState,
        slot: &Slot,
        message: Option<String>,
        from: Timestamp,
    ) {
        if !plan.rows.contains_key(node) {
            if self.rows >= MAX_ROWS {
                return;
            }
            self.rows += 1;
            let row = Row {
                plan: name.to_string(),
                node: node.to_string(),
                state,
                reason: None,
                message: None,
                spans: Vec::new(),
                revision: 0,
            };
            plan.rows.insert(node.clone(), Arc::new(row));
        }
        let Some(row) = plan.rows.get_mut(node) else {
            return;
        };
        let is_same_span = plan.open.contains(node)
            && row.spans.last().is_some_and(|span| {
                span.phase == slot.phase && (slot.phase != NodePhase::Waiting || span.reason == slot.reason)
            });
        if is_same_span && row.state == state && row.reason == slot.reason {
            return;
        }
        let row = self.mark_changed(row);
        row.state = state;
        if row.reason != slot.reason {
            row.reason.clone_from(&slot.reason);
            row.message.clone_from(&message);
        }
        if is_same_span {
            return;
        }
        close(row, from);
        if row.spans.len() >= MAX_SPANS {
            row.spans.remove(0);
        }
        let is_wait = slot.phase == NodePhase::Waiting;
        row.spans.push(Span {
            phase: slot.phase.into(),
            from: from.as_second(),
            to: None,
            reason: slot.reason.clone().filter(|_| is_wait),
            message: message.filter(|_| is_wait),
        });
        plan.open.insert(node.clone());
    }

    fn mark_changed<'a>(&mut self, row: &'a mut Arc<Row>) -> &'a mut Row {
        self.revision += 1;
        // A viewer may still read the row; then this changes a copy.
        let row = Arc::make_mut(row);
        row.revision = self.revision;
        row
    }

    /// Everything that the page shows now.
    pub(super) fn live(
        &mut self,
        cluster: &ClusterState,
        reports: &BTreeMap<PlanName, Report>,
        now: Timestamp,
    ) -> Live {
        let mut rows = Vec::new();
        let mut cards = Vec::new();
        let mut plans = std::mem::take(&mut self.plans);
        for (name, plan) in &mut plans {
            let (Some(status), Some(report)) = (cluster.status(name), reports.get(name)) else {
                continue;
            };
            self.add_messages(plan, status, report);
            rows.extend(plan.rows.values().map(Arc::clone));
            let waits = waits::cards(plan, report, now);
            cards.push(PlanCard {
                waits,
                ..card(name, cluster, status, report, now)
            });
        }
        self.plans = plans;
        let mut notes = vec![format!(
            "This controller has led since {:.0}. Nodes that were done before are counted, and not drawn.",
            self.since
        )];
        if self.rows >= MAX_ROWS {
            notes.push(format!("Only {MAX_ROWS} nodes are drawn."));
        }
        Live {
            document: Document {
                notes,
                plans: cards,
                versions: count_versions(cluster.kubelets()),
                ..Document::new(Source::Cluster, "Roll-outs", self.since, now)
            },
            rows,
            generation: self.generation,
        }
    }

    /// The messages of nodes as they are now: status has those of nodes with a slot, and the decision those of nodes
    /// that wait.
    fn add_messages(&mut self, plan: &mut PlanTimeline, status: &PlanStatus, report: &Report) {
        for (node, blocker) in &report.nodes {
            let Some(row) = plan
                .rows
                .get_mut(node)
                .filter(|row| row.state == RowState::Waiting)
            else {
                continue;
            };
            let message = shorten(&blocker.to_string(), MAX_WAIT).into_owned();
            if row.message.as_ref() == Some(&message) {
                continue;
            }
            let row = self.mark_changed(row);
            if let Some(last) = row.spans.last_mut().filter(|last| last.to.is_none()) {
                last.message = Some(message.clone());
            }
            row.message = Some(message);
        }
        for node in status.active.iter().flatten() {
            if let Some(row) = plan.rows.get_mut(node.name.as_str())
                && row.state != RowState::Waiting
                && row.reason == node.reason
                && row.message != node.message
            {
                self.mark_changed(row).message.clone_from(&node.message);
            }
        }
    }
}

fn close(row: &mut Row, at: Timestamp) {
    if let Some(last) = row.spans.last_mut()
        && last.to.is_none()
    {
        last.to = Some(at.as_second().max(last.from));
    }
}

fn card(
    name: &PlanName,
    cluster: &ClusterState,
    status: &PlanStatus,
    report: &Report,
    now: Timestamp,
) -> PlanCard {
    let complete = status
        .conditions
        .iter()
        .any(|it| it.type_ == ConditionType::Complete && it.status == "True");
    let summary = cluster.summary(name, report, now);
    let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
    let failed = report
        .slots
        .values()
        .filter(|slot| slot.phase == NodePhase::Failed)
        .count();
    let applying = report.slots.len() - failed;
    PlanCard {
        name: name.to_string(),
        version: status.latest_version.clone(),
        state: PlanCard::state_of(complete, count(applying), count(failed)),
        selected: summary.as_ref().map_or(0, |summary| summary.selected),
        done: summary.as_ref().map_or(0, |summary| summary.done),
        applying: count(applying),
        waiting: count(report.waiting),
        failed: count(failed),
        held: held(status, report, applying),
        expected_end: status.expected_end.clone(),
        history: status.history.clone().unwrap_or_default(),
        waits: Vec::new(),
    }
}

/// What a person would have to do something about: a failed node, or what keeps every node from starting.
fn held(status: &PlanStatus, report: &Report, applying: usize) -> Option<Held> {
    let failed = report
        .slots
        .iter()
        .find(|(_, slot)| slot.phase == NodePhase::Failed);
    if let Some((node, slot)) = failed {
        let active = status.active.iter().flatten().find(|it| *it.name == **node);
        let message = active.and_then(|it| it.message.clone()).unwrap_or_default();
        let reason = slot.reason.clone().unwrap_or_else(|| Reason::JobFailed.into());
        return Some(Held::new(reason, format!("{node}: {message}")));
    }
    let blocker = report.blocker.as_ref()?;
    let is_expected = blocker.reason().severity() == Severity::Normal;
    if applying > 0 && is_expected {
        return None;
    }
    Some(Held::new(blocker.reason().into(), blocker.to_string()))
}

#[cfg(test)]
mod tests;
