//! Nodes that are next. Where many have slots, a slot would be empty for three requests, one of which names all of them: the
//! label of the node that is done, the status that gives its slot to another, that node's Job. So status names some of those
//! that wait before there is a slot; they begin as soon as there is one, and have it in the status after that.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::blocker::Blocker;
use super::decide::Report;
use super::facts::{NodeFacts, Text};
use super::node::{Next, Question, Stand, Standing};
use super::plan::PlanView;
use super::status::{FEW_SLOTS, WAITING};
use super::step::Step;
use super::view::Class;
use super::world::World;
use crate::api::NodeProgress;

/// With more slots than [`FEW_SLOTS`], status names one node for so many slots as next.
const SLOTS_A_NEXT: i64 = 5;
/// How many are named as next at most.
const MOST_NEXT: i64 = 50;

/// The nodes that stored status names as next, and what it says of them. Those of a Plan that may reboot them are told of
/// their slot before, always: what is told is the only evidence of a Job that was lost.
fn told_next<'a>(world: &'a World, plan: &'a PlanView) -> impl Iterator<Item = (&'a Text, &'a NodeProgress)> {
    let told = plan.facts.status().active.iter().flatten();
    let next = told.filter(|told| told.phase == WAITING && told.uid.is_some() && !plan.spec().may_reboot());
    next.filter_map(|told| {
        let (name, node) = world.nodes.get_key_value(told.name.as_str())?;
        (told.uid.as_deref() == Some(&*node.uid)).then_some((name, told))
    })
}

/// How many nodes status names as next.
pub(super) fn count(plan: &PlanView, report: &Report) -> usize {
    let Some(Blocker::NoSlot { limit }) = report.blocker else {
        return 0;
    };
    let few = usize::try_from(limit).is_ok_and(|limit| limit <= FEW_SLOTS);
    if few || plan.spec().may_reboot() {
        return 0;
    }
    usize::try_from((limit / SLOTS_A_NEXT).min(MOST_NEXT)).unwrap_or_default()
}

/// The nodes that wait for a slot.
pub(super) struct Line<'a> {
    question: Question<'a>,
    /// Those that stored status names as next.
    next: Vec<(&'a Text, &'a NodeProgress)>,
}

impl<'a> Line<'a> {
    pub(super) fn new(world: &'a World, plan: &'a PlanView, now: Timestamp) -> Self {
        let question = Question {
            world,
            plan,
            now,
            gate: None,
        };
        let next = told_next(world, plan).collect();
        Self { question, next }
    }

    /// In their order, those first that were told so.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &'a Text> {
        let nodes = &self.question.plan.nodes;
        let next = self.next.iter().map(|(name, _)| *name);
        let next = next.filter(|name| matches!(nodes.class(name), Some(Class::Eligible { ready: true, .. })));
        next.chain(nodes.ready())
    }

    /// How a node with a free slot begins at once, if it does.
    pub(super) fn begins(
        &self,
        node: &NodeFacts,
        nodes: &BTreeMap<Text, Standing>,
        limit: i64,
    ) -> Option<Standing> {
        let (_, told) = self.next.iter().find(|(name, _)| **name == node.name)?;
        let Question { world, plan, .. } = self.question;
        // No slot is free for it that another node gets with a status which is on its way.
        let given = plan.slots_on_their_way().filter(|(uid, name)| {
            let other = world.nodes.get(name).filter(|other| *other.uid == **uid);
            let waits = other
                .is_some_and(|other| matches!(plan.nodes.class(&other.name), Some(Class::Eligible { .. })));
            waits && **name != *node.name && !nodes.contains_key(*name)
        });
        let held = nodes.len() + given.count();
        if i64::try_from(held).map_or(true, |held| held >= limit) {
            return None;
        }
        let Stand::Slot(mut standing) = self.question.stand(&node.name, Some(told)) else {
            return None;
        };
        match standing.next.take() {
            Some(Next::Now(step)) => Some(standing.then(step)),
            _ => None,
        }
    }
}

/// A node that began as the next one has the slot of another that was done. Status may name that other still; should it have
/// to be done again, before it is at work, it has no slot any more.
pub(super) fn step_back(plan: &PlanView, nodes: &mut BTreeMap<Text, Standing>, steps: &mut Vec<Step>) {
    let limit = usize::try_from(plan.limit()).unwrap_or_default();
    let over = nodes.len().saturating_sub(limit);
    if over == 0 || plan.spec().may_reboot() {
        return;
    }
    let untold = nodes.values().filter(|standing| !standing.told).count();
    let idle = nodes
        .iter()
        .filter(|(_, standing)| standing.told && standing.next.is_some());
    let idle: Vec<Text> = idle
        .map(|(name, _)| name.clone())
        .take(over.min(untold))
        .collect();
    for name in idle {
        if let Some(mut standing) = nodes.remove(&name) {
            steps.append(&mut standing.steps);
        }
    }
}

/// A Job that was asked for before it was known that somebody has edited the Plan, and that may never be made, gives its node no
/// slot in status: none is to begin any more, or not so many.
pub(super) fn leave_out_unsure(
    world: &World,
    plan: &PlanView,
    is_shut: bool,
    nodes: &mut BTreeMap<Text, Standing>,
) {
    if is_shut || i64::try_from(nodes.len()).map_or(true, |nodes| nodes > plan.limit()) {
        let is_asked_for = |node: &Text| {
            let place = (plan.facts.name.clone(), node.clone());
            world.making.contains_key(&place)
        };
        nodes.retain(|node, standing| standing.told || standing.job.is_some() || !is_asked_for(node));
    }
}
