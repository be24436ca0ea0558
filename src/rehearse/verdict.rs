//! The verdict of a rehearsal in one line, which names the Plan and its blocker. Pure.

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;
use jiff::tz::TimeZone;
use serde::Serialize;

use super::nodes::{CONTROL_PLANE, MASTER, PlanSelector, contradiction};
use super::report::times::TimeFormat;
use super::run::{Ending, Outcome};
use super::words::{SHOWN, duration, one_line, pluralized};
use refit_api::reason::Kind;
use refit_api::selector::explain;
use refit_api::{ConditionType, NodeProgress, ObjectRef, OpenEnum, Reason};
use refit_base::names::shortened;
use refit_facts::PlanFacts;
use refit_view::{PlanOverview, prepare};

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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<OpenEnum<Reason>>,
    /// The node on which it fails or makes no progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
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
    let has_repeated = |plan: &PlanFacts| {
        let repetitions = outcome.record.repetitions(&plan.name);
        repetitions.is_some_and(|it| it.repeated.is_some())
    };
    let mut reasons: Vec<UnfinishedPlan> = outcome
        .rehearsed()
        .iter()
        .filter(|plan| !has_repeated(plan))
        .filter_map(|plan| reason(plan, outcome, times))
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
    let rehearsed = || outcome.rehearsed().iter();
    let runs = rehearsed().flat_map(|plan| {
        let runs = outcome.record.node_runs(&plan.name);
        runs.map(move |(node, _)| (&plan.name, node))
    });
    // A node that runs a Plan again counts once.
    let done: BTreeSet<_> = runs.collect();
    let differing = rehearsed().flat_map(|plan| {
        let entries = plan.status().version_differs.iter().flatten();
        let entries = entries.filter(|entry| !done.contains(&(&plan.name, &entry.name)));
        entries.map(|entry| format!("{} {}", entry.name, entry.kubelet_version))
    });
    let differing: Vec<String> = differing.collect();
    let though = if differing.is_empty() {
        String::new()
    } else {
        let differing = shortened(&differing, SHOWN);
        let reason = Reason::VersionDiffers.name();
        format!(", though the kubelets of done nodes have another version ({reason}): {differing}")
    };
    let repetitions = || rehearsed().filter_map(|plan| outcome.record.repetitions(&plan.name));
    let end = if repetitions().any(|it| it.repeated.is_some()) {
        // The rehearsal has gone on to the repetitions, which have lines of their own.
        repetitions().filter_map(|it| it.first_complete).max()
    } else {
        None
    };
    let end = end.unwrap_or(outcome.end);
    let plans = pluralized(outcome.rehearsed, "Plan");
    if done.is_empty() {
        return format!("complete: {plans}, and nothing to do: all nodes are done already{though}");
    }
    format!(
        "complete: {plans}, {}, in {}, at {}{though}",
        pluralized(done.len(), "node"),
        duration(end.duration_since(outcome.start)),
        times.end(end)
    )
}

/// Why a Plan is not complete: what `refit explain` would say, and what only a rehearsal knows.
fn reason(plan: &PlanFacts, outcome: &Outcome, times: &TimeFormat) -> Option<UnfinishedPlan> {
    let view = outcome.view(plan);
    let mut found = unfinished(&view, outcome.complete.contains(&plan.name))?;
    let known = found.reason.as_ref().and_then(OpenEnum::known);
    if known == Some(Reason::NoNodes) {
        found.why = format!("{}: {}", found.brief, why_no_node(plan, outcome));
    }
    let absent = |name: &str| {
        let is_here = prepare::find(view.snapshot, view.plan, name).is_some();
        outcome.absent.get_key_value(name).filter(|_| !is_here)
    };
    // A `preflight` that does not end has the same reason.
    let is_late = known == Some(Reason::PrepareTimedOut) && view.plan.object.spec.preflight.is_none();
    if let Some(plan) = prepare::awaited_plan(view.plan).filter(|_| is_late) {
        let awaited = prepare::awaited(view.snapshot, view.plan);
        let what = match (absent(&plan), &awaited) {
            (Some((_, place)), _) => format!("Plan {plan}, which {place}"),
            (None, Some(awaited)) => awaited.what.clone(),
            (None, None) => complete_too_late(view.plan, &plan, outcome, times),
        };
        found.why.extend(["; it waited for ", &what]);
        let about = awaited.and_then(|it| it.about);
        found.waits_for = about.filter(|about| about.kind == "Plan").map(|about| about.name);
    } else if let Some((plan, place)) = found.waits_for.as_deref().and_then(absent) {
        if known == Some(Reason::Prepare) {
            // Not that it does not exist, which is so only here.
            found.why = format!("{}: `prepare` waits for Plan {plan}, which {place}", found.brief);
        } else {
            found.why.extend([format!("; Plan {plan} {place}")]);
        }
    }
    found.why.extend(match view.counts.waiting {
        0 => None,
        1 => Some("; 1 node is left waiting".to_owned()),
        waiting => Some(format!("; {waiting} nodes are left waiting")),
    });
    Some(found)
}

