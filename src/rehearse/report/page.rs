//! The timeline of a rehearsal as a page for a browser.

use super::{PlanReport, Report, WaitGroup, wait_groups};
use crate::record::Recorder;
use crate::run::{Outcome, PlanOutcome};
use jiff::Timestamp;
use refit_api::{NodePhase, PlanState};
use refit_formats::page::{Change, Document, Held, PlanCard, Source, Verdict, WaitCard, count_versions};

impl Report {
    /// The page's data. `changes` are those of a comparison, if this is the newer one of two rehearsals.
    pub fn to_document(&self, outcome: &Outcome, changes: Vec<Change>) -> Document {
        let assumed = self.assumed.iter().map(|line| format!("Assumed: {line}"));
        let names: Vec<&str> = self.plans.iter().map(|plan| plan.name.as_str()).collect();
        Document {
            verdict: Some(Verdict {
                complete: self.verdict.complete,
                line: self.verdict.line.clone(),
            }),
            notes: self.remarks().into_iter().chain(assumed).collect(),
            plans: self
                .plans
                .iter()
                .zip(&outcome.plans)
                .map(|(plan, end)| self.card(plan, end))
                .collect(),
            rows: outcome
                .plans
                .iter()
                .flat_map(|plan| outcome.record.rows(plan.name(), outcome.end).into_values())
                .collect(),
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
            state: state(plan),
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

fn state(plan: &PlanReport) -> PlanState {
    match plan.failed {
        _ if plan.complete => PlanState::Complete,
        0 => PlanState::Waiting,
        _ => PlanState::Failed,
    }
}

/// What the nodes of a Plan wait for, or have waited for: those that last first, and of them the longest.
pub fn wait_cards(record: &Recorder, plan: &str, now: Timestamp) -> Vec<WaitCard> {
    let (_, groups) = wait_groups(record.waits().into_iter().filter(|wait| wait.plan == plan), now);
    groups.iter().map(wait_card).collect()
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
