//! What a rehearsal amounts to: through, or why not, in one line that names the Plan and what is in its way. Pure.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use jiff::tz::TimeZone;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Serialize;

use super::nodes::{Asks, contradiction};
use super::play::{Ending, Outcome, PlanEnd};
use super::record::{BUDGET, Wait};
use crate::api::selector::Selector;
use crate::api::window::Window;
use crate::api::{NodeProgress, PlanStatus};

/// Whether a Plan fails, or only gets no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum How {
    /// A node failed, or the Plan cannot be carried out as it is.
    Fails,
    /// It waits for something that does not come.
    Stalls,
}

/// Why a Plan is not through.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Reason {
    /// Name of the Plan.
    pub plan: String,
    /// Whether it fails or stalls.
    pub how: How,
    /// Why, as a sentence about the Plan without its subject.
    pub why: String,
    /// The Plan that it waits for, if that is why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
}

/// What a rehearsal amounts to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Verdict {
    /// All Plans would be complete.
    pub complete: bool,
    /// The last line: that they would be, or the reason why not.
    pub line: String,
    /// Why which Plan would not, the cause first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<Reason>,
}

/// Judges a rehearsal.
pub fn judge(outcome: &Outcome) -> Verdict {
    let mut reasons: Vec<Reason> = outcome
        .plans
        .iter()
        .filter(|plan| plan.rehearsed)
        .filter_map(|plan| reason(plan, outcome))
        .collect();
    // What others wait for comes before those who wait.
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
    let line = match (reasons.first(), outcome.ending) {
        (Some(first), Ending::Limit(limit)) => format!(
            "would not be through within {}: Plan {} {}",
            duration(limit),
            first.plan,
            first.why
        ),
        (Some(first), _) => {
            let would = match first.how {
                How::Fails => "would fail",
                How::Stalls => "would stall",
            };
            format!("{would}: Plan {} {}", first.plan, first.why)
        }
        (None, _) => through(outcome),
    };
    Verdict {
        complete: reasons.is_empty(),
        line,
        reasons,
    }
}

fn through(outcome: &Outcome) -> String {
    let done: usize = outcome
        .plans
        .iter()
        .filter(|plan| plan.rehearsed)
        .map(|plan| outcome.record.turns(plan.name()).count())
        .sum();
    let plans = outcome.plans.iter().filter(|plan| plan.rehearsed).count();
    let plans = counted(plans, "Plan");
    if done == 0 {
        return format!("complete: {plans}, and nothing to do: all nodes are done already");
    }
    format!(
        "complete: {plans}, {}, in {}, at {}",
        counted(done, "node"),
        duration(outcome.end.duration_since(outcome.start)),
        outcome.end.strftime("%Y-%m-%d %H:%M:%S UTC")
    )
}

