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

/// Differences that the page has.
const MAX_SENTENCES: usize = 5;

/// A difference, and how much it matters; 0 if others say the same.
struct Difference {
    weight: u8,
    change: Change,
}

/// Two rehearsals, and what differs.
#[derive(Debug, Serialize)]
pub struct Comparison<'a> {
    pub changes: Vec<Change>,
    /// Those that the page has, the most important first.
    #[serde(skip)]
    pub most_important: Vec<Change>,
    pub old: &'a Report,
    pub new: &'a Report,
}

impl<'a> Comparison<'a> {
    pub fn new(old: &'a Report, new: &'a Report) -> Self {
        let mut changes = changes(old, new);
        let all = changes.iter().map(|one| one.change.clone()).collect();
        // That a Plan takes longer is why the whole does.
        let is_longer = changes.iter().any(|one| one.change.what == "duration");
        changes.retain(|one| one.weight > if is_longer { 10 } else { 0 });
        changes.sort_by_key(|one| std::cmp::Reverse(one.weight));
        changes.truncate(MAX_SENTENCES);
        Self {
            changes: all,
            most_important: changes.into_iter().map(|one| one.change).collect(),
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

/// The differences, as a table has them.
fn changes(old: &Report, new: &Report) -> Vec<Difference> {
    let mut changes = Vec::new();
    let ends = |report: &Report| {
        if report.verdict.complete {
            "complete"
        } else {
            "not complete"
        }
        .to_owned()
    };
    add(&mut changes, 100, "result", ends(old), ends(new), |old, new| {
        format!("The roll-out is {new}; before it was {old}.")
    });
    add_duration(
        &mut changes,
        75,
        "duration",
        old.seconds,
        new.seconds,
        "The roll-out takes",
    );
    let nodes = |report: &Report| report.nodes.to_string();
    add(
        &mut changes,
        40,
        "nodes of the cluster",
        nodes(old),
        nodes(new),
        |old, new| format!("The cluster has {new} nodes instead of {old}."),
    );
    let down = |report: &Report| {
        let control_plane = report.control_plane.as_ref();
        control_plane.map_or_else(|| "none".to_owned(), |it| it.most_down.to_string())
    };
    let what = "control-plane nodes down at once";
    add(&mut changes, 65, what, down(old), down(new), |old, new| {
        format!("Of the control plane, {new} is the most that is down at once; before it was {old}.")
    });
    let cordoned = |report: &Report| names(&report.cordoned);
    add(
        &mut changes,
        70,
        "nodes left cordoned",
        cordoned(old),
        cordoned(new),
        |old, new| format!("Left cordoned: {new}; before: {old}."),
    );

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
                let now_it = if before.is_some() { "is gone" } else { "is new" };
                add(&mut changes, 90, &what, was, is, |_, _| {
                    format!("Plan {name} {now_it}.")
                });
            }
        }
        compare_waits(&mut changes, name, old, new);
    }
    changes
}

fn compare_plans(changes: &mut Vec<Difference>, old: &PlanReport, new: &PlanReport) {
    let name = &new.name;
    let version = |plan: &PlanReport| plan.version.clone().unwrap_or_else(|| "none".to_owned());
    add(
        changes,
        60,
        &format!("Plan {name}: version"),
        version(old),
        version(new),
        |old, new| format!("Plan {name} upgrades to {new} instead of {old}."),
    );
    let counts = [
        (40, "selected nodes", old.selected, new.selected, ["selects", ""]),
        // What is not done has failed, or waits.
        (0, "done", old.done, new.done, ["completes", ""]),
        (85, "failed", old.failed, new.failed, ["fails on", ""]),
        (
            80,
            "waiting at the end",
            old.waiting,
            new.waiting,
            ["leaves", " waiting"],
        ),
    ];
    for (weight, what, before, after, [does, rest]) in counts {
        let nodes = pluralized(usize::try_from(after).unwrap_or_default(), "node");
        let (before, after) = (before.to_string(), after.to_string());
        add(
            changes,
            weight,
            &format!("Plan {name}: {what}"),
            before,
            after,
            |old, _| format!("Plan {name} {does} {nodes}{rest} instead of {old}."),
        );
    }
    let took = |plan: &PlanReport| {
        let both = plan.start.zip(plan.end);
        both.map(|(start, end)| end.duration_since(start).as_secs())
    };
    if let (Some(before), Some(after)) = (took(old), took(new)) {
        let what = format!("Plan {name}: from first to last");
        add_duration(
            changes,
            10,
            &what,
            before,
            after,
            &format!("From the first node of Plan {name} to the last it takes"),
        );
    }
    let late = |plan: &PlanReport| plan.window.as_ref().map_or(0, |window| window.late).to_string();
    let what = format!("Plan {name}: nodes that end after the window");
    add(changes, 45, &what, late(old), late(new), |old, new| {
        format!("Plan {name} has {new} nodes that end after the window has closed instead of {old}.")
    });
}

/// The order in which nodes start, from the first one that differs.
fn compare_order(changes: &mut Vec<Difference>, plan: &str, old: &Report, new: &Report) {
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
    add(changes, 20, &what, from(&before), from(&after), |old, new| {
        format!(
            "From number {} on, Plan {plan} starts {new} instead of {old}.",
            first + 1
        )
    });
}

fn compare_waits(changes: &mut Vec<Difference>, plan: &str, old: &Report, new: &Report) {
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
        add(
            changes,
            50,
            &format!("Plan {plan}: {for_what}"),
            said(was),
            said(is),
            |old, new| format!("Plan {plan} is held by {for_what}: {new}; before: {old}."),
        );
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

fn add_duration(changes: &mut Vec<Difference>, weight: u8, what: &str, old: i64, new: i64, takes: &str) {
    if (new - old).abs() < MIN_WAIT {
        return;
    }
    let [before, after] = [old, new].map(|seconds| duration(SignedDuration::from_secs(seconds)));
    let by = duration(SignedDuration::from_secs((new - old).abs()));
    let longer = if new > old { "longer" } else { "shorter" };
    let after_by = format!("{after} ({by} {longer})");
    add(changes, weight, what, before, after_by, |old, _| {
        format!("{takes} {after} instead of {old}: {by} {longer}.")
    });
}

fn add(
    changes: &mut Vec<Difference>,
    weight: u8,
    what: &str,
    old: String,
    new: String,
    sentence: impl Fn(&str, &str) -> String,
) {
    if old != new {
        let sentence = sentence(&old, &new);
        let change = Change {
            what: what.to_owned(),
            old,
            new,
            sentence,
        };
        changes.push(Difference { weight, change });
    }
}
