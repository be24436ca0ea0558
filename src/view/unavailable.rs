//! Nodes that are unavailable, and why.

use super::explanation::MAX_NAMED;
use super::plan::PlanOverview;
use super::read::NodeObject;
use super::selected::not_selected;
use refit_api::Holder;

/// Some of the nodes that are unavailable: the name, why, and the command for it.
pub(super) fn unavailable(view: &PlanOverview<'_>) -> Vec<(String, String, String)> {
    let is_selected = |node: &&NodeObject| not_selected(view, node).is_none();
    let nodes = view.snapshot.nodes.iter().flatten().map(|(_, node)| node);
    let why = nodes.filter(is_selected).filter_map(|node| {
        let (says, command) = unavailability(node)?;
        Some((node.facts.name.to_string(), says, command))
    });
    why.take(MAX_NAMED).collect()
}

/// Why a node counts as unavailable, and the command for it.
pub(super) fn unavailability(node: &NodeObject) -> Option<(String, String)> {
    let name = &node.facts.name;
    if !node.facts.ready {
        return Some((not_ready(node), format!("kubectl describe node {name}")));
    }
    if node.facts.unschedulable {
        let by = match &node.facts.ledger {
            Some(ledger) => {
                let is_in_maintenance = ledger.holders.iter().any(Holder::is_of_front_end);
                let holder = |holder: &Holder| {
                    let kind = if holder.is_of_front_end() { "" } else { "Plan " };
                    format!("{kind}{}", holder.plan)
                };
                let holders: Vec<_> = ledger.holders.iter().map(holder).collect();
                let by = format!("is cordoned by refit for {}", holders.join(", "));
                if is_in_maintenance {
                    // refit would cordon it again.
                    return Some((by, format!("refit explain node/{name}")));
                }
                by
            }
            None => "is cordoned, and not by refit".to_owned(),
        };
        return Some((by, format!("kubectl uncordon {name}")));
    }
    node.facts.tainted.then(|| {
        let says = "has the taint of a node that is not ready or unreachable".to_owned();
        (says, format!("kubectl describe node {name}"))
    })
}

pub(super) fn not_ready(node: &NodeObject) -> String {
    match &node.ready {
        Some((reason, message, since)) => {
            let since = if since.is_empty() {
                String::new()
            } else {
                format!(" since {since}")
            };
            format!("is not Ready{since}: {reason}: {message}")
        }
        None => "has no condition Ready: its kubelet has never reported".to_owned(),
    }
}
