//! Nodes in maintenance: what their objects say, and what they wait for.

use serde_json::{Value, json};

use super::explain::{Explanation, chain_of_node, explain_node, not_selected, unavailability};
use super::plan::PlanOverview;
use super::read::Snapshot;
use super::time;
use refit_api::OpenEnum;
use refit_api::open_enum::closed_enum;
use refit_facts::objects::maintenance::{Maintenance, MaintenancePhase, PLURAL};

closed_enum! {
    /// Where a maintenance is: its phase, or what the object does not say in its phase.
    MaintenanceState {
        Pending "No controller has begun with it."
        Running "Its node is not drained yet."
        Succeeded "Its node is drained."
        Failed "Its node is not in maintenance."
        Deleting "Its node is yet to be released."
    }
}
/// Objects of one kind that a chain names.
const MAX_NAMED: usize = 5;

fn stage(object: &Maintenance) -> OpenEnum<MaintenanceState> {
    if object.is_being_deleted() {
        return MaintenanceState::Deleting.into();
    }
    match object.status.phase.as_ref().filter(|phase| !phase.is_empty()) {
        None => MaintenanceState::Pending.into(),
        Some(OpenEnum::Known(MaintenancePhase::Running)) => MaintenanceState::Running.into(),
        Some(OpenEnum::Known(MaintenancePhase::Succeeded)) => MaintenanceState::Succeeded.into(),
        Some(OpenEnum::Known(MaintenancePhase::Failed)) => MaintenanceState::Failed.into(),
        Some(OpenEnum::Other(other)) => OpenEnum::Other(other.clone()),
    }
}

/// How long the object is there.
pub(super) fn age(snapshot: &Snapshot, object: &Maintenance) -> Option<String> {
    let created = object.metadata.creation_timestamp.as_ref()?.0;
    Some(time::short(snapshot.now.duration_since(created)))
}

/// The parts of a line of `refit status`: name, node, phase, age, and what blocks it.
pub(super) fn parts(snapshot: &Snapshot, object: &Maintenance) -> [String; 5] {
    [
        object.title(),
        object.spec.node_name.clone(),
        stage(object).to_string(),
        age(snapshot, object).unwrap_or_default(),
        object.status.last_error.clone().unwrap_or_default(),
    ]
}

/// What it says, in a chain.
pub(super) fn says(snapshot: &Snapshot, object: &Maintenance) -> String {
    let age = age(snapshot, object).map_or_else(String::new, |age| format!(" for {age}"));
    match object.status.last_error.as_deref() {
        Some(why) if !why.is_empty() => format!("{}{age}: {why}", stage(object)),
        _ => format!("{}{age}", stage(object)),
    }
}

/// The command that ends it.
pub(super) fn delete(object: &Maintenance) -> String {
    format!("kubectl delete {} {}", resource(object), object.name())
}

fn resource(object: &Maintenance) -> String {
    format!("{PLURAL}.{}", object.group.name())
}

/// As `kubectl -o name` prints it.
pub fn full_name(object: &Maintenance) -> String {
    format!("nodemaintenance.{}/{}", object.group.name(), object.name())
}

pub fn to_json(object: &Maintenance) -> Value {
    let created = object.metadata.creation_timestamp.as_ref();
    json!({
        "group": object.group.name(), "name": object.name(), "node": object.spec.node_name, "phase": stage(object),
        "since": created.map(|at| at.0.to_string()), "reason": object.spec.reason, "lastError": object.status.last_error,
        "drainProgress": object.status.drain_progress, "pendingPods": object.status.pending_pods.len(),
    })
}

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
        let named = pods.iter().take(MAX_NAMED);
        let named: Vec<_> = named
            .map(|pod| format!("{}/{}", pod.namespace, pod.name))
            .collect();
        let more = match pods.len().saturating_sub(MAX_NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        explanation.link(
            format!("Node {node}"),
            format!("pods are yet to be evicted: {}{more}", named.join(", ")),
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
                view.plan.namespace, view.plan.facts.name
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
