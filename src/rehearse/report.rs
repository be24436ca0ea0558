//! The result of a rehearsal in one structure, printed as text or JSON. Pure.

mod closed;
pub mod compare;
mod control_plane;
mod once;
pub mod page;
#[cfg(test)]
mod tests;
mod text;
pub(super) mod times;
mod waits;

use std::cmp::Reverse;
use std::collections::BTreeMap;

pub use closed::closed_bands;
pub use control_plane::ControlPlaneReport;
use jiff::Timestamp;
use jiff::tz::TimeZone;
pub use once::HookReport;
use serde::Serialize;
pub use times::{TimeFormat, offset};
pub use waits::{NodeWait, WaitGroup};

use super::record::{NewNode, NodeRun, Recorder, Wait};
use super::run::Outcome;
use super::verdict::{Verdict, judge};
use super::version_change::{Unusual, unusual};
use super::words::duration;
use refit_api::schedule::{Blackout, Windows, next_blackout};
use refit_api::{NodePhase, OpenEnum};
use refit_facts::PlanFacts;
use refit_formats::page::RowState;

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    pub verdict: Verdict,
    /// The seed of everything random.
    pub seed: u64,
    pub start: Timestamp,
    /// When all Plans were complete, or when the roll-out last made progress.
    pub end: Timestamp,
    /// From start to end.
    pub seconds: i64,
    /// Assumptions, a sentence each.
    pub assumed: Vec<String>,
    /// What was made to go wrong (`--fault`), a sentence each.
    pub faults: Vec<String>,
    pub nodes: usize,
    pub plans: Vec<PlanReport>,
    /// Runs of nodes, in the order of their starts.
    pub turns: Vec<NodeRunReport>,
    /// Waits, the longest first.
    pub waits: Vec<WaitReport>,
    /// The same, grouped by Plan and blocker.
    pub wait_groups: Vec<WaitGroup>,
    /// Maximum number of control-plane nodes that were down at once; absent if none was upgraded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_plane: Option<ControlPlaneReport>,
    /// Nodes that skip a minor version, are downgraded, or change the distribution.
    pub version_changes: Vec<VersionChange>,
    /// Disruption budgets that allow no eviction although all their pods are ready.
    pub budgets_that_never_allow: Vec<String>,
    /// Nodes that are still cordoned for a Plan.
    pub cordoned: Vec<String>,
    /// Waves that soak although they have no node, a sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub soaks_without_nodes: Vec<String>,
    /// Nodes that joined, and got no pods before a Plan was done there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub new_nodes: Vec<NewNode>,
    /// How the text writes times.
    #[serde(skip)]
    pub times: TimeFormat,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanReport {
    pub name: String,
    /// False for a Plan that was on the cluster anyway.
    pub rehearsed: bool,
    pub complete: bool,
    pub version: Option<String>,
    /// `status.latestHash`.
    pub hash: Option<String>,
    /// Number of selected nodes.
    pub selected: i64,
    pub done: i64,
    pub failed: i64,
    /// Number of nodes that have not started.
    pub waiting: i64,
    pub start: Option<Timestamp>,
    pub end: Option<Timestamp>,
    /// Its windows, and how they were used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<WindowReport>,
    /// Nodes that were in progress when a blackout began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blackout: Option<BlackoutReport>,
    /// Its repetitions (`spec.repeat`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeats: Option<RepeatReport>,
    /// The Jobs of `before` and `after`, in the order of their starts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<HookReport>,
}

/// The first repetition of a Plan, and the next one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RepeatReport {
    /// When it was due. Absent if the rehearsal has ended before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due: Option<Timestamp>,
    /// When it was complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub complete: Option<Timestamp>,
    /// When the next one is due.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<Timestamp>,
}

/// The use of a Plan's windows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WindowReport {
    /// All windows.
    pub window: String,
    /// That of the first window; that of this machine for `Local`.
    pub time_zone: String,
    /// Number of openings in which nodes started.
    pub used: usize,
    /// Number of nodes that ended after the window had closed.
    pub late: usize,
    /// Maximum delay after the end of the window.
    pub late_seconds: i64,
}

/// Nodes of a Plan that were in progress when one of its blackouts, or one for all Plans, began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BlackoutReport {
    /// Number of nodes.
    pub late: usize,
    /// Maximum duration from the start of the blackout to the end of a node.
    pub late_seconds: i64,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeRunReport {
    pub plan: String,
    pub node: String,
    /// `done`, `failed` or `working`.
    pub result: &'static str,
    #[serde(flatten)]
    pub run: NodeRun,
    pub phases: Vec<PhaseReport>,
}

