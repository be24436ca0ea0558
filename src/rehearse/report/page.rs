//! The timeline of a rehearsal as a page for a browser.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::{PlanReport, Report, TimeFormat, WaitGroup, closed_bands, wait_groups};
use crate::record::{Recorder, WORKED_ON, peak};
use crate::run::{Ending, Outcome};
use refit_api::{NodeLimit, NodePhase, NodeProgress, PlanState, Reason};
use refit_base::version::released_version;
use refit_facts::PlanFacts;
use refit_formats::page::{
    Change, Document, Figures, Held, Mood, PlanCard, Row, RowState, Source, Span, Verdict, WaitCard,
    count_versions, failures,
};
use refit_view::PlanOverview;

/// Reasons that end at a time that is known: a page of a roll-out that waits for it has that time.
const UNTIL_A_TIME: [Reason; 4] = [
    Reason::WindowClosed,
    Reason::WindowTooShort,
    Reason::Blackout,
    Reason::NotBefore,
];
/// What is drawn after the last progress of a roll-out that stalls, at least.
const MIN_REST: SignedDuration = SignedDuration::from_mins(5);
const ZONE: &str = "topology.kubernetes.io/zone";

impl Report {
    /// The page's data. `compared` is the page of an older rehearsal, and what differs.
    pub fn to_document(&self, outcome: &Outcome, compared: Option<(Document, Vec<Change>)>) -> Document {
        let assumed = self.assumed.iter().map(|line| format!("Assumed: {line}"));
        let names: Vec<&str> = self.plans.iter().map(|plan| plan.name.as_str()).collect();
        let record = &outcome.record;
        let until = drawn_until(outcome);
        let rows: Vec<Row> = outcome
            .plans
            .iter()
            .map(|plan| outcome.view(plan))
            .flat_map(|view| rows(&view, &view.plan.name, Some(record)))
            .collect();
        let cards: Vec<PlanCard> = self
            .plans
            .iter()
            .zip(&outcome.plans)
            .map(|(plan, end)| self.card(plan, end))
            .collect();
        let plans = outcome.plans.iter().map(|plan| &plan.object);
        let bands = outcome.plans.iter().flat_map(|plan| {
            let closed = closed_bands(&plan.object, &outcome.blackouts, outcome.start, until);
            record.bands(&plan.name, outcome.end).into_iter().chain(closed)
        });
        let (before, changes) = compared.unzip();
        Document {
            zone: Some(
                TimeFormat::clock(outcome.start, plans, &outcome.blackouts)
                    .zone()
                    .to_owned(),
            ),
            verdict: Some(self.page_verdict()),
            remarks: self.remarks(),
            notes: assumed.collect(),
            figures: self.figures(outcome, &cards),
            bands: bands.collect(),
            chain: record.chain(&names, until),
            failures: failures(&rows),
            plans: cards,
            rows,
            versions: count_versions(outcome.nodes().map(|(_, node)| &*node.facts.kubelet)),
            changes: changes.unwrap_or_default(),
            before: before.map(Box::new),
            ..Document::new(
                Source::Rehearsal,
                format!("Rehearsal of {}", names.join(", ")),
                outcome.start,
                until,
            )
        }
    }

    fn page_verdict(&self) -> Verdict {
        let mood = match self.verdict.reasons.first().map(|reason| reason.how) {
            None => Mood::Good,
            Some(crate::verdict::Problem::Fails) => Mood::Bad,
            Some(crate::verdict::Problem::Stalls) => Mood::Held,
        };
        Verdict {
            mood,
            headline: self.verdict.headline.clone(),
            line: self.verdict.line.clone(),
        }
    }

    fn figures(&self, outcome: &Outcome, cards: &[PlanCard]) -> Figures {
        let plans = || outcome.plans.iter().map(|plan| &*plan.name);
        let outages = plans().flat_map(|plan| outcome.record.outages(plan, WORKED_ON, outcome.seen));
        let peak = peak(outages, &std::collections::BTreeSet::new());
        let runs = plans().flat_map(|plan| outcome.record.node_runs(plan));
        Figures {
            most_down: peak.as_ref().map_or(0, |peak| peak.down.len()),
            allowed: peak.map(|peak| {
                let at_work = cards
                    .iter()
                    .filter(|card| peak.plans.contains(card.name.as_str()));
                at_work.map(|card| card.allowed).sum()
            }),
            control_plane: self.control_plane.as_ref().map(|it| (it.most_down, it.nodes)),
            seconds: Some(self.seconds),
            ends: Some((self.end.as_second(), self.end.as_second())).filter(|_| self.verdict.complete),
            evicted: runs.map(|(_, run)| run.evicted()).sum(),
        }
    }

    fn card(&self, plan: &PlanReport, end: &PlanFacts) -> PlanCard {
        let why = self
            .verdict
            .reasons
            .iter()
            .find(|reason| reason.plan == plan.name);
        let groups = self.wait_groups.iter().filter(|group| group.plan == plan.name);
        PlanCard {
            name: plan.name.clone(),
            version: plan.version.as_deref().map(released_version),
            state: state(plan),
            selected: plan.selected,
            allowed: allowed(&end.object.spec, plan.selected),
            done: plan.done,
            applying: (plan.selected - plan.done - plan.failed - plan.waiting).max(0),
            waiting: plan.waiting,
            failed: plan.failed,
            held: why.map(|why| Held::new(why.reason.clone().unwrap_or_default(), why.why.clone())),
            expected_end: None,
            history: Vec::new(),
            waits: groups.filter(|group| group.is_long()).map(wait_card).collect(),
        }
    }
}

