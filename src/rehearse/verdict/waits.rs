//! Why the nodes of a stalled Plan wait: for another Plan, or for a disruption budget.

use jiff::SignedDuration;

use super::{Problem, UnfinishedPlan, duration, pluralized};
use crate::record::Wait;
use crate::run::{Outcome, PlanOutcome};
use crate::upgrade_script::PrepareWait;
use refit_api::{NodePhase, Reason};
use refit_base::nearest::nearest;

/// Why a Plan with nodes that wait in `prepare` stalls.
pub(super) fn stalled_in_prepare(end: &PlanOutcome, outcome: &Outcome) -> Option<UnfinishedPlan> {
    let open: Vec<&Wait> = outcome.record.open_waits(end.name(), Reason::Prepare).collect();
    let first = open.first()?;
    let nodes = match open.as_slice() {
        [only] => format!("{} waits", only.node.as_deref().unwrap_or_default()),
        all => format!("{} wait", pluralized(all.len(), "node")),
    };
    let cause = cause(end, first.prepare.as_ref()?, outcome);
    Some(UnfinishedPlan {
        plan: end.name().to_owned(),
        how: Problem::Stalls,
        why: format!("makes no progress: {nodes} in `prepare` for {cause}"),
        brief: format!("makes no progress: {nodes} in `prepare`"),
        waits_for: end.depends.clone(),
    })
}

/// Why a Plan with unschedulable pods stalls.
pub(super) fn stalled_unscheduled(
    end: &PlanOutcome,
    outcome: &Outcome,
    left: &str,
) -> Option<UnfinishedPlan> {
    let open: Vec<&Wait> = outcome
        .record
        .open_waits(end.name(), Reason::Unschedulable)
        .collect();
    let first = open.first()?;
    let node = first.node.as_deref().unwrap_or_default();
    let others = match open.len() - 1 {
        0 => String::new(),
        others => format!(" (and on {})", pluralized(others, "more node")),
    };
    let brief = format!("makes no progress on {node}{others}: its pod is not scheduled");
    Some(UnfinishedPlan {
        plan: end.name().to_owned(),
        how: Problem::Stalls,
        why: format!("{brief}, since {}{left}", untolerated(first)),
        brief,
        waits_for: None,
    })
}

fn untolerated(wait: &Wait) -> String {
    // The node controller removes these once the node is healthy.
    let is_condition = |taint: &String| {
        taint.starts_with("node.kubernetes.io/") || taint.starts_with("node.cloudprovider.kubernetes.io/")
    };
    let (conditions, others): (Vec<_>, Vec<_>) = wait.taints.iter().partition(|taint| is_condition(taint));
    let remedy = match (conditions.as_slice(), others.as_slice()) {
        ([], [_]) => "add it to spec.tolerations".to_owned(),
        ([], _) => "add them to spec.tolerations".to_owned(),
        (_, []) => "make the node healthy first".to_owned(),
        (_, [other]) => format!("make the node healthy first, and add {other} to spec.tolerations"),
        (_, _) => "make the node healthy first, and add the other taints to spec.tolerations".to_owned(),
    };
    format!("{}; {remedy}", wait.message)
}

/// What a node waited for until the Plan failed there before its upgrade, and the awaited Plan if there is one.
pub(super) fn waited(end: &PlanOutcome, node: &str, outcome: &Outcome) -> Option<(String, Option<String>)> {
    let (_, turn) = outcome
        .record
        .node_runs(end.name())
        .filter(|(name, _)| *name == node)
        .last()?;
    let failed = turn.until.unwrap_or(outcome.end);
    let was_over = |wait: &Wait| {
        let mut upgrades = turn
            .phases
            .iter()
            .filter(|phase_span| phase_span.phase == NodePhase::Upgrading);
        upgrades.any(|phase_span| phase_span.since >= wait.since)
    };
    let waits = outcome.record.waits().into_iter().filter(|wait| {
        let is_of_node = wait.plan == end.name() && wait.node.as_deref() == Some(node);
        let before_upgrade = matches!(
            wait.reason.known(),
            Some(Reason::DrainWaiting | Reason::Prepare | Reason::Unschedulable)
        );
        is_of_node && before_upgrade && !was_over(wait)
    });
    let last = waits.max_by_key(|wait| (wait.until.unwrap_or(failed), wait.since))?;
    let long: SignedDuration = last.until.unwrap_or(failed).duration_since(last.since);
    let long = duration(long);
    Some(match &last.prepare {
        Some(wait) => {
            let cause = cause(end, wait, outcome);
            let text = format!("`prepare` waited {long} for {cause}");
            (text, end.depends.clone())
        }
        None if !last.taints.is_empty() => {
            let text = format!(
                "its pod was not scheduled for {long}, since {}",
                untolerated(&last)
            );
            (text, None)
        }
        None => (format!("it waited {long} for {}", last.blocker), None),
    })
}