/// That the Plan which `prepare` waited for was complete after the Job's deadline.
fn complete_too_late(plan: &PlanFacts, other: &str, outcome: &Outcome, times: &TimeFormat) -> String {
    let repetitions = outcome.record.repetitions(other);
    let complete = repetitions.and_then(|it| it.first_complete);
    let complete = complete.map_or_else(String::new, |at| format!(" at {}", times.of_plan(&plan.name, at)));
    let (deadline, raise) = match plan.object.spec.job_active_deadline_secs {
        Some(seconds @ 1..) => {
            let long = duration(SignedDuration::from_secs(seconds));
            (format!("{long} (spec.jobActiveDeadlineSecs)"), "raise it")
        }
        _ => (
            "the controller (SYSTEM_UPGRADE_JOB_ACTIVE_DEADLINE_SECONDS)".to_owned(),
            "set spec.jobActiveDeadlineSecs",
        ),
    };
    format!(
        "Plan {other}, which was complete{complete}, too late for the Job's deadline of {deadline}: wait by spec.dependsOn \
         instead, or {raise}"
    )
}

/// What keeps a Plan from being complete, and on which node, in the words of `refit explain`.
pub fn unfinished(view: &PlanOverview<'_>, complete: bool) -> Option<UnfinishedPlan> {
    use Problem::{Fails, Stalls};
    let slots = || view.nodes.iter().filter(|node| node.has_slot());
    let obstacle = view.obstacle.as_ref();
    let held = obstacle.and_then(|it| slots().find(|node| Some(&node.name) == it.node.as_ref()));
    let reason = obstacle.and_then(|it| it.reason.known());
    let is_failed = held.is_some_and(NodeProgress::is_failed);
    if complete && !is_failed && reason != Some(Reason::NoNodes) {
        return None;
    }
    // What status cannot say of a node at work is nearer to the cause than what others wait for.
    let stalled = slots().find(|node| {
        let reason = node.reason.as_ref().and_then(OpenEnum::known);
        reason.is_some_and(|reason| reason.kind() == Kind::Explain)
    });
    // What has begun and does not end is nearer to the cause than what does not begin.
    let at_work = slots().find(|node| !node.is_failed());
    let is_denied = |type_| {
        let condition = view.plan.status().condition(type_);
        condition.is_some_and(|it| it.status == "False")
    };
    let (does, how, node) = match (held, reason) {
        (Some(node), _) if is_failed => ("failed", Fails, Some(node)),
        (Some(node), _) => ("makes no progress", Stalls, Some(node)),
        (None, Some(Reason::NoNodes)) => ("selects no node", Fails, None),
        _ if is_denied(ConditionType::Validated) => ("is not valid", Fails, None),
        _ if is_denied(ConditionType::LatestResolved) => ("has no version", Fails, None),
        (None, Some(Reason::BeforeFailed)) => ("starts no node", Fails, None),
        (None, Some(Reason::AfterFailed)) => ("is not complete", Fails, None),
        _ if stalled.is_some() => ("makes no progress", Stalls, stalled),
        (None, Some(Reason::AfterRunning)) => ("is not complete", Stalls, None),
        _ if at_work.is_some() => ("makes no progress", Stalls, at_work),
        (None, Some(_)) if view.counts.done > 0 => ("starts no further node", Stalls, None),
        (None, Some(_)) => ("starts no node", Stalls, None),
        (None, None) => ("is not complete", Stalls, None),
    };
    let (reason, message, about) = match (node, obstacle) {
        (Some(node), _) => (node.reason.clone(), node.message.clone(), &node.about[..]),
        (None, Some(it)) => (Some(it.reason.clone()), Some(it.says()), &it.about[..]),
        (None, None) => (None, None, &[][..]),
    };
    let alike = slots().filter(|it| it.is_failed() == is_failed && (is_failed || it.reason == reason));
    let on = node.map_or_else(String::new, |node| match alike.count().saturating_sub(1) {
        0 => format!(" on {}", node.name),
        others => format!(" on {} (and on {})", node.name, pluralized(others, "more node")),
    });
    // The reason says no more than that.
    let says_all = matches!(does, "selects no node" | "is not valid" | "has no version");
    let what = match (&reason, node) {
        _ if says_all => String::new(),
        (Some(reason), _) => format!(": {reason}"),
        (None, Some(node)) => format!(": it stays {}", node.phase),
        (None, None) => String::new(),
    };
    let brief = format!("{does}{on}{what}");
    let message = message.map_or_else(String::new, |message| format!(": {}", one_line(&message)));
    let windows = view.plan.object.spec.start_windows(&TimeZone::system());
    let windows = windows.filter(|_| node.is_none() && !says_all);
    let windows = windows.map_or_else(String::new, |windows| format!(" ({windows})"));
    let mut plans = ObjectRef::named(about, "Plan").filter(|plan| *plan != &*view.plan.name);
    Some(UnfinishedPlan {
        plan: view.plan.name.to_string(),
        how,
        why: format!("{brief}{message}{windows}"),
        brief,
        node: node
            .map(|node| node.name.clone())
            .or_else(|| obstacle?.node.clone()),
        waits_for: plans.next().map(str::to_owned),
        reason,
    })
}

