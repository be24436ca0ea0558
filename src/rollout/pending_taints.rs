//! The taints of nodes that Plans are still to upgrade. With `drain.avoidPendingNodes` evicted pods rather go to nodes that
//! are done: the key names the Plan and the value the namespace. With `taintNewNodes` no pod goes to a node that has joined
//! before it is done: one taint for all Plans of a namespace, which is the value. So a taint itself says who has to remove it.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::blocker::Blocker;
use super::decision::Decision;
use super::node::state::NodeStates;
use super::plan::DerivedPlan;
use super::start::gate::Gates;
use super::state::ClusterState;
use super::step::{NodeChange, Step, patch};
use refit_facts::{JobFacts, NodeFacts, NodeName, PlanName, Taint};

/// Number of nodes whose taints change per decision: more than can be in flight at once.
const NODES: usize = 32;

/// What a Plan says about the taint of nodes that evicted pods avoid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DesiredTaint {
    /// Nodes that are still to be upgraded have it.
    Tainted,
    /// No node has it.
    Clean,
    /// Nothing is known.
    Unknown,
}

/// Steps that add the taint to nodes and remove it from them, a few at a time.
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
    let new_nodes = NewNodes::of(cluster, gates);
    if tainting.is_empty() && new_nodes.1.is_empty() && cluster.world.nodes.pending.is_empty() {
        return;
    }
    let mut nodes: BTreeSet<&NodeName> = cluster.world.nodes.pending.iter().collect();
    let plans = tainting.iter().map(|(plan, _)| **plan);
    for plan in plans.chain(new_nodes.tainting()) {
        let targets = cluster.plans.get(plan).map(|plan| &plan.targets);
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
    let namespace = &cluster.defaults.namespace;
    let steps = cluster.memory.refused_last(nodes).filter_map(|name| {
        let node = cluster.world.nodes.get(name)?;
        let plans = tainting.iter().map(|(plan, _)| **plan);
        let wanted = plans.filter(|plan| is_wanted(node, plan));
        let mut wanted: Vec<_> = wanted.map(|plan| Taint::pending(plan, namespace)).collect();
        wanted.extend(new_nodes.want(node).then(|| Taint::new_node(namespace)));
        let is_left = |taint: &Taint| match taint.pending_for(namespace) {
            Some(plan) => is_wanted(node, plan),
            None => !taint.is_new_for(namespace) || wanted.contains(&Taint::new_node(namespace)),
        };
        change(node, is_left, &wanted)
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
        _ if has_slots || plan.targets.done > 0 => DesiredTaint::Tainted,
        _ => DesiredTaint::Clean,
    }
}

/// The Plans that keep pods off new nodes, by what is known of each.
struct NewNodes<'a>(&'a ClusterState, Vec<NewNodesOf<'a>>);

enum NewNodesOf<'a> {
    /// A node is new if it was registered after this time. `None` before the first roll-out: no node is then.
    Known(&'a DerivedPlan, Option<Timestamp>),
    /// Taints stay as they are.
    Unknown,
}

impl<'a> NewNodes<'a> {
    fn of(cluster: &'a ClusterState, gates: &BTreeMap<PlanName, Gates>) -> Self {
        let plans = cluster.plans.iter().filter(|(_, plan)| !plan.facts.is_deleting());
        let of = |(name, plan): (&PlanName, &'a DerivedPlan)| {
            let gate = gates.get(name).and_then(|gates| gates.of_all.shut.as_ref());
            // What the Plan says of new nodes may be lost.
            if matches!(gate, Some(Blocker::SpecPruned)) {
                return Some(NewNodesOf::Unknown);
            }
            plan.taints_new_nodes().then(|| match gate {
                Some(Blocker::NotReady) => NewNodesOf::Unknown,
                _ if plan.resolved.is_none() => NewNodesOf::Unknown,
                _ => NewNodesOf::Known(plan, last_roll_out(plan)),
            })
        };
        Self(cluster, plans.filter_map(of).collect())
    }

    /// The Plans that may add taints.
    fn tainting(&self) -> impl Iterator<Item = &str> {
        self.1.iter().filter_map(|plan| match plan {
            NewNodesOf::Known(plan, Some(_)) => Some(&*plan.facts.name),
            NewNodesOf::Known(_, None) | NewNodesOf::Unknown => None,
        })
    }

    /// Whether the node has the taint, or gets it. It stays until the node is done, for whoever has added it: a kubelet may
    /// register its Node with it.
    fn want(&self, node: &NodeFacts) -> bool {
        let Self(cluster, plans) = self;
        let has = node.is_new_for(&cluster.defaults.namespace);
        plans.iter().any(|plan| match plan {
            NewNodesOf::Unknown => has,
            NewNodesOf::Known(plan, since) => {
                let name = &plan.facts.name;
                let was_done = node.labels.of_plan(name).is_some();
                let is_new = || node.created.zip(*since).is_some_and(|(at, since)| at > since);
                plan.targets.is_eligible(&node.name)
                    && !was_done
                    && (has || is_new() && !self.may_have_job(&node.name))
            }
        })
    }

    /// Whether a Job may be there that was created before a Plan had the field, and would not tolerate the taint.
    fn may_have_job(&self, node: &NodeName) -> bool {
        let Self(cluster, _) = self;
        let mut creates = cluster.memory.pending_creates.keys();
        creates.any(|(_, of)| of == node) || cluster.world.jobs.on(node).any(JobFacts::is_live)
    }
}

/// When the last roll-out was complete, or while one runs, when that began.
fn last_roll_out(plan: &DerivedPlan) -> Option<Timestamp> {
    let last = plan.facts.status().history.as_ref()?.first()?;
    last.to.as_ref().unwrap_or(&last.from).parse().ok()
}

/// The step that gives the node the taints that it should have; `None` if it has them.
fn change(node: &NodeFacts, is_left: impl Fn(&Taint) -> bool, wanted: &[Taint]) -> Option<Step> {
    let (mut taints, removed): (Vec<_>, Vec<_>) = node.taints.clone()?.into_iter().partition(is_left);
    // A node has one taint of a key and an effect: a Plan of the same name in another namespace may have it.
    let is_there = |new: &&Taint| {
        taints
            .iter()
            .any(|it| (&it.key, &it.effect) == (&new.key, &new.effect))
    };
    let missing: Vec<_> = wanted.iter().filter(|new| !is_there(new)).cloned().collect();
    if removed.is_empty() && missing.is_empty() {
        return None;
    }
    // Pods may wait for a node that is not new any more. The other taints only say which nodes are better.
    let is_awaited = removed.iter().chain(&missing).any(Taint::is_of_new_node);
    taints.extend(missing);
    let change = NodeChange {
        taints: Some(taints),
        background: !is_awaited,
        // The list is written as a whole.
        ..NodeChange::exact()
    };
    Some(patch(node, change, Vec::new()))
}
