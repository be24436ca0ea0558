//! What a rehearsal says of Jobs that run once for each roll-out, and of nodes that get no pods yet.

use jiff::Timestamp;
use serde::Serialize;

use super::times::TimeFormat;
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

/// What the text says of the Jobs of a Plan, a line each.
pub(super) fn hook_lines(plan: &str, hooks: &[HookReport], times: &TimeFormat) -> Vec<String> {
    let line = |run: &HookReport| {
        let took = |end: Timestamp| duration(end.duration_since(run.start));
        let what = match (run.result, run.end) {
            ("succeeded", Some(end)) => format!("succeeds after {}", took(end)),
            ("failed", Some(end)) => format!("fails after {}", took(end)),
            (_, Some(end)) => format!("is stopped after {}", took(end)),
            (_, None) => "has not ended".to_owned(),
        };
        let at = times.of_plan(plan, run.start);
        format!("Plan {plan} runs `{}` at {at}, which {what}", run.hook)
    };
    hooks.iter().map(line).collect()
}

/// The same of nodes that get no pods.
pub(super) fn new_node_lines(nodes: &[NewNode], times: &TimeFormat) -> Vec<String> {
    let line = |NewNode { node, since, until }: &NewNode| {
        let long = until.map_or_else(
            || "until the end".to_owned(),
            |until| format!("for {}", duration(until.duration_since(*since))),
        );
        let from = times.of_cluster(*since);
        format!("No new pods on {node} {long}, from {from} (taintNewNodes)")
    };
    nodes.iter().map(line).collect()
}