/// Why a Plan selects no node: the first requirement that no node meets.
fn why_no_node(plan: &PlanFacts, outcome: &Outcome) -> String {
    let selector = PlanSelector {
        plan: &plan.name,
        selector: plan.object.spec.node_selector.as_ref(),
        ..PlanSelector::default()
    };
    if let Some(why) = contradiction(&selector) {
        return why;
    }
    let selector = plan.object.spec.node_selector.clone().unwrap_or_default();
    let requirements = explain::requirements(&selector);
    let mut requirements = requirements.iter();
    let missing = requirements.find(|one| {
        !outcome
            .nodes()
            .any(|(_, node)| one.matches(|key| node.facts.labels.get(key)))
    });
    match (missing, outcome.nodes().count()) {
        (Some(one), nodes) if one.is_label(MASTER) => one.unmet(nodes) + &control_plane_label(outcome),
        (Some(one), nodes) => one.unmet(nodes),
        (None, 1) => "the only node does not meet all requirements of spec.nodeSelector".to_owned(),
        (None, nodes) => format!("none of {nodes} nodes meets all requirements of spec.nodeSelector"),
    }
}

/// The label that nodes of the control plane have instead of the one that Kubernetes 1.24 removed.
fn control_plane_label(outcome: &Outcome) -> String {
    let mut servers = outcome
        .nodes()
        .filter(|(_, node)| node.facts.labels.get(CONTROL_PLANE).is_some());
    let Some((name, node)) = servers.next() else {
        return String::new();
    };
    let (others, verb) = match servers.count() {
        0 => (String::new(), "has"),
        others => (format!(" and {}", pluralized(others, "more node")), "have"),
    };
    format!(
        "; {name} ({}){others} {verb} {CONTROL_PLANE} instead",
        node.facts.kubelet
    )
}

#[cfg(test)]
mod tests;
