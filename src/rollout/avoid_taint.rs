//! The taint of nodes that a Plan is still to upgrade (`drain.avoidPendingNodes`), so that evicted pods rather go to nodes
//! that are done. Its key names the Plan and its value the namespace, so the taint itself says who has to remove it.

use std::collections::{BTreeMap, BTreeSet};

use super::blocker::Blocker;
use super::decision::Decision;
use super::node::state::NodeStates;
use super::plan::DerivedPlan;
use super::start::gate::Gates;
use super::state::ClusterState;
use super::step::{NodeChange, Step, patch};
use refit_facts::{NodeFacts, NodeName, PlanName, Taint};

/// Number of nodes whose taints change per decision: more than can be in flight at once.
const NODES: usize = 32;

/// What a Plan says about the taint of its nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DesiredTaint {
    /// Nodes that are still to be upgraded have it.
    Tainted,
    /// No node has it.
    Clean,
    /// Nothing is known.
    Unknown,
}

/// Steps that add the taint to nodes and remove it from them, a few at a time. Nothing waits for them.
pub(super) fn add_taint_steps(
    cluster: &ClusterState,
    node_states: &NodeStates,
    gates: &BTreeMap<PlanName, Gates>,
    decision: &mut Decision,
) {
    let mut desired = BTreeMap::new();
    for (name, plan) in &cluster.plans {
        let has_slots = node_states.get(name).is_some_and(|nodes| !nodes.is_empty());
        let gate = gates.get(name).and_then(|gates| gates.of_all.shut.as_ref());
        desired.insert(&**name, desired_taint(plan, gate, has_slots));
    }
    let tainting: Vec<_> = desired
        .iter()
        .filter(|(_, desired)| **desired == DesiredTaint::Tainted)
        .collect();
    if tainting.is_empty() && cluster.world.nodes.pending.is_empty() {
        return;
    }
    let mut nodes: BTreeSet<&NodeName> = cluster.world.nodes.pending.iter().collect();
    for (plan, _) in &tainting {
        let targets = cluster.plans.get(**plan).map(|plan| &plan.targets);
        nodes.extend(
            targets
                .into_iter()
                .flat_map(|it| it.ready().chain(it.not_ready())),
        );
    }
    let is_wanted = |node: &NodeFacts, plan: &str| {
        let known = cluster.plans.get(plan);
        match desired.get(plan) {
            Some(DesiredTaint::Tainted) => known.is_some_and(|plan| plan.targets.is_eligible(&node.name)),
            Some(DesiredTaint::Unknown) => node.pending_for(&cluster.defaults.namespace).any(|it| it == plan),
            Some(DesiredTaint::Clean) | None => false,
        }
    };
    let nodes = nodes
        .into_iter()
        .filter(|name| !cluster.world.nodes.is_unreadable(name));
    let steps = cluster.memory.refused_last(nodes).filter_map(|name| {
        let node = cluster.world.nodes.get(name)?;
        let plans = tainting.iter().map(|(plan, _)| **plan);
        change(node, &cluster.defaults.namespace, plans, |plan| {
            is_wanted(node, plan)
        })
    });
    decision.steps.extend(steps.take(NODES));
}

fn desired_taint(plan: &DerivedPlan, gate: Option<&Blocker>, has_slots: bool) -> DesiredTaint {
    let is_wanted = |plan: &DerivedPlan| {
        let drain = plan.spec().drain.as_ref();
        drain.is_some_and(|drain| drain.avoid_pending_nodes.unwrap_or_default())
    };
    if plan.facts.is_deleting() {
        return DesiredTaint::Clean;
    }
    match gate {
        Some(Blocker::NotReady | Blocker::SpecPruned) => DesiredTaint::Unknown,
        _ if !is_wanted(plan) => DesiredTaint::Clean,
        Some(Blocker::Suspended { .. } | Blocker::Aborted { .. }) => DesiredTaint::Clean,
        _ if plan.resolved.is_none() => DesiredTaint::Unknown,
        // Before the first node starts, there is no better one to go to.
        _ if has_slots || plan.targets.done() > 0 => DesiredTaint::Tainted,
        _ => DesiredTaint::Clean,
    }
}

/// The step that gives the node the taints that it should have; `None` if it has them.
fn change<'a>(
    node: &NodeFacts,
    namespace: &str,
    plans: impl Iterator<Item = &'a str>,
    is_wanted: impl Fn(&str) -> bool,
) -> Option<Step> {
    let mut taints = node.taints.clone()?;
    let before = taints.len();
    taints.retain(|taint| taint.pending_for(namespace).is_none_or(&is_wanted));
    let removed = taints.len() < before;
    let missing = plans
        .filter(|plan| is_wanted(plan))
        .map(|plan| Taint::pending(plan, namespace));
    // A node has one taint of a key and an effect: a Plan of the same name in another namespace may have it.
    let is_there = |new: &Taint| {
        taints
            .iter()
            .any(|it| (&it.key, &it.effect) == (&new.key, &new.effect))
    };
    let missing: Vec<_> = missing.filter(|new| !is_there(new)).collect();
    if !removed && missing.is_empty() {
        return None;
    }
    taints.extend(missing);
    let change = NodeChange {
        taints: Some(taints),
        // The list is written as a whole.
        exact: true,
        ..NodeChange::default()
    };
    Some(patch(node, change, Vec::new()))
}