/// How many nodes of a Plan may be out of service, of so many selected ones.
pub fn allowed(spec: &refit_api::PlanSpec, selected: i64) -> i64 {
    let unavailable = spec.max_unavailable.as_ref();
    let unavailable = unavailable.map_or(i64::MAX, |limit| NodeLimit::nodes_of(limit, selected));
    spec.slots(selected).min(unavailable)
}

/// The nodes of a Plan: what has been recorded of each, and where each is now.
pub fn rows(view: &PlanOverview<'_>, name: &str, recorder: Option<&Recorder>) -> Vec<Row> {
    let (plan, now) = (&view.plan.name, view.snapshot.now);
    let mut rows = recorder.map_or_else(BTreeMap::new, |recorder| recorder.rows(plan, now));
    for (node, row) in &mut rows {
        if view.node(node).is_none() {
            leave(view, node, row);
        }
    }
    for node in &view.nodes {
        let row = rows
            .entry(node.name.clone())
            .or_insert_with(|| Row::new(plan, &node.name));
        enter(node, row, now);
    }
    let finish = |mut row: Row| {
        name.clone_into(&mut row.plan);
        let object = view.snapshot.node(&row.node);
        row.zone = object.and_then(|node| Some(node.facts.labels.get(ZONE)?.to_owned()));
        row
    };
    rows.into_values().map(finish).collect()
}

/// The node is where status says.
fn enter(node: &NodeProgress, row: &mut Row, now: Timestamp) {
    row.state = match node.phase.known() {
        Some(NodePhase::Failed) => RowState::Failed,
        Some(NodePhase::Waiting) => RowState::Waiting,
        _ => RowState::Applying,
    };
    row.reason.clone_from(&node.reason);
    row.message.clone_from(&node.message);
    if row.spans.is_empty() && node.has_slot() {
        let since = node.since.as_deref().and_then(|since| since.parse().ok());
        row.spans.push(Span {
            phase: node.phase.clone(),
            from: since.unwrap_or(now).min(now).as_second(),
            to: None,
            reason: node.reason.clone().filter(|_| node.is_failed()),
            message: None,
        });
    }
}

/// Status does not name the node any more.
fn leave(view: &PlanOverview<'_>, node: &str, row: &mut Row) {
    if view.has_done_label(node) {
        row.state = RowState::Done;
    } else if matches!(row.state, RowState::Applying | RowState::Failed) {
        row.state = RowState::Released;
    }
    (row.reason, row.message) = (None, None);
}

/// A roll-out that stalls goes on for a while without anything to see.
fn drawn_until(outcome: &Outcome) -> Timestamp {
    let is_open = |reason| {
        outcome
            .plans
            .iter()
            .any(|plan| outcome.record.open_waits(&plan.name, reason).next().is_some())
    };
    match outcome.ending {
        Ending::Complete | Ending::Limit(_) => outcome.end,
        Ending::Quiet(_) if UNTIL_A_TIME.into_iter().any(is_open) => next_window(outcome),
        Ending::Quiet(_) => {
            let rest = (outcome.end.duration_since(outcome.start) / 8).max(MIN_REST);
            outcome
                .end
                .saturating_add(rest)
                .unwrap_or(outcome.seen)
                .min(outcome.seen)
        }
    }
}

/// The end of the next opening of a window, and some time after it.
fn next_window(outcome: &Outcome) -> Timestamp {
    let local = jiff::tz::TimeZone::system();
    let windows = outcome
        .plans
        .iter()
        .filter_map(|plan| plan.object.spec.start_windows(&local));
    let closes = windows.filter_map(|windows| windows.closes(windows.next_open(outcome.seen)?));
    let last = closes.max().unwrap_or(outcome.seen).max(outcome.seen);
    let rest = last.duration_since(outcome.start) / 20;
    last.saturating_add(rest).unwrap_or(last)
}

fn state(plan: &PlanReport) -> PlanState {
    match plan.failed {
        _ if plan.complete => PlanState::Complete,
        0 => PlanState::Held,
        _ => PlanState::Failed,
    }
}

/// What the nodes of a Plan wait for, or have waited for: those that last first, and of them the longest.
pub fn wait_cards(record: &Recorder, plan: &str, now: Timestamp) -> Vec<WaitCard> {
    let waits = record.waits().into_iter().filter(|wait| wait.plan == plan);
    let (_, groups) = wait_groups(record, waits, now);
    groups
        .iter()
        .filter(|group| group.is_long())
        .map(wait_card)
        .collect()
}

fn wait_card(group: &WaitGroup) -> WaitCard {
    WaitCard {
        reason: group.reason.clone(),
        message: group.message.clone(),
        seconds: group.seconds,
        nodes: Some(group.nodes.len() + group.some.len()).filter(|count| *count > 0),
        is_over: group.end.is_some(),
    }
}
