//! `refit status` of a Plan: everything that is known of it.

use std::fmt::Write as _;

use super::differs::differs;
use super::plan::{DONE, PlanOverview, check_says};
use super::read::Snapshot;
use super::{maintenance, time};
use refit_api::NodeProgress;
use refit_base::table::aligned;
use refit_formats::convert::op_plan::owner;

/// Cells of a progress bar.
const BAR: i64 = 20;
/// Nodes that are listed of each Plan, unless all are asked for.
const MAX_NODES: usize = 10;

/// How a status is shown.
#[derive(Clone, Copy, Debug, Default)]
pub struct Look {
    /// Every Plan in detail, not only what holds it.
    pub detailed: bool,
    /// Every known node, with `detailed`.
    pub wide: bool,
    /// Times as they are, instead of how long ago they were.
    pub times: bool,
    /// Progress also as bars.
    pub bars: bool,
    /// The width to which lines are wrapped.
    pub columns: Option<usize>,
}

/// Every Plan with all that is known of it, and the nodes in maintenance.
pub(super) fn details(
    views: &[PlanOverview<'_>],
    snapshot: Option<&Snapshot>,
    gaps: &[String],
    look: &Look,
) -> String {
    let mut out = String::new();
    for (number, view) in views.iter().enumerate() {
        if number > 0 {
            out.push('\n');
        }
        plan(view, look, &mut out);
    }
    if views.is_empty() {
        out.push_str("there is no Plan\n");
    }
    gaps_and_maintenances(snapshot, gaps, &mut out);
    out
}

/// The nodes in maintenance, and what could not be read.
pub(super) fn gaps_and_maintenances(snapshot: Option<&Snapshot>, gaps: &[String], out: &mut String) {
    if let Some(snapshot) = snapshot.filter(|snapshot| !snapshot.maintenances.is_empty()) {
        maintenances(snapshot, out);
    }
    for gap in gaps {
        let _ = writeln!(out, "not shown: {gap}");
    }
}

/// A line for each node in maintenance.
fn maintenances(snapshot: &Snapshot, out: &mut String) {
    let rows: Vec<_> = snapshot
        .maintenances
        .iter()
        .map(|object| maintenance::parts(snapshot, object))
        .collect();
    out.push('\n');
    for line in aligned(&rows, &[3]) {
        let _ = writeln!(out, "{line}");
    }
}

/// The done nodes whose kubelets deny the version: the reason, and a sentence.
pub(super) fn differences(view: &PlanOverview<'_>) -> impl Iterator<Item = String> {
    let entries = view.plan.status().version_differs.iter().flatten();
    entries.filter_map(|entry| {
        let differs = differs(view, &entry.name)?;
        let reason = differs.reason?;
        Some(format!(
            "{reason}: Node {} counts as done, and {}",
            entry.name, differs.text
        ))
    })
}

fn plan(view: &PlanOverview<'_>, look: &Look, out: &mut String) {
    let status = view.plan.status();
    let version = view.version().unwrap_or("no version yet");
    let _ = writeln!(out, "{}  {version}  {}", view.title(), view.state());
    let counts = view.counts;
    if view.counted {
        let _ = write!(
            out,
            "  {} {}/{} done",
            bar(counts.done, counts.selected),
            counts.done,
            counts.selected
        );
        let phases = view.phases();
        let others: Vec<_> = phases
            .iter()
            .filter(|(phase, _)| **phase != DONE)
            .map(|(phase, count)| format!("{count} {phase}"))
            .collect();
        if !others.is_empty() {
            let _ = write!(out, "; {}", others.join(", "));
        }
        out.push('\n');
    }
    if let Some(wave) = view.wave().filter(|_| !view.complete) {
        let of = view.plan.object.spec.waves().unwrap_or_default().len();
        let until = wave.until.as_deref().and_then(|until| until.parse().ok());
        let until = until.map_or_else(String::new, |until| {
            format!(", {} left", time::short(view.snapshot.now.duration_until(until)))
        });
        let number = wave.index.saturating_add(1);
        let _ = writeln!(
            out,
            "  wave: {} ({number} of {of}), {}{until}",
            wave.name, wave.phase
        );
    }
    for check in status.checks.iter().flatten().filter(|_| !view.complete) {
        let says = check_says(check, view.snapshot.now);
        let _ = writeln!(out, "  check: {} {says}", check.name);
    }
    for it in view.despite().filter(|_| !view.complete) {
        let _ = writeln!(out, "  starts in spite of: {}", it.describe());
    }
    if let Some(repeats) = view.repeats() {
        let _ = writeln!(out, "  repeats: {repeats}");
    }
    if view.foreign {
        let _ = writeln!(
            out,
            "  status is of another controller; nodes are counted by labels and Jobs"
        );
    }
    if let Some(obstacle) = &view.obstacle {
        let _ = writeln!(out, "  held by: {} ({})", obstacle.reason, obstacle.says());
        if !view.remedy.is_empty() {
            let _ = writeln!(out, "  remedy: {}", view.remedy);
        }
        for command in &view.commands {
            let _ = writeln!(out, "    {command}");
        }
    }
    for line in differences(view) {
        let _ = writeln!(out, "  {line}");
    }
    if let Some((earliest, latest)) = view.expected_end() {
        let ends = if look.times {
            format!("{earliest:.0} to {latest:.0}")
        } else {
            time::range(earliest, latest, view.snapshot.now)
        };
        let _ = writeln!(out, "  expected end: {ends}");
    }
    if let Some(origin) = &status.origin {
        let parts = [
            origin.commit.as_ref().map(|commit| format!("commit {commit}")),
            origin.author.as_ref().map(|author| format!("by {author}")),
            origin
                .manager
                .as_ref()
                .map(|manager| format!("applied by {manager}")),
        ];
        let parts: Vec<_> = parts.into_iter().flatten().collect();
        let _ = writeln!(out, "  from: {}", parts.join(", "));
    }
    if let Some(owner) = owner(view.plan) {
        let _ = writeln!(out, "  of: {owner}");
    }
    nodes(view, look.wide, out);
}

fn nodes(view: &PlanOverview<'_>, wide: bool, out: &mut String) {
    let shown: Vec<_> = view.nodes.iter().filter(|node| wide || node.has_slot()).collect();
    let limit = if wide { usize::MAX } else { MAX_NODES };
    let row = |node: &&&NodeProgress| {
        let since = node.since.as_deref();
        let since = since.and_then(|since| time::since(since, view.snapshot.now));
        let why = match (&node.reason, &node.message) {
            (Some(reason), Some(message)) => format!("{reason}: {message}"),
            (Some(reason), None) => reason.to_string(),
            (None, Some(message)) => message.clone(),
            (None, None) => String::new(),
        };
        let since = format!("{:>6}", since.unwrap_or_default());
        [
            format!("  {}", node.name),
            format!("{:10}", node.phase),
            since,
            why,
        ]
    };
    let rows: Vec<_> = shown.iter().take(limit).map(|node| row(&node)).collect();
    for line in aligned(&rows, &[]) {
        let _ = writeln!(out, "{line}");
    }
    match shown.len().saturating_sub(limit) {
        0 => {}
        more => {
            let _ = writeln!(out, "  and {more} more (-o wide shows all)");
        }
    }
}

/// `[#####...............]`, full only when all are done.
pub(super) fn bar(done: i64, selected: i64) -> String {
    let filled = if selected > 0 {
        (done.clamp(0, selected) * BAR / selected).clamp(0, BAR)
    } else {
        BAR
    };
    let cells = |count: i64, cell: &str| cell.repeat(usize::try_from(count).unwrap_or_default());
    format!("[{}{}]", cells(filled, "#"), cells(BAR - filled, "."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_full_only_when_all_nodes_are_done() {
        assert_eq!(bar(0, 3), format!("[{}]", ".".repeat(20)));
        assert_eq!(bar(999, 1_000), format!("[{}.]", "#".repeat(19)));
        assert_eq!(bar(3, 3), format!("[{}]", "#".repeat(20)));
        assert_eq!(bar(7, 3), bar(3, 3));
        assert_eq!(bar(0, 0), bar(3, 3));
    }
}
