//! `refit report`: what was done where and when, for audits. Says what the cluster no longer knows.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;
use serde_json::{Value, json};

use super::differs::differs;
use super::plan::{DISABLED, DONE, PlanOverview};
use super::read::Snapshot;
use super::selected::not_selected;
use refit_api::{NodePhase, Reason, names};
use refit_facts::JobOutcome;
use refit_formats::page::escaped;

/// What is reported of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeReport {
    pub node: String,
    /// A phase, `Done` or `Disabled`.
    pub state: String,
    /// Version of the kubelet.
    pub kubelet_now: Option<String>,
    /// Version that the last Job or record ran for.
    pub version: Option<String>,
    pub started: Option<String>,
    pub ended: Option<String>,
    pub attempts: Option<i64>,
    pub message: Option<String>,
}

/// A report on one Plan.
#[derive(Debug)]
pub struct Report<'a> {
    view: &'a PlanOverview<'a>,
    pub nodes: Vec<NodeReport>,
    /// What is not known any more.
    pub unknown: Vec<String>,
}

impl<'a> Report<'a> {
    pub fn new(view: &'a PlanOverview<'a>) -> Self {
        let snapshot = view.snapshot;
        let mut nodes = BTreeMap::new();
        for node in &view.nodes {
            let report = nodes
                .entry(node.name.clone())
                .or_insert_with(|| node_report(snapshot, view, &node.name));
            report.state = node.phase.to_string();
            report.message = node.reason.as_ref().map(|reason| match &node.message {
                Some(message) => format!("{reason}: {message}"),
                None => reason.to_string(),
            });
        }
        let hash = view.plan.status().latest_hash.as_deref();
        for (name, node) in snapshot.nodes.iter().flatten() {
            let value = node.facts.labels.of_plan(&view.plan.name);
            let state = match value {
                Some(names::LABEL_VALUE_DISABLED) => DISABLED,
                Some(_) if value == hash => DONE,
                // Status may not have it yet, as after `refit rerun`.
                _ if !view.complete && node.facts.skip.is_none() && not_selected(view, node).is_none() => {
                    NodePhase::Waiting.name()
                }
                _ => continue,
            };
            // A Plan of this name in another namespace has the same label, and with the same spec the same hash.
            if not_selected(view, node).is_some() && snapshot.jobs_on(view.plan, name).is_empty() {
                continue;
            }
            let report = nodes
                .entry(name.clone())
                .or_insert_with(|| node_report(snapshot, view, name));
            if state == DONE {
                // Its label has the Plan's current hash.
                report.version = report
                    .version
                    .take()
                    .or_else(|| view.version().map(str::to_owned));
            }
            // With `settle.workloads`, a node gets its label while it still holds its slot.
            if report.state.is_empty() || report.state == NodePhase::Waiting.name() {
                let differs = (state == DONE).then(|| differs(view, name)).flatten();
                let says = differs.and_then(|it| Some(format!("{}: {}", it.reason?, it.text)));
                report.message = report.message.take().or(says);
                state.clone_into(&mut report.state);
            }
        }
        let nodes: Vec<NodeReport> = nodes.into_values().collect();
        let unknown = unknown(view, &nodes);
        Self { view, nodes, unknown }
    }

    fn previous_version(&self) -> Option<&str> {
        let status = self.view.plan.status();
        let earlier = status.history.iter().flatten().skip(1);
        let mut earlier = earlier.map(|it| it.version.as_str());
        earlier.find(|version| Some(*version) != status.latest_version.as_deref())
    }

    pub fn to_json(&self) -> Value {
        let events = self.view.events().map(|event| {
            json!({ "at": format!("{:.0}", event.at), "reason": event.reason, "message": event.message })
        });
        json!({
            "generated": format!("{:.0}", self.view.snapshot.now),
            "plan": self.view.to_json(),
            "versionBefore": self.previous_version(),
            "nodes": self.nodes,
            "events": events.collect::<Vec<_>>(),
            "unknown": self.unknown,
        })
    }