/// Why a Plan is not through, if it is not.
fn reason(end: &PlanEnd, outcome: &Outcome) -> Option<Reason> {
    let status = end.plan.status.clone().unwrap_or_default();
    let says = |how, why: String| {
        Some(Reason {
            plan: end.name().to_owned(),
            how,
            why,
            waits_for: None,
        })
    };
    if let Some(why) = denied(&status, "Validated") {
        return says(How::Fails, format!("is not valid: {why}"));
    }
    if let Some(why) = denied(&status, "LatestResolved") {
        return says(How::Fails, format!("has no version: {why}"));
    }
    let active = status.active.as_deref().unwrap_or_default();
    let failed: Vec<&NodeProgress> = active.iter().filter(|node| node.phase == "Failed").collect();
    if let Some(first) = failed.first() {
        let reason = first.reason.as_deref().unwrap_or("Failed");
        let message = first.message.as_deref().unwrap_or_default();
        let others = match failed.len() - 1 {
            0 => String::new(),
            others => format!(" (and on {})", counted(others, "more node")),
        };
        return says(
            How::Fails,
            format!(
                "failed on {}{others}: {reason}: {}{}{}",
                first.name,
                one_line(message),
                waited(end.name(), &first.name, outcome),
                left(&status)
            ),
        );
    }
    let counts = status.nodes.unwrap_or_default();
    if end.complete {
        return if counts.selected + counts.disabled == 0 {
            says(How::Fails, format!("selects no node: {}", nobody(end, outcome)))
        } else {
            None
        };
    }
    let at_work: Vec<&NodeProgress> = active.iter().filter(|node| node.phase != "Waiting").collect();
    if let Some(other) = &end.depends {
        let preparing: Vec<_> = at_work.iter().filter(|node| node.phase == "Preparing").collect();
        if let Some(first) = preparing.first() {
            let nodes = match preparing.len() {
                1 => format!("{} waits", first.name),
                count => format!("{} wait", counted(count, "node")),
            };
            return Some(Reason {
                plan: end.name().to_owned(),
                how: How::Stalls,
                why: format!(
                    "gets no further: {nodes} in `prepare` for {}",
                    depends(end, other, outcome)
                ),
                waits_for: Some(other.clone()),
            });
        }
    }
    let held_up = at_work.iter().find(|node| node.reason.is_some());
    if let Some(node) = held_up.or(at_work.first()) {
        let why = match (&node.reason, &node.message) {
            (Some(reason), Some(message)) => format!("{reason}: {}", one_line(message)),
            (Some(reason), None) => reason.clone(),
            (None, _) => format!("it is {} for ever", node.phase),
        };
        return says(
            How::Stalls,
            format!("gets no further on {}: {why}{}", node.name, left(&status)),
        );
    }
    let waiting = active.iter().find(|node| node.reason.is_some());
    let told = waiting.and_then(|node| Some((node.reason.as_ref()?, node.message.as_ref()?)));
    let why = if let Some((reason, message)) = told {
        format!("starts no node: {reason}: {}", one_line(message))
    } else {
        let complete = status.conditions.iter().find(|one| one.type_ == "Complete");
        let text = complete.map(|one| {
            let reason = one.reason.as_deref().unwrap_or_default();
            format!(
                "{reason}: {}",
                one_line(one.message.as_deref().unwrap_or_default())
            )
        });
        format!(
            "is not looked at{}",
            text.map_or_else(String::new, |text| format!(": {text}"))
        )
    };
    says(
        How::Stalls,
        format!("{why}{}{}", short_window(end), left(&status)),
    )
}

/// The budget that a node waited for until the Plan failed there, so that its upgrade never began.
fn waited(plan: &str, node: &str, outcome: &Outcome) -> String {
    let turn = outcome.record.turns(plan).find(|(name, _)| *name == node);
    let Some((_, turn)) = turn else {
        return String::new();
    };
    let failed = turn.until.unwrap_or(outcome.end);
    let was_over = |wait: &Wait| {
        let mut upgrades = turn.stays.iter().filter(|stay| stay.phase == "Upgrading");
        upgrades.any(|stay| stay.since >= wait.since)
    };
    let waits = outcome.record.waits().into_iter().filter(|wait| {
        wait.plan == plan && wait.node.as_deref() == Some(node) && wait.reason == BUDGET && !was_over(wait)
    });
    let last = waits.max_by_key(|wait| wait.until.unwrap_or(failed));
    last.map_or_else(String::new, |wait| {
        let long = wait.until.unwrap_or(failed).duration_since(wait.since);
        format!("; it waited {} for {}", duration(long), wait.blocker)
    })
}

/// What a condition says that does not hold.
fn denied(status: &PlanStatus, type_: &str) -> Option<String> {
    let found = status
        .conditions
        .iter()
        .find(|one| one.type_ == type_ && one.status == "False")?;
    Some(one_line(found.message.as_deref().unwrap_or_default()))
}

fn left(status: &PlanStatus) -> String {
    match status.nodes.unwrap_or_default().waiting {
        0 => String::new(),
        1 => "; 1 node is left waiting".to_owned(),
        waiting => format!("; {waiting} nodes are left waiting"),
    }
}

