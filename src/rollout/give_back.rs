//! Giving nodes back. A holder in a ledger that has no reason any more leaves, and when the last one leaves the node is
//! as schedulable as it was before the first one came. By level: it does not matter how the reason went away.

use std::collections::{BTreeMap, BTreeSet};

use super::facts::{NodeFacts, Stage, Text};
use super::node::Standing;
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
    if let Some(ledger) = &node.ledger {
        let is_mine = |holder: &super::Holder| {
            holder.plan_uid == mine.plan_uid
                && holder.namespace == mine.defaults.namespace
                && holder.controller == mine.defaults.job.controller_name
        };
        if ledger.holders.iter().any(is_mine) {
            leave(node, is_mine, change);
        }
    } else if uncordon && node.unschedulable && !node.keep_cordoned {
        change.unschedulable = Some(false);
        change.exact = true;
    }
}

fn leave(node: &NodeFacts, goes: impl Fn(&super::Holder) -> bool, change: &mut NodeChange) {
    let Some(ledger) = &node.ledger else { return };
    let mut left = ledger.clone();
    left.holders.retain(|holder| !goes(holder));
    change.exact = true;
    let text = (!left.holders.is_empty()).then(|| left.to_text());
    if text.is_none() && node.unschedulable != ledger.before && !node.keep_cordoned {
        change.unschedulable = Some(ledger.before);
    }
    change
        .annotations
        .insert(names::ANNOTATION_CORDON.to_owned(), text);
}

/// What is to be given back, seen from the nodes: holders of ours whose Plan is gone or has nothing to do with the node
/// any more, once no pod of theirs is left there; and ledgers of nodes that a person has uncordoned.
pub(super) fn tidy(world: &World, standings: &BTreeMap<Text, BTreeMap<Text, Standing>>) -> Vec<Step> {
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
                .filter(|h| h.namespace == world.defaults.namespace)
                .filter(|h| h.controller == world.defaults.job.controller_name)
                .filter(|h| !has_reason(world, standings, node, h))
                .map(|h| h.plan_uid.as_str())
                .collect();
            if !gone.is_empty() {
                leave(
                    node,
                    |holder| gone.contains(holder.plan_uid.as_str()),
                    &mut change,
                );
            }
        } else {
            change
                .annotations
                .insert(names::ANNOTATION_CORDON.to_owned(), None);
            change.exact = true;
        }
        if !change.is_empty() {
            let (node, uid) = (name.clone(), node.uid.clone());
            steps.push(Step::PatchNode {
                node,
                uid,
                change,
                events: Vec::new(),
            });
        }
    }
    steps
}

fn has_reason(
    world: &World,
    standings: &BTreeMap<Text, BTreeMap<Text, Standing>>,
    node: &NodeFacts,
    holder: &super::Holder,
) -> bool {
    let plan = world
        .plans
        .get(&*holder.plan)
        .filter(|p| *p.facts.uid == *holder.plan_uid);
    let standing = plan.and_then(|p| standings.get(&p.facts.name)?.get(&node.name));
    if standing.is_some() {
        return true;
    }
    let failed = plan
        .and_then(|p| node.records.get(&p.facts.name))
        .is_some_and(|record| {
            record.phase != Phase::Upgraded
                && record.plan_uid == holder.plan_uid
                && *record.node_uid == *node.uid
        });
    failed || has_live_pod(world, node, &holder.plan)
}

fn has_live_pod(world: &World, node: &NodeFacts, plan: &str) -> bool {
    world.pods.iter().any(|(_, pod)| {
        *pod.plan == *plan && pod.node.as_ref() == Some(&node.name) && pod.stage != Stage::Ended
    })
}
