//! Why a maintenance waits, and what concerns a node.

use super::explain_node;
use super::node::chain_of_node;
use crate::explanation::{Explanation, MAX_NAMED};
use crate::maintenance::{MaintenanceState, delete, resource, says, stage};
use crate::plan::PlanOverview;
use crate::read::Snapshot;
use crate::selected::not_selected;
use crate::unavailable::unavailability;
use refit_base::names::shortened;
use refit_facts::objects::maintenance::{Maintenance, PodRef};

/// The phase of a maintenance, what it waits for, and who holds its node.
pub fn explain_maintenance(snapshot: &Snapshot, object: &Maintenance) -> Explanation {
    let (title, node) = (object.title(), object.spec.node_name.as_str());
    let stage = stage(object);
    let verdict = match stage.known() {
        Some(MaintenanceState::Succeeded) => {
            format!("{title} has drained Node {node}, which stays so until the object is deleted")
        }
        Some(MaintenanceState::Failed) => {
            format!("{title} has failed, and Node {node} is not in maintenance")
        }
        Some(MaintenanceState::Deleting) => {
            format!("{title} is being deleted, and Node {node} is yet to be released")
        }
        Some(MaintenanceState::Running) => format!("{title} waits: Node {node} is not drained yet"),
        Some(MaintenanceState::Pending) => format!("{title} waits: no controller has begun with it"),
        None => format!("{title} is {stage}"),
    };
    let mut explanation = Explanation::new(verdict);
    explanation.held = stage != MaintenanceState::Succeeded;
    explanation.link(&*title, says(snapshot, object));
    let pods = &object.status.pending_pods_refs;
    if !pods.is_empty() && explanation.held {
        let path = |pod: &PodRef| format!("{}/{}", pod.namespace, pod.name);
        let pods: Vec<_> = pods.iter().map(path).collect();
        explanation.link(
            format!("Node {node}"),
            format!("pods are yet to be evicted: {}", shortened(&pods, MAX_NAMED)),
        );
    }
    chain_of_holders(snapshot, object, &mut explanation);
    if let Some(others) = others(snapshot, object).filter(|_| stage == MaintenanceState::Failed) {
        explanation.link(others.title(), format!("is also for Node {node}"));
        explanation.set_remedy(
            "delete one of the two: a node has one at a time",
            &[delete(object)],
        );
    }
    let get = format!("kubectl get {} {} -o yaml", resource(object), object.name());
    match stage.known() {
        Some(MaintenanceState::Succeeded) => explanation.set_remedy(
            "delete the object when the work is done: the node is then as it was before",
            &[delete(object)],
        ),
        Some(MaintenanceState::Failed) => explanation.set_remedy(
            "delete the object, and create one for a node that exists",
            &[delete(object), "kubectl get nodes".to_owned()],
        ),
        Some(MaintenanceState::Deleting) => {
            explanation.set_remedy("wait; if nothing happens, look for the controller", &[get]);
        }
        Some(MaintenanceState::Pending) => {
            explanation.set_remedy("run the controller with --enable=maintenance", &[get]);
        }
        Some(MaintenanceState::Running) | None => explanation.set_remedy(
            "wait until these pods have ended and no budget refuses their eviction, or delete the object",
            &[
                format!("kubectl get pods -A --field-selector spec.nodeName={node}"),
                delete(object),
            ],
        ),
    }
    explanation
}

/// Another object for the same node.
fn others<'a>(snapshot: &'a Snapshot, object: &Maintenance) -> Option<&'a Maintenance> {
    let mut all = snapshot.maintenances.iter();
    all.find(|other| other.uid() != object.uid() && other.spec.node_name == object.spec.node_name)
}

/// Other holders of the node: Plans that work there, and others in its ledger.
fn chain_of_holders(snapshot: &Snapshot, object: &Maintenance, explanation: &mut Explanation) {
    let node = object.spec.node_name.as_str();
    let ledger = snapshot.node(node).and_then(|known| known.facts.ledger.as_ref());
    let holders = ledger.iter().flat_map(|ledger| &ledger.holders);
    let others: Vec<_> = holders
        .filter(|holder| *holder.plan_uid != *object.uid())
        .map(|holder| {
            if holder.is_of_front_end() {
                holder.plan.clone()
            } else {
                format!("Plan {}/{}", holder.namespace, holder.plan)
            }
        })
        .collect();
    let mut at_work = snapshot.plans.iter().filter_map(|plan| {
        let view = PlanOverview::new(snapshot, plan);
        let known = view.node(node)?.clone();
        (known.has_slot() && !known.is_failed()).then_some((view, known))
    });
    if let Some((view, known)) = at_work.next() {
        explanation.link(format!("Plan {}", view.title()), "works on the node");
        chain_of_node(&view, &known, explanation, 0);
        explanation.set_remedy(
            "wait until that Plan has finished with the node",
            &[format!(
                "refit explain -n {} {} {node}",
                view.plan.namespace(),
                view.plan.name
            )],
        );
    } else if !others.is_empty() {
        explanation.link(
            format!("Node {node}"),
            format!("is held by {}", others.join(", ")),
        );
    }
}

/// Why a node is blocked: the maintenance that it is in, and each Plan that selects it.
pub fn explain_any_node(snapshot: &Snapshot, name: &str) -> Vec<Explanation> {
    let maintenances = snapshot.maintenances.iter();
    let mut all: Vec<_> = maintenances
        .filter(|object| object.spec.node_name == name)
        .map(|object| explain_maintenance(snapshot, object))
        .collect();
    for plan in &snapshot.plans {
        let view = PlanOverview::new(snapshot, plan);
        let node = snapshot.node(name);
        if node.is_some_and(|node| not_selected(&view, node).is_none()) || view.node(name).is_some() {
            all.push(explain_node(&view, name));
        }
    }
    if all.is_empty() {
        let mut none = Explanation::new(format!(
            "Nothing concerns Node {name}: no Plan selects it, and it is not in maintenance"
        ));
        none.held = false;
        if let Some((says, command)) = snapshot.node(name).and_then(unavailability) {
            none.link(format!("Node {name}"), says);
            none.set_remedy("see the node", &[command]);
        }
        all.push(none);
    }
    all
}