    pub fn to_markdown(&self) -> String {
        let mut out = format!("# Plan {}\n\n", cell(&self.view.title()));
        for (name, value) in self.facts() {
            let _ = writeln!(out, "- {name}: {}", cell(&value));
        }
        for table in self.tables() {
            let _ = writeln!(out, "\n## {}\n\n| {} |", table.title, table.head.join(" | "));
            let _ = writeln!(out, "|{}", "---|".repeat(table.head.len()));
            for row in &table.rows {
                let cells: Vec<_> = row.iter().map(|text| cell(text)).collect();
                let _ = writeln!(out, "| {} |", cells.join(" | "));
            }
        }
        if !self.unknown.is_empty() {
            out.push_str("\n## Not known any more\n\n");
        }
        for line in &self.unknown {
            let _ = writeln!(out, "- {}", cell(line));
        }
        out
    }

    pub fn to_html(&self) -> String {
        let title = escaped(&format!("Plan {}", self.view.title()));
        let mut out = format!(
            "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>{title}</title>\n<style>{STYLE}</style>\n\
             <h1>{title}</h1>\n<ul>\n"
        );
        for (name, value) in self.facts() {
            let _ = writeln!(out, "<li>{name}: {}</li>", escaped(&value));
        }
        out.push_str("</ul>\n");
        for table in self.tables() {
            let _ = write!(out, "<h2>{}</h2>\n<table>\n<thead><tr>", table.title);
            for head in table.head {
                let _ = write!(out, "<th scope=\"col\">{head}</th>");
            }
            out.push_str("</tr></thead>\n<tbody>\n");
            for row in &table.rows {
                let cells: Vec<_> = row.iter().map(|text| escaped(text)).collect();
                let cells = cells.join("</td><td>");
                let _ = writeln!(out, "<tr><td>{cells}</td></tr>");
            }
            out.push_str("</tbody>\n</table>\n");
        }
        if !self.unknown.is_empty() {
            out.push_str("<h2>Not known any more</h2>\n<ul>\n");
            for line in &self.unknown {
                let _ = writeln!(out, "<li>{}</li>", escaped(line));
            }
            out.push_str("</ul>\n");
        }
        out.push_str("</html>\n");
        out
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        let status = self.view.plan.status();
        let counts = self.view.counts;
        let origin = status.origin.as_ref();
        let optional = [
            ("version before", self.previous_version().map(str::to_owned)),
            ("hash", status.latest_hash.clone()),
            ("repeats", status.repeat.as_ref().and_then(|it| it.next.clone())),
            ("commit", origin.and_then(|it| it.commit.clone())),
            ("author", origin.and_then(|it| it.author.clone())),
            ("applied by", origin.and_then(|it| it.manager.clone())),
        ];
        let mut facts = vec![
            ("report of", format!("{:.0}", self.view.snapshot.now)),
            ("version", self.view.version().unwrap_or("none yet").to_owned()),
            ("state", self.view.state().to_string()),
            (
                "nodes",
                format!(
                    "{} of {} done, {} failed",
                    counts.done, counts.selected, counts.failed
                ),
            ),
        ];
        facts.extend(
            optional
                .into_iter()
                .filter_map(|(name, value)| Some((name, value?))),
        );
        facts
    }

    fn tables(&self) -> Vec<Table> {
        let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "?".to_owned());
        let history = self.view.plan.status().history.iter().flatten();
        let roll_outs = history.map(|it| {
            let waves = it.approved_waves.iter().flatten();
            let waves = waves.map(|wave| format!("approved wave {wave}"));
            let by = [
                ("approved", &it.approved),
                ("run again", &it.rerun),
                ("repetition due", &it.repeat),
                ("commit", &it.commit),
            ];
            let by = by
                .iter()
                .filter_map(|(what, who)| Some(format!("{what} {}", who.as_ref()?)));
            let despite = it.despite.iter().flatten();
            let despite = despite.map(|it| format!("in spite of {it}"));
            let by = by.chain(waves).chain(despite);
            vec![
                it.version.clone(),
                it.from.clone(),
                it.to.clone().unwrap_or_else(|| "running".to_owned()),
                match it.complete {
                    Some(true) => "complete".to_owned(),
                    Some(false) => "replaced".to_owned(),
                    None => "running".to_owned(),
                },
                it.nodes.to_string(),
                it.failures.to_string(),
                by.collect::<Vec<_>>().join("; "),
            ]
        });
        let nodes = self.nodes.iter().map(|node| {
            vec![
                node.node.clone(),
                node.state.clone(),
                text(&node.version),
                text(&node.kubelet_now),
                text(&node.started),
                text(&node.ended),
                node.attempts
                    .map_or_else(|| "?".to_owned(), |attempts| attempts.to_string()),
                node.message.clone().unwrap_or_default(),
            ]
        });
        let events = self.view.events().map(|event| {
            vec![
                format!("{:.0}", event.at),
                event.reason.to_string(),
                event.message.clone(),
            ]
        });
        let table = |title, head: &'static [&'static str], rows| Table { title, head, rows };
        let all = [
            table(
                "Roll-outs",
                &["version", "from", "to", "end", "nodes", "failures", "by"],
                roll_outs.collect::<Vec<_>>(),
            ),
            table(
                "Nodes",
                &[
                    "node",
                    "state",
                    "upgraded to",
                    "kubelet now",
                    "started",
                    "ended",
                    "attempts",
                    "message",
                ],
                nodes.collect(),
            ),
            table("Events", &["at", "reason", "message"], events.collect()),
        ];
        all.into_iter().filter(|table| !table.rows.is_empty()).collect()
    }
}

