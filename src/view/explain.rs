//! Why a Plan or a node is blocked, as a chain down to the object that holds it, what would release it, and the
//! command for that.

mod history;
mod job;
mod maintenance;
pub(super) mod node;
pub(super) mod plan;

use super::differs::differs;
use super::explanation::{Explanation, MAX_NAMED};
use super::plan::PlanOverview;
use super::remedy::remedy;
use super::selected::not_selected;
use super::time;
use history::history;
pub use maintenance::{explain_any_node, explain_maintenance};
use node::{chain_of_node, no_slot};
use plan::chain_of_obstacle;
use refit_api::{ConditionType, Reason, names};

/// Why a Plan is blocked.
pub fn explain_plan(view: &PlanOverview<'_>) -> Explanation {
    let mut explanation = of_plan(view);
    let despite = view.despite().filter(|_| !view.complete);
    let lines = despite.map(|it| format!("nodes start in spite of {}", it.describe()));
    explanation.history.extend(lines);
    explanation
}

fn of_plan(view: &PlanOverview<'_>) -> Explanation {
    let title = format!("Plan {}", view.title());
    let counts = view.counts;
    let progress = format!("{} of {} nodes are done", counts.done, counts.selected);
    let Some(obstacle) = &view.obstacle else {
        let verdict = if view.complete {
            format!("{title} is complete: {progress}")
        } else {
            format!("{title} continues: {progress}, {} in progress", counts.applying)
        };
        let mut explanation = Explanation::new(verdict);
        explanation.held = false;
        let message = view
            .plan
            .status()
            .condition(ConditionType::Complete)
            .and_then(|it| it.message.clone());
        if let Some(message) = message.filter(|_| view.complete) {
            explanation.link(&*title, message);
        }
        if let Some(repeats) = view.repeats().filter(|_| view.complete) {
            explanation.link(title, format!("repeats: {repeats}"));
        }
        for node in view.nodes.iter().filter(|node| node.has_slot()).take(MAX_NAMED) {
            let since = node
                .since
                .as_deref()
                .and_then(|since| time::since(since, view.snapshot.now));
            let says = format!(
                "{} for {}",
                node.phase,
                since.unwrap_or_else(|| "an unknown time".to_owned())
            );
            explanation.history.push(format!("Node {}: {says}", node.name));
        }
        return explanation;
    };
    let verdict = match (&obstacle.node, view.complete) {
        (Some(node), _) => format!(
            "{title} waits because of Node {node}: {}; {progress}",
            obstacle.reason
        ),
        (None, true) if obstacle.reason != Reason::NoNodes => format!(
            "{title} is complete, and a newer version is held back: {}",
            obstacle.reason
        ),
        (None, _) => format!("{title} is held: {}; {progress}", obstacle.reason),
    };
    let mut explanation = Explanation::new(verdict);
    match &obstacle.node {
        Some(node) => {
            if let Some(known) = view.node(node) {
                chain_of_node(view, known, &mut explanation, 0);
            }
            // Status names only some of the waiting nodes.
            if explanation.chain.is_empty() {
                explanation.link(format!("Node {node}"), &*obstacle.message);
            }
        }
        None => chain_of_obstacle(view, obstacle, &mut explanation),
    }
    explanation.set_remedy(&view.remedy, &view.commands);
    explanation
}

/// Why a node is blocked under a Plan.
pub fn explain_node(view: &PlanOverview<'_>, name: &str) -> Explanation {
    let mut explanation = Explanation::new(String::new());
    let node = view.snapshot.node(name);
    let title = view.title();
    if let Some(reason) = node.and_then(|node| not_selected(view, node)) {
        explanation.verdict = format!("Plan {title} does not concern Node {name}");
        explanation.link(format!("Node {name}"), reason);
        explanation.set_remedy(
            "change spec.nodeSelector, or label the node",
            &[format!("kubectl get node {name} --show-labels")],
        );
        explanation.history = history(view, name);
        return explanation;
    }
    let label = node.and_then(|node| node.facts.labels.of_plan(&view.plan.name));
    let hash = view.plan.status().latest_hash.as_deref();
    let version = view.version().unwrap_or("an unknown version");
    match (label, view.node(name)) {
        (Some(names::LABEL_VALUE_DISABLED), _) => {
            explanation.verdict = format!("Plan {title} is disabled on Node {name}");
            let key = names::plan_label(&view.plan.name);
            explanation.link(format!("Node {name}"), format!("has the label {key}=disabled"));
            explanation.set_remedy("remove the label", &[format!("kubectl label node {name} {key}-")]);
        }
        (label, known) if label.is_some() && label == hash && known.is_none_or(|known| !known.has_slot()) => {
            done(view, name, version, &mut explanation);
        }
        (_, Some(known)) if known.has_slot() && known.reason.is_none() => {
            let since = time::lasting(known.since.as_deref(), view.snapshot.now);
            explanation.verdict = format!("Node {name} continues: {}{since}", known.phase);
            explanation.held = false;
            chain_of_node(view, known, &mut explanation, 0);
        }
        (_, Some(known)) => {
            let reason = known.reason.as_deref().unwrap_or("no reason is known");
            let does = if known.is_failed() {
                "failed"
            } else if known.has_slot() {
                "does not progress"
            } else {
                "does not start"
            };
            explanation.verdict = format!("Node {name} {does} under Plan {title}: {reason}");
            chain_of_node(view, known, &mut explanation, 0);
        }
        (_, None) => {
            // Status names only some of the waiting nodes.
            explanation.verdict = format!("Node {name} waits for Plan {title}");
            match &view.obstacle {
                Some(obstacle) => {
                    explanation.link(format!("Node {name}"), "waits like the rest of the Plan");
                    chain_of_obstacle(view, obstacle, &mut explanation);
                    explanation.set_remedy(&view.remedy, &view.commands);
                }
                None => no_slot(view, &mut explanation, 0),
            }
        }
    }
    explanation.history = history(view, name);
    explanation
}

/// A node whose label says that it is done.
fn done(view: &PlanOverview<'_>, name: &str, version: &str, explanation: &mut Explanation) {
    let title = view.title();
    let Some(differs) = differs(view, name) else {
        explanation.verdict = format!("Node {name} is done under Plan {title} at {version}");
        explanation.held = false;
        return;
    };
    let Some(reason) = differs.reason else {
        explanation.verdict = format!("Node {name} is done under Plan {title}; {}", differs.text);
        explanation.held = false;
        return;
    };
    explanation.verdict = format!(
        "Node {name} counts as done under Plan {title}, and {}: {reason}",
        differs.text
    );
    explanation.link(format!("Node {name}"), reason.about());
    let (remedy, commands) = remedy(view, &reason.into(), &[], Some(name));
    explanation.set_remedy(&remedy, &commands);
}
