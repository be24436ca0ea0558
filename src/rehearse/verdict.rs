//! The verdict of a rehearsal in one line, which names the Plan and its blocker. Pure.

mod waits;

use std::collections::{BTreeMap, BTreeSet};

use jiff::tz::TimeZone;
use serde::Serialize;

use super::nodes::{PlanSelector, contradiction};
use super::report::times::TimeFormat;
use super::run::{Ending, Outcome, PlanOutcome};
use super::words::{duration, one_line, pluralized};
use refit_api::selector::explain;
use refit_api::{ConditionType, NodeProgress, PlanCondition, PlanStatus, Reason};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Problem {
    /// A node failed, or the Plan is invalid.
    Fails,
    /// It waits for something that will not happen.
    Stalls,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UnfinishedPlan {
    pub plan: String,
    pub how: Problem,
    /// The predicate of a sentence about the Plan.
    pub why: String,
    /// The same in a few words.
    #[serde(skip)]
    pub brief: String,
    /// The Plan that it waits for, if that is the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Verdict {
    pub complete: bool,
    /// The last line of the report.
    pub line: String,
    /// The same in a few words.
    #[serde(skip)]
    pub headline: String,
    /// The incomplete Plans, causes first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<UnfinishedPlan>,
}

/// Decides about the outcome of a rehearsal.
pub fn judge(outcome: &Outcome, times: &TimeFormat) -> Verdict {
    // A Plan that has repeated once is through. While others took longer, it may have begun again.
    let has_repeated = |plan: &PlanOutcome| {
        let repetitions = outcome.record.repetitions(plan.name());
        repetitions.is_some_and(|it| it.repeated.is_some())
    };
    let mut reasons: Vec<UnfinishedPlan> = outcome
        .plans
        .iter()
        .filter(|plan| plan.rehearsed && !has_repeated(plan))
        .filter_map(|plan| reason(plan, outcome))
        .collect();
    for reason in &mut reasons {
        reason.why = times.in_message(&reason.plan, &reason.why);
    }
    // A Plan comes before those that wait for it.
    let waiting: BTreeMap<String, String> = reasons
        .iter()
        .filter_map(|reason| Some((reason.plan.clone(), reason.waits_for.clone()?)))
        .collect();
    let unfinished: Vec<String> = reasons.iter().map(|reason| reason.plan.clone()).collect();
    reasons.sort_by_key(|reason| {
        let is_follower = waiting
            .get(&reason.plan)
            .is_some_and(|other| unfinished.contains(other));
        (is_follower, reason.how)
    });
    let (line, headline) = if let Some(first) = reasons.first() {
        let would = match (first.how, outcome.ending) {
            (_, Ending::Limit(limit)) => format!("would not complete within {}", duration(limit)),
            (Problem::Fails, _) => "would fail".to_owned(),
            (Problem::Stalls, _) => "would stall".to_owned(),
        };
        let says = |what: &str| format!("{would}: Plan {} {what}", first.plan);
        (says(&first.why), says(&first.brief))
    } else {
        let line = through(outcome, times);
        (line.clone(), line)
    };
    Verdict {
        complete: reasons.is_empty(),
        line,
        headline,
        reasons,
    }
}

fn through(outcome: &Outcome, times: &TimeFormat) -> String {
    let rehearsed = || outcome.plans.iter().filter(|plan| plan.rehearsed);
    let runs = rehearsed().flat_map(|plan| {
        let runs = outcome.record.node_runs(plan.name());
        runs.map(move |(node, _)| (plan.name(), node))
    });
    // A node that runs a Plan again counts once.
    let done = runs.collect::<BTreeSet<_>>().len();
    let repetitions = || rehearsed().filter_map(|plan| outcome.record.repetitions(plan.name()));
    let end = if repetitions().any(|it| it.repeated.is_some()) {
        // The rehearsal has gone on to the repetitions, which have lines of their own.
        repetitions().filter_map(|it| it.first_complete).max()
    } else {
        None
    };
    let end = end.unwrap_or(outcome.end);
    let plans = pluralized(rehearsed().count(), "Plan");
    if done == 0 {
        return format!("complete: {plans}, and nothing to do: all nodes are done already");
    }
    format!(
        "complete: {plans}, {}, in {}, at {}",
        pluralized(done, "node"),
        duration(end.duration_since(outcome.start)),
        times.end(end)
    )
}

/// Why a Plan is not complete.
fn reason(end: &PlanOutcome, outcome: &Outcome) -> Option<UnfinishedPlan> {
    let status = end.plan.status.clone().unwrap_or_default();
    let says = |how, brief: &str, why: String| {
        Some(UnfinishedPlan {
            plan: end.name().to_owned(),
            how,
            why,
            brief: brief.to_owned(),
            waits_for: None,
        })
    };
    for (type_, says_what) in [
        (ConditionType::Validated, "is not valid"),
        (ConditionType::LatestResolved, "has no version"),
    ] {
        if let Some(why) = denied(&status, type_) {
            return says(Problem::Fails, says_what, format!("{says_what}: {why}"));
        }
    }
    let active = status.active.as_deref().unwrap_or_default();
    let obstacle = status.obstacle.as_ref();
    let held = obstacle.and_then(|it| {
        let mut slots = active.iter().filter(|node| node.has_slot());
        Some((it, slots.find(|node| Some(&node.name) == it.node.as_ref())?))
    });
    if let Some((it, node)) = held.filter(|(_, node)| node.is_failed()) {
        let failed = active.iter().filter(|node| node.is_failed()).count();
        let others = match failed - 1 {
            0 => String::new(),
            others => format!(" (and on {})", pluralized(others, "more node")),
        };
        let (waited, waits_for) = match waits::waited(end, &node.name, outcome) {
            Some((waited, plan)) => (format!("; {waited}"), plan),
            None => (String::new(), None),
        };
        let brief = format!("failed on {}{others}: {}", node.name, it.reason);
        let why = format!("{brief}: {}{waited}{}", one_line(&it.message), left(&status));
        return says(Problem::Fails, &brief, why).map(|reason| UnfinishedPlan { waits_for, ..reason });
    }
    let counts = status.nodes.unwrap_or_default();
    if end.complete {
        return if counts.selected + counts.disabled == 0 {
            says(
                Problem::Fails,
                "selects no node",
                format!("selects no node: {}", why_no_node(end, outcome)),
            )
        } else {
            None
        };
    }
    let at_work: Vec<&NodeProgress> = active.iter().filter(|node| node.has_slot()).collect();
    if let Some(reason) = waits::stalled_in_prepare(end, outcome) {
        return Some(reason);
    }
    if let Some(reason) = waits::stalled_unscheduled(end, outcome, &left(&status)) {
        return Some(reason);
    }
    if let Some(node) = held.map(|(_, node)| node).or(at_work.first().copied()) {
        let why = match (&node.reason, &node.message) {
            (Some(reason), Some(message)) => format!("{reason}: {}", one_line(message)),
            (Some(reason), None) => reason.to_string(),
            (None, _) => format!("it stays {}", node.phase),
        };
        let what = node
            .reason
            .as_ref()
            .map_or_else(|| format!("it stays {}", node.phase), ToString::to_string);
        let on = format!("makes no progress on {}", node.name);
        return says(
            Problem::Stalls,
            &format!("{on}: {what}"),
            format!("{on}: {why}{}", left(&status)),
        );
    }
    Some(at_rest(end, &status))
}

/// Why a Plan that works on no node is not complete.
fn at_rest(end: &PlanOutcome, status: &PlanStatus) -> UnfinishedPlan {
    let obstacle = status.obstacle.as_ref();
    let reason = obstacle.and_then(|it| it.reason.known());
    let brief = obstacle.map_or_else(
        || "is not reconciled".to_owned(),
        |it| match reason {
            Some(Reason::AfterRunning | Reason::AfterFailed) => format!("is not complete: {}", it.reason),
            _ => format!("starts no node: {}", it.reason),
        },
    );
    let why = if let Some(it) = obstacle {
        format!("{brief}: {}", one_line(&it.message))
    } else {
        let complete = PlanCondition::find(&status.conditions, ConditionType::Complete);
        let text = complete.map(|one| {
            let reason = one.reason.as_deref().unwrap_or_default();
            format!(
                "{reason}: {}",
                one_line(one.message.as_deref().unwrap_or_default())
            )
        });
        format!(
            "{brief}{}",
            text.map_or_else(String::new, |text| format!(": {text}"))
        )
    };
    let how = match reason {
        Some(Reason::BeforeFailed | Reason::AfterFailed) => Problem::Fails,
        _ => Problem::Stalls,
    };
    UnfinishedPlan {
        plan: end.name().to_owned(),
        how,
        why: format!("{why}{}{}", windows(end), left(status)),
        brief,
        waits_for: end
            .depends
            .clone()
            .filter(|_| reason == Some(Reason::DependencyNotComplete)),
    }
}

/// The message of a condition that is False.
fn denied(status: &PlanStatus, type_: ConditionType) -> Option<String> {
    let found = PlanCondition::find(&status.conditions, type_).filter(|one| one.status == "False")?;
    Some(one_line(found.message.as_deref().unwrap_or_default()))
}

fn left(status: &PlanStatus) -> String {
    match status.nodes.unwrap_or_default().waiting {
        0 => String::new(),
        1 => "; 1 node is left waiting".to_owned(),
        waiting => format!("; {waiting} nodes are left waiting"),
    }
}

/// Label of the nodes whose versions `prepare` checks.
pub(super) const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";

/// Why a Plan selects no node: the first requirement that no node meets.
fn why_no_node(end: &PlanOutcome, outcome: &Outcome) -> String {
    let selector = PlanSelector {
        plan: end.name(),
        selector: end.plan.spec.node_selector.as_ref(),
        ..PlanSelector::default()
    };
    if let Some(why) = contradiction(&selector) {
        return why;
    }
    let selector = end.plan.spec.node_selector.clone().unwrap_or_default();
    let requirements = explain::requirements(&selector);
    let mut requirements = requirements.iter();
    let missing = requirements.find(|one| !outcome.nodes.values().any(|labels| one.matches(labels)));
    match (missing, outcome.nodes.len()) {
        (Some(one), nodes) => one.unmet(nodes),
        (None, 1) => "the only node does not meet all requirements of spec.nodeSelector".to_owned(),
        (None, nodes) => format!("none of {nodes} nodes meets all requirements of spec.nodeSelector"),
    }
}

/// The windows of the Plan, for a message about a wait for them.
fn windows(end: &PlanOutcome) -> String {
    let windows = end.plan.spec.start_windows(&TimeZone::system());
    windows.map_or_else(String::new, |windows| format!(" ({windows})"))
}

#[cfg(test)]
mod tests;
