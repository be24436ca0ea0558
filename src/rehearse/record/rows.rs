//! The timelines of nodes, as a page shows them.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{NodeRun, Recorder, Wait};
use refit_api::{NodePhase, Reason};
use refit_formats::page::{Row, RowState, Span};

impl Recorder {
    /// A row for each node that the Plan has started or that waited by itself, by name. `end` is when observation ended.
    pub fn rows(&self, plan: &str, end: Timestamp) -> BTreeMap<String, Row> {
        let mut rows: BTreeMap<String, Row> = BTreeMap::new();
        for (node, run) in self.node_runs(plan) {
            let row = rows.entry(node.clone()).or_insert_with(|| Row::new(plan, node));
            add_run(row, run, end);
            row.wave = self.wave_at(plan, run.since).map(str::to_owned);
        }
        for wait in self.waits().iter().filter(|wait| wait.plan == plan) {
            let Some(node) = wait.node.as_deref() else {
                continue;
            };
            let row = rows
                .entry(node.to_owned())
                .or_insert_with(|| Row::new(plan, node));
            row.spans.push(wait_span(wait));
        }
        for row in rows.values_mut() {
            // A stable sort: a wait that begins with a phase is drawn after it, so over it.
            row.spans.sort_by_key(|span| span.from);
        }
        rows
    }
}

fn add_run(row: &mut Row, run: &NodeRun, end: Timestamp) {
    row.state = run.state;
    row.evicted += run.evicted();
    row.boots += run.boots;
    row.failures += run.failures;
    row.reason.clone_from(&run.reason);
    row.message.clone_from(&run.message);
    row.spans.extend(run.phases.iter().map(|phase| Span {
        phase: phase.phase.clone(),
        from: phase.since.as_second(),
        to: phase.until.or(run.until).map(Timestamp::as_second),
        reason: None,
        message: None,
    }));
    if row.spans.is_empty() {
        // Its phases were too short to be reported.
        row.spans.push(Span {
            phase: NodePhase::Upgrading.into(),
            from: run.since.as_second(),
            to: Some(run.until.unwrap_or(end).as_second()),
            reason: None,
            message: None,
        });
    }
    if run.state == RowState::Failed
        && let Some(last) = row.spans.last_mut()
    {
        last.reason = run.reason.clone().or(Some(Reason::JobFailed.into()));
    }
}

fn wait_span(wait: &Wait) -> Span {
    Span {
        phase: NodePhase::Waiting.into(),
        from: wait.since.as_second(),
        to: wait.until.map(Timestamp::as_second),
        reason: Some(wait.reason.clone()),
        message: Some(wait.message.clone()),
    }
}