/// What `prepare` waits for, why that does not happen, and how to correct it.
fn cause(end: &PlanOutcome, wait: &PrepareWait, outcome: &Outcome) -> String {
    match wait {
        PrepareWait::PlanMissing { plan } => {
            if let Some(place) = outcome.absent.get(plan) {
                return format!("Plan {plan}, which {place}");
            }
            let others = outcome.plans.iter().map(PlanOutcome::name);
            let others = others.filter(|name| *name != end.name());
            let remedy = match nearest(plan, others) {
                Some(near) => format!("did you mean Plan {near}?"),
                None => format!("apply Plan {plan} too, or name another one in spec.prepare.args"),
            };
            format!("Plan {plan}, which is neither in the files nor on the cluster; {remedy}")
        }
        PrepareWait::PlanApplying { plan } if plan == end.name() => format!(
            "Plan {plan} itself, which is applying while it waits; name the Plan of the control-plane nodes in \
             spec.prepare.args"
        ),
        PrepareWait::PlanApplying { plan } => not_complete(end, plan, outcome),
        PrepareWait::NoControlPlane => format!(
            "a control-plane node, but no node has the label {}",
            super::CONTROL_PLANE
        ),
        PrepareWait::VersionDiffers {
            wanted,
            node,
            kubelet,
        } => {
            let other = end.depends.as_deref().unwrap_or_default();
            let found = outcome.plans.iter().find(|plan| plan.name() == other);
            if found.is_some_and(|plan| !plan.complete) {
                return not_complete(end, other, outcome);
            }
            let text = format!("control-plane nodes of version {wanted}, and {node} runs {kubelet}");
            let version = found.and_then(|plan| plan.plan.status.as_ref()?.latest_version.as_deref());
            match version {
                Some(version) if version.replace('+', "-") != *wanted => {
                    format!("{text}; Plan {other} has {version}; give both Plans the same version")
                }
                _ => text,
            }
        }
    }
}

/// A Plan that completes later than a Job may wait for it.
fn complete_later(end: &PlanOutcome, other: &str, outcome: &Outcome) -> Option<String> {
    outcome
        .plans
        .iter()
        .find(|plan| plan.name() == other && plan.complete)?;
    let at = outcome
        .record
        .node_runs(other)
        .filter_map(|(_, run)| run.until)
        .max()?;
    let deadline = end
        .plan
        .spec
        .job_active_deadline_secs
        .filter(|seconds| *seconds > 0);
    let deadline = deadline.map_or_else(String::new, |seconds| {
        format!(" of {}", duration(SignedDuration::from_secs(seconds)))
    });
    Some(format!(
        "Plan {other}, which is complete at {at:.0}, after the deadline{deadline} of the Job: wait by spec.dependsOn instead, or raise \
         spec.jobActiveDeadlineSecs"
    ))
}

fn not_complete(end: &PlanOutcome, other: &str, outcome: &Outcome) -> String {
    if let Some(later) = complete_later(end, other, outcome) {
        return later;
    }
    let awaited = |name: &&str| -> Option<&str> {
        let plan = outcome.plans.iter().find(|plan| plan.name() == *name)?;
        plan.depends.as_deref()
    };
    let chain = std::iter::successors(Some(other), awaited).take(outcome.plans.len());
    let chain: Vec<&str> = chain.take_while(|name| *name != end.name()).collect();
    if chain.last().and_then(awaited) != Some(end.name()) {
        return format!("Plan {other}, which does not complete");
    }
    let rest = chain.iter().skip(1).copied().chain([end.name()]);
    let rest: Vec<String> = rest.map(|name| format!("which waits for Plan {name}")).collect();
    let of = match chain.len() {
        1 => "the two".to_owned(),
        others => format!("these {} Plans", others + 1),
    };
    format!(
        "Plan {other}, {}; remove `prepare` from one of {of}",
        rest.join(", ")
    )
}
