//! What a rehearsal tells, for people and for programs: the same facts in one structure, and how they look as text. Pure.

#[cfg(test)]
mod tests;
mod text;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
pub use text::offset;

use super::play::{Outcome, PlanEnd};
use super::record::{Standing, Turn, Wait};
use super::verdict::{Verdict, judge};
use crate::api::window::Window;

/// What a rehearsal tells.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// What it amounts to.
    pub verdict: Verdict,
    /// What everything that was drawn follows from.
    pub seed: u64,
    /// When the controller was started.
    pub start: Timestamp,
    /// When all was complete, or something last came closer to that.
    pub end: Timestamp,
    /// Between the two, in seconds.
    pub seconds: i64,
    /// What was taken for granted.
    pub assumed: Vec<String>,
    /// How many nodes there are.
    pub nodes: usize,
    /// The Plans.
    pub plans: Vec<PlanReport>,
    /// Nodes that were begun with, in that order.
    pub turns: Vec<TurnReport>,
    /// What was waited for, the longest first.
    pub waits: Vec<WaitReport>,
    /// Disruption budgets that allow nothing, though all their pods are ready.
    pub budgets_that_never_allow: Vec<String>,
    /// Nodes that are still cordoned for a Plan.
    pub cordoned: Vec<String>,
}

/// A Plan.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanReport {
    /// Its name.
    pub name: String,
    /// Whether it was to be rehearsed, or was on the cluster anyway.
    pub rehearsed: bool,
    /// Whether it is complete.
    pub complete: bool,
    /// The version that it is about.
    pub version: Option<String>,
    /// `status.latestHash`.
    pub hash: Option<String>,
    /// Nodes that it is for.
    pub selected: i64,
    /// Those that are done.
    pub done: i64,
    /// Those on which it failed.
    pub failed: i64,
    /// Those that have not been begun with.
    pub waiting: i64,
    /// When its first node began.
    pub start: Option<Timestamp>,
    /// When its last one ended.
    pub end: Option<Timestamp>,
    /// How its window went.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<WindowReport>,
}

/// How the window of a Plan went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WindowReport {
    /// The window.
    pub window: String,
    /// In how many of its openings nodes were begun with.
    pub used: usize,
    /// Nodes that ended after it had closed.
    pub late: usize,
    /// By how many seconds, at most.
    pub late_seconds: i64,
    /// Whether it is shorter than the work on a single node.
    pub shorter_than_a_node: bool,
}

/// A Plan on a node.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TurnReport {
    /// Name of the Plan.
    pub plan: String,
    /// Name of the node.
    pub node: String,
    /// When it got its slot.
    pub start: Timestamp,
    /// When it was done or had failed.
    pub end: Option<Timestamp>,
    /// `done`, `failed` or `working`.
    pub result: &'static str,
    /// Why it failed, or is held up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The same in a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Pods of its Job that failed.
    #[serde(skip_serializing_if = "is_zero")]
    pub failures: i64,
    /// What it went through, in seconds.
    pub phases: Vec<PhaseReport>,
}

/// A phase of a node.
#[derive(Clone, Debug, Serialize)]
pub struct PhaseReport {
    /// As `status.active[].phase`.
    pub phase: String,
    /// How long.
    pub seconds: i64,
}

/// Something that was waited for.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitReport {
    /// Name of the Plan.
    pub plan: String,
    /// Name of the node; nothing where the whole Plan waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// One word.
    pub reason: String,
    /// What was waited for.
    pub blocker: String,
    /// The same in a sentence.
    pub message: String,
    /// From when.
    pub start: Timestamp,
    /// Until when; nothing where it is still waited for.
    pub end: Option<Timestamp>,
    /// How long, as far as was looked.
    pub seconds: i64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

