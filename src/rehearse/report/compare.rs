//! What a change of Plans does: the differences between two rehearsals.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use jiff::SignedDuration;
use serde::Serialize;

use super::text::table;
use super::{PlanReport, Report, WaitGroup};
use crate::words::{MIN_WAIT, duration, pluralized};
use refit_base::names::shortened;
use refit_formats::page::Change;

/// Nodes of an order that are written out.
const FIRST_NODES: usize = 5;

/// Two rehearsals, and what differs.
#[derive(Debug, Serialize)]
pub struct Comparison<'a> {
    pub changes: Vec<Change>,
    pub old: &'a Report,
    pub new: &'a Report,
}

impl<'a> Comparison<'a> {
    pub fn new(old: &'a Report, new: &'a Report) -> Self {
        Self {
            changes: changes(old, new),
            old,
            new,
        }
    }

    pub fn to_json(&self) -> String {
        // This structure always serializes.
        let text = serde_json::to_string_pretty(self).unwrap_or_default();
        format!("{text}\n")
    }

    /// Text for people. The last line is the verdict of the new Plans.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        if self.changes.is_empty() {
            text.push_str("Nothing differs: the nodes start in the same order, take the same time, and wait for the same.\n\n");
        } else {
            let mut rows = vec![["WHAT", "BEFORE", "AFTER"].map(str::to_owned)];
            rows.extend(
                self.changes
                    .iter()
                    .map(|change| [change.what.clone(), change.old.clone(), change.new.clone()]),
            );
            table(&mut text, &rows);
            text.push('\n');
        }
        let _ = writeln!(
            text,
            "before: {}\nafter: {}",
            self.old.verdict.line, self.new.verdict.line
        );
        text
    }
}

fn changes(old: &Report, new: &Report) -> Vec<Change> {
    let mut changes = Vec::new();
    let ends = |report: &Report| {
        let is_complete = report.verdict.complete;
        if is_complete { "complete" } else { "not complete" }.to_owned()
    };
    add(&mut changes, "result", ends(old), ends(new));
    add_duration(&mut changes, "duration", old.seconds, new.seconds);
    let nodes = |report: &Report| report.nodes.to_string();
    add(&mut changes, "nodes of the cluster", nodes(old), nodes(new));
    let down = |report: &Report| {
        let control_plane = report.control_plane.as_ref();
        control_plane.map_or_else(|| "none".to_owned(), |it| it.most_down.to_string())
    };
    add(
        &mut changes,
        "control-plane nodes down at once",
        down(old),
        down(new),
    );
    let cordoned = |report: &Report| names(&report.cordoned);
    add(&mut changes, "nodes left cordoned", cordoned(old), cordoned(new));

    let plans: BTreeSet<&str> = [old, new]
        .into_iter()
        .flat_map(|report| report.plans.iter().map(|plan| plan.name.as_str()))
        .collect();
    for name in plans {
        let find = |report: &'_ Report| report.plans.iter().position(|plan| plan.name == name);
        match (find(old), find(new)) {
            (Some(before), Some(after)) => {
                compare_plans(&mut changes, &old.plans[before], &new.plans[after]);
                compare_order(&mut changes, name, old, new);
            }
            (before, _) => {
                let is_there = |there: bool| if there { "exists" } else { "absent" }.to_owned();
                let what = format!("Plan {name}");
                let (was, is) = (is_there(before.is_some()), is_there(before.is_none()));
                add(&mut changes, &what, was, is);
            }
        }
        compare_waits(&mut changes, name, old, new);
    }
    changes
}

