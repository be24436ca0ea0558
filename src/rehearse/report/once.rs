//! What a rehearsal says of Jobs that run once for each roll-out, and of nodes that get no pods yet.

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::Report;
use super::text::line;
use crate::record::{HookRun, NewNode, Recorder};
use crate::words::duration;
use refit_api::HookPhase;

/// A Job of `spec.before` or `spec.after`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HookReport {
    /// `before` or `after`.
    pub hook: &'static str,
    pub start: Timestamp,
    /// Absent if it has not ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<Timestamp>,
    /// `succeeded`, `failed`, `running`, or `stopped` if the Plan no longer required it.
    pub result: &'static str,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A node that has joined and gets no pods before a Plan is done there (`spec.taintNewNodes`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NewNodeReport {
    pub node: String,
    pub start: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<Timestamp>,
}

pub(super) fn hooks(record: &Recorder, plan: &str) -> Vec<HookReport> {
    let report = |run: &HookRun| HookReport {
        hook: run.hook.as_str(),
        start: run.since,
        end: run.until,
        result: match run.phase {
            HookPhase::Succeeded => "succeeded",
            HookPhase::Failed => "failed",
            HookPhase::Running if run.until.is_some() => "stopped",
            HookPhase::Running => "running",
        },
        message: run.message.clone(),
    };
    record.hook_runs(plan).iter().map(report).collect()
}

pub(super) fn new_nodes(record: &Recorder) -> Vec<NewNodeReport> {
    let report = |NewNode { node, since, until }: &NewNode| NewNodeReport {
        node: node.clone(),
        start: *since,
        end: *until,
    };
    record.new_nodes().iter().map(report).collect()
}

impl Report {
    pub(super) fn write_once(&self, text: &mut String) {
        let before = text.len();
        let took = |start: Timestamp, end: Timestamp| -> String {
            duration(SignedDuration::from_secs(super::seconds(start, end)))
        };
        for plan in &self.plans {
            for run in &plan.hooks {
                let what = match (run.result, run.end) {
                    ("succeeded", Some(end)) => format!("succeeds after {}", took(run.start, end)),
                    ("failed", Some(end)) => format!("fails after {}", took(run.start, end)),
                    (_, Some(end)) => format!("is stopped after {}", took(run.start, end)),
                    (_, None) => "has not ended".to_owned(),
                };
                let at = self.times.of_plan(&plan.name, run.start);
                line(
                    text,
                    &format!("Plan {} runs `{}` at {at}, which {what}", plan.name, run.hook),
                );
            }
        }
        for NewNodeReport { node, start, end } in &self.new_nodes {
            let (from, long) = (self.times.of_cluster(*start), end.map(|end| took(*start, end)));
            let long = long.map_or_else(|| "until the end".to_owned(), |long| format!("for {long}"));
            line(
                text,
                &format!("No new pods on {node} {long}, from {from} (taintNewNodes)"),
            );
        }
        if text.len() > before {
            text.push('\n');
        }
    }
}
