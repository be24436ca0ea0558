//! What holds a node: the slots of others, another Plan, its kubelet, or its Job.

use super::job::chain_of_job;
use super::plan::{chain_of_checks, chain_of_obstacle, chain_of_wave, chain_of_window};
use crate::cause::chain_of_objects;
use crate::explanation::{Explanation, MAX_DEPTH, MAX_NAMED};
use crate::plan::PlanOverview;
use crate::unavailable::{not_ready, unavailable};
use crate::{maintenance, remedy, stall, time};
use refit_api::reason::Cause;
use refit_api::{NodeConditionReason, NodeProgress, ObjectRef, Obstacle, OpenEnum, Reason};

/// The chain below a node.
pub(crate) fn chain_of_node(
    view: &PlanOverview<'_>,
    node: &NodeProgress,
    explanation: &mut Explanation,
    depth: usize,
) {
    let since = time::lasting(node.since.as_deref(), view.snapshot.now);
    let message = node.message.as_deref().unwrap_or_default();
    let says = match (&node.reason, message) {
        (Some(reason), "") => format!("{}{since}, {reason}", node.phase),
        (Some(reason), message) => format!("{}{since}, {reason}: {message}", node.phase),
        (None, "") => format!("{}{since}", node.phase),
        (None, message) => format!("{}{since}: {message}", node.phase),
    };
    explanation.link(format!("Node {}", node.name), says);
    let known = node.reason.as_ref().and_then(OpenEnum::known);
    // The Plan below would only say to wait for it.
    if known == Some(Reason::Prepare)
        && let Some((remedy, commands)) = stall::remedy(view, Reason::Prepare, None)
    {
        explanation.set_remedy(&remedy, &commands);
    }
    let of_plan = || view.obstacle.as_ref().filter(|obstacle| obstacle.node.is_none());
    match known.map(|reason| (reason, reason.cause())) {
        Some((_, Cause::Slots)) => no_slot(view, explanation, depth),
        Some((_, Cause::Busy)) => busy(view, node, explanation, depth),
        Some((_, Cause::Unavailable)) => chain_of_unavailable(view, explanation),
        Some((_, Cause::Wave)) => chain_of_wave(view, explanation, depth),
        Some((_, cause @ (Cause::NamedNodes | Cause::FailedNodes | Cause::Limits | Cause::Plans))) => {
            chain_of_objects(view, cause, Some(&node.name), &node.about, explanation, depth);
        }
        Some((_, Cause::Checks)) => chain_of_checks(view, explanation),
        Some((_, Cause::Kubelet)) => {
            if let Some(object) = view
                .snapshot
                .node(&node.name)
                .filter(|object| !object.facts.ready)
            {
                explanation.link(format!("Node {}", node.name), not_ready(object));
            } else {
                chain_of_job(view, node, explanation);
            }
        }
        Some((reason, Cause::Window)) => chain_of_window(view, reason, &node.about, explanation),
        // That of the whole Plan, which has the object.
        Some((reason, Cause::Itself | Cause::Channel | Cause::Candidate)) => {
            let is_of_plan = |obstacle: &&Obstacle| obstacle.reason == reason || reason == Reason::NotReady;
            if let Some(obstacle) = of_plan().filter(is_of_plan) {
                chain_of_obstacle(view, obstacle, explanation);
                explanation.set_remedy(&view.remedy, &view.commands);
            } else {
                chain_of_job(view, node, explanation);
            }
        }
        Some((_, Cause::Job)) | None => chain_of_job(view, node, explanation),
    }
    if let Some(reason) = &node.reason {
        let (remedy, commands) = remedy::remedy(view, reason, &node.about, Some(&node.name));
        explanation.set_remedy(&remedy, &commands);
    }
}