/// Nodes that a Plan takes to a version other than the next one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VersionChange {
    pub plan: String,
    pub kind: Unusual,
    /// Kubelet version before.
    pub from: String,
    /// Kubelet version after.
    pub to: String,
    pub nodes: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct PhaseReport {
    /// The value of `status.active[].phase`.
    pub phase: OpenEnum<NodePhase>,
    pub seconds: i64,
}

#[derive(Clone, Debug, Serialize)]
pub struct WaitReport {
    #[serde(flatten)]
    pub wait: Wait,
    /// Duration until the end of the wait or of the rehearsal.
    pub seconds: i64,
}

/// Builds the report.
pub fn report(outcome: &Outcome, seed: u64, assumed: Vec<String>, times: TimeFormat) -> Report {
    let mut turns: Vec<NodeRunReport> = outcome
        .plans
        .iter()
        .flat_map(|plan| {
            let turns = outcome.record.node_runs(&plan.name);
            turns.map(|(node, turn)| node_run_report(&plan.name, node, turn, outcome.end))
        })
        .collect();
    // A stable sort: runs with equal starts keep the order of the Plans.
    turns.sort_by_key(|turn| turn.run.since);
    let waits = outcome.record.waits().into_iter();
    let (waits, wait_groups) = wait_groups(&outcome.record, waits, outcome.seen);
    let never = outcome.budgets.iter().filter(|budget| budget.never_allows());
    Report {
        verdict: judge(outcome, &times),
        seed,
        start: outcome.start,
        end: outcome.end,
        seconds: seconds(outcome.start, outcome.end),
        assumed,
        faults: outcome.faults.clone(),
        nodes: outcome.nodes().count(),
        plans: outcome
            .plans
            .iter()
            .enumerate()
            .map(|(at, plan)| plan_report(plan, at < outcome.rehearsed, outcome))
            .collect(),
        turns,
        wait_groups,
        waits,
        control_plane: control_plane::report(outcome),
        version_changes: version_changes(outcome),
        budgets_that_never_allow: never.map(|budget| budget.name.clone()).collect(),
        cordoned: outcome.cordoned.clone(),
        soaks_without_nodes: soaks_without_nodes(outcome),
        new_nodes: outcome.record.new_nodes().to_vec(),
        times,
    }
}

fn seconds(since: Timestamp, until: Timestamp) -> i64 {
    until.duration_since(since).as_secs().max(0)
}

fn node_run_report(plan: &str, node: &str, turn: &NodeRun, end: Timestamp) -> NodeRunReport {
    let phases = turn.phases.iter().map(|phase_span| PhaseReport {
        phase: phase_span.phase.clone(),
        seconds: seconds(
            phase_span.since,
            phase_span
                .until
                .or(turn.until)
                .unwrap_or(end)
                .max(phase_span.since),
        ),
    });
    NodeRunReport {
        plan: plan.to_owned(),
        node: node.to_owned(),
        result: match turn.state {
            RowState::Done => "done",
            RowState::Failed => "failed",
            _ => "working",
        },
        phases: phases.collect(),
        run: turn.clone(),
    }
}

fn soaks_without_nodes(outcome: &Outcome) -> Vec<String> {
    let of_plan = |end: &PlanFacts| {
        let waves = end.object.spec.waves().unwrap_or_default();
        let soak = |name: &str| waves.iter().find(|wave| wave.name == name).map(|wave| wave.soak);
        let empty = outcome
            .record
            .soaks_without_nodes(&end.name)
            .into_iter()
            .map(|name| {
                let soak = duration(soak(name).unwrap_or_default());
                format!(
                    "Plan {}: wave {name} soaks {soak} without a node to upgrade",
                    end.name
                )
            });
        empty.collect::<Vec<_>>()
    };
    outcome.plans.iter().flat_map(of_plan).collect()
}

/// Unusual version changes, grouped.
fn version_changes(outcome: &Outcome) -> Vec<VersionChange> {
    let mut changes: Vec<VersionChange> = Vec::new();
    for step in outcome.record.version_steps() {
        let Some(kind) = unusual(&step.from, &step.to) else {
            continue;
        };
        let same =
            |one: &&mut VersionChange| (&one.plan, &one.from, &one.to) == (&step.plan, &step.from, &step.to);
        match changes.iter_mut().find(same) {
            Some(known) => known.nodes.push(step.node.clone()),
            None => changes.push(VersionChange {
                plan: step.plan.clone(),
                kind,
                from: step.from.clone(),
                to: step.to.clone(),
                nodes: vec![step.node.clone()],
            }),
        }
    }
    changes
}

