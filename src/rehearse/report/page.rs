//! The timeline of a rehearsal as a page for a browser.

use jiff::Timestamp;

use super::{PlanReport, Report, WaitGroup};
use crate::record::{NodeRun, RunState, Wait};
use crate::run::{Outcome, PlanOutcome};
use refit_api::{NodePhase, Reason};
use refit_formats::page::{
    Change, Document, Held, PlanCard, Row, RowState, Source, Span, Verdict, WaitCard, count_versions,
};

impl Report {
    /// The page's data. `changes` are those of a comparison, if this is the newer one of two rehearsals.
    pub fn to_document(&self, outcome: &Outcome, changes: Vec<Change>) -> Document {
        let names: Vec<&str> = self.plans.iter().map(|plan| plan.name.as_str()).collect();
        Document {
            verdict: Some(Verdict {
                complete: self.verdict.complete,
                line: self.verdict.line.clone(),
            }),
            notes: self
                .assumed
                .iter()
                .map(|line| format!("Assumed: {line}"))
                .collect(),
            plans: self
                .plans
                .iter()
                .zip(&outcome.plans)
                .map(|(plan, end)| self.card(plan, end))
                .collect(),
            rows: rows(outcome),
            versions: count_versions(outcome.kubelets.values().map(String::as_str)),
            changes,
            ..Document::new(
                Source::Rehearsal,
                format!("Rehearsal of {}", names.join(", ")),
                outcome.start,
                outcome.end,
            )
        }
    }

    fn card(&self, plan: &PlanReport, end: &PlanOutcome) -> PlanCard {
        let why = self
            .verdict
            .reasons
            .iter()
            .find(|reason| reason.plan == plan.name);
        let status = end.plan.status.as_ref();
        let groups = self.wait_groups.iter().filter(|group| group.plan == plan.name);
        let open = groups.clone().find(|group| group.end.is_none());
        let failed = status
            .and_then(|status| status.active.as_ref())
            .into_iter()
            .flatten()
            .find(|node| node.phase == NodePhase::Failed)
            .and_then(|node| node.reason.clone());
        let reason = failed.or_else(|| open.map(|group| group.reason.clone()));
        PlanCard {
            name: plan.name.clone(),
            version: plan.version.clone(),
            state: PlanCard::state_of(plan.complete, 0, plan.failed),
            selected: plan.selected,
            done: plan.done,
            applying: (plan.selected - plan.done - plan.failed - plan.waiting).max(0),
            waiting: plan.waiting,
            failed: plan.failed,
            held: why
                .zip(reason)
                .map(|(why, reason)| Held::new(reason, why.why.clone())),
            expected_end: None,
            history: Vec::new(),
            waits: groups.map(wait_card).collect(),
        }
    }
}

fn wait_card(group: &WaitGroup) -> WaitCard {
    WaitCard {
        reason: group.reason.clone(),
        message: group.message.clone(),
        seconds: group.seconds,
        nodes: (!group.nodes.is_empty()).then_some(group.nodes.len()),
        is_over: group.end.is_some(),
    }
}

fn rows(outcome: &Outcome) -> Vec<Row> {
    let waits = outcome.record.waits();
    let mut rows = Vec::new();
    for plan in &outcome.plans {
        let mut of_plan: std::collections::BTreeMap<&str, Row> = std::collections::BTreeMap::new();
        let empty = |node: &str| Row {
            plan: plan.name().to_owned(),
            node: node.to_owned(),
            state: RowState::Waiting,
            reason: None,
            message: None,
            spans: Vec::new(),
            revision: 0,
        };
        for (node, run) in outcome.record.node_runs(plan.name()) {
            let row = of_plan.entry(node.as_str()).or_insert_with(|| empty(node));
            add_run(row, run, outcome.end);
        }
        for wait in waits.iter().filter(|wait| wait.plan == plan.name()) {
            let Some(node) = wait.node.as_deref() else {
                continue;
            };
            let row = of_plan.entry(node).or_insert_with(|| empty(node));
            row.spans.push(wait_span(wait));
        }
        rows.extend(of_plan.into_values().map(|mut row| {
            // A stable sort: a wait that begins with a phase is drawn after it, so over it.
            row.spans.sort_by_key(|span| span.from);
            row
        }));
    }
    rows
}

fn add_run(row: &mut Row, run: &NodeRun, end: Timestamp) {
    row.state = match run.state {
        RunState::Working => RowState::Applying,
        RunState::Done => RowState::Done,
        RunState::Failed => RowState::Failed,
    };
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
    if run.state == RunState::Failed
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