/// What nodes wait for that wait for another Plan, as K3s' and RKE2's `prepare` do.
fn depends(end: &PlanEnd, other: &str, outcome: &Outcome) -> String {
    let Some(plan) = outcome.plans.iter().find(|plan| plan.name() == other) else {
        return format!("Plan {other}, which is neither in the files nor on the cluster");
    };
    if !plan.complete {
        return format!("Plan {other}, which does not complete");
    }
    let version = end
        .plan
        .status
        .as_ref()
        .and_then(|status| status.latest_version.clone());
    let version = version.unwrap_or_default();
    let behind = outcome.nodes.iter().find_map(|(name, labels)| {
        let kubelet = outcome.kubelets.get(name)?;
        let is_control = labels.contains_key(CONTROL_PLANE);
        (is_control && kubelet.replace('+', "-") != version).then(|| format!("{name} runs {kubelet}"))
    });
    match behind {
        Some(behind) => format!("control-plane nodes of version {version}, and {behind}"),
        None => format!("control-plane nodes of version {version}, of which there are none"),
    }
}

/// Label of the nodes whose versions a `prepare` looks at.
pub(super) const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";

/// Why a Plan selects no node: the first thing that it asks for and that no node has.
fn nobody(end: &PlanEnd, outcome: &Outcome) -> String {
    let asks = Asks {
        plan: end.name(),
        selector: end.plan.spec.node_selector.as_ref(),
    };
    if let Some(why) = contradiction(&asks) {
        return why;
    }
    let selector = end.plan.spec.node_selector.clone().unwrap_or_default();
    let labels = selector.match_labels.iter().flatten().map(|(key, value)| {
        let one = LabelSelector {
            match_labels: Some([(key.clone(), value.clone())].into()),
            match_expressions: None,
        };
        (format!("the label {key}={value}"), one)
    });
    let expressions = selector.match_expressions.iter().flatten().map(|expression| {
        let one = LabelSelector {
            match_labels: None,
            match_expressions: Some(vec![expression.clone()]),
        };
        let (key, values) = (
            &expression.key,
            expression.values.as_deref().unwrap_or_default().join(", "),
        );
        let text = match expression.operator.as_str() {
            "In" => format!("the label {key} with one of {values}"),
            "NotIn" => format!("the label {key} without one of {values}"),
            "DoesNotExist" => format!("no label {key}"),
            _ => format!("the label {key}"),
        };
        (text, one)
    });
    let missing = labels.chain(expressions).find(|(_, one)| {
        Selector::new(Some(one)).is_ok_and(|one| !outcome.nodes.values().any(|labels| one.matches(labels)))
    });
    let of = counted(outcome.nodes.len(), "node");
    match missing {
        Some((text, _)) => format!("none of {of} has {text}"),
        None => format!("none of {of} has all that spec.nodeSelector asks for"),
    }
}

/// A window that is too short to be of use is worth saying.
fn short_window(end: &PlanEnd) -> String {
    let Some(spec) = &end.plan.spec.window else {
        return String::new();
    };
    match Window::parse(spec, &TimeZone::system()) {
        Ok(window) => format!(" ({window})"),
        Err(_) => String::new(),
    }
}

/// Messages of several lines are told as one.
pub(super) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

pub(super) fn counted(number: usize, word: &str) -> String {
    format!("{number} {word}{}", if number == 1 { "" } else { "s" })
}

/// `3h12m`, `4m10s`, `7s`: the two largest units.
pub fn duration(duration: SignedDuration) -> String {
    let seconds = duration.as_secs().max(0);
    let (days, hours, minutes, rest) = (
        seconds / 86_400,
        seconds / 3_600 % 24,
        seconds / 60 % 60,
        seconds % 60,
    );
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{rest}s"),
        (0, 0, _) if rest == 0 => format!("{minutes}m"),
        (0, 0, _) => format!("{minutes}m{rest}s"),
        (0, _, 0) => format!("{hours}h"),
        (0, _, _) => format!("{hours}h{minutes}m"),
        (_, 0, _) => format!("{days}d"),
        (_, _, _) => format!("{days}d{hours}h"),
    }
}

#[cfg(test)]
mod tests;