/// Puts together what there is to tell.
pub fn report(outcome: &Outcome, seed: u64, assumed: Vec<String>) -> Report {
    let mut turns: Vec<TurnReport> = outcome
        .plans
        .iter()
        .flat_map(|plan| {
            let turns = outcome.record.turns(plan.name());
            turns.map(|(node, turn)| turn_report(plan.name(), node, turn, outcome.end))
        })
        .collect();
    // Stable: what began at the same time is in the order of the Plans.
    turns.sort_by_key(|turn| turn.start);
    let mut waits: Vec<WaitReport> = outcome
        .record
        .waits()
        .into_iter()
        .map(|wait| wait_report(wait, outcome.seen))
        .collect();
    waits.sort_by_key(|wait| (wait.end.is_some(), Reverse(wait.seconds)));
    let never = outcome.budgets.iter().filter(|budget| budget.never_allows());
    Report {
        verdict: judge(outcome),
        seed,
        start: outcome.start,
        end: outcome.end,
        seconds: seconds(outcome.start, outcome.end),
        assumed,
        nodes: outcome.nodes.len(),
        plans: outcome
            .plans
            .iter()
            .map(|plan| plan_report(plan, outcome))
            .collect(),
        turns,
        waits,
        budgets_that_never_allow: never.map(|budget| budget.name.clone()).collect(),
        cordoned: outcome.cordoned.clone(),
    }
}

fn seconds(since: Timestamp, until: Timestamp) -> i64 {
    until.duration_since(since).as_secs().max(0)
}

fn turn_report(plan: &str, node: &str, turn: &Turn, end: Timestamp) -> TurnReport {
    let phases = turn.stays.iter().map(|stay| PhaseReport {
        phase: stay.phase.clone(),
        seconds: seconds(
            stay.since,
            stay.until.or(turn.until).unwrap_or(end).max(stay.since),
        ),
    });
    TurnReport {
        plan: plan.to_owned(),
        node: node.to_owned(),
        start: turn.since,
        end: turn.until,
        result: match turn.standing {
            Standing::Working => "working",
            Standing::Done => "done",
            Standing::Failed => "failed",
        },
        reason: turn.reason.clone(),
        message: turn.message.clone(),
        failures: turn.failures,
        phases: phases.collect(),
    }
}

fn wait_report(wait: Wait, seen: Timestamp) -> WaitReport {
    WaitReport {
        seconds: seconds(wait.since, wait.until.unwrap_or(seen)),
        plan: wait.plan,
        node: wait.node,
        reason: wait.reason,
        blocker: wait.blocker,
        message: wait.message,
        start: wait.since,
        end: wait.until,
    }
}

fn plan_report(end: &PlanEnd, outcome: &Outcome) -> PlanReport {
    let status = end.plan.status.clone().unwrap_or_default();
    let counts = status.nodes.unwrap_or_default();
    let turns: Vec<&Turn> = outcome.record.turns(end.name()).map(|(_, turn)| turn).collect();
    PlanReport {
        name: end.name().to_owned(),
        rehearsed: end.rehearsed,
        complete: end.complete,
        version: status.latest_version,
        hash: status.latest_hash,
        selected: counts.selected,
        done: counts.done,
        failed: counts.failed,
        waiting: counts.waiting,
        start: turns.iter().map(|turn| turn.since).min(),
        end: turns.iter().filter_map(|turn| turn.until).max(),
        window: window_report(end, &turns),
    }
}

fn window_report(end: &PlanEnd, turns: &[&Turn]) -> Option<WindowReport> {
    let window = Window::parse(end.plan.spec.window.as_ref()?, &TimeZone::system()).ok()?;
    Some(used(&window, turns))
}

/// How the turns of a Plan went with its window.
fn used(window: &Window, turns: &[&Turn]) -> WindowReport {
    // Nodes that were begun with in one opening have one end of it.
    let mut openings: BTreeMap<Option<Timestamp>, usize> = BTreeMap::new();
    let (mut late, mut late_seconds) = (0, 0);
    let mut shorter = !turns.is_empty();
    for turn in turns {
        let closes = window.closes(turn.since);
        *openings.entry(closes).or_default() += 1;
        if let (Some(closes), Some(until)) = (closes, turn.until)
            && until > closes
        {
            late += 1;
            late_seconds = late_seconds.max(seconds(closes, until));
        }
        shorter &= length(window, turn.since)
            .zip(turn.until)
            .is_some_and(|(length, until)| until.duration_since(turn.since) > length);
    }
    WindowReport {
        window: window.to_string(),
        used: openings.len(),
        late,
        late_seconds,
        shorter_than_a_node: shorter,
    }
}

/// How long the opening lasts that comes after a time.
fn length(window: &Window, at: Timestamp) -> Option<SignedDuration> {
    let closes = window.closes(at)?;
    let opens = window.next_open(closes)?;
    Some(window.closes(opens)?.duration_since(opens))
}