struct Table {
    title: &'static str,
    head: &'static [&'static str],
    rows: Vec<Vec<String>>,
}

const STYLE: &str = "body{font:14px/1.5 system-ui,sans-serif;margin:2em;max-width:80em;color-scheme:light dark}\
                     table{border-collapse:collapse}td,th{border:1px solid;padding:.2em .6em;text-align:left;vertical-align:top}";

fn node_report(snapshot: &Snapshot, view: &PlanOverview<'_>, name: &str) -> NodeReport {
    let node = snapshot.node(name);
    let mut report = NodeReport {
        node: name.to_owned(),
        kubelet_now: node.map(|node| node.facts.kubelet.to_string()),
        ..NodeReport::default()
    };
    if let Some(record) = node.and_then(|node| node.facts.records.get(&view.plan.name)) {
        report.version = Some(record.version.clone());
        report.ended = Some(format!("{:.0}", record.at));
        report.attempts = Some(record.attempt);
    }
    let jobs = snapshot.jobs_on(view.plan, name);
    if let Some(job) = jobs.iter().rfind(|job| job.facts.verifies.is_none()) {
        report.version = Some(job.facts.version.to_string());
        report.started = Some(format!("{:.0}", job.started.unwrap_or(job.facts.created)));
        report.attempts = Some(job.facts.attempt);
        report.ended = match job.facts.outcome {
            JobOutcome::Complete { at } | JobOutcome::Failed { at, .. } => Some(format!("{at:.0}")),
            JobOutcome::Running | JobOutcome::Failing { .. } => None,
        };
        return report;
    }
    // The Job is gone; its event may still be there.
    let ends = [Reason::JobComplete, Reason::JobFailed];
    let of_node = |message: &str| {
        message
            .split_whitespace()
            .any(|word| word.trim_matches(|c| ":,;.".contains(c)) == name)
    };
    let mut events = view
        .events()
        .rev()
        .filter(|event| ends.iter().any(|it| event.reason == *it));
    if let Some(event) = events.find(|event| of_node(&event.message)) {
        report.ended.get_or_insert_with(|| format!("{:.0}", event.at));
    }
    report
}

/// What a reader must not take for nothing having happened.
fn unknown(view: &PlanOverview<'_>, nodes: &[NodeReport]) -> Vec<String> {
    let mut unknown = view.snapshot.gaps.clone();
    let without_times = nodes
        .iter()
        .filter(|node| node.state == DONE && node.started.is_none())
        .count();
    if without_times > 0 {
        unknown.push(format!(
            "when {without_times} nodes that are done began: Kubernetes has deleted their Jobs, whose TTL is over"
        ));
    }
    unknown.push("the version of each node before: only the Plan's own earlier versions are kept".to_owned());
    if view.events().next().is_none() {
        unknown.push(
            "Events: there are none any more (an API server keeps them for an hour by default)".to_owned(),
        );
    }
    if view.foreign {
        unknown.push("earlier roll-outs: the status is of another controller than refit".to_owned());
    }
    unknown
}

/// Text in a Markdown table: on one line, and without what Markdown would take for markup.
fn cell(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\r' => out.push(' '),
            '|' | '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '#' => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_a_cluster_are_no_markup() {
        assert_eq!(
            cell("a|b\n<img> [x](y) `c`"),
            "a\\|b \\<img\\> \\[x\\](y) \\`c\\`"
        );
        assert_eq!(
            escaped("<a href=\"x\">'&"),
            "&lt;a href=&quot;x&quot;&gt;&#39;&amp;"
        );
    }
}
