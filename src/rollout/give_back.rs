//! Giving nodes back. A holder in a ledger that has no reason any more leaves, and when the last one leaves the node is
//! as schedulable as it was before the first one came. By level: it does not matter how the reason went away.

use std::collections::{BTreeMap, BTreeSet};

use super::Holder;
use super::facts::{NodeFacts, Text};
use super::node::{Standing, record_key};
use super::plan::PlanView;
use super::record::Phase;
use super::step::{NodeChange, Step};
use super::world::{Defaults, World};
use crate::api::names;

/// Whose holder it is.
pub(super) struct Mine<'a> {
    pub(super) defaults: &'a Defaults,
    pub(super) plan_uid: &'a str,
}

/// Takes the Plan's holder off the ledger of a node and, where it was the last one, gives the node back. `uncordon` is for
/// a cordon that no ledger tells of.
pub(super) fn release(node: &NodeFacts, mine: &Mine<'_>, uncordon: bool, change: &mut NodeChange) {
    if node.ledger.is_some() {
        if mine.holder(node).is_some() {
            leave(node, |holder| mine.is_mine(holder), change);
        }
    } else if uncordon && node.unschedulable && !node.keep_cordoned {
        change.unschedulable = Some(false);
        change.exact = true;
    }
}

impl Mine<'_> {
    /// The Plan's holder in the ledger of a node.
    pub(super) fn holder<'n>(&self, node: &'n NodeFacts) -> Option<&'n Holder> {
        let mut holders = node.ledger.iter().flat_map(|ledger| &ledger.holders);
        holders.find(|holder| self.is_mine(holder))
    }

    fn is_mine(&self, holder: &Holder) -> bool {
        holder.plan_uid == self.plan_uid && is_ours(holder, self.defaults)
    }
}

fn is_ours(holder: &Holder, defaults: &Defaults) -> bool {
    holder.namespace == defaults.namespace && holder.controller == defaults.job.controller_name
}

fn leave(node: &NodeFacts, goes: impl Fn(&Holder) -> bool, change: &mut NodeChange) {
    let Some(ledger) = &node.ledger else { return };
    change.exact = true;
    let text = ledger.without(goes).map(|left| left.to_text());
    if text.is_none() && node.unschedulable && !ledger.before && !node.keep_cordoned {
        change.unschedulable = Some(false);
    }
    change
        .annotations
        .insert(names::ANNOTATION_CORDON.to_owned(), text);
}

/// What is to be given back, seen from the nodes: holders of ours whose Plan is gone or has nothing to do with the node
/// any more, once no pod of theirs is left there; ledgers of nodes that a person has uncordoned; and records of Plans that
/// are no more. Without `standings`, whatever a Plan that is there holds has its reason.
pub(super) fn tidy(world: &World, standings: Option<&BTreeMap<Text, BTreeMap<Text, Standing>>>) -> Vec<Step> {
    let mut steps = Vec::new();
    for name in &world.ledgers {
        let Some(node) = world.nodes.get(name) else {
            continue;
        };
        let Some(ledger) = &node.ledger else { continue };
        let mut change = NodeChange::default();
        if node.unschedulable {
            let gone: BTreeSet<&str> = ledger
                .holders
                .iter()
                .filter(|holder| is_ours(holder, &world.defaults))
                .filter(|holder| !has_reason(world, standings, node, holder))
                .map(|holder| holder.plan_uid.as_str())
                .collect();
            if !gone.is_empty() {
                let goes = |holder: &Holder| {
                    is_ours(holder, &world.defaults) && gone.contains(holder.plan_uid.as_str())
                };
                leave(node, goes, &mut change);
            }
        } else if ledger
            .holders
            .iter()
            .any(|holder| is_ours(holder, &world.defaults))
        {
            // A person has uncordoned the node. The holders of other controllers are theirs to take off.
            leave(node, |holder| is_ours(holder, &world.defaults), &mut change);
        }
        if !change.is_empty() {
            steps.push(patch(node, change));
        }
    }
    for (plan, nodes) in world
        .recorded_on
        .iter()
        .filter(|(plan, _)| !world.plans.contains_key(*plan))
    {
        let nodes = nodes.iter().filter_map(|node| world.nodes.get(node));
        steps.extend(nodes.filter_map(|node| void_record(world, node, plan)));
    }
    steps
}

/// Takes a record of this namespace off a node that is not of the Plan that there is, or not of this machine.
pub(super) fn void_record(world: &World, node: &NodeFacts, plan: &str) -> Option<Step> {
    let record = node
        .records
        .get(plan)
        .filter(|record| record.namespace == world.defaults.namespace)?;
    let mut change = NodeChange::default();
    change.annotations.insert(record_key(plan), None);
    if record.uncordon && *record.node_uid == *node.uid && node.ledger.is_none() {
        let nobody = Mine {
            defaults: &world.defaults,
            plan_uid: "",
        };
        release(node, &nobody, true, &mut change);
    }
    Some(patch(node, change))
}

/// Takes the record of a Plan off a node.
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
    world: &World,
    standings: Option<&BTreeMap<Text, BTreeMap<Text, Standing>>>,
    node: &NodeFacts,
    holder: &Holder,
) -> bool {
    let plan = world
        .plans
        .get(&*holder.plan)
        .filter(|p| *p.facts.uid == *holder.plan_uid);
    let stands = |p: &PlanView| {
        standings.is_none_or(|all| {
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
        || world
            .live_pods_on(&node.name)
            .any(|pod| *pod.plan == *holder.plan)
}