/// The waits, the longest first, and their groups.
fn wait_groups(
    record: &Recorder,
    waits: impl Iterator<Item = Wait>,
    seen: Timestamp,
) -> (Vec<WaitReport>, Vec<WaitGroup>) {
    let mut waits: Vec<WaitReport> = waits.map(|wait| wait_report(wait, seen)).collect();
    waits.sort_by_key(|it| (it.wait.until.is_some(), Reverse(it.seconds)));
    let mut groups = waits::groups(&waits);
    for group in &mut groups {
        let nodes = record.sharing(&group.plan, &group.reason);
        group.some = nodes.into_iter().flatten().cloned().collect();
    }
    (waits, groups)
}

fn wait_report(wait: Wait, seen: Timestamp) -> WaitReport {
    WaitReport {
        seconds: seconds(wait.since, wait.until.unwrap_or(seen)),
        wait,
    }
}

fn repeat_report(end: &PlanFacts, outcome: &Outcome) -> Option<RepeatReport> {
    let repetitions = outcome.record.repetitions(&end.name)?;
    let repeats = repetitions.due.is_some() || repetitions.next.is_some();
    repeats.then_some(RepeatReport {
        due: repetitions.due,
        complete: repetitions.repeated,
        next: repetitions.next,
    })
}

fn plan_report(end: &PlanFacts, rehearsed: bool, outcome: &Outcome) -> PlanReport {
    let status = end.status();
    let counts = status.nodes.unwrap_or_default();
    let turns: Vec<&NodeRun> = outcome
        .record
        .node_runs(&end.name)
        .map(|(_, turn)| turn)
        .collect();
    PlanReport {
        name: end.name.to_string(),
        rehearsed,
        complete: outcome.complete.contains(&end.name),
        version: status.latest_version.clone(),
        hash: status.latest_hash.clone(),
        selected: counts.selected,
        done: counts.done,
        failed: counts.failed,
        waiting: counts.waiting,
        start: turns.iter().map(|turn| turn.since).min(),
        end: turns.iter().filter_map(|turn| turn.until).max(),
        window: window_report(end, &turns),
        blackout: blackout_report(end, &outcome.blackouts, &turns),
        repeats: repeat_report(end, outcome),
        hooks: once::hooks(&outcome.record, &end.name),
    }
}

fn window_report(end: &PlanFacts, turns: &[&NodeRun]) -> Option<WindowReport> {
    let windows = end.object.spec.start_windows(&TimeZone::system())?;
    Some(used(&windows, turns))
}

/// How the runs of a Plan used its windows.
fn used(windows: &Windows, turns: &[&NodeRun]) -> WindowReport {
    // All nodes that started in one opening have the same end of the window.
    let mut openings: BTreeMap<Option<Timestamp>, usize> = BTreeMap::new();
    for turn in turns {
        *openings.entry(windows.closes(turn.since)).or_default() += 1;
    }
    let (late, late_seconds) = late(turns, |since| windows.closes(since));
    let zone = windows.0.first().and_then(|window| window.zone().iana_name());
    WindowReport {
        window: windows.to_string(),
        time_zone: zone.unwrap_or("UTC").to_owned(),
        used: openings.len(),
        late,
        late_seconds,
    }
}

/// Nodes that ended within a blackout; `None` if there were none.
fn blackout_report(end: &PlanFacts, for_all: &[Blackout], turns: &[&NodeRun]) -> Option<BlackoutReport> {
    let own = end.object.spec.valid_blackouts(&TimeZone::system());
    let begins = |since| {
        let all = [own.as_slice(), for_all].into_iter();
        all.filter_map(|blackouts| next_blackout(blackouts, since)).min()
    };
    let (late, late_seconds) = late(turns, begins);
    (late > 0).then_some(BlackoutReport { late, late_seconds })
}

/// How many nodes ended after a time that depends on their start, and by how many seconds at most.
fn late(turns: &[&NodeRun], end: impl Fn(Timestamp) -> Option<Timestamp>) -> (usize, i64) {
    let ended = turns
        .iter()
        .filter_map(|turn| Some((end(turn.since)?, turn.until?)));
    let late: Vec<i64> = ended
        .filter(|(end, until)| until > end)
        .map(|(end, until)| seconds(end, until))
        .collect();
    (late.len(), late.into_iter().max().unwrap_or_default())
}
