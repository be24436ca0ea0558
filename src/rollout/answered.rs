//! Requests of nodes (`spec.trigger`) that are answered.

use super::node::state::PlanNodes;
use super::plan::DerivedPlan;
use super::state::ClusterState;
use super::step::{NodeChange, Step, patch};
use refit_api::names;
use refit_facts::NodeFacts;

/// Steps that remove the labels of answered requests.
pub(super) fn remove_labels<'a>(
    cluster: &'a ClusterState,
    plan: &'a DerivedPlan,
    nodes: &'a PlanNodes,
) -> impl Iterator<Item = Step> + 'a {
    let name = &plan.facts.name;
    let stored_slots = plan.facts.status().active.as_deref().unwrap_or_default();
    // The label is the evidence of a Job until that is recorded, and while the stored status names it: without the label,
    // the next request would find the name of a Job that is gone, and take it for a lost one.
    let is_over = |node: &&NodeFacts| {
        !nodes.contains_key(&node.name)
            && !stored_slots.iter().any(|slot| *slot.name == *node.name)
            && !node.records.contains_key(name)
            && !cluster
                .world
                .jobs
                .on(&node.name)
                .any(|job| job.plan == *name && !job.recorded)
    };
    let answered = plan.targets.answered.iter();
    let answered = answered.filter(|node| !cluster.world.nodes.is_unreadable(node));
    let answered = answered
        .filter_map(|node| cluster.world.nodes.get(node))
        .filter(is_over);
    answered.map(move |node| {
        let change = NodeChange::exact().label(names::plan_label(name), None);
        patch(node, change, Vec::new())
    })
}
