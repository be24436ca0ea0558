//! The report as text.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};

use super::once::{hook_lines, new_node_lines};
use super::{ControlPlaneReport, NodeWait, Report, WaitGroup, WindowReport};
use crate::version_change::{Unusual, next_minor};
use crate::words::{SHOWN, duration, one_line, pluralized};
use refit_base::names::shortened;
use refit_base::table::aligned;

/// Maximum number of table rows; of a longer table the first and the last half are shown.
const ROWS: usize = 60;
/// Maximum number of waits.
const WAITS: usize = 10;

impl Report {
    pub fn to_json(&self) -> String {
        // This structure always serializes.
        let text = serde_json::to_string_pretty(self).unwrap_or_default();
        format!("{text}\n")
    }

    /// Text for people. The last line is the verdict.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        self.write_turns(&mut text);
        self.write_plans(&mut text);
        self.write_once(&mut text);
        self.write_repetitions(&mut text);
        self.write_waits(&mut text);
        self.write_warnings(&mut text);
        self.write_reasons(&mut text);
        line(&mut text, &self.verdict.line);
        text
    }

    /// What the text says besides its tables, a line each.
    pub(super) fn remarks(&self) -> Vec<String> {
        let mut text = String::new();
        self.write_once(&mut text);
        self.write_repetitions(&mut text);
        self.write_warnings(&mut text);
        self.write_reasons(&mut text);
        let lines = text.lines().filter(|line| !line.is_empty());
        lines.map(str::to_owned).collect()
    }

    /// Why other Plans than the first are not complete.
    fn write_reasons(&self, text: &mut String) {
        for reason in self.verdict.reasons.iter().skip(1).rev() {
            line(text, &format!("Plan {} {}", reason.plan, reason.why));
        }
    }

    fn write_turns(&self, text: &mut String) {
        if self.turns.is_empty() {
            return;
        }
        let mut rows = vec![["", "NODE", "PLAN", "START", "END", "TOOK", "RESULT"].map(str::to_owned)];
        let by_version = self.with_several_versions();
        for (number, turn) in self.turns.iter().enumerate() {
            let took = turn.run.until.map_or_else(
                || "-".to_owned(),
                |end| duration(end.duration_since(turn.run.since)),
            );
            let result = match (&turn.run.reason, &turn.run.version) {
                (Some(reason), _) => format!("{}: {reason}", turn.result),
                (None, Some(version)) if by_version.contains(turn.plan.as_str()) => {
                    format!("{} ({version})", turn.result)
                }
                (None, _) => turn.result.to_owned(),
            };
            rows.push([
                (number + 1).to_string(),
                turn.node.clone(),
                turn.plan.clone(),
                self.times.of_plan(&turn.plan, turn.run.since),
                turn.run
                    .until
                    .map_or_else(|| "-".to_owned(), |end| self.times.of_plan(&turn.plan, end)),
                took,
                result,
            ]);
        }
        table(text, &rows);
        text.push('\n');
    }

    /// The Plans that were rolled out to one version after another.
    fn with_several_versions(&self) -> BTreeSet<&str> {
        let (mut first, mut several) = (BTreeMap::new(), BTreeSet::new());
        for turn in &self.turns {
            let (plan, version) = (turn.plan.as_str(), &turn.run.version);
            if *first.entry(plan).or_insert(version) != version {
                several.insert(plan);
            }
        }
        several
    }

    fn write_plans(&self, text: &mut String) {
        let heads = ["PLAN", "VERSION", "DONE", "FAILED", "WAITING", "FIRST", "LAST"];
        let mut rows = vec![heads.map(str::to_owned)];
        for plan in &self.plans {
            let at = |time: Option<Timestamp>| {
                time.map_or_else(|| "-".to_owned(), |time| self.times.of_plan(&plan.name, time))
            };
            let other = if plan.rehearsed { "" } else { " (on the cluster)" };
            rows.push([
                format!("{}{other}", plan.name),
                plan.version.clone().unwrap_or_else(|| "-".to_owned()),
                format!("{}/{}", plan.done, plan.selected),
                plan.failed.to_string(),
                plan.waiting.to_string(),
                at(plan.start),
                at(plan.end),
            ]);
        }
        table(text, &rows);
        text.push('\n');
    }

    fn write_once(&self, text: &mut String) {
        let hooks = self
            .plans
            .iter()
            .flat_map(|plan| hook_lines(&plan.name, &plan.hooks, &self.times));
        let lines: Vec<String> = hooks
            .chain(new_node_lines(&self.new_nodes, &self.times))
            .collect();
        for it in &lines {
            line(text, it);
        }
        if !lines.is_empty() {
            text.push('\n');
        }
    }

    fn write_repetitions(&self, text: &mut String) {
        let before = text.len();
        for plan in self.plans.iter().filter(|plan| plan.rehearsed) {
            let Some(repeats) = &plan.repeats else { continue };
            let at = |time: Timestamp| self.times.end(time);
            let next = repeats.next.map(at);
            let what = match (repeats.due, repeats.complete) {
                (Some(due), Some(complete)) => {
                    let took = duration(complete.duration_since(due));
                    format!("repeats, as was due at {}, and is complete {took} later", at(due))
                }
                (Some(due), None) => format!("repeats, as was due at {}, and is not complete", at(due)),
                (None, _) => "does not repeat in this rehearsal".to_owned(),
            };
            let next = next.map_or_else(String::new, |next| format!("; next at {next}"));
            line(text, &format!("Plan {} {what}{next}", plan.name));
        }
        if text.len() > before {
            text.push('\n');
        }
    }

    fn write_waits(&self, text: &mut String) {
        let shown: Vec<&WaitGroup> = self.wait_groups.iter().filter(|group| group.is_long()).collect();
        if shown.is_empty() {
            return;
        }
        line(text, "Longest waits:");
        for group in shown.iter().take(WAITS) {
            self.write_wait(text, group);
        }
        if shown.len() > WAITS {
            line(text, &format!("  … and {} more", shown.len() - WAITS));
        }
        text.push('\n');
    }

    fn write_wait(&self, text: &mut String, group: &WaitGroup) {
        let who = match (group.nodes.as_slice(), group.some.as_slice()) {
            ([], []) => "all nodes".to_owned(),
            ([], some) => shortened(some, SHOWN),
            ([only], _) => only.name.clone(),
            (nodes, _) => pluralized(nodes.len(), "node"),
        };
        let long = match group.end {
            Some(_) => duration(SignedDuration::from_secs(group.seconds)),
            None => "forever".to_owned(),
        };
        let start = self.times.of_plan(&group.plan, group.start);
        let times = match group.waits - group.nodes.len().max(1) {
            0 => String::new(),
            _ => format!("{} times, ", group.waits),
        };
        let mut what = format!(
            "  {long:>7}  {who} of {} for {} ({times}from {start})",
            group.plan, group.blocker
        );
        if group.nodes.len() > 1 {
            let node = |node: &NodeWait| {
                let long = duration(SignedDuration::from_secs(node.seconds));
                format!("{} {long}", node.name)
            };
            let nodes: Vec<String> = group.nodes.iter().map(node).collect();
            let _ = write!(what, ": {}", shortened(&nodes, SHOWN));
        } else if group.reason == group.blocker.as_str() && !group.message.is_empty() {
            let message = self.times.in_message(&group.plan, &one_line(&group.message));
            let _ = write!(what, ": {message}");
        }
        line(text, &what);
    }

    /// Writes about the control plane and version changes.
    fn write_cluster(&self, text: &mut String) {
        if let Some(control) = &self.control_plane {
            line(text, &self.control_plane_line(control));
        }
        for change in &self.version_changes {
            let nodes = pluralized(change.nodes.len(), "node");
            let (from, to) = (&change.from, &change.to);
            let what = match change.kind {
                Unusual::SkipsMinor => {
                    let next = next_minor(from).unwrap_or_default();
                    format!("skips a minor version on {nodes}: {from} to {to}; upgrade to {next} first")
                }
                Unusual::Downgrade => format!(
                    "downgrades {nodes}: {from} to {to}; Kubernetes does not support that, so give the Plan a newer version"
                ),
                Unusual::OtherDistribution => format!(
                    "changes the distribution on {nodes}: {from} to {to}; give the Plan a version and an image of the \
                     distribution that the nodes run"
                ),
            };
            let names = shortened(&change.nodes, SHOWN);
            line(text, &format!("Plan {} {what} ({names})", change.plan));
        }
    }

    fn control_plane_line(&self, control: &ControlPlaneReport) -> String {
        let nodes = pluralized(control.nodes, "node");
        let down = control.most_down;
        if down < 2 {
            return format!("Control plane: {down} of {nodes} down at a time");
        }
        let at = control.at.map_or_else(String::new, |at| {
            format!(", first at {}", self.times.of_cluster(at))
        });
        let mut what = format!(
            "Control plane: {down} of {nodes} down together{at} ({})",
            shortened(&control.down, SHOWN)
        );
        if !control.not_ready.is_empty() {
            let _ = write!(
                what,
                "; not Ready from the start: {}",
                shortened(&control.not_ready, SHOWN)
            );
        }
        if control.loses_quorum {
            let _ = write!(
                what,
                "; etcd loses its quorum with {} of {} members down",
                control.etcd_most_down, control.etcd_members
            );
        }
        let remedy = match control.plans.as_slice() {
            [plan] if down - control.not_ready.len() > 1 => format!("; set concurrency: 1 in Plan {plan}"),
            [_] | [] => "; wait until the others are Ready".to_owned(),
            plans => format!(
                "; let one of the Plans {} wait for the other in `prepare`",
                plans.join(" and ")
            ),
        };
        what + &remedy
    }

    fn write_warnings(&self, text: &mut String) {
        let before = text.len();
        for fault in &self.faults {
            line(text, &format!("Fault: {fault}"));
        }
        self.write_cluster(text);
        for budget in &self.budgets_that_never_allow {
            line(
                text,
                &format!(
                    "PodDisruptionBudget {budget} allows no eviction even when all its pods are ready; raise maxUnavailable or lower minAvailable"
                ),
            );
        }
        for plan in &self.plans {
            if let Some(window) = &plan.window {
                write_window(text, &plan.name, window);
            }
            if let Some(blackout) = &plan.blackout {
                write_late(
                    text,
                    &plan.name,
                    blackout.late,
                    blackout.late_seconds,
                    "a blackout has begun",
                );
            }
        }
        for remark in &self.soaks_without_nodes {
            line(text, remark);
        }
        if !self.cordoned.is_empty() {
            line(
                text,
                &format!("Still cordoned: {}", shortened(&self.cordoned, SHOWN)),
            );
        }
        if text.len() > before {
            text.push('\n');
        }
    }
}

