//! Releases nodes. A holder that no longer has a reason is removed from the ledger, and with the last one the node
//! becomes as schedulable as it was before the first. The rule looks at the current state only, so it does not matter
//! what removed the reason.

use std::collections::{BTreeMap, BTreeSet};

use super::facts::{NodeFacts, NodeName, PlanName};
use super::node::{NodeState, record_key};
use super::plan::PlanState;
use super::record::Phase;
use super::state::{ClusterState, Defaults};
use super::step::{NodeChange, Step};
use crate::api::Holder;
use crate::api::names;

/// The holder of one Plan.
pub(super) struct PlanHold<'a> {
    pub(super) defaults: &'a Defaults,
    pub(super) plan_uid: &'a str,
}

/// Removes the Plan's holder from the ledger of a node, and uncordons the node if it was the last. `uncordon` is set
/// for a cordon without a ledger.
pub(super) fn release(node: &NodeFacts, hold: &PlanHold<'_>, uncordon: bool, change: &mut NodeChange) {
    if node.ledger.is_some() {
        if hold.holder(node).is_some() {
            remove_holders(node, |holder| hold.is_of_plan(holder), change);
        }
    } else if uncordon && node.unschedulable && !node.keep_cordoned {
        change.unschedulable = Some(false);
        change.exact = true;
    }
}

impl PlanHold<'_> {
    pub(super) fn holder<'n>(&self, node: &'n NodeFacts) -> Option<&'n Holder> {
        let mut holders = node.ledger.iter().flat_map(|ledger| &ledger.holders);
        holders.find(|holder| self.is_of_plan(holder))
    }

    fn is_of_plan(&self, holder: &Holder) -> bool {
        holder.plan_uid == self.plan_uid && is_ours(holder, self.defaults)
    }
}

fn is_ours(holder: &Holder, defaults: &Defaults) -> bool {
    holder.namespace == defaults.namespace && holder.controller == defaults.job.controller_name
}

fn remove_holders(node: &NodeFacts, leaves: impl Fn(&Holder) -> bool, change: &mut NodeChange) {
    let Some(ledger) = &node.ledger else { return };
    change.exact = true;
    let text = ledger.without(leaves).map(|left| left.to_text());
    if text.is_none() && node.unschedulable && !ledger.before && !node.keep_cordoned {
        change.unschedulable = Some(false);
    }
    change
        .annotations
        .insert(names::ANNOTATION_CORDON.to_owned(), text);
}

/// Steps that release nodes: for holders of this controller whose Plan is deleted or no longer concerns the node, once
/// none of their pods is left there; for ledgers of nodes that a user has uncordoned; and for records of deleted Plans.
/// Without `node_states`, holders of existing Plans stay.
pub(super) fn cleanup(
    cluster: &ClusterState,
    node_states: Option<&BTreeMap<PlanName, BTreeMap<NodeName, NodeState>>>,
) -> Vec<Step> {
    let mut steps = Vec::new();
    for name in cluster.ledgers.iter().filter(|name| !cluster.is_unreadable(name)) {
        let Some(node) = cluster.nodes.get(name) else {
            continue;
        };
        let Some(ledger) = &node.ledger else { continue };
        let mut change = NodeChange::default();
        if node.unschedulable {
            let gone: BTreeSet<&str> = ledger
                .holders
                .iter()
                .filter(|holder| is_ours(holder, &cluster.defaults))
                .filter(|holder| !has_reason(cluster, node_states, node, holder))
                .map(|holder| holder.plan_uid.as_str())
                .collect();
            if !gone.is_empty() {
                let leaves = |holder: &Holder| {
                    is_ours(holder, &cluster.defaults) && gone.contains(holder.plan_uid.as_str())
                };
                remove_holders(node, leaves, &mut change);
            }
        } else if ledger
            .holders
            .iter()
            .any(|holder| is_ours(holder, &cluster.defaults))
        {
            // A user has uncordoned the node. Other controllers remove their own holders.
            remove_holders(node, |holder| is_ours(holder, &cluster.defaults), &mut change);
        }
        if !change.is_empty() {
            steps.push(patch(node, change));
        }
    }
    for (plan, nodes) in cluster
        .recorded_on
        .iter()
        .filter(|(plan, _)| !cluster.plans.contains_key(*plan))
    {
        let readable = nodes.iter().filter(|node| !cluster.is_unreadable(node));
        let nodes = readable.filter_map(|node| cluster.nodes.get(node));
        steps.extend(nodes.filter_map(|node| void_record(cluster, node, plan)));
    }
    steps
}

/// Removes a record of this namespace that belongs to another Plan of the same name or to another machine.
pub(super) fn void_record(cluster: &ClusterState, node: &NodeFacts, plan: &str) -> Option<Step> {
    let record = node
        .records
        .get(plan)
        .filter(|record| record.namespace == cluster.defaults.namespace)?;
    let mut change = NodeChange::default();
    change.annotations.insert(record_key(plan), None);
    if record.uncordon && *record.node_uid == *node.uid && node.ledger.is_none() {
        let nobody = PlanHold {
            defaults: &cluster.defaults,
            plan_uid: "",
        };
        release(node, &nobody, true, &mut change);
    }
    Some(patch(node, change))
}

/// Removes the record of a Plan from a node.
pub(super) fn drop_record(node: &NodeFacts, plan: &str) -> Step {
    let mut change = NodeChange::default();
    change.annotations.insert(record_key(plan), None);
    patch(node, change)
}

fn patch(node: &NodeFacts, change: NodeChange) -> Step {
    Step::PatchNode {
        node: node.name.clone(),
        uid: node.uid.clone(),
        change,
        events: Vec::new(),
    }
}

fn has_reason(
    cluster: &ClusterState,
    node_states: Option<&BTreeMap<PlanName, BTreeMap<NodeName, NodeState>>>,
    node: &NodeFacts,
    holder: &Holder,
) -> bool {
    let plan = cluster
        .plans
        .get(&*holder.plan)
        .filter(|p| *p.facts.uid == *holder.plan_uid);
    let stands = |p: &PlanState| {
        node_states.is_none_or(|all| {
            all.get(&p.facts.name)
                .is_some_and(|nodes| nodes.contains_key(&node.name))
        })
    };
    if plan.is_some_and(stands) {
        return true;
    }
    let failed = plan
        .and_then(|p| node.records.get(&p.facts.name))
        .is_some_and(|record| {
            matches!(record.phase, Phase::Failed | Phase::Retry)
                && record.plan_uid == holder.plan_uid
                && *record.node_uid == *node.uid
        });
    failed
        || cluster
            .live_pods_on(&node.name)
            .any(|pod| *pod.plan == *holder.plan)
}