fn compare_plans(changes: &mut Vec<Change>, old: &PlanReport, new: &PlanReport) {
    let of = |what: &str| format!("Plan {}: {what}", new.name);
    let version = |plan: &PlanReport| plan.version.clone().unwrap_or_else(|| "none".to_owned());
    add(changes, &of("version"), version(old), version(new));
    for (what, before, after) in [
        ("selected nodes", old.selected, new.selected),
        ("done", old.done, new.done),
        ("failed", old.failed, new.failed),
        ("waiting at the end", old.waiting, new.waiting),
    ] {
        add(changes, &of(what), before.to_string(), after.to_string());
    }
    let took = |plan: &PlanReport| {
        let both = plan.start.zip(plan.end);
        both.map(|(start, end)| end.duration_since(start).as_secs())
    };
    if let (Some(before), Some(after)) = (took(old), took(new)) {
        add_duration(changes, &of("from first to last"), before, after);
    }
    let late = |plan: &PlanReport| plan.window.as_ref().map_or(0, |window| window.late).to_string();
    add(
        changes,
        &of("nodes that end after the window"),
        late(old),
        late(new),
    );
}

/// The order in which nodes start, from the first one that differs.
fn compare_order(changes: &mut Vec<Change>, plan: &str, old: &Report, new: &Report) {
    let order = |report: &'_ Report| -> Vec<String> {
        let turns = report.turns.iter().filter(|turn| turn.plan == plan);
        turns.map(|turn| turn.node.clone()).collect()
    };
    let (before, after) = (order(old), order(new));
    let Some(first) = (0..before.len().max(after.len())).find(|at| before.get(*at) != after.get(*at)) else {
        return;
    };
    let from = |nodes: &[String]| names(nodes.get(first..).unwrap_or_default());
    let what = format!("Plan {plan}: order of nodes, from number {}", first + 1);
    add(changes, &what, from(&before), from(&after));
}

fn compare_waits(changes: &mut Vec<Change>, plan: &str, old: &Report, new: &Report) {
    let waits = |report: &'_ Report| -> BTreeMap<(String, String), WaitGroup> {
        let groups = report.wait_groups.iter();
        let groups = groups.filter(|group| group.plan == plan && group.is_long());
        groups
            .map(|group| ((group.reason.to_string(), group.blocker.clone()), group.clone()))
            .collect()
    };
    let (before, after) = (waits(old), waits(new));
    let keys: BTreeSet<_> = before.keys().chain(after.keys()).collect();
    for key in keys {
        let (was, is) = (before.get(key), after.get(key));
        let seconds = |group: Option<&WaitGroup>| group.map_or(0, |group| group.seconds);
        let ends = |group: Option<&WaitGroup>| group.is_none_or(|group| group.end.is_some());
        if (seconds(was) - seconds(is)).abs() < MIN_WAIT && ends(was) == ends(is) {
            continue;
        }
        let said = |group: Option<&WaitGroup>| group.map_or_else(|| "no wait".to_owned(), wait);
        let (reason, blocker) = key;
        let for_what = if reason == blocker {
            reason.clone()
        } else {
            format!("{reason} ({blocker})")
        };
        add(changes, &format!("Plan {plan}: {for_what}"), said(was), said(is));
    }
}

fn wait(group: &WaitGroup) -> String {
    let time = duration(SignedDuration::from_secs(group.seconds));
    let time = if group.end.is_none() {
        format!("{time}, does not end")
    } else {
        time
    };
    match group.nodes.len() {
        0 => time,
        count => format!("{}, up to {time}", pluralized(count, "node")),
    }
}

fn names(nodes: &[String]) -> String {
    if nodes.is_empty() {
        return "none".to_owned();
    }
    shortened(nodes, FIRST_NODES)
}

fn add_duration(changes: &mut Vec<Change>, what: &str, old: i64, new: i64) {
    if (new - old).abs() < MIN_WAIT {
        return;
    }
    let [before, after, by] =
        [old, new, (new - old).abs()].map(|seconds| duration(SignedDuration::from_secs(seconds)));
    let longer = if new > old { "longer" } else { "shorter" };
    add(changes, what, before, format!("{after} ({by} {longer})"));
}

fn add(changes: &mut Vec<Change>, what: &str, old: String, new: String) {
    if old != new {
        let what = what.to_owned();
        changes.push(Change { what, old, new });
    }
}