fn write_window(text: &mut String, plan: &str, window: &WindowReport) {
    if window.used > 1 {
        let what = format!("Plan {plan} needs {} openings of its window", window.used);
        line(text, &format!("{what} ({})", window.window));
    }
    write_late(
        text,
        plan,
        window.late,
        window.late_seconds,
        "its window has closed",
    );
}

/// Writes about nodes that end later than they should.
fn write_late(text: &mut String, plan: &str, late: usize, seconds: i64, after: &str) {
    if late == 0 {
        return;
    }
    let nodes = pluralized(late, "node");
    let ends = if late == 1 { "ends" } else { "end" };
    let long = duration(SignedDuration::from_secs(seconds));
    line(
        text,
        &format!(
            "{nodes} of Plan {plan} {ends} after {after}, up to {long} later; refit does not stop a running Job"
        ),
    );
}

fn line(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

/// A table with aligned columns. Rows in the middle of a long one are omitted and counted.
pub(super) fn table<const N: usize>(text: &mut String, rows: &[[String; N]]) {
    let cut = rows.len() > ROWS + 1;
    let shown: Vec<&[String; N]> = rows
        .iter()
        .enumerate()
        .filter(|(index, _)| !cut || *index <= ROWS / 2 || *index >= rows.len() - ROWS / 2)
        .map(|(_, row)| row)
        .collect();
    // Numbers are aligned right, names left.
    let is_number = |row: &&[String; N]| row[0].chars().all(|c| c.is_ascii_digit() || c == ' ');
    let right: &[usize] = if shown.iter().skip(1).all(is_number) {
        &[0]
    } else {
        &[]
    };
    let shown: Vec<_> = shown.into_iter().cloned().collect();
    for (index, row) in aligned(&shown, right).iter().enumerate() {
        if cut && index == ROWS / 2 + 1 {
            line(
                text,
                &format!("… {} more (-o json has all)", rows.len() - shown.len()),
            );
        }
        line(text, row);
    }
}