/// The nodes that have the slots: failed ones first, because they do not release theirs.
pub(super) fn no_slot(view: &PlanOverview<'_>, explanation: &mut Explanation, depth: usize) {
    let slots: Vec<_> = view.nodes.iter().filter(|node| node.has_slot()).collect();
    let first = slots
        .iter()
        .find(|node| node.is_failed())
        .or_else(|| slots.iter().find(|node| node.reason.is_some()))
        .or_else(|| slots.first());
    let names: Vec<_> = slots
        .iter()
        .take(MAX_NAMED)
        .map(|node| node.name.as_str())
        .collect();
    if let Some(first) = first {
        explanation.link(
            format!("Plan {}", view.title()),
            format!("its slots are held by {}", names.join(", ")),
        );
        if depth < MAX_DEPTH {
            chain_of_node(view, first, explanation, depth + 1);
        }
    }
}

/// Another client has set a condition of the node, perhaps long ago.
fn busy_by_condition(view: &PlanOverview<'_>, name: &str, explanation: &mut Explanation) {
    let mut commands = vec![format!("kubectl describe node {name}")];
    let object = view.snapshot.node(name);
    if let Some((type_, condition)) =
        object.and_then(|object| object.facts.maintenance_of_others(view.plan.namespace()))
    {
        let says = format!("condition {type_} is True, with reason {:?}", &*condition.reason);
        explanation.link(format!("Node {name}"), says);
        commands.push(
            if *condition.reason == *NodeConditionReason::RefitDrainCommand.name() {
                format!("refit uncordon {name}")
            } else {
                let patch =
                    format!(r#"{{"status":{{"conditions":[{{"type":"{type_}","$patch":"delete"}}]}}}}"#);
                format!("kubectl patch node {name} --subresource=status -p '{patch}'")
            },
        );
    }
    explanation.set_remedy(
        "wait until the other client has finished, or remove its condition if nothing works on the node any more",
        &commands,
    );
}

/// The maintenance that the node is in, or another Plan that works on it.
fn busy(view: &PlanOverview<'_>, node: &NodeProgress, explanation: &mut Explanation, depth: usize) {
    let name = node.name.as_str();
    // Another program holds it.
    if ObjectRef::named(&node.about, "Lease").next().is_some() {
        return;
    }
    // Only `before` and `after` keep a Plan off by a Job.
    if let Some(job) = ObjectRef::named(&node.about, "Job").next() {
        let of = ObjectRef::named(&node.about, "Plan").next().unwrap_or_default();
        explanation.link(format!("Job {job}"), format!("runs on the node for Plan {of}"));
        return;
    }
    let mut maintenances = view.snapshot.maintenances.iter();
    let named = maintenances
        .find(|it| ObjectRef::named(&node.about, "NodeMaintenance").any(|name| name == it.name()));
    if let Some(object) = named {
        explanation.link(object.title(), maintenance::says(view.snapshot, object));
        explanation.set_remedy(
            "delete it when the work on the node is done",
            &[
                format!("refit explain nodemaintenance/{}", object.name()),
                maintenance::delete(object),
            ],
        );
        return;
    }
    if ObjectRef::named(&node.about, "Node").any(|about| about == name) {
        busy_by_condition(view, name, explanation);
        return;
    }
    let others = view
        .snapshot
        .plans
        .iter()
        .filter(|plan| plan.namespace() == view.plan.namespace() && plan.name != view.plan.name);
    for plan in others {
        let other = PlanOverview::new(view.snapshot, plan);
        let Some(node) = other
            .node(name)
            .filter(|node| node.has_slot() && !node.is_failed())
        else {
            continue;
        };
        explanation.link(format!("Plan {}", other.title()), "works on the node");
        if depth < MAX_DEPTH {
            chain_of_node(&other, node, explanation, depth + 1);
        }
        explanation.set_remedy(
            "wait until that Plan has finished with the node",
            &[format!(
                "refit explain -n {} {} {name}",
                plan.namespace(),
                plan.name
            )],
        );
        return;
    }
}

pub(super) fn chain_of_unavailable(view: &PlanOverview<'_>, explanation: &mut Explanation) {
    let nodes = unavailable(view);
    for (name, says, _) in &nodes {
        explanation.link(format!("Node {name}"), says);
    }
    if !nodes.is_empty() {
        let commands: Vec<_> = nodes.into_iter().map(|(_, _, command)| command).collect();
        explanation.set_remedy(
            "repair or uncordon these nodes, or raise spec.maxUnavailable",
            &commands,
        );
    }
}
